//! Runs of real peers in separate processes. This program is also their child, so it has its own main function. Its
//! arguments are parts of test names.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use peerlock_catalogue::Flags;
use peerlock_live::{Live, Machine, Options};
use peerlock_sim::{OverlayKind, Report};
use peerlock_types::{PeerId, Span};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "live-child") {
        peerlock_live::child().unwrap();
        return;
    }
    // Prints the tables of lab/docs/live.md.
    if let Some(table) = arguments.first().and_then(|first| first.strip_prefix("table=")) {
        let (options, steps) = (options(1), |name: &str, _| eprintln!("{name}"));
        match table {
            "kills" => println!("{}", peerlock_live::kills(&options, 1, &steps).unwrap()),
            _ => println!("{}", peerlock_live::protocols(&options, 1, &steps).unwrap()),
        }
        return;
    }
    let wanted = |name: &str| {
        let names: Vec<&String> = arguments.iter().filter(|part| !part.starts_with('-')).collect();
        names.is_empty() || names.iter().any(|part| name.contains(part.as_str()))
    };
    let tests: &[(&str, fn())] = &[
        ("protocols_without_replicas_serve_every_client", protocols_without_replicas_serve_every_client),
        ("replicas_serve_every_client", replicas_serve_every_client),
        ("overlays_serve_every_client", overlays_serve_every_client),
        ("overlays_survive_churn", overlays_survive_churn),
        ("one_process_draws_the_simulators_requests", one_process_draws_the_simulators_requests),
        ("open_workload_ends_without_harm", open_workload_ends_without_harm),
        ("printed_e2e_violates_capacity", printed_e2e_violates_capacity),
        ("killed_holder_loses_token_without_backups", killed_holder_loses_token_without_backups),
        ("restarted_replica_without_memory_is_safe", restarted_replica_without_memory_is_safe),
        ("restarted_replica_tolerates_dead_ones", restarted_replica_tolerates_dead_ones),
        ("busiest_kills_hit_different_peers", busiest_kills_hit_different_peers),
        ("partition_heals_and_every_client_is_served", partition_heals_and_every_client_is_served),
        ("machines_with_different_clocks_agree", machines_with_different_clocks_agree),
        ("impossible_settings_are_refused", impossible_settings_are_refused),
    ];
    for (name, test) in tests.iter().filter(|(name, _)| wanted(name)) {
        let started = std::time::Instant::now();
        test();
        println!("test {name} ... ok ({:.1} s)", started.elapsed().as_secs_f64());
    }
}

fn options(speed: u32) -> Options {
    Options {
        program: "/proc/self/exe".into(),
        machines: Vec::new(),
        processes: 4,
        speed,
        kills: Vec::new(),
        cut: None,
        patience: Span::from_secs(600),
    }
}

fn play(flags: Flags, options: &Options) -> Live {
    let setting = peerlock_live::setting(flags).unwrap();
    peerlock_live::run(&setting, options, &|_| ()).unwrap_or_else(|error| panic!("{}: {error}", setting.command()))
}

fn simulated(flags: Flags) -> Report {
    peerlock_live::setting(flags).unwrap().run(&|_| ()).unwrap()
}

fn of(protocol: &str) -> Flags {
    Flags { protocol: Some(protocol.parse().unwrap()), ..Flags::default() }
}

fn check(flags: &Flags, live: &Live, entries: u64) {
    let (harm, sim) = (live.report.harm(), simulated(flags.clone()));
    let name = format!("{:?} on {:?}", flags.protocol, flags.overlay);
    assert_eq!((live.report.entries, harm.violations, harm.fencing_back, harm.stuck), (entries, 0, 0, 0), "{name}");
    let per_entry = |report: &Report| report.sent() as f64 / report.steady_flow.entries.max(1) as f64;
    let (real, simulated) = match flags.overlay {
        Some(_) => (per_entry(&live.report), per_entry(&sim)),
        None => (live.report.messages_per_entry(), sim.messages_per_entry()),
    };
    let ratio = real / simulated;
    assert!((0.6..1.7).contains(&ratio), "{name}: {real} messages per entry, simulated {simulated}");
}

