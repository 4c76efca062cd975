//! Settings from flags, experiment files and JSON.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use clap::{Args as _, Command, FromArgMatches as _};
use peerlock_catalogue::{Flags, Form, Pair, Protocol, Setting};
use peerlock_types::{Rng, Span};

fn parsed(words: &[String]) -> Result<Setting, String> {
    let command = Flags::augment_args(Command::new("simulate")).no_binary_name(true);
    let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
    let flags = Flags::from_arg_matches(&matches).map_err(|error| error.to_string())?;
    Setting::try_from(flags).map_err(|refused| refused.to_string())
}

fn from_line(line: &str) -> Result<Setting, String> {
    parsed(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
}

fn from_table(text: &str) -> Result<Setting, String> {
    toml::from_str(text).map_err(|error| error.message().to_string())
}

fn random(rng: &mut Rng) -> Flags {
    fn maybe<T>(rng: &mut Rng, draw: impl Fn(&mut Rng) -> T) -> Option<T> {
        let value = draw(rng);
        rng.chance(0.6).then_some(value)
    }
    let count = |rng: &mut Rng| 1 + rng.below(2000) as u32;
    let share = |rng: &mut Rng| rng.below(1001) as f64 / 1000.0;
    let rate = |rng: &mut Rng| (1 + rng.below(100_000)) as f64 / 3000.0;
    let time = |rng: &mut Rng| {
        let digits = 1 + rng.below(12) as u32;
        Span::from_nanos(1 + rng.below(10_u64.pow(digits)))
    };
    let range = |rng: &mut Rng| {
        let low = time(rng);
        format!("{low:#}..{:#}", low + time(rng))
    };

    let (_, protocol) = Protocol::ALL[rng.below(Protocol::ALL.len() as u64) as usize];
    let replicas = 1 + rng.below(64) as u32;
    let mut flags = Flags {
        protocol: Some(protocol),
        latency: maybe(rng, |rng| match rng.below(3) {
            0 => format!("constant:{:#}", time(rng)).parse().unwrap(),
            1 => format!("uniform:{}", range(rng)).parse().unwrap(),
            _ => format!("jitter:{}", range(rng)).parse().unwrap(),
        }),
        links: maybe(rng, |rng| if rng.chance(0.5) { "ordered" } else { "unordered" }.parse().unwrap()),
        trials: maybe(rng, count),
        seed: maybe(rng, |rng| rng.bits()),
        ..Flags::default()
    };
    let spells = |rng: &mut Rng| Pair(time(rng), time(rng));
    flags.replica_life = maybe(rng, time);
    flags.loss = maybe(rng, share);
    flags.duplication = maybe(rng, share);
    flags.client_crash = maybe(rng, share);
    flags.delay = maybe(rng, |rng| Pair(share(rng), time(rng)));
    flags.crash = maybe(rng, spells);
    flags.death = maybe(rng, time);
    flags.freeze = maybe(rng, spells);
    flags.partition = maybe(rng, |rng| {
        let cut = ["whole", "one-way", "partial", "pairs"][rng.below(4) as usize];
        format!("{cut}:{}", spells(rng)).parse().unwrap()
    });
    flags.cut_off = maybe(rng, |rng| Pair(share(rng), time(rng)));
    flags.withdrawal = maybe(rng, share);
    flags.catastrophe = maybe(rng, |rng| Pair(share(rng), time(rng)));
    flags.detection = maybe(rng, time);
    flags.clocks = maybe(rng, |rng| Pair(time(rng), rng.below(1000)));
    flags.resets_at_most = maybe(rng, |rng| Pair(count(rng), time(rng))).filter(|_| flags.replica_life.is_some());
    flags.down_after_reset = maybe(rng, time).filter(|_| flags.replica_life.is_some());
    flags.count_violations = rng.chance(0.5);
    if protocol == Protocol::Ideal {
        flags = Flags { protocol: flags.protocol, latency: flags.latency, seed: flags.seed, ..Flags::default() };
    }
    let (name, on_overlay) = (protocol.to_string(), rng.chance(0.5));
    let is_routed = ["e2e", "non-e2e"].contains(&&*name) || (on_overlay && ["sigma", "coordinator"].contains(&&*name));
    let has_forms = ["fair-k", "coordinator", "e2e", "non-e2e"].contains(&&*name) || (name == "sigma" && !is_routed);
    flags.form = maybe(rng, |rng| if rng.chance(0.5) { Form::Printed } else { Form::Repaired }).filter(|_| has_forms);
    let has_voters = !(name.starts_with("fair-k") || name.starts_with("bv95") || name == "ideal");
    let is_closed = !has_voters || name == "custody" || (!is_routed && rng.chance(0.5));
    if !is_routed {
        flags.hold = maybe(rng, |rng| match rng.below(3) {
            0 => format!("{:#}", time(rng)).parse().unwrap(),
            1 => format!("exp:{:#}", time(rng)).parse().unwrap(),
            _ => format!("two-point:{:#}/{:#}", time(rng), Span::from_secs(100_000)).parse().unwrap(),
        });
        let is_two_point = flags.hold.is_some_and(|hold| hold.to_string().starts_with("two-point"));
        flags.long_share = maybe(rng, share).filter(|_| is_two_point);
    }
    if protocol == Protocol::Custody {
        (flags.links, flags.detection) = (None, None);
        (flags.replica_life, flags.resets_at_most, flags.down_after_reset) = (None, None, None);
        flags.replicas = maybe(rng, |rng| [1, 3, 5][rng.below(3) as usize]);
        flags.slots = maybe(rng, count);
        flags.lease = maybe(rng, |rng| Span::from_millis(1000 + rng.below(60_000)));
    } else if has_voters {
        flags.replicas = Some(replicas);
        flags.votes = maybe(rng, |rng| replicas - rng.below(u64::from(replicas.div_ceil(2))) as u32);
        flags.lease = maybe(rng, time);
    } else {
        (flags.replica_life, flags.resets_at_most, flags.down_after_reset) = (None, None, None);
        flags.slots = maybe(rng, count);
        let backups = maybe(rng, |rng| rng.below(65) as u32).filter(|_| protocol != Protocol::Ideal);
        let recovery = maybe(rng, |rng| if rng.chance(0.5) { "never" } else { "broadcast" }.parse().unwrap());
        (flags.backups, flags.recovery) = (backups, recovery.filter(|_| backups.is_some()));
    }
    if is_closed {
        flags.peers = Some(6 + count(rng));
        flags.think_rate = maybe(rng, rate);
        flags.entries = maybe(rng, count);
        flags.warm_up = maybe(rng, |rng| rng.below(50) as u32);
        return flags;
    }
    flags.settle = maybe(rng, time);
    if is_routed {
        flags.overlay = Some(if rng.chance(0.5) { "chord" } else { "pastry" }.parse().unwrap());
        flags.peers = Some(1000 + count(rng));
        flags.resources = maybe(rng, count);
        flags.rounds = maybe(rng, count);
        flags.round = maybe(rng, time);
        flags.requests = maybe(rng, count);
        flags.load = maybe(rng, |rng| if rng.chance(0.5) { "whole" } else { "per-peer" }.parse().unwrap());
        flags.churn = maybe(rng, |rng| rng.below(1000) as u32);
        flags.retry = maybe(rng, time).filter(|_| name == "sigma");
    } else {
        flags.arrival_rate = maybe(rng, rate);
        flags.measure = maybe(rng, time);
    }
    flags
}

#[test]
fn setting_round_trips_through_flags_json_and_toml() {
    let mut rng = Rng::new(1);
    for number in 0..2000 {
        let flags = random(&mut rng);
        let setting =
            Setting::try_from(flags.clone()).unwrap_or_else(|refused| panic!("{number}: {refused}: {flags:?}"));
        assert_eq!(parsed(&setting.arguments()).as_ref(), Ok(&setting), "{number}: {}", setting.command());
        let json = serde_json::to_string(&setting).unwrap();
        assert_eq!(serde_json::from_str::<Setting>(&json).unwrap(), setting, "{number}: {json}");
        let seed = setting.seed() >> 1;
        let small = setting.with_seed(seed); // TOML's numbers have a sign.
        let table = toml::to_string(&small).unwrap();
        assert_eq!(from_table(&table).as_ref(), Ok(&small), "{number}: {table}");
    }
}

#[test]
fn largest_numbers_do_not_overflow() {
    let all = "--trials 4294967295 --entries 4294967295";
    for line in [
        format!("{all} --peers 10000000"),
        "--protocol e2e --trials 4294967295 --rounds 4294967295 --round 1s --requests 4294967295 --load per-peer"
            .into(),
        "--protocol sigma --trials 4294967295 --arrival-rate 1e9 --measure 2500000h".into(),
    ] {
        assert_eq!(from_line(&line).unwrap().cost(), u64::MAX, "{line}");
    }
    let long = "--protocol coordinator --replicas 3 --lease 2500000h --settle 0s --measure 5s --trials 1";
    assert!(from_line(long).unwrap().run(&|_| {}).unwrap().entries > 0);
}

/// Pings are frequent enough with a lease of 10 s.
#[test]
fn short_lease_detects_dead_owner_within_the_run() {
    let line = "--protocol e2e --overlay chord --peers 12 --resources 4 --replicas 5 --rounds 10 --death 60s \
                --trials 20 --count-violations --seed 1";
    let report = from_line(line).unwrap().run(&|_| {}).unwrap();
    assert!(report.numbers.count("crashed") > 10, "no peer has crashed: the test is void");
    assert_eq!(report.harm().stuck, 0);
}

#[test]
fn command_is_quoted_for_the_shell() {
    let setting =
        from_line("--protocol sigma --replicas 8 --votes 6 --hold 1s --replica-life 30s --count-violations").unwrap();
    assert_eq!(
        setting.command(),
        "peerlock-lab simulate --protocol sigma --form repaired --replicas 8 --votes 6 --hold 1s --arrival-rate 3 \
         --latency uniform:0s..200ms --links ordered --lease 10s --settle 300s --measure 600s --replica-life 30s \
         --count-violations --trials 10 --seed 1"
    );
    let words = ["--latency", "matrix:it's here; or not"].map(String::from);
    let setting = parsed(&words).unwrap();
    assert!(setting.command().contains(r"--latency 'matrix:it'\''s here; or not' "), "{}", setting.command());
    assert_eq!(parsed(&setting.arguments()), Ok(setting));
}

#[test]
fn help_defaults_are_the_actual_defaults() {
    let help = Flags::augment_args(Command::new("simulate"));
    for line in ["", "--protocol sigma", "--protocol sigma --peers 100", "--protocol e2e", "--protocol custody"] {
        for (name, value) in from_line(line).unwrap().pairs() {
            let flag = help.get_arguments().find(|flag| flag.get_long() == Some(&name)).unwrap();
            let text = flag.get_help().unwrap().to_string();
            let default = text.split("[default: ").nth(1).unwrap_or_else(|| panic!("{name} has no default: {text}"));
            let mut words = default.split([' ', ',', ';', ']']);
            let is_set_here = line.contains(&format!("--{name} "));
            assert!(is_set_here || words.any(|word| word == value), "{name} is {value} in {line:?}: {text}");
        }
    }
}

#[test]
fn documentation_names_every_flag() {
    let page = include_str!("../../docs/simulate.md");
    let help = Flags::augment_args(Command::new("simulate"));
    for flag in help.get_arguments().filter_map(|flag| flag.get_long()) {
        assert!(page.contains(&format!("--{flag}")), "--{flag}");
    }
}

#[test]
fn invalid_settings_give_the_same_error_everywhere() {
    for (line, table, message) in [
        ("--peers 0", "peers = 0", "peers must be at least 1"),
        ("--trials 0", "trials = 0", "trials must be at least 1"),
        ("--think-rate 0", "think-rate = 0", "think-rate 0 must be a number above 0"),
        ("--think-rate -1", "think-rate = -1", "think-rate -1 must be a number above 0"),
        ("--think-rate NaN", "think-rate = nan", "think-rate NaN must be a number above 0"),
        ("--loss 1.5", "loss = 1.5", "loss 1.5 must be a share from 0 to 1"),
        ("--loss NaN", "loss = nan", "loss NaN must be a share from 0 to 1"),
        ("--hold 1s --long-share 0.5", "hold = '1s'\nlong-share = 0.5", "long-share needs a two-point hold"),
        ("--arrival-rate 3", "arrival-rate = 3", "arrival-rate has no effect on fair-k among 100 peers: leave it out"),
        (
            "--protocol ideal --form printed",
            "protocol = 'ideal'\nform = 'printed'",
            "ideal has only one form: leave form printed out",
        ),
        (
            "--protocol sigma --overlay pastry --form printed",
            "protocol = 'sigma'\noverlay = 'pastry'\nform = 'printed'",
            "sigma has only one form on an overlay: leave form printed out",
        ),
        (
            "--protocol sigma --votes 16",
            "protocol = 'sigma'\nvotes = 16",
            "16 votes of 32 replicas are not a quorum: use 17 to 32",
        ),
        ("--protocol sigma --replicas 65", "protocol = 'sigma'\nreplicas = 65", "replicas 65 must be from 1 to 64"),
        (
            "--protocol sigma --slots 3",
            "protocol = 'sigma'\nslots = 3",
            "slots has no effect on sigma with 32 replicas: leave it out",
        ),
        (
            "--protocol sigma --peers 3 --arrival-rate 1",
            "protocol = 'sigma'\npeers = 3\narrival-rate = 1",
            "arrival-rate has no effect on sigma among 3 peers with 32 replicas: leave it out",
        ),
        (
            "--protocol sigma --latency king",
            "protocol = 'sigma'\nlatency = 'king'",
            "latency king has a fixed number of hosts, and this workload adds hosts: use constant, uniform or jitter",
        ),
        (
            "--overlay pastry",
            "overlay = 'pastry'",
            "fair-k does not run on an overlay: leave overlay pastry out, or use sigma, coordinator, e2e, non-e2e",
        ),
        (
            "--protocol e2e --peers 10 --churn 20",
            "protocol = 'e2e'\npeers = 10\nchurn = 20",
            "churn 20 removes all 10 peers",
        ),
        ("--crash 0s/5s", "crash = '0s/5s'", "the interval of crash must be more than 0s"),
        ("--delay 2/5s", "delay = '2/5s'", "delay 2 must be a share from 0 to 1"),
        (
            "--replica-life 30s",
            "replica-life = '30s'",
            "fair-k has no replicas to reset: leave replica-life out, or use crash",
        ),
        (
            "--protocol ideal --loss 0.1",
            "protocol = 'ideal'\nloss = 0.1",
            "ideal is a bound without faults: leave faults out, or use another protocol",
        ),
        ("--resets-at-most 2/10s", "resets-at-most = '2/10s'", "resets-at-most needs replica-life: set it as well"),
        (
            "--protocol custody --replicas 4",
            "protocol = 'custody'\nreplicas = 4",
            "replicas 4: custody has 1, 3 or 5 voters",
        ),
        (
            "--protocol custody --replicas 5 --peers 6",
            "protocol = 'custody'\nreplicas = 5\npeers = 6",
            "peers 6 are too few: 5 voters need at least 7 peers",
        ),
        (
            "--protocol custody --votes 2",
            "protocol = 'custody'\nvotes = 2",
            "votes has no effect on custody among 20 peers with 3 voters: leave it out",
        ),
        (
            "--protocol custody --lease 1ms",
            "protocol = 'custody'\nlease = '1ms'",
            "lease 1ms is not a valid session length: it is not between a tenth of a second and thirty days",
        ),
        (
            "--protocol custody --detection 5s",
            "protocol = 'custody'\ndetection = '5s'",
            "custody detects failures itself: leave detection out",
        ),
        (
            "--protocol custody --replica-life 5s",
            "protocol = 'custody'\nreplica-life = '5s'",
            "custody has no replicas to reset: leave replica-life out, or use crash",
        ),
        (
            "--protocol custody --links unordered",
            "protocol = 'custody'\nlinks = 'unordered'",
            "custody runs on ordered connections: leave links unordered out",
        ),
        ("--protocol sigma --measure 0s", "protocol = 'sigma'\nmeasure = '0s'", "measure must be more than 0s"),
        ("--slots 4294967295", "slots = 4294967295", "slots 4294967295 exceeds the limit of 10000000"),
        ("--peers 10000001", "peers = 10000001", "peers 10000001 exceeds the limit of 10000000"),
        (
            "--protocol sigma --arrival-rate 1e10",
            "protocol = 'sigma'\narrival-rate = 1e10",
            "arrival-rate 10000000000 exceeds one per nanosecond",
        ),
        (
            "--clocks 1s/1000000",
            "clocks = '1s/1000000'",
            "clocks: a drift of 1000000 ppm would stop or reverse a clock",
        ),
        (
            "--protocol e2e --rounds 5 --round 2000000h",
            "protocol = 'e2e'\nrounds = 5\nround = '2000000h'",
            "5 rounds of 7200000000s exceed the clock's range of 584 years",
        ),
        (
            "--protocol sigma --backups 0 --loss 0.1",
            "protocol = 'sigma'\nbackups = 0\nloss = 0.1",
            "backups has no effect on sigma with 32 replicas: leave it out",
        ),
        (
            "--protocol custody --backups 0 --loss 0.1",
            "protocol = 'custody'\nbackups = 0\nloss = 0.1",
            "backups has no effect on custody among 20 peers with 3 voters: leave it out",
        ),
    ] {
        for result in [from_line(line), from_table(table)] {
            let error = result.unwrap_err();
            assert!(error.starts_with(message), "{line}: {error}");
        }
    }
    assert!(from_line("--churn 0").is_ok(), "a value that turns something off is always valid");
}
