//! Changing routes: hops die, keys change their owners. A seed determines all changes beforehand.
//!
//! ```text
//!   client ──► one of the first hops ──► one of the second hops ──► the owner of the key, one of the hosts
//! ```

#[path = "../faults/mod.rs"]
pub mod faults;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use peerlock_peer::fixed::{self, Wire};
use peerlock_protocols::{Cx, Input, Observe, Protocol, Quorum, Replicas};
use peerlock_sim::{Experiment, Faults, Report};
use peerlock_types::{Key, PeerId, Rng, Span, Ticket, Time};

const SEEDS: u64 = 100;

const LENGTH: Span = Span::from_secs(120);

/// Mean time between moves, and the window in which fewer than 2m − n = 3 replicas move: the lease time plus a second.
pub const FEW_MOVES: (Span, Span) = (Span::from_secs(4), Span::from_secs(11));

pub fn play<P: Observe<Timer: std::hash::Hash>>(
    experiment: &Experiment,
    (often, window): (Span, Span),
    seed: u64,
    new_peer: impl Fn(PeerId, &Replicas) -> P + Sync,
) -> Report {
    let replicas = Replicas::on_overlay("resource", Quorum::new(5, 4));
    let plan = Arc::new(Plan::new(&replicas, seed, LENGTH, often, window));
    let experiment = Experiment { trials: 1, seed, ..experiment.clone() };
    faults::play(&experiment, |me: PeerId| Moving::new(new_peer(me, &replicas), plan.clone()))
}

pub fn calm() -> Experiment {
    let workload = faults::closed(Span::from_secs(2), Span::from_millis(500), 20);
    Experiment { workload, network: faults::latency(0, 100), ..faults::calm(PEERS as u32, 8, 1) }
}

/// Messages overtake each other.
pub fn everything() -> Experiment {
    let faults = Faults {
        loss: 0.01,
        duplication: 0.01,
        client_crash: 0.01,
        withdrawals: 0.1,
        cut_off: Some((0.02, Span::from_secs(15))),
        ..Faults::default()
    };
    Experiment { faults, network: faults::jitter(100), ..calm() }
}

/// Panics if two clients hold, a fencing number is used twice or decreases, or a client is never served.
pub fn holds<P>(experiment: &Experiment, new_peer: impl Fn(PeerId, &Replicas) -> P + Sync)
where
    P: Observe<Timer: std::hash::Hash>,
{
    for seed in 0..SEEDS {
        let report = play(experiment, FEW_MOVES, seed, &new_peer);
        assert!(report.entries > 5, "seed {seed}: {report:?}");
    }
}

const HOSTS: u64 = 8;
const FIRST_HOPS: std::ops::Range<u64> = HOSTS..HOSTS + 4;
const SECOND_HOPS: std::ops::Range<u64> = HOSTS + 4..HOSTS + 8;
/// Peers without clients.
const PEERS: u64 = HOSTS + 8;

struct Plan {
    replicas: Replicas,
    /// Owners of each key since a time, the earliest first.
    owners: BTreeMap<Key, Vec<(Time, u64)>>,
    deaths: BTreeMap<u64, Time>,
}

/// How long others continue to send to a dead peer.
const NOTICED_AFTER: Span = Span::from_secs(1);

