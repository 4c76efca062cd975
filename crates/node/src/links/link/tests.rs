use std::mem::take;

use peerlock_types::Rng;

use super::*;

struct End {
    link: Link,
    wire: VecDeque<Frame>,
    said: u64,
    received: Vec<u64>,
}

impl Default for End {
    fn default() -> Self {
        Self::new(1)
    }
}

impl End {
    fn new(process: u64) -> Self {
        Self { link: Link::new(process, 0), wire: VecDeque::new(), said: 0, received: Vec::new() }
    }

    fn say(&mut self) {
        self.said += 1;
        let frame = self.link.send(self.said.to_be_bytes().to_vec()).expect("there is room");
        self.wire.extend(frame);
    }
}

struct Pair {
    ends: [End; 2],
    up: bool,
}

impl Pair {
    fn new() -> Self {
        Self { ends: [End::new(1), End::new(2)], up: false }
    }

    fn up(&mut self) {
        self.up = true;
        for end in &mut self.ends {
            let hello = end.link.up(None);
            end.wire.push_back(hello);
        }
    }

    fn cut(&mut self) {
        self.up = false;
        for end in &mut self.ends {
            end.link.down();
            end.wire.clear();
        }
    }

    fn deliver(&mut self, from: usize) -> Option<Received> {
        let frame = self.ends[from].wire.pop_front()?;
        let to = &mut self.ends[1 - from];
        let mut out = Vec::new();
        let received = to.link.on_frame(frame, &mut out);
        to.wire.extend(out);
        if let Received::Body(body) = &received {
            to.received.push(u64::from_be_bytes(body.as_slice().try_into().unwrap()));
        }
        Some(received)
    }

    fn finish(&mut self) {
        if !self.up {
            self.up();
        }
        while self.deliver(0).is_some() || self.deliver(1).is_some() {}
        for end in &mut self.ends {
            end.wire.extend(end.link.ack());
        }
        while self.deliver(0).is_some() || self.deliver(1).is_some() {}
    }

    fn check(&self) {
        for (from, to) in [(0, 1), (1, 0)] {
            assert_eq!(self.ends[to].received, (1..=self.ends[from].said).collect::<Vec<_>>(), "{from} to {to}");
            assert_eq!(self.ends[from].link.retained.len(), 0);
        }
    }
}

#[test]
fn messages_survive_cuts_at_every_pair_of_points() {
    const STEPS: usize = 40;
    for first in 0..STEPS {
        for second in first..STEPS {
            let mut pair = Pair::new();
            for step in 0..STEPS {
                if step == first || step == second {
                    pair.cut();
                }
                match step % 5 {
                    0 if !pair.up => pair.up(),
                    0 | 1 => pair.ends[step % 2].say(),
                    2 => pair.ends[1].say(),
                    3 => _ = pair.deliver(step % 2),
                    _ => _ = (pair.deliver(0), pair.deliver(1)),
                }
            }
            pair.finish();
            pair.check();
        }
    }
}

/// Its connection was on its way while the new process was met over another path.
#[test]
fn hello_of_an_earlier_process_changes_nothing() {
    let [mut link, mut old, mut new] = [(1, 1), (5, 1), (6, 1)].map(|(process, number)| Link::new(process, number));
    link.meet(new.lives().sender);
    link.send(vec![1]).unwrap();
    link.up(None);
    let mut out = Vec::new();
    assert_eq!(link.on_frame(old.up(None), &mut out), Received::Nothing);
    assert_eq!((out.len(), link.is_open(), link.lives().receiver), (0, false, Some(new.lives().sender)));
    link.up(None);
    assert_eq!(link.on_frame(new.up(None), &mut out), Received::Hello);
    assert_eq!((out.len(), link.is_open()), (1, true), "the message is transmitted");
}

#[test]
fn messages_survive_random_cuts() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::new();
        for _ in 0..400 {
            let end = rng.below(2) as usize;
            match rng.below(12) {
                0 => pair.cut(),
                1 if !pair.up => pair.up(),
                2..=5 => pair.ends[end].say(),
                6 => {
                    let ack = pair.ends[end].link.ack();
                    pair.ends[end].wire.extend(ack);
                }
                _ => {
                    let received = pair.deliver(end);
                    assert!(
                        !matches!(received, Some(Received::Unexpected(_) | Received::NewLife { .. })),
                        "seed {seed}: {received:?}"
                    );
                }
            }
        }
        pair.finish();
        pair.check();
    }
}

/// Two ends, a path that loses, duplicates and reorders frames, and connections beside it.
struct Relayed {
    ends: [End; 2],
    wires: [Vec<(Lives, Frame)>; 2],
    rng: Rng,
}

impl Relayed {
    fn post(&mut self, end: usize, frames: impl IntoIterator<Item = Frame>) {
        let lives = self.ends[end].link.lives();
        self.wires[end].extend(frames.into_iter().map(|frame| (lives, frame)));
    }

