//! Each watcher detects the fault it is for, in a protocol that grants every request at once.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use peerlock_protocols::{Cx, Grant, Never, Observe, Protocol};
use peerlock_sim::latency::Model;
use peerlock_sim::{Closed, Experiment, Faults, Hold, Links, Open, Poisson};
use peerlock_types::{PeerId, Span, Ticket};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    TwoHolders,
    NeverGrants,
    GrantsTwice,
    RepeatsFencing,
    DuplicatesFencing,
    UnknownSlot,
    LosesToken,
    SecondCoordinator,
    ParentCycle,
    UnexpectedMessage,
    PassesWaiter,
}

struct Faulty {
    me: PeerId,
    fault: Fault,
    given: u64,
    tokens: usize,
    coordinator: bool,
    parent: Option<PeerId>,
    /// And the number of replies it waits for.
    waits: Option<(Ticket, u32)>,
}

impl Faulty {
    /// The first of two peers waits for many more replies.
    fn wait(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.waits = Some((ticket, if self.me.get() == 0 { 100 } else { 1 }));
        cx.send(PeerId::new(1 - self.me.get()), false);
    }
}

impl Protocol for Faulty {
    type Message = bool;
    type Timer = Never;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.given += 1;
        let slot = if self.fault == Fault::TwoHolders { 0 } else { self.me.get() as u32 };
        let mut grant = Grant { slot, fencing: self.given };
        match self.fault {
            Fault::None | Fault::TwoHolders => {}
            Fault::NeverGrants => return,
            Fault::GrantsTwice => cx.grant(ticket, grant),
            Fault::RepeatsFencing => grant.fencing = 7,
            Fault::DuplicatesFencing => grant = Grant { slot: (self.given % 2) as u32, fencing: self.given / 2 + 1 },
            Fault::UnknownSlot => grant.slot = 2,
            Fault::LosesToken => self.tokens = 0,
            Fault::SecondCoordinator => self.coordinator = true,
            Fault::ParentCycle => self.parent = Some(PeerId::new(1 - self.me.get())),
            Fault::UnexpectedMessage => cx.unexpected("nonsense"),
            Fault::PassesWaiter => return self.wait(ticket, cx),
        }
        cx.grant(ticket, grant);
    }

    fn release(&mut self, _ticket: Ticket, _cx: &mut Cx<'_, Self>) {}

    fn on_message(&mut self, from: PeerId, is_reply: bool, cx: &mut Cx<'_, Self>) {
        match self.waits.filter(|_| is_reply) {
            None => cx.send(from, true),
            Some((ticket, 1)) => {
                self.given += 1;
                cx.grant(ticket, Grant { slot: self.me.get() as u32, fencing: self.given });
                self.waits = None;
            }
            Some((ticket, more)) => {
                self.waits = Some((ticket, more - 1));
                cx.send(from, false);
            }
        }
    }
}

impl Observe for Faulty {
    const KINDS: &'static [&'static str] = &["nothing"];
    const HAS_COORDINATOR: bool = true;

    fn kind(_: &bool) -> usize {
        0
    }
    fn most_passes(&self) -> Option<u64> {
        Some(16)
    }
    fn tokens_in_all(&self) -> Option<usize> {
        Some(2)
    }
    fn tokens(&self) -> usize {
        self.tokens
    }
    fn is_coordinator(&self) -> bool {
        self.coordinator
    }
    fn parent(&self) -> Option<PeerId> {
        self.parent
    }
}

