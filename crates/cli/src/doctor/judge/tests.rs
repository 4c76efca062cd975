use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;
use crate::dir::Occupant;

fn peer(number: u64, voter: &str, up: bool) -> Value {
    json!({ "peer": number.to_string(), "address": format!("10.0.0.{number}:7400"), "up": up, "since_ms": 12_000,
        "is_me": number == 1, "name": format!("db{number}"), "version": 1, "voter": voter, "keeps": true })
}

fn running(change: impl FnOnce(&mut Value, &mut Value, &mut Value)) -> Evidence {
    let mut about = json!({
        "program": { "version": env!("CARGO_PKG_VERSION"), "commit": env!("PEERLOCK_COMMIT"), "data_dir": "/d",
            "listens": "0.0.0.0:7400", "addresses": ["10.0.0.1:7400"] },
        "pid": 7, "runs_ms": 60_000, "slept_ms": 0,
        "secret": { "file": "/d/secret", "fingerprints": ["aaaaaaaa"], "behind": [] },
        "health": { "session": 3, "since_ms": 60_000, "ends_ms": 9_000, "sessions_lost": 0, "leaves": false,
            "resources": [] },
    });
    let mut cluster = json!({ "cluster": "c0ffee", "version": 1, "applied": 9,
        "peers": [peer(1, "leads", true), peer(2, "votes", true), peer(3, "votes", true)], "session_ms": 9_000 });
    let mut resources =
        json!([{ "name": "backup", "slots": 3, "holding_here": 1, "waiting_here": 2, "recovering": false }]);
    change(&mut about, &mut cluster, &mut resources);
    let running = Running {
        endpoint: "/run/agent.sock".into(),
        about: serde_json::from_value(about).expect("an agent"),
        cluster: serde_json::from_value(cluster).expect("a cluster"),
        resources: Ok(serde_json::from_value(resources).expect("resources")),
        stalled: Vec::new(),
    };
    Evidence { agent: AgentState::Running(Box::new(running)), dir: Some(dir()), rates: Some(RATES) }
}

const RATES: Rates = Rates { now: 12, average: -40, uptime: Duration::from_secs(864_000) };

fn dir() -> Dir {
    let last = Occupant { pid: 7, ends_by_itself: false, socket: "/run/agent.sock".into() };
    Dir {
        path: PathBuf::from("/d"),
        exists: true,
        last: Some(last),
        is_taken: false,
        is_drained: false,
        has_socket: false,
        known: Ok(Default::default()),
        registry: Some((48_123, None)),
        unwritable: None,
        free: Some(80_000_000_000),
    }
}

fn fault(evidence: &Evidence) -> Vec<String> {
    let level = |level| if level == Level::Bad { "bad" } else { "warn" };
    let found = judge(evidence).into_iter().filter(|finding| finding.level != Level::Ok);
    found.map(|Finding { level: it, about, what, .. }| format!("{} {about} {what}", level(it))).collect()
}

#[test]
fn healthy_agent_has_an_ok_finding_for_each_check() {
    let evidence = running(|_, _, _| {});
    assert_eq!(fault(&evidence), [""; 0]);
    let about: Vec<&str> = judge(&evidence).iter().map(|finding| finding.about).collect();
    let all =
        ["agent", "session", "cluster", "voters", "versions", "secret", "ports", "resources", "clock", "rate", "disk"];
    assert_eq!(about, all);
}

#[test]
fn wrong_hardware_clock_is_a_warning() {
    let day = Duration::from_secs(86_400);
    for (now, average, uptime, level, what) in [
        (12, -40, day, Level::Ok, "the system clock runs 0.001 % faster than the hardware clock"),
        (-999, 0, day, Level::Ok, "the system clock runs 0.100 % slower than the hardware clock"),
        (
            83_333,
            100,
            day,
            Level::Ok,
            "the system clock runs 8.333 % faster than the hardware clock: NTP corrects it, \
            which does not affect leases",
        ),
        (
            12,
            9_000,
            day,
            Level::Warn,
            "since boot, the system clock has run 0.900 % faster than the hardware clock that \
            leases are counted by",
        ),
        (
            12,
            -20_000,
            day,
            Level::Warn,
            "since boot, the system clock has run 2.000 % slower than the hardware clock \
            that leases are counted by",
        ),
        (12, 8_999, day, Level::Ok, "the system clock runs 0.001 % faster than the hardware clock"),
        (12, 20_000, day / 2, Level::Ok, "the system clock runs 0.001 % faster than the hardware clock"),
    ] {
        let found = rate(Rates { now, average, uptime });
        assert_eq!((found.level, found.what.as_str()), (level, what), "{now} {average} {uptime:?}");
    }
}

