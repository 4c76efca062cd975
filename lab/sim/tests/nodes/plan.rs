//! What befalls whole nodes, a different run from every seed: everything that is promised to be borne, at once.
//!
//! A majority of the voters' files is left at any time, so at most one voter at a time is lost for good or loses its
//! disk. All else meets as it comes: crashes of one, two or all hosts, with writes that are torn; freezes, partitions
//! (whole, one-way, partial, of single pairs), loss, messages that come twice or late, slow and full disks, clocks
//! within 1 %; and what people do: clean stops, resizes while in use, removals, force, other voters. From the first
//! moment on in every third run, while hosts start and the cluster is founded. In some runs two hosts never find each
//! other again in the end.

use peerlock_node::{Config, Ttl};
use peerlock_sim::latency::Model;
use peerlock_sim::workload::Visits;
use peerlock_sim::{Cut, Faults, Nodes, Spells};
use peerlock_types::{Rng, Span};

/// Sessions are shorter than the product's, so that more of them end.
const SESSION: u64 = 3000;

/// Draws a run from the seed.
pub fn plan(seed: u64) -> Nodes {
    let rng = &mut Rng::stream(seed, 99); // Apart from the streams of the run itself.
    let millis = Span::from_millis;
    let hosts = one_of(rng, &[1, 2, 3, 3, 3, 4, 5, 7, 9]);
    let guests = one_of(rng, &[0, 0, 0, 1, 2]).min(9 - hosts);
    let high = one_of(rng, &[2, 20, 100, 300]);
    let apart = millis(one_of(rng, &[0, 0, 20, 300]));
    let begin = one_of(rng, &[0, 1500, 3000]);
    let visits = Visits {
        resources: one_of(rng, &[1, 1, 2, 4]) as usize,
        gap: millis(one_of(rng, &[50, 200, 1000])),
        stay: millis(one_of(rng, &[5, 200, 1000])),
        apart,
        know_first: false,
        begin: millis(begin),
        end: millis(begin) + lasts(seed, rng),
        stops: sometimes(rng, 0.3).then(|| Span::from_secs(one_of(rng, &[2, 6]))),
        resizes: sometimes(rng, 0.25).then(|| (Span::from_secs(one_of(rng, &[1, 4])), one_of(rng, &[2, 4]) as u32)),
        forces: sometimes(rng, 0.15).then(|| Span::from_secs(one_of(rng, &[1, 4]))),
        removes: removes(seed),
        voter_changes: sometimes(rng, 0.25).then(|| Span::from_secs(one_of(rng, &[3, 8]))),
        careful: false,
        most_waiting: 20,
        last_hosts: u64::MAX,
        rift: sometimes(rng, 0.25),
    };
    // Everybody who starts at once must be told of a founder, or wait until all have met.
    let expect = hosts > 1 && apart == Span::ZERO && sometimes(rng, 0.5);
    let faults = faults(rng, millis(begin), visits.end);
    // Drawn apart, so that what a seed stands for is as before in all else.
    let reboots = if sometimes(&mut Rng::stream(seed, 98), 0.5) { 0.25 } else { 0.0 };
    let faults = Faults { reboots, ..faults };
    // In most runs links end so soon that many are opened anew, and some while something is on its way.
    let idle = millis(one_of(&mut Rng::stream(seed, 97), &[300, 1000, 4000, 60_000]));
    // And in most of them what nobody uses is given up so soon that it is asked for again.
    let unused = millis(one_of(&mut Rng::stream(seed, 96), &[500, 2000, 8000, 600_000]));
    // Where the first host may be gone for good, another must be known.
    let loses_hosts = faults.deaths.is_some() || faults.disk_losses.is_some();
    // Who says by hand that one host shall vote whose file was just lost takes the majority away by hand.
    let careful = loses_hosts;
    let know_first = !loses_hosts && !expect && sometimes(rng, 0.5);
    Nodes {
        hosts,
        guests,
        expect,
        slots: one_of(rng, &[1, 1, 2, 3]) as u32,
        session: Ttl::from_millis(SESSION).expect("three seconds are a time to live"),
        config: Config { idle, unused, ..config() },
        disk: millis(one_of(rng, &[1, 5, 20])),
        network: Model::Jitter { low: millis(1), high: millis(high) }.load(0).expect("jitter needs no file"),
        // Asking takes at most a way to the register and back, twice, and one to the coordinator. That has to be asked
        // for, too, and connected with, which takes three ways there and back. Where the connection that there was has
        // broken without a word, it is in doubt after two beats, and the request arrives ten ways later: knock, open,
        // hello, hello and itself, each by way of the leader. So that is 2 s and 15 ways.
        clearly: (high <= 100).then_some(millis(if visits.rift { 4000 } else { 2200 })),
        faults,
        visits: Visits { know_first, careful, ..visits },
        trials: 1,
        seed,
    }
}

