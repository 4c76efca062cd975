//! The strawman from seeds: safe, but slow.

mod driver;

use driver::{Load, Outcome, Setting, Trouble, play};
use peerlock_base::Span;
use peerlock_mutex::strawman::{Config, Strawman};
use peerlock_mutex::{Quorum, Replicas};

fn strawman(setting: Setting, config: Config, seed: u64) -> Outcome {
    let replicas = Replicas::first(setting.quorum);
    play(setting, seed, |me| Strawman::new(me, &replicas, config))
}

#[test]
fn nobody_is_inside_with_another_and_everybody_gets_an_answer() {
    let trouble = Trouble {
        jitter: true,
        loss: 0.05,
        duplication: 0.05,
        crash: 0.02,
        withdraw: 0.1,
        clocks_differ: true,
        resets_every: Span::from_secs(3),
        resets_at_most: 2,
        resets_window: Span::from_secs(11),
        ..Trouble::default()
    };
    let setting = Setting {
        quorum: Quorum::new(5, 4),
        load: Load::Closed { clients: 6, think: Span::from_secs(4) },
        hold: Span::from_millis(300),
        latency: (Span::ZERO, Span::from_millis(200)),
        length: Span::from_secs(60),
        trouble,
    };
    for config in [Config::GIVES_UP, Config::BACKS_OFF] {
        for both in [false, true] {
            for seed in 0..400 {
                let setting = Setting { trouble: Trouble { both, ..trouble }, ..setting };
                let seen = strawman(setting, config, seed);
                assert_eq!((seen.violations, seen.fencing_back, seen.unserved), (0, 0, 0), "seed {seed}: {seen:?}");
                assert!(seen.entries > 0, "seed {seed}: {seen:?}");
            }
        }
    }
}

/// Throughput of clients without number at `rate` a second, who leave at once.
fn throughput(config: Config, latency: (u64, u64), rate: f64) -> f64 {
    let setting = Setting {
        quorum: Quorum::DEFAULT,
        load: Load::Open { gap: Span::from_secs_f64(1.0 / rate) },
        hold: Span::ZERO,
        latency: (Span::from_millis(latency.0), Span::from_millis(latency.1)),
        length: Span::from_secs(200),
        trouble: Trouble::default(),
    };
    strawman(setting, config, 1).throughput
}

/// §3, Figure 3: throughput rises with the load, peaks and falls to almost nothing, the more so the more latencies vary.
#[test]
fn losers_who_give_up_draw_alohas_curve() {
    let [low, peak, high] = [0.2, 2.5, 20.0].map(|rate| throughput(Config::GIVES_UP, (0, 200), rate));
    assert!((0.1..0.3).contains(&low) && peak > 0.7 && high < 0.1, "{low} {peak} {high}");
    assert!(throughput(Config::GIVES_UP, (50, 150), 2.5) > 1.2 * peak);
}

/// All replicas see requests in the same order if all latencies are the same, and then somebody always wins.
#[test]
fn with_constant_latency_it_cannot_collapse() {
    let [low, high] = [4.0, 20.0].map(|rate| throughput(Config::GIVES_UP, (100, 100), rate));
    assert!(low > 1.8 && high > low, "{low} {high}");
    assert!(throughput(Config::BACKS_OFF, (100, 100), 6.0) > 4.5);
}

/// Losers who try again add to the load: below the cliff everybody gets in sooner or later, beyond it nobody does.
#[test]
fn losers_who_back_off_fall_off_a_cliff() {
    let [low, high] = [0.2, 1.5].map(|rate| throughput(Config::BACKS_OFF, (0, 200), rate));
    assert!((0.1..0.3).contains(&low) && high < 0.05, "{low} {high}");
}
