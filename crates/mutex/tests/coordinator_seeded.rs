//! The coordinator protocol at scale and in trouble, from seeds: does it hold?

mod driver;

use driver::{Load, Outcome, Setting, Trouble, play};
use peerlock_base::Span;
use peerlock_mutex::coordinator::{Config, Coordinator};
use peerlock_mutex::{Quorum, Replicas};

const SEEDS: u64 = 200;

fn coordinator(setting: Setting, config: Config, seed: u64) -> Outcome {
    let replicas = Replicas::first(setting.quorum);
    play(setting, seed, |me| Coordinator::new(me, &replicas, config))
}

/// Six clients, each inside for a third of a second about every two seconds; messages overtake each other only
/// between different pairs of peers.
fn calm() -> Setting {
    Setting {
        quorum: Quorum::new(5, 3),
        load: Load::Closed { clients: 6, think: Span::from_secs(1) },
        hold: Span::from_millis(300),
        latency: (Span::ZERO, Span::from_millis(200)),
        length: Span::from_secs(120),
        trouble: Trouble::default(),
    }
}

fn bad_network() -> Trouble {
    Trouble { jitter: true, loss: 0.1, duplication: 0.1, ..Trouble::default() }
}

/// A replica of the minority at a time, which takes at most this long to remember again.
fn few_resets() -> Trouble {
    Trouble {
        resets_every: Span::from_secs(10),
        resets_at_most: 2,
        resets_window: Span::from_secs(40),
        down_for: Span::from_secs(2),
        ..Trouble::default()
    }
}

fn partitions() -> Trouble {
    Trouble { partitions_every: Span::from_secs(15), partitions_last: Span::from_secs(8), ..Trouble::default() }
}

fn everything() -> Trouble {
    let Trouble { partitions_every, partitions_last, .. } = partitions();
    Trouble {
        jitter: true,
        loss: 0.05,
        duplication: 0.05,
        crash: 0.02,
        withdraw: 0.1,
        cut_off: 0.02,
        clocks_differ: true,
        partitions_every,
        partitions_last,
        ..few_resets()
    }
}

/// Nobody inside with another, no fencing number twice or backwards, nobody forgotten.
fn holds(setting: Setting) {
    for seed in 0..SEEDS {
        let seen = coordinator(setting, Config::REPAIRED, seed);
        assert_eq!((seen.violations, seen.fencing_back, seen.unserved), (0, 0, 0), "seed {seed}: {seen:?}");
        assert!(seen.entries > 5, "seed {seed}: {seen:?}");
    }
}

#[test]
fn without_trouble() {
    holds(calm());
    holds(Setting { quorum: Quorum::new(1, 1), ..calm() });
    let lost: u64 = (0..SEEDS).map(|seed| coordinator(calm(), Config::REPAIRED, seed).lost).sum();
    assert_eq!(lost, 0);
}

#[test]
fn with_loss_duplication_and_reordering() {
    holds(Setting { trouble: bad_network(), ..calm() });
    holds(Setting { trouble: bad_network(), quorum: Quorum::new(3, 2), ..calm() });
}

#[test]
fn with_resets() {
    holds(Setting { trouble: few_resets(), ..calm() });
}

#[test]
fn with_partitions() {
    holds(Setting { trouble: partitions(), ..calm() });
    holds(Setting { trouble: partitions(), quorum: Quorum::new(3, 2), ..calm() });
}

#[test]
fn with_clients_that_crash_and_withdraw() {
    let trouble = Trouble { crash: 0.1, withdraw: 0.1, ..Trouble::default() };
    holds(Setting { trouble, load: Load::Closed { clients: 12, think: Span::from_secs(1) }, ..calm() });
}

#[test]
fn with_everything_at_once() {
    holds(Setting { trouble: everything(), ..calm() });
}

#[test]
fn with_clients_that_are_replicas() {
    let trouble = Trouble { both: true, ..everything() };
    holds(Setting { trouble, ..calm() });
}

/// Leases are renewed, and now and then lost.
#[test]
fn with_stays_longer_than_the_lease() {
    let setting = Setting { trouble: everything(), hold: Span::from_secs(8), length: Span::from_secs(300), ..calm() };
    holds(setting);
    let lost: u64 = (0..SEEDS).map(|seed| coordinator(setting, Config::REPAIRED, seed).lost).sum();
    assert!(lost > 0, "nobody ever loses a lease here: then the run proves nothing about losing it");
}

/// Whoever is cut off leaves just before the coordinator's lease on it ends. Latencies are so short here, and waits so
/// long, that a clock which runs a little fast would let two in.
#[test]
fn with_clients_that_are_cut_off_inside() {
    let setting = Setting {
        hold: Span::from_secs(15),
        load: Load::Closed { clients: 6, think: Span::from_millis(10) },
        latency: (Span::ZERO, Span::from_millis(1)),
        length: Span::from_secs(600),
        trouble: Trouble { cut_off: 0.5, clocks_differ: true, ..Trouble::default() },
        ..calm()
    };
    holds(setting);
    assert!((0..10).all(|seed| coordinator(setting, Config::REPAIRED, seed).lost > 0));
}

/// Memory is never needed for safety: however many forget, nobody is let in beside another.
#[test]
fn with_resets_of_everybody() {
    let trouble = Trouble { resets_every: Span::from_secs(4), resets_at_most: usize::MAX, ..few_resets() };
    for seed in 0..SEEDS {
        let seen = coordinator(Setting { trouble, quorum: Quorum::new(3, 2), ..calm() }, Config::REPAIRED, seed);
        assert_eq!((seen.violations, seen.unserved), (0, 0), "seed {seed}: {seen:?}");
    }
}

/// One message lies between one client's leaving and the next one's entering: with more load than that allows, throughput
/// is one over the mean latency, 10 per second. Sigma, by way of replicas, has half of it. Where latencies differ much, the
/// token goes now and then to one who has left, whose RELEASE was overtaken, and comes back by way of the coordinator.
#[test]
fn a_hand_over_takes_one_message() {
    for latency in [(100, 100), (50, 150), (0, 200)] {
        let setting = Setting {
            load: Load::Open { gap: Span::from_millis(60) },
            hold: Span::ZERO,
            latency: (Span::from_millis(latency.0), Span::from_millis(latency.1)),
            length: Span::from_secs(60),
            ..calm()
        };
        let seen = coordinator(setting, Config::REPAIRED, 1);
        assert!((9.0..10.5).contains(&seen.throughput), "{latency:?}: {seen:?}");
    }
}

/// The checks bite: in print nobody but the first is ever served.
#[test]
fn the_printed_form_serves_one() {
    for seed in 0..20 {
        let seen = coordinator(calm(), Config::PRINTED, seed);
        assert_eq!((seen.entries, seen.unserved), (1, 6), "seed {seed}: {seen:?}");
    }
}

/// … and where everything is mended but the election, two coordinators let two in.
#[test]
fn an_election_by_time_stamp_lets_two_in() {
    let config = Config { majority_lease: false, one_acts: false, ..Config::REPAIRED };
    let seen = (0..SEEDS).map(|seed| coordinator(Setting { trouble: partitions(), ..calm() }, config, seed));
    assert!(seen.map(|seen| seen.violations).sum::<u64>() > 0);
}