/// Each of two peers has its own slot, except for `TwoHolders`.
fn run(fault: Fault) -> Result<(), String> {
    let pair = matches!(fault, Fault::TwoHolders | Fault::ParentCycle | Fault::SecondCoordinator | Fault::PassesWaiter);
    let entries = if fault == Fault::PassesWaiter { 50 } else { 3 };
    let experiment = Experiment {
        peers: if pair { 2 } else { 1 },
        servers: 0,
        slots: if fault == Fault::TwoHolders || fault == Fault::None { 1 } else { 2 },
        workload: Closed { think: Span::from_millis(1), hold: Hold::Constant(Span::from_secs(1)), entries },
        network: Model::Constant(Span::from_secs(1)).load(2).unwrap(),
        links: Links::Ordered,
        faults: Faults::default(),
        count_violations: false,
        warm_up: 0,
        trials: 1,
        seed: 42,
    };
    let peer = |number| Faulty {
        me: PeerId::new(number),
        fault,
        // Far apart, so that only the fault under test repeats a number.
        given: 1000 * number,
        tokens: if pair { 1 } else { 2 },
        coordinator: number == 0,
        parent: None,
        waits: None,
    };
    let peers = experiment.peers as u64;
    let report = experiment.run(|_| (0..peers).map(peer).collect(), |_| {});
    report.map(|_| ()).map_err(|failure| failure.to_string())
}

#[test]
fn each_fault_is_detected_by_its_watcher() {
    for (fault, sentence) in [
        (Fault::TwoHolders, "enters as holder 2 of 1"),
        (Fault::NeverGrants, "1 requests were never served, the oldest by peer 0"),
        (Fault::GrantsTwice, "peer 0 grants t1, which is not waiting there"),
        (Fault::RepeatsFencing, "slot 0 gives fencing number 7 to peer 0 after 7"),
        (Fault::DuplicatesFencing, "fencing number 2 was given twice"),
        (Fault::UnknownSlot, "slot 2, which does not exist"),
        (Fault::LosesToken, "there are 0 tokens after peer 0's step, 0 held and 0 under way, instead of 2"),
        (Fault::SecondCoordinator, "there are 2 coordinators and 0 messages that make one"),
        (Fault::ParentCycle, "lead back to it"),
        (Fault::UnexpectedMessage, "peer 0 got nonsense"),
        (Fault::PassesWaiter, "is passed by more than 16 later requests"),
    ] {
        let error = run(fault).expect_err("the fault must be seen");
        assert!(error.contains(sentence), "{fault:?}: {error}");
    }
}

#[test]
fn correct_protocol_breaks_no_rule() {
    assert_eq!(run(Fault::None), Ok(()));
}

#[test]
fn a_failure_names_the_seed_the_trial_and_the_last_events() {
    let error = run(Fault::RepeatsFencing).unwrap_err();
    assert!(error.starts_with("trial 0 with seed 42 broke a rule at "), "{error}");
    assert!(error.contains("The last events:\n"), "{error}");
    assert!(error.contains("enters slot 0, fencing 7"), "{error}");
}

/// `rounds/` tests the same protocol in rounds.
#[test]
fn a_broken_protocol_is_caught_under_an_open_workload() {
    let run = |fault, hold| {
        let open = Open {
            replicas: 1,
            workload: Poisson { gap: Span::from_millis(100), hold, settle: Span::ZERO, measure: Span::from_secs(10) },
            network: Model::Constant(Span::from_secs(1)).load(1).unwrap(),
            links: Links::Ordered,
            faults: Faults::default(),
            lease: Span::from_secs(10),
            count_violations: false,
            trials: 1,
            seed: 42,
        };
        let (me, tokens, coordinator, parent) = (PeerId::new(0), 0, false, None); // All clients use slot 0.
        let given = |peer: PeerId| 1000 * peer.get();
        let peer = |peer: PeerId| Faulty { me, fault, given: given(peer), tokens, coordinator, parent, waits: None };
        open.run(peer, |_| {}).map(|_| ()).map_err(|failure| failure.to_string())
    };
    let stay = Some(Hold::Constant(Span::from_secs(1)));
    for (fault, hold, sentence) in [
        (Fault::TwoHolders, stay, "enters as holder 2 of 1"),
        (Fault::GrantsTwice, stay, "grants t1, which is not waiting there"),
        (Fault::UnknownSlot, None, "slot 2, which does not exist"),
        (Fault::UnexpectedMessage, None, "got nonsense"),
    ] {
        let error = run(fault, hold).expect_err("the fault must be seen");
        assert!(error.contains(sentence), "{fault:?}: {error}");
    }
}