/// For how long clients come. A minute of them takes as long to play as ten shorter runs: from seed 1000 on it is one
/// run in fifty instead of one in five, so that many more can be played.
fn lasts(seed: u64, rng: &mut Rng) -> Span {
    let drawn = one_of(rng, &[5, 8, 12, 12, 60]);
    let is_short = seed >= 1000 && !seed.is_multiple_of(10);
    Span::from_secs(if is_short { drawn.min(12) } else { drawn })
}

/// In every eighth run names are removed, so that what all other seeds stand for is as before; and now and then, or as
/// often as they are founded again.
fn removes(seed: u64) -> Option<Span> {
    let every = one_of(&mut Rng::stream(seed, 95), &[100, 300, 1000]);
    (seed % 8 == 7).then_some(Span::from_millis(every))
}

/// The run of a seed, with far more going wrong, and for two minutes: in some of them messages and hosts by the dozen,
/// so that little gets done meanwhile. Everybody who asked is served all the same when it is over.
#[allow(dead_code, reason = "for long hunts by hand")]
pub fn storm(seed: u64) -> Nodes {
    let plan = plan(seed);
    let rng = &mut Rng::stream(seed, 98);
    let millis = Span::from_millis;
    let mut spells = |every: &[u64], last: &[u64]| {
        Some(Spells { every: millis(one_of(rng, every)), last: millis(one_of(rng, last)) })
    };
    let faults = Faults {
        crashes: spells(&[300, 2000, 5000, 10_000], &[50, 300, 1000]),
        freezes: spells(&[300, 2000, 5000, 10_000], &[50, 300, 1500]),
        slow_disks: spells(&[3000, 10_000], &[300, 1000]),
        full_disks: spells(&[5000, 20_000], &[50, 300]),
        partitions: spells(&[500, 3000, 10_000], &[100, 500, 2000])
            .map(|spells| (plan.faults.partitions.map_or(Cut::Pairs, |(cut, _)| cut), spells)),
        loss: one_of(rng, &[1, 5, 20, 100]) as f64 / 1000.0,
        duplication: one_of(rng, &[100, 300, 600]) as f64 / 1000.0,
        delays: Some((one_of(rng, &[100, 300, 600]) as f64 / 1000.0, millis(one_of(rng, &[2, 10, 100])))),
        ..plan.faults
    };
    let visits = Visits { end: plan.visits.begin + Span::from_secs(120), ..plan.visits };
    Nodes { faults, visits, ..plan }
}

/// No slack, which would hide an error of the rules'; and less patience, so that more happens.
fn config() -> Config {
    let registry = peerlock_registry::Config {
        slack: Span::ZERO,
        replace_after: Span::from_secs(4),
        disk_patience: Span::from_millis(800),
        compact_after: 40,
        ..peerlock_registry::Config::default()
    };
    Config { registry, ..Config::default() }
}

fn faults(rng: &mut Rng, begin: Span, end: Span) -> Faults {
    let millis = Span::from_millis;
    let spells = |rng: &mut Rng, share: f64, every: &[u64], last: &[u64]| {
        let (every, last) = (millis(one_of(rng, every)), millis(one_of(rng, last)));
        sometimes(rng, share).then_some(Spells { every, last })
    };
    let cut = [Cut::Whole, Cut::OneWay, Cut::Partial, Cut::Pairs][one_of(rng, &[0, 1, 2, 3, 3]) as usize];
    Faults {
        quiet: if sometimes(rng, 0.33) { Span::ZERO } else { begin },
        loss: one_of(rng, &[0, 0, 2, 10, 50]) as f64 / 1000.0,
        duplication: one_of(rng, &[0, 10, 100]) as f64 / 1000.0,
        delays: sometimes(rng, 0.4).then_some((0.02, millis(one_of(rng, &[100, 1000])))),
        withdrawals: one_of(rng, &[0, 200]) as f64 / 1000.0,
        clocks: sometimes(rng, 0.7).then_some((millis(one_of(rng, &[0, 50, 5000])), 10_000)),
        crashes: spells(rng, 0.6, &[400, 1000, 3000, 8000], &[50, 1000, 4000]),
        both: one_of(rng, &[0, 0, 300]) as f64 / 1000.0,
        deaths: sometimes(rng, 0.15).then_some(end),
        disk_losses: spells(rng, 0.3, &[3000, 8000], &[50, 1000, 4000]),
        outages: spells(rng, 0.25, &[4000, 12_000], &[50, 1000, 4000]),
        slow_disks: spells(rng, 0.3, &[2000, 6000], &[1000, 3000]),
        full_disks: spells(rng, 0.2, &[3000, 8000], &[50, 1000]),
        freezes: spells(rng, 0.5, &[400, 1000, 3000, 8000], &[100, 1500, 6000]),
        partitions: spells(rng, 0.5, &[700, 2000, 6000], &[500, 3000, 8000]).map(|spells| (cut, spells)),
        ..Faults::default()
    }
}

fn one_of(rng: &mut Rng, values: &[u64]) -> u64 {
    values[rng.below(values.len() as u64) as usize]
}

fn sometimes(rng: &mut Rng, share: f64) -> bool {
    rng.chance(share)
}
