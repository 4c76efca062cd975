//! One-minute runs of peers on an overlay under faults, one per seed.

use peerlock_protocols::Quorum;
use peerlock_sim::latency::Model;
use peerlock_sim::{Faults, Links, Load, OverlayKind, Rounds};
use peerlock_types::{Rng, Span};

/// About as many faults as the quorum tolerates.
pub fn draw(seed: u64) -> Rounds {
    let mut rng = Rng::stream(seed, 99); // Separate from the streams of the run itself.
    let mut one_of = |values: &[u64]| values[rng.below(values.len() as u64) as usize];
    let quorum = [(5, 4), (5, 4), (7, 5), (7, 6), (5, 3), (4, 3)][one_of(&[0, 1, 2, 3, 4, 5]) as usize];
    let peers = one_of(&[30, 45, 60]);
    let percent = |percent: u64| percent as f64 / 100.0;
    let latency = Model::Jitter { low: Span::from_millis(10), high: Span::from_millis(one_of(&[50, 150, 400])) };
    Rounds {
        peers: peers as usize,
        overlay: [OverlayKind::Pastry, OverlayKind::Chord][one_of(&[0, 1]) as usize],
        resources: one_of(&[2, 3]) as usize,
        quorum: Quorum::new(quorum.0, quorum.1),
        settle: Span::ZERO,
        rounds: one_of(&[6, 12]) as usize,
        round: Span::from_secs(one_of(&[5, 10, 20])),
        requests: one_of(&[1, 4, 10]) as usize,
        load: Load::Whole,
        churn: one_of(&[0, 0, 2]) as usize,
        network: latency.load(0).expect("jitter needs no file"),
        links: Links::Unordered,
        faults: Faults {
            loss: percent(one_of(&[0, 1, 1])),
            duplication: percent(one_of(&[0, 1, 5])),
            client_crash: percent(one_of(&[0, 0, 5])),
            replica_life: [None, Some(Span::from_secs(60) * peers)][one_of(&[0, 1]) as usize],
            ..Faults::default()
        },
        lease: Span::from_secs(one_of(&[5, 10])),
        drain: Span::from_secs(600),
        count_violations: true,
        trials: 1,
        seed,
    }
}
