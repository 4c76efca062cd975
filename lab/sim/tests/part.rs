//! One part of a world in real time.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use peerlock_protocols::token::Layout;
use peerlock_protocols::{FairKLate, Observe, fair_k_late};
use peerlock_sim::latency::Model;
use peerlock_sim::{
    Actor, Came, Closed, Drive, Experiment, Faults, Links, Outside, Recorder, Share, Trial, Wire, seed_of,
};
use peerlock_types::{PeerId, Span, Time};

/// A clock that advances by a minute whenever it is read, so that no process keeps up.
#[derive(Default)]
struct TooFast(u64);

impl<A: Actor> Outside<A> for TooFast {
    fn now(&mut self) -> Time {
        self.0 += 1;
        assert!(self.0 < 1000, "it receives nothing");
        Time::ZERO + Span::from_secs(60 * self.0)
    }

    fn send(&mut self, _from: PeerId, _to: PeerId, _message: A::Message) {}

    fn served(&mut self, _is_served: bool) {}

    fn wait(&mut self, _until: Option<Time>) -> Came<A::Message> {
        if self.0 > 10 { Came::Stop } else { Came::Nothing }
    }
}

struct Alone;

impl Drive for Alone {
    type Output = Result<(), String>;

    fn drive<S>(self, setting: &S, _trials: u32, seed: u64) -> Self::Output
    where
        S: Trial<Actor: Actor<Message: Wire, Note: Wire + Clone>>,
    {
        let mut recorder = Recorder::new(|_, _| ());
        let mut world = setting.world(seed_of(0, seed));
        world.observe(&mut recorder);
        world.retain_only(Share { me: 0, together: 1, apart: Vec::new() });
        world.play_part(&mut TooFast::default(), false).map_err(|violation| violation.to_string())
    }
}

#[test]
fn lagging_process_still_receives() {
    let experiment = Experiment {
        peers: 1,
        servers: 0,
        slots: 1,
        workload: Closed { think: Span::from_secs(2), hold: "10s".parse().unwrap(), entries: 1_000_000 },
        network: "constant:1s".parse::<Model>().unwrap().load(1).unwrap(),
        links: Links::Ordered,
        faults: Faults::default(),
        count_violations: false,
        warm_up: 0,
        trials: 1,
        seed: 1,
    };
    let layout = Layout::printed(1, 1);
    let peers = |_: &_| vec![FairKLate::new(PeerId::new(0), &layout, fair_k_late::Config::default())];
    assert_eq!(experiment.drive(FairKLate::KINDS, peers, Alone), Ok(()));
}