/// These protocols have no timers: their message counts depend only on the order of events.
fn protocols_without_replicas_serve_every_client() {
    for protocol in ["fair-k", "fair-k-late", "bv95"] {
        let flags = Flags { entries: Some(4), ..of(protocol) };
        check(&flags, &play(flags.clone(), &options(200)), 32 * 4);
    }
    let flags = Flags { entries: Some(4), backups: Some(2), ..of("fair-k") };
    check(&flags, &play(flags.clone(), &options(200)), 32 * 4);
}

fn replicas_serve_every_client() {
    for protocol in ["sigma", "coordinator"] {
        let (hold, count_violations) = (Some("1s".parse().unwrap()), true);
        let flags = Flags { peers: Some(24), entries: Some(3), hold, count_violations, ..of(protocol) };
        check(&flags, &play(flags.clone(), &options(50)), 24 * 3);
    }
}

fn overlays_serve_every_client() {
    for protocol in ["e2e", "non-e2e", "sigma", "coordinator"] {
        let overlay = Some(if protocol == "e2e" { OverlayKind::Chord } else { OverlayKind::Pastry });
        let flags = Flags { overlay, rounds: Some(4), count_violations: true, ..of(protocol) };
        let live = play(flags.clone(), &options(20));
        check(&flags, &live, live.report.numbers.count("asked"));
    }
}

fn overlays_survive_churn() {
    for (protocol, overlay) in [("e2e", OverlayKind::Chord), ("sigma", OverlayKind::Pastry)] {
        let (rounds, churn, overlay) = (Some(5), Some(4), Some(overlay));
        let live = play(Flags { overlay, rounds, churn, count_violations: true, ..of(protocol) }, &options(10));
        let (harm, numbers) = (live.report.harm(), &live.report.numbers);
        assert_eq!((harm.violations, harm.stuck), (0, 0), "{protocol}");
        assert_eq!((numbers.count("failed"), numbers.count("came")), (10, 10), "{protocol}");
        // Joining peers replace failed ones soon.
        assert!((150..=160).contains(&live.report.received.total()), "{protocol}: {}", live.report.received.total());
        assert_eq!(numbers.count("asked in rounds") + numbers.count("skipped"), 5 * 20, "{protocol}");
        assert!(numbers.count("upkeep") > 500, "{protocol}: {}", numbers.count("upkeep"));
    }
}

fn one_process_draws_the_simulators_requests() {
    let flags = Flags { overlay: Some(OverlayKind::Pastry), rounds: Some(4), count_violations: true, ..of("e2e") };
    let live = play(flags.clone(), &Options { processes: 1, ..options(20) });
    let asked = |report: &Report| ["asked", "skipped"].map(|name| report.numbers.count(name));
    assert_eq!(asked(&live.report), asked(&simulated(flags.clone())));
    check(&flags, &live, live.report.numbers.count("asked"));
}

fn open_workload_ends_without_harm() {
    let measure = Some(Span::from_secs(60));
    let live = play(Flags { arrival_rate: Some(1.0), measure, ..of("sigma") }, &options(40));
    assert!(live.report.harm().is_none(), "{:?}", live.report.harm());
    assert!((20..120).contains(&live.report.steady_flow.entries), "{:?}", live.report.steady_flow);
}

fn printed_e2e_violates_capacity() {
    let form = Some("printed".parse().unwrap());
    let overlay = Some(OverlayKind::Pastry);
    let flags = Flags { form, overlay, rounds: Some(6), count_violations: true, ..of("e2e") };
    let live = play(flags.clone(), &Options { patience: Span::from_secs(30), ..options(20) });
    assert!(live.report.harm().violations > 10, "{:?}", live.report.harm());
    // If violations are not counted, the first one is an error.
    let setting = peerlock_live::setting(Flags { count_violations: false, ..flags }).unwrap();
    let broken = peerlock_live::run(&setting, &Options { patience: Span::from_secs(30), ..options(20) }, &|_| ());
    let error = broken.unwrap_err().to_string();
    assert!(error.contains("enters as holder 2 of 1") && error.contains("The last events:"), "{error}");
}