    fn say(&mut self, end: usize) {
        self.ends[end].say();
        let frames = take(&mut self.ends[end].wire);
        self.post(end, frames);
    }

    fn deliver(&mut self, from: usize, faults: bool) -> bool {
        let (length, to) = (self.wires[from].len() as u64, 1 - from);
        if length == 0 {
            return false;
        }
        let at = if faults { self.rng.below(length.min(4)) as usize } else { 0 };
        let (lives, frame) = self.wires[from][at].clone();
        if !faults || self.rng.below(8) > 0 {
            self.wires[from].remove(at);
        }
        if faults && self.rng.below(4) == 0 {
            return true;
        }
        let (mut out, link) = (Vec::new(), &mut self.ends[to].link);
        if !link.is_late(lives) {
            assert_eq!(link.meet(lives.sender), None);
            match link.on_relayed(lives.receiver, frame, &mut out) {
                Received::Nothing => {}
                Received::Body(body) => {
                    self.ends[to].received.push(u64::from_be_bytes(body.as_slice().try_into().unwrap()));
                }
                received => panic!("{received:?}"),
            }
        }
        self.post(to, out);
        true
    }

    /// Passes a second without faults.
    fn beat(&mut self) {
        for end in 0..2 {
            if self.ends[end].link.awaits_ack() || self.ends[end].link.asked() > 0 {
                let hello = self.ends[end].link.ask();
                self.post(end, [hello]);
            }
        }
        while self.deliver(0, false) | self.deliver(1, false) {}
        for end in 0..2 {
            let ack = self.ends[end].link.ack();
            self.post(end, ack);
        }
        while self.deliver(0, false) | self.deliver(1, false) {}
    }

    /// A connection replaces the relay, and all is delivered over it.
    fn connect(&mut self) {
        let mut pair = Pair { ends: take(&mut self.ends), up: false };
        pair.finish();
        pair.cut();
        self.ends = pair.ends;
    }
}

#[test]
fn messages_survive_a_lossy_path_and_changes_of_path() {
    for seed in 0..300 {
        let mut relayed = Relayed { ends: <_>::default(), wires: <_>::default(), rng: Rng::new(seed) };
        for _ in 0..400 {
            let end = relayed.rng.below(2) as usize;
            match relayed.rng.below(40) {
                0 => relayed.connect(),
                1..=2 => {
                    let hello = relayed.ends[end].link.ask();
                    relayed.post(end, [hello]);
                }
                3..=10 => relayed.say(end),
                11..=13 => {
                    let ack = relayed.ends[end].link.ack();
                    relayed.post(end, ack);
                }
                _ => _ = relayed.deliver(end, true),
            }
        }
        (0..3).for_each(|_| relayed.beat());
        for (from, to) in [(0, 1), (1, 0)] {
            let said: Vec<u64> = (1..=relayed.ends[from].said).collect();
            assert_eq!(relayed.ends[to].received, said, "seed {seed}, {from} to {to}");
            assert_eq!(relayed.ends[from].link.retained.len(), 0, "seed {seed}");
        }
    }
}

fn pass(from: &mut Link, to: &mut Link, frames: Vec<Frame>) -> (Vec<Received>, Vec<Frame>) {
    let (mut received, mut out, lives) = (Vec::new(), Vec::new(), from.lives());
    for frame in frames {
        if to.is_late(lives) {
            continue;
        }
        received.extend(to.meet(lives.sender));
        received.push(to.on_relayed(lives.receiver, frame, &mut out));
    }
    (received, out)
}

#[test]
fn relayed_frames_of_earlier_lives_are_ignored() {
    let (mut one, mut two) = (Link::new(1, 0), Link::new(2, 0));
    one.send(vec![1]).expect("there is room");
    let hello = one.ask();
    let (_, ack) = pass(&mut one, &mut two, vec![hello.clone()]);
    let (_, data) = pass(&mut two, &mut one, ack);
    assert_eq!(data, [Frame::Data { number: 1, has: 0, body: vec![1] }]);
    // The data arrives at a later process of the receiver.
    let mut later = Link::new(3, 0);
    let (received, ack) = pass(&mut one, &mut later, data.clone());
    assert_eq!(received, [Received::Nothing]);
    one.send(vec![2]).expect("there is room");
    let lost = vec![vec![1], vec![2]];
    let (received, again) = pass(&mut later, &mut one, ack);
    assert_eq!(received, [Received::NewLife { lost, is_same: false }, Received::Nothing]);
    assert!(again.is_empty() && one.is_relayed());
    // Frames of the earlier receiver are late.
    assert_eq!(pass(&mut two, &mut one, vec![Frame::Ack { has: 1 }]), (vec![], vec![]));
    // The sender starts another life.
    let mut old = one.clone();
    one.restart();
    let data = one.send(vec![3]).expect("there is room");
    assert_eq!(data, None, "the other side does not know its life");
    let hello = one.ask();
    let (received, ack) = pass(&mut one, &mut later, vec![hello]);
    assert_eq!(received, [Received::NewLife { lost: vec![], is_same: true }, Received::Nothing]);
    let (_, data) = pass(&mut later, &mut one, ack);
    assert_eq!(pass(&mut one, &mut later, data).0, [Received::Body(vec![3])]);
    let late = Frame::Data { number: 2, has: 0, body: vec![9] };
    assert_eq!(pass(&mut old, &mut later, vec![late]), (vec![], vec![]));
}

