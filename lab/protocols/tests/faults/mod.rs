//! Shared by the seeded tests of protocols with replicas.
#![allow(dead_code, reason = "each test uses some of it")]

use peerlock_protocols::Observe;
use peerlock_sim::latency::{Model, Network};
use peerlock_sim::{Closed, Cut, Experiment, Faults, Hold, Links, Report, Spells};
use peerlock_types::{PeerId, Span};

/// Each client holds for 0.3 s about every two seconds.
pub fn calm(servers: u32, clients: usize, trials: u32) -> Experiment {
    Experiment {
        peers: servers as usize + clients,
        servers: servers as usize,
        slots: 1,
        workload: closed(Span::from_secs(1), Span::from_millis(300), 20),
        network: latency(0, 200),
        links: Links::Unordered,
        faults: Faults::default(),
        count_violations: false,
        warm_up: 0,
        trials,
        seed: 1,
    }
}

pub fn closed(think: Span, hold: Span, entries: u32) -> Closed {
    Closed { think, hold: Hold::Exponential(hold), entries }
}

/// A latency in milliseconds, drawn for each pair of peers.
pub fn latency(low: u64, high: u64) -> Network {
    load(Model::Uniform { low: Span::from_millis(low), high: Span::from_millis(high) })
}

/// A latency in milliseconds, drawn for each message.
pub fn jitter(high: u64) -> Network {
    load(Model::Jitter { low: Span::ZERO, high: Span::from_millis(high) })
}

fn load(model: Model) -> Network {
    model.load(0).expect("the model needs no file")
}

pub fn bad_network() -> Faults {
    Faults { loss: 0.05, duplication: 0.05, ..Faults::default() }
}

/// At most two resets, fewer than 2m − n = 3, within the lease time of 10 s plus a second.
pub fn few_resets(servers: u64) -> Faults {
    Faults {
        replica_life: Some(Span::from_secs(3) * servers),
        resets_at_most: Some((2, Span::from_secs(11))),
        ..Faults::default()
    }
}

pub fn partitions() -> Faults {
    let spells = Spells { every: Span::from_secs(15), last: Span::from_secs(8) };
    Faults { partitions: Some((Cut::Whole, spells)), ..Faults::default() }
}

pub fn crashes_and_withdrawals() -> Faults {
    Faults { client_crash: 0.05, withdrawals: 0.1, ..Faults::default() }
}

pub fn everything(servers: u64) -> Faults {
    Faults {
        loss: 0.05,
        duplication: 0.05,
        client_crash: 0.02,
        withdrawals: 0.1,
        clocks: Some((Span::from_secs(5), 400)),
        ..few_resets(servers)
    }
}

/// Latencies are so short, and waits so long, that a slightly fast clock would let two clients hold.
pub fn cut_off(calm: Experiment) -> Experiment {
    Experiment {
        workload: closed(Span::from_millis(10), Span::from_secs(15), 5),
        network: latency(0, 1),
        faults: Faults {
            cut_off: Some((0.5, Span::from_secs(15))),
            clocks: Some((Span::from_secs(5), 400)),
            ..Faults::default()
        },
        ..calm
    }
}

pub fn play<P: Observe<Timer: std::hash::Hash>>(
    experiment: &Experiment,
    new_peer: impl Fn(PeerId) -> P + Sync,
) -> Report {
    let peers = || (0..experiment.peers as u64).map(|number| new_peer(PeerId::new(number))).collect();
    experiment.run(|_| peers(), |_| {}).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Returns the number of lost leases. Panics if two clients hold, a fencing number is used twice or decreases, or a
/// client is never served.
pub fn holds<P: Observe<Timer: std::hash::Hash>>(
    experiment: &Experiment,
    new_peer: impl Fn(PeerId) -> P + Sync,
) -> u64 {
    let report = play(experiment, new_peer);
    assert!(report.entries > 5 * u64::from(experiment.trials), "{report:?}");
    report.numbers.count("lost")
}