fn killed_holder_loses_token_without_backups() {
    let kills = vec!["holder@60s".parse().unwrap()];
    let options = Options { kills, processes: 1, patience: Span::from_secs(200), ..options(100) };
    let flags = Flags { peers: Some(8), slots: Some(1), entries: Some(6), count_violations: true, ..of("fair-k") };
    let live = play(flags.clone(), &options);
    assert_eq!((live.deaths.len(), live.report.harm().violations), (1, 0));
    assert!(live.deaths[0].after <= 1 && live.report.harm().stuck > 0, "{live:?}");

    let live = play(Flags { backups: Some(2), ..flags }, &options);
    assert_eq!((live.deaths.len(), live.report.harm().violations, live.report.harm().stuck), (1, 0, 0));
    assert!(live.deaths[0].after > 10 && live.deaths[0].goes_on.is_some(), "{live:?}");
}

fn restarted_replica_without_memory_is_safe() {
    let kills = vec!["1@10s+5s".parse().unwrap()];
    let (hold, count_violations) = (Some("1s".parse().unwrap()), true);
    for protocol in ["sigma", "coordinator"] {
        let (peers, replicas, entries) = (Some(6), Some(5), Some(6));
        let flags = Flags { peers, replicas, entries, hold, count_violations, ..of(protocol) };
        let live = play(flags, &Options { kills: kills.clone(), processes: 2, ..options(25) });
        let harm = live.report.harm();
        assert_eq!((live.deaths.len(), harm.violations, harm.stuck, harm.grants), (1, 0, 0, 36), "{protocol}");
    }
}

/// Two of five replicas die, and one restarts. Kills without a victim are reported.
fn restarted_replica_tolerates_dead_ones() {
    let kills = ["1@10s+10s", "2@12s", "1@15s+3s", "2@16s+1s"].map(|kill| kill.parse().unwrap());
    let (hold, count_violations) = (Some("1s".parse().unwrap()), true);
    let (peers, replicas, entries) = (Some(4), Some(5), Some(8));
    let flags = Flags { peers, replicas, entries, hold, count_violations, ..of("sigma") };
    let live = play(flags, &Options { kills: kills.into(), processes: 2, ..options(25) });
    let killed: Vec<u64> = live.deaths.iter().flat_map(|death| &death.peers).map(|peer| peer.get()).collect();
    let spared: Vec<String> = live.spared.iter().map(ToString::to_string).collect();
    assert_eq!((killed, spared), (vec![1, 2], vec!["1@15s+3s".to_string(), "2@16s+1s".to_string()]));
    assert_eq!((live.report.entries, live.processes), (32, 4));
    assert_eq!(live.report.numbers.count("restarted"), 1, "a live process is not restarted");
}

fn busiest_kills_hit_different_peers() {
    let kills = ["busiest@40s", "busiest@80s"].map(|kill| kill.parse().unwrap());
    let flags = Flags { peers: Some(8), entries: Some(10), backups: Some(2), count_violations: true, ..of("fair-k") };
    let live = play(flags, &Options { kills: kills.into(), processes: 1, ..options(25) });
    let [first, second] = &live.deaths[..] else { panic!("two peers are killed: {live:?}") };
    assert!(first.peers != second.peers && live.spared.is_empty(), "{live:?}");
    assert!(first.before <= second.before && first.after >= second.after, "{live:?}");
    assert_eq!((first.before + first.after, live.processes), (live.report.entries, 9));
}