#[test]
fn advice_for_an_agent_stops_no_job() {
    let advised = |evidence: &Evidence| judge(evidence)[0].todo.clone().unwrap_or_default();
    let other_build = advised(&running(|about, _, _| about["program"]["commit"] = json!("old")));
    assert!(other_build.contains("peerlock agent --replace") && other_build.contains("jobs continue"), "{other_build}");
    let unresponsive =
        AgentState::Unresponsive { endpoint: "/run/agent.sock".into(), why: "it has not answered for 10 s".into() };
    let unresponsive = advised(&Evidence { agent: unresponsive, dir: Some(dir()), rates: Some(RATES) });
    assert!(unresponsive.contains("`kill -CONT 7`") && unresponsive.contains("`kill -KILL 7`"), "{unresponsive}");
}

#[test]
fn each_problem_is_the_only_finding() {
    type Change = fn(&mut Value, &mut Value, &mut Value);
    let cases: [(Change, &str); 16] = [
        (
            |about, _, _| about["health"]["registry_fault"] = json!("the registry has halted on this host: because"),
            "bad registry the registry has halted on this host",
        ),
        (|about, _, _| about["program"]["commit"] = json!("old"), "warn agent version "),
        (|about, _, _| about["health"]["leaves"] = json!(true), "warn agent version "),
        (
            |about, _, _| about["secret"]["fingerprints"] = json!(["bbbbbbbb", "aaaaaaaa"]),
            "warn secret bbbbbbbb is new, and aaaaaaaa still accepted, in /d/secret",
        ),
        (
            |about, _, _| {
                about["secret"] =
                    json!({ "file": "/d/secret", "fingerprints": ["bbbbbbbb", "aaaaaaaa"], "behind": ["3"] });
            },
            "warn secret bbbbbbbb is new, and aaaaaaaa still accepted, in /d/secret; db3 proved only the old one",
        ),
        (|about, _, _| about["health"]["sessions_lost"] = json!(2), "warn session expired 2 times"),
        (|about, _, _| about["health"]["sessions_lost"] = json!(1), "warn session expired once"),
        (
            |_, cluster, _| {
                cluster["peers"] = json!([peer(1, "leads", true), peer(2, "no", true), peer(3, "no", true)]);
            },
            "warn voters 1 of 1 connected: db1 (leads), of 3 members: the loss of one stops the cluster",
        ),
        (
            |_, cluster, _| {
                cluster["peers"] = json!([peer(1, "leads", true), peer(2, "votes", true), peer(3, "no", true)]);
            },
            "warn voters 2 of 2 connected: db1 (leads), db2, of 3 members: the loss of one stops the cluster",
        ),
        (
            |about, cluster, _| {
                about["program"]["join"] = json!(["db7:7400"]);
                cluster["peers"] = json!([peer(1, "leads", true)]);
            },
            "warn cluster this host is alone in its cluster, although --join names db7:7400",
        ),
        (|about, _, _| about["slept_ms"] = json!(7_200_000), "warn clock the machine was suspended for 2 h 0 min"),
        (
            |about, _, _| about["program"]["addresses"] = json!(["127.0.0.1:7400"]),
            "warn ports listens on 0.0.0.0:7400; advertises 127.0.0.1:7400",
        ),
        (
            |_, cluster, _| cluster["peers"][2]["version"] = json!(0),
            "warn versions the registry has version 1, the newest known is 1; older programs: db3 (0)",
        ),
        (
            |_, cluster, _| cluster["peers"] = json!([peer(1, "leads", true), peer(2, "no", false)]),
            "warn cluster not connected to db2 for 12 s",
        ),
        (
            |_, cluster, _| {
                let others = (4..=13_108).map(|number| peer(number, "no", true));
                cluster["peers"].as_array_mut().expect("peers").extend(others);
            },
            "warn cluster 13108 members of at most 16384: beyond that, no host can join",
        ),
        (
            |about, _, _| {
                let stall = json!({ "since_ms": 3_000, "missing": [], "why": "backup has not moved for 3 s: because" });
                about["health"]["resources"] = json!([{ "name": "backup", "holding": 0, "waiting": 1, "generation": 2,
                    "recoveries": 1, "stall": stall }]);
            },
            "warn resources backup has not moved for 3 s: because",
        ),
    ];
    for (change, expected) in cases {
        let found = fault(&running(change));
        assert_eq!(found.len(), 1, "{expected}: {found:?}");
        assert!(found[0].starts_with(expected), "{expected}: {found:?}");
    }
}