#[test]
fn new_life_receives_only_untransmitted_messages() {
    let mut pair = Pair::new();
    pair.up();
    pair.ends[0].say();
    pair.finish();
    pair.ends[0].say();
    pair.cut();
    pair.ends[0].say();
    pair.ends[1] = End::new(3);
    pair.up();
    _ = pair.deliver(0);
    let Some(Received::NewLife { lost, is_same: false }) = pair.deliver(1) else { panic!("it is another process") };
    assert_eq!(lost, [2u64.to_be_bytes()]);
    pair.ends[0].say();
    pair.ends[1].say();
    pair.finish();
    assert_eq!((&pair.ends[0].received[..], &pair.ends[1].received[..]), (&[1][..], &[3, 4][..]));
}

#[test]
fn full_link_breaks_and_restarts() {
    let mut pair = Pair::new();
    pair.up();
    pair.finish();
    pair.ends[1].say();
    pair.finish();
    pair.cut();
    (0..MAX_RETAINED).for_each(|_| pair.ends[0].say());
    let Err(lost) = pair.ends[0].link.send(vec![0]) else { panic!("no more fits") };
    assert_eq!(lost.len(), MAX_RETAINED + 1);
    pair.ends[0].say();
    pair.ends[1].say();
    pair.up();
    _ = pair.deliver(1);
    assert_eq!(
        pair.deliver(0),
        Some(Received::NewLife { lost: Vec::new(), is_same: true }),
        "the other side receives the new life"
    );
    pair.ends[1].say();
    pair.finish();
    assert_eq!(pair.ends[1].received, [MAX_RETAINED as u64 + 1]);
    assert_eq!(pair.ends[0].received, [1, 2, 3]);
}

#[test]
fn peer_that_lost_acknowledged_messages_gets_a_new_life() {
    let (theirs, mut out) = (Life { process: 2, part: 0 }, Vec::new());
    let mut link = Link::new(1, 0);
    let hello = |has| Frame::Hello { life: theirs, has, cluster: None };
    let Frame::Hello { life: mine, .. } = link.up(None) else { panic!("it begins with a hello") };
    assert_eq!(link.on_frame(hello(None), &mut out), Received::Hello);
    link.send(vec![1]).expect("there is room");
    link.on_frame(Frame::Ack { has: 1 }, &mut out);
    link.send(vec![2]).expect("there is room");
    link.down();
    link.up(None);
    let received = link.on_frame(hello(Some((mine, 0))), &mut out);
    assert_eq!((received, &out[..]), (Received::Forgotten { lost: vec![vec![2]] }, &[][..]));
    let Frame::Hello { life, .. } = link.up(None) else { panic!("it begins with a hello") };
    assert!(life > mine, "another life");
    link.on_frame(hello(Some((mine, 0))), &mut out);
    let next = link.send(vec![3]).expect("there is room");
    assert_eq!(next, Some(Frame::Data { number: 1, has: 0, body: vec![3] }));
}

#[test]
fn protocol_violation_closes_the_connection() {
    let hello = Frame::Hello { life: Life { process: 2, part: 0 }, has: None, cluster: None };
    let data = |number, has| Frame::Data { number, has, body: vec![] };
    for frames in [
        vec![data(1, 0)],
        vec![Frame::Ack { has: 0 }],
        vec![hello.clone(), hello.clone()],
        vec![hello.clone(), data(2, 0)],
        vec![hello.clone(), data(1, 0), data(1, 0)],
        vec![hello.clone(), data(1, 1)],
        vec![hello.clone(), Frame::Ack { has: 1 }],
        vec![Frame::Hello {
            life: Life { process: 2, part: 0 },
            has: Some((Life { process: 1, part: 0 }, 1)),
            cluster: None,
        }],
    ] {
        let mut link = Link::new(1, 0);
        link.up(None);
        let received: Vec<Received> =
            frames.iter().map(|frame| link.on_frame(frame.clone(), &mut Vec::new())).collect();
        assert!(matches!(received.last(), Some(Received::Unexpected(_))), "{frames:?}: {received:?}");
        assert_eq!(
            link.on_frame(data(2, 0), &mut Vec::new()),
            Received::Nothing,
            "the rest of the connection is ignored"
        );
    }
}