fn partition_heals_and_every_client_is_served() {
    let options = Options { cut: Some((Span::from_secs(10), Span::from_secs(20))), ..options(25) };
    let (hold, count_violations) = (Some("1s".parse().unwrap()), true);
    let (peers, replicas, entries) = (Some(7), Some(5), Some(5));
    let live = play(Flags { peers, replicas, entries, hold, count_violations, ..of("sigma") }, &options);
    assert_eq!((live.report.entries, live.report.harm().violations, live.report.harm().stuck), (35, 0, 0));
}

/// Every second process has another address and a clock that is 1,000 seconds ahead.
fn machines_with_different_clocks_agree() {
    let program = std::env::current_exe().unwrap();
    let there = format!("unshare --time --fork --monotonic 1000 {}", program.display());
    match std::process::Command::new("unshare").args(["--time", "--fork", "--monotonic", "1000", "true"]).output() {
        Ok(output) if output.status.success() => {}
        failed => {
            let is_ci = std::env::var_os("PEERLOCK_CI").is_some() && std::fs::metadata("/proc/self/ns/time").is_ok();
            assert!(!is_ci, "{failed:?}");
            eprintln!("skipped: needs root, `unshare` and time namespaces: {failed:?}");
            return;
        }
    }
    let machines = [format!("127.0.0.1={}", program.display()), format!("127.0.0.2={there}")];
    let machines: Vec<Machine> = machines.iter().map(|machine| machine.parse().unwrap()).collect();
    let flags = Flags { entries: Some(4), count_violations: true, ..of("fair-k") };
    let live = play(flags.clone(), &Options { machines: machines.clone(), ..options(100) });
    check(&flags, &live, 32 * 4);
    let apart = live.clocks_apart.as_secs_f64();
    assert!(apart > 0.0 && apart < 0.1, "{apart}");
    let waits = [live.report.wait, simulated(flags).wait].map(|wait| wait.unwrap().all.mean);
    assert!((0.8..1.4).contains(&(waits[0] / waits[1])), "{waits:?}");

    let flags = Flags { peers: Some(6), entries: Some(6), backups: Some(2), count_violations: true, ..of("fair-k") };
    let kills = vec!["3@60s".parse().unwrap()];
    let live = play(flags, &Options { machines, kills, processes: 3, ..options(50) });
    assert_eq!((live.deaths.len(), live.report.harm().violations, live.report.harm().stuck), (1, 0, 0));
    assert_eq!(live.deaths[0].peers, [PeerId::new(3)]);
}

fn impossible_settings_are_refused() {
    let refused = |flags: Flags, kills: &[&str]| {
        let kills = kills.iter().map(|kill| kill.parse().unwrap()).collect();
        let setting = peerlock_live::setting(flags).unwrap();
        peerlock_live::run(&setting, &Options { kills, ..options(100) }, &|_| ()).unwrap_err().to_string()
    };
    assert!(refused(of("ideal"), &[]).contains("simulate it"));
    assert!(refused(of("custody"), &[]).contains("peerlock-lab bench"));
    assert!(refused(Flags { death: Some(Span::from_secs(9)), ..of("fair-k") }, &[]).contains("--kill"));
    assert!(refused(Flags { churn: Some(4), ..of("e2e") }, &["holder@3s"]).contains("leave out --kill"));
    assert!(refused(of("fair-k"), &["99@3s"]).contains("cannot kill peer 99"));
    assert!(refused(Flags { peers: Some(400), ..of("fair-k") }, &["holder@3s"]).contains("exceed the limit"));
    let cut = Some((Span::from_secs(1), Span::from_secs(2)));
    let alone = Options { cut, processes: 1, ..options(100) };
    let alone = peerlock_live::run(&peerlock_live::setting(of("bv95")).unwrap(), &alone, &|_| ());
    assert!(alone.unwrap_err().to_string().contains("needs two processes"));
    let program = "/nowhere/peerlock".into();
    let nowhere =
        peerlock_live::run(&peerlock_live::setting(of("bv95")).unwrap(), &Options { program, ..options(1) }, &|_| ());
    assert!(nowhere.unwrap_err().to_string().starts_with("cannot start a process of the run"));
}