#[test]
fn warning_that_is_over_disappears_after_an_hour() {
    let hour = SETTLED.as_millis() as u64;
    for (since_ms, session, expected) in [(hour, json!(3), 0), (hour - 1, json!(3), 2), (hour, Value::Null, 3)] {
        let found = fault(&running(|about, _, _| {
            about["slept_ms"] = json!(7_200_000);
            about["health"]["sessions_lost"] = json!(2);
            about["health"]["since_ms"] = json!(since_ms);
            about["health"]["session"] = session.clone();
        }));
        assert_eq!(found.len(), expected, "{since_ms} {session}: {found:?}");
    }
    let findings = judge(&running(|about, _, _| {
        about["health"]["sessions_lost"] = json!(2);
        about["health"]["since_ms"] = json!(hour);
    }));
    let session = findings.iter().find(|finding| finding.about == "session").expect("a finding");
    assert!(session.what.ends_with("; expired 2 times before"), "{session:?}");
}

#[test]
fn small_or_growing_clusters_may_have_one_voter() {
    for voters in [&["leads", "no"][..], &["leads", "learns", "no"], &["leads", "votes", "votes", "no"]] {
        let peers: Vec<Value> = (1..).zip(voters).map(|(number, voter)| peer(number, voter, true)).collect();
        assert_eq!(fault(&running(|_, cluster, _| cluster["peers"] = json!(peers))), [""; 0], "{voters:?}");
    }
}

#[test]
fn absent_voters_are_named_and_counted() {
    let away = |gone: &[usize]| {
        let evidence = running(|_, cluster, _| gone.iter().for_each(|at| cluster["peers"][*at]["up"] = json!(false)));
        fault(&evidence).into_iter().find(|line| line.contains(" voters ")).expect("a finding")
    };
    let one = away(&[2]);
    assert!(
        one.starts_with(
            "warn voters 2 of 3 connected: db1 (leads), db2, db3; not connected to db3 for 12 s. Without 1 more"
        ),
        "{one}"
    );
    let two = away(&[1, 2]);
    assert!(
        two.starts_with("bad voters 1 of 3 connected") && two.ends_with("db2 for 12 s, db3 for 12 s: no quorum"),
        "{two}"
    );
}

#[test]
fn missing_session_is_bad_with_its_reason() {
    let mut evidence = running(|about, _, _| {
        about["health"] =
            json!({ "since_ms": 9_000, "sessions_lost": 0, "leaves": false, "resources": [], "problem": "because" });
    });
    let AgentState::Running(running) = &mut evidence.agent else { panic!("not running") };
    running.resources = Err(peerlock::Error::NoMajority { missing: Vec::new(), since: Duration::ZERO });
    assert_eq!(fault(&evidence), ["bad session because", "bad resources none can be acquired without a session"]);
}

#[test]
fn full_or_unwritable_disk_is_reported() {
    let denied = || Some(std::io::ErrorKind::PermissionDenied.into());
    let read_only = || Some(std::io::ErrorKind::ReadOnlyFilesystem.into());
    for (free, unwritable, expected) in [
        (Some(LITTLE), None, None),
        (Some(LITTLE - 1), None, Some("warn disk /d is writable, with 268 MB free")),
        (Some(NOTHING - 1), None, Some("bad disk /d is writable, with 16 MB free; the registry has 48 kB")),
        (None, denied(), Some("warn disk /d cannot be written")),
        (None, read_only(), Some("bad disk /d cannot be written")),
    ] {
        let evidence = Evidence { dir: Some(Dir { free, unwritable, ..dir() }), ..running(|_, _, _| {}) };
        let found = fault(&evidence);
        assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
        assert!(found.iter().all(|line| expected.is_some_and(|expected| line.starts_with(expected))), "{found:?}");
    }
}

#[test]
fn absent_agent_is_judged_by_its_directory() {
    let absent = |why: Option<&str>, dir: Dir| {
        let agent = AgentState::Absent { why: why.map(str::to_owned) };
        judge(&Evidence { agent, dir: Some(dir), rates: None })
    };
    let what = |why, dir| absent(why, dir)[0].what.clone();
    assert_eq!(what(None, dir()), "no agent is running; the last one (process 7) has exited");
    let killed = Dir { has_socket: true, ..dir() };
    assert_eq!(what(None, killed), "no agent is running; the last one (process 7) was killed");
    assert!(what(None, Dir { is_taken: true, ..dir() }).starts_with("an agent is starting or stopping"));
    assert_eq!(what(None, Dir { is_drained: true, ..dir() }), "no agent is running: this machine is drained");
    assert_eq!(what(None, Dir { exists: false, ..dir() }), "no agent is running, and none has run here");
    assert_eq!(what(Some("no agent answers at x: y"), dir()), "no agent answers at x: y");
    assert!(absent(None, dir()).iter().any(|it| it.level == Level::Warn && it.about == "voters"));
    let damaged = Dir { registry: Some((3, Some("no".into()))), ..dir() };
    assert!(absent(None, damaged).iter().any(|it| it.level == Level::Bad && it.about == "voters"));
}