impl Plan {
    /// Keys move every `moves_every` on average, but at most two within `window`; some hops die.
    pub fn new(replicas: &Replicas, seed: u64, length: Span, moves_every: Span, window: Span) -> Self {
        let mut rng = Rng::stream(seed, 77);
        let n = replicas.quorum().replicas();
        let key = |replica| replicas.key(replica).expect("on an overlay every replica has a key");
        let mut owners: BTreeMap<Key, Vec<(Time, u64)>> =
            (0..n).map(|replica| (key(replica), vec![(Time::ZERO, u64::from(replica))])).collect();
        let (mut now, mut moved) = (Time::ZERO, Vec::<Time>::new());
        loop {
            now = now + rng.exponential(moves_every);
            if now > Time::ZERO + length {
                break;
            }
            moved.retain(|&at| now.since(at) <= window);
            if moved.len() < 2 {
                let replica = rng.below(n.into()) as u32;
                owners.entry(key(replica)).or_default().push((now, rng.below(HOSTS)));
                moved.push(now);
            }
        }
        let mut deaths = BTreeMap::new();
        for hops in [FIRST_HOPS, SECOND_HOPS] {
            for hop in hops.skip(1).filter(|_| rng.chance(0.7)).collect::<Vec<_>>() {
                deaths.insert(hop, Time::ZERO + rng.between(Span::ZERO, length));
            }
        }
        Self { replicas: replicas.clone(), owners, deaths }
    }

    fn owner(&self, key: Key, now: Time) -> u64 {
        let (_, owner) =
            self.owners[&key].iter().rfind(|(since, _)| *since <= now).expect("each key has a first owner");
        *owner
    }

    fn is_dead(&self, peer: u64, now: Time) -> bool {
        self.deaths.get(&peer).is_some_and(|&death| death <= now)
    }

    fn next(&self, key: Key, here: u64, now: Time) -> Option<PeerId> {
        let owner = self.owner(key, now);
        let pick = |hops: std::ops::Range<u64>, by: u64| {
            let count = hops.end - hops.start;
            let mut around = (0..count).map(|step| hops.start + (by + count - step) % count);
            let seems_dead = |hop: u64| self.deaths.get(&hop).is_some_and(|&death| death + NOTICED_AFTER <= now);
            around.find(|&hop| !seems_dead(hop)).expect("the first of them never dies")
        };
        let next = match here {
            _ if here == owner => return None,
            _ if SECOND_HOPS.contains(&here) => owner,
            _ if FIRST_HOPS.contains(&here) => pick(SECOND_HOPS, self.replicas.under(key).unwrap_or(0).into()),
            _ => pick(FIRST_HOPS, here),
        };
        Some(PeerId::new(next))
    }
}

struct Moving<P> {
    protocol: P,
    plan: Arc<Plan>,
    /// The keys owned at the last step.
    owned: Vec<Key>,
}

impl<P: Protocol> Moving<P> {
    pub fn new(protocol: P, plan: Arc<Plan>) -> Self {
        Self { protocol, plan, owned: Vec::new() }
    }

    fn run(&mut self, input: Input<P::Message, P::Timer>, cx: &mut Cx<'_, Self>) {
        let (me, now, plan) = (cx.me(), cx.now(), self.plan.clone());
        if plan.is_dead(me.get(), now) {
            return;
        }
        let owned: Vec<Key> = plan.owners.keys().copied().filter(|&key| plan.owner(key, now) == me.get()).collect();
        let lost = self.owned.iter().filter(|key| !owned.contains(key));
        let inputs: VecDeque<_> = lost.map(|&key| Input::Disowned(key)).chain([input]).collect();
        self.owned = owned;
        fixed::run(&mut self.protocol, inputs, |key| plan.next(key, me.get(), now), cx);
    }
}

impl<P: Protocol> Protocol for Moving<P> {
    type Message = Wire<P::Message>;
    type Timer = P::Timer;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.run(Input::Request(ticket), cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.run(Input::Release(ticket), cx);
    }

    fn on_message(&mut self, from: PeerId, wire: Self::Message, cx: &mut Cx<'_, Self>) {
        let (me, now) = (cx.me().get(), cx.now());
        self.run(wire.received(from, |key| self.plan.next(key, me, now)), cx);
    }

    fn on_timer(&mut self, timer: P::Timer, cx: &mut Cx<'_, Self>) {
        self.run(Input::Timer(timer), cx);
    }
}

impl<P: Observe> Observe for Moving<P> {
    const KINDS: &'static [&'static str] = P::KINDS;

    fn kind(message: &Self::Message) -> usize {
        P::kind(&message.message)
    }
}
