//! What befalls whole nodes, a different run from every seed: as much as today's promises bear.
//!
//! What is promised today, and so what a plan may contain:
//!
//! - *Links* break, lose their tails, come back, are slow; peers freeze; the network falls apart and heals; clocks run
//!   fast or slow. Then nothing is ever lost: at the end everybody who asks is let in. Peers have met and resources are
//!   founded before it begins: founding counts a majority of those whom a peer has met, and among peers that have not
//!   all met there can be two.
//! - A peer that *crashes* takes its tokens and lines with it. Whoever waits is told, and there is never a second
//!   holder. A peer that comes back joins one that is in, and only one that finds nobody begins anew: what else it may
//!   do in a partition is not promised, so there is none in such a run.
//! - A peer that *leaves* in good order hands everything over, as long as connections stand while it does: nothing is
//!   lost in such a run.

use peerlock_base::{Rng, Span};
use peerlock_mutex::FairKLate;
use peerlock_overlay::Unrouted;
use peerlock_sim::latency::Model;
use peerlock_sim::workload::{Churn, Visits};
use peerlock_sim::{Cut, Failure, Faults, Nodes, Report, Spells};

/// The kinds of plans: a seed has that of its remainder.
pub const KINDS: [&str; 4] = ["links", "partitions", "crashes", "guests"];

/// Everything has settled by then.
const QUIET: Span = Span::from_secs(12);

/// Draws a run from the seed.
pub fn plan(seed: u64) -> Nodes {
    let mut rng = Rng::stream(seed, 99); // Apart from the streams of the run itself.
    let mut one_of = |values: &[u64]| values[rng.below(values.len() as u64) as usize];
    let millis = Span::from_millis;
    let high = millis(one_of(&[2, 20, 100, 300]));
    let peers = one_of(&[2, 3, 3, 4, 5]);
    let visits = Visits {
        resources: one_of(&[1, 1, 2]) as usize,
        gap: millis(one_of(&[200, 500, 2000])),
        stay: millis(one_of(&[5, 200, 1000])),
        begin: Span::from_secs(4),
        founded: QUIET,
        end: QUIET + Span::from_secs(one_of(&[15, 30])),
        churn: Churn::None,
        all_works: true,
    };
    let share = |values: &[u64], one_of: &mut dyn FnMut(&[u64]) -> u64| one_of(values) as f64 / 1000.0;
    let faults = Faults {
        quiet: QUIET,
        loss: share(&[0, 2, 10, 50], &mut one_of),
        duplication: share(&[0, 10, 100], &mut one_of),
        delays: (one_of(&[0, 1]) == 1).then_some((0.02, millis(one_of(&[100, 1000])))),
        withdrawals: share(&[0, 200], &mut one_of),
        clocks: (one_of(&[0, 1]) == 1).then_some((millis(one_of(&[0, 50])), 10_000)),
        ..Faults::default()
    };
    let spells = |every: u64, last: u64| Spells { every: Span::from_secs(every), last: Span::from_secs(last) };
    let (visits, faults) = match KINDS[(seed % 4) as usize] {
        "links" => (visits, faults),
        "partitions" => {
            let cut = [Cut::Whole, Cut::OneWay, Cut::Partial][one_of(&[0, 1, 2]) as usize];
            let partitions = Some((cut, spells(one_of(&[5, 15]), one_of(&[1, 6, 15]))));
            let freezes = (one_of(&[0, 1]) == 1).then_some(spells(10, one_of(&[1, 4])));
            (visits, Faults { partitions, freezes, ..faults })
        }
        "crashes" => {
            let crashes = (one_of(&[0, 1]) == 1).then_some(spells(one_of(&[8, 20]), one_of(&[1, 10])));
            let deaths = crashes.is_none().then_some(Span::from_secs(20));
            (Visits { all_works: false, ..visits }, Faults { crashes, deaths, ..faults })
        }
        _ => {
            let churn = Churn::Guests(Span::from_secs(one_of(&[2, 6])));
            (Visits { churn, ..visits }, Faults { loss: 0.0, delays: None, ..faults })
        }
    };
    let network = Model::Jitter { low: millis(1), high }.load(0).expect("jitter needs no file");
    Nodes { peers, slots: one_of(&[1, 1, 2, 3]) as u32, visits, network, faults, trials: 1, seed }
}

/// Plays the run of a seed, with the product's protocol.
pub fn play(seed: u64) -> Result<Report, Box<Failure>> {
    plan(seed).run::<FairKLate, Unrouted>()
}

/// Every event of the run of a seed.
pub fn trace(seed: u64) -> Vec<String> {
    plan(seed).trace::<FairKLate, Unrouted>()
}
