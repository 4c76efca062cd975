//! The scenarios of every protocol. After an intended change of traces: `UPDATE_GOLDENFILES=1 cargo test -p
//! peerlock-explore --test scenarios`, then review the difference.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use peerlock_explore::{Explorable, FaultLimits, Limits, Scenario, World};
use peerlock_peer::fixed::{OnRoutes, Routes};
use peerlock_protocols::backed::{self, Ring};
use peerlock_protocols::fair_k::{Config, Layout};
use peerlock_protocols::registry::Session;
use peerlock_protocols::{
    Backed, Coordinator, Custody, E2e, FairK, FairKLate, NonE2e, Protocol, Quorum, Replicas, Sigma, coordinator,
    custody, e2e, fair_k_late, non_e2e, sigma,
};
use peerlock_types::{PeerId, Span};

type Start<'a> = (Vec<PeerId>, Layout, &'a [&'a str]);

fn start<'a>(words: &'a [&'a str], usage: &impl Fn() -> String) -> Result<Start<'a>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| usage());
    let [range, "tokens", rest @ ..] = words else { return Err(usage()) };
    let (first, last) = range.split_once("..").ok_or_else(usage)?;
    let peers = (number(first)?..=number(last)?).map(PeerId::new).collect();
    let end = rest.iter().position(|&text| text == "root").ok_or_else(usage)?;
    let tokens = rest[..end].iter().map(|text| number(text).map(PeerId::new)).collect::<Result<Vec<_>, _>>()?;
    let [root, switches @ ..] = &rest[end + 1..] else { return Err(usage()) };
    Ok((peers, Layout { root: PeerId::new(number(root)?), tokens }, switches))
}

fn limits(slots: usize, ordered: bool) -> Limits {
    let (requests, clients, withdrawals) = (u64::MAX, usize::MAX, u32::MAX);
    Limits { requests, clients, withdrawals, ordered, ..Limits::new(slots) }
}

/// `peers 1..8 tokens 1 2 3 root 3 [printed] [ordered]`.
fn fair_k(words: &[&str]) -> Result<World<FairK>, String> {
    let usage = || format!("peers FIRST..LAST tokens PEER… root PEER [printed] [ordered], not {words:?}");
    let (peers, layout, switches) = start(words, &usage)?;
    if switches.iter().any(|switch| !["printed", "ordered"].contains(switch)) {
        return Err(usage());
    }
    let config = if switches.contains(&"printed") { Config::PRINTED } else { Config::REPAIRED };
    let limits = limits(layout.tokens.len(), switches.contains(&"ordered"));
    Ok(World::new(limits, peers.into_iter().map(|peer| (peer, FairK::new(peer, &layout, config)))))
}

/// `peers 1..5 tokens 2 root 1 [term 1]`.
fn fair_k_late(words: &[&str]) -> Result<World<FairKLate>, String> {
    let usage = || format!("peers FIRST..LAST tokens PEER… root PEER [term ENTRIES], not {words:?}");
    let (peers, layout, rest) = start(words, &usage)?;
    let config = match *rest {
        [] => fair_k_late::Config::default(),
        ["term", term] => {
            fair_k_late::Config { term: term.parse().map_err(|_| usage())?, ..fair_k_late::Config::default() }
        }
        _ => return Err(usage()),
    };
    let limits = limits(layout.tokens.len(), false);
    Ok(World::new(limits, peers.into_iter().map(|peer| (peer, FairKLate::new(peer, &layout, config)))))
}

/// `peers 1..4 tokens 1 root 1 backups 2 [never]`: backups on a ring in the order of the numbers.
fn backed(words: &[&str]) -> Result<World<Backed<FairK>>, String> {
    let usage = || format!("peers FIRST..LAST tokens PEER… root PEER backups NUMBER [never], not {words:?}");
    let (peers, layout, rest) = start(words, &usage)?;
    let ["backups", backups, rest @ ..] = rest else { return Err(usage()) };
    let recovers = match rest {
        [] => true,
        ["never"] => false,
        _ => return Err(usage()),
    };
    let config = backed::Config { backups: backups.parse().map_err(|_| usage())?, recovers };
    let ring = Ring::in_order(peers.iter().copied());
    let faults = FaultLimits { stops: u32::MAX, ..FaultLimits::default() };
    let faults =
        Limits { losses: u32::MAX, suspicions: u32::MAX, faults: Some(faults), ..limits(layout.tokens.len(), false) };
    let part = |whose| FairK::new(whose, &layout, Config::PRINTED);
    Ok(World::new(faults, peers.iter().map(|&me| (me, Backed::new(me, &ring, config, part)))))
}

/// `peers 0..3 slots 1 [resize 2 1]`: the first peer is the coordinator and has all tokens, and all are parties.
fn custody(words: &[&str]) -> Result<World<Custody>, String> {
    let usage = || format!("peers 0..LAST slots NUMBER [resize NUMBER [NUMBER]], not {words:?}");
    let number = |text: &str| text.parse::<u32>().map_err(|_| usage());
    let [range, "slots", slots, rest @ ..] = words else { return Err(usage()) };
    let resizes = match rest {
        [] => [0, 0],
        ["resize", one] => [number(one)?, 0],
        ["resize", one, two] => [number(one)?, number(two)?],
        _ => return Err(usage()),
    };
    let (last, slots) = (number(range.strip_prefix("0..").ok_or_else(usage)?)?, number(slots)?);
    let any = u32::MAX;
    let (stops, sessions, takeovers, forces, forgets, detached) = (any, any, any, any, any, any);
    let parties = last as usize + 1;
    let faults = FaultLimits {
        parties,
        stops,
        sessions,
        takeovers,
        forces,
        forgets,
        detached,
        resizes,
        ..FaultLimits::default()
    };
    let limits = Limits { faults: Some(faults), tidy: true, ..limits(slots as usize, false) };
    let config = custody::Config { numbers: 100, batch: None, ..custody::Config::default() };
    let session = |peer| Session { peer, number: 0 };
    let peers = (0..=u64::from(last)).map(PeerId::new);
    Ok(World::new(limits, peers.map(|id| (id, Custody::founded(session(id), config, PeerId::new(0), slots)))))
}

/// `peers 0..8 votes 2 of 3 ways 6-3-4 7-3-4 8-4 [printed]`: the first peers are the replicas, and a way leads from a
/// client through its hops to all of them.
fn on_routes<P: Protocol>(
    words: &[&str],
    new_peer: impl Fn(PeerId, &Replicas, bool) -> P,
) -> Result<World<OnRoutes<P>>, String>
where
    OnRoutes<P>: Explorable,
{
    let usage = || format!("peers FIRST..LAST votes M of N ways CLIENT-HOP… … [printed], not {words:?}");
    let number = |text: &str| text.parse::<u64>().map_err(|_| usage());
    let [range, "votes", votes, "of", replicas, "ways", rest @ ..] = words else { return Err(usage()) };
    let (first, last) = range.split_once("..").ok_or_else(usage)?;
    let (ways, is_printed) = match rest {
        [ways @ .., "printed"] => (ways, true),
        ways => (ways, false),
    };
    let quorum = Quorum::new(number(replicas)? as u32, number(votes)? as u32);
    let replicas = Replicas::on_overlay("resource", quorum);
    let mut routes = Routes::default();
    for way in ways {
        let way = way.split('-').map(number).collect::<Result<Vec<_>, _>>()?;
        for (replica, key) in (0..quorum.replicas()).filter_map(|replica| Some((replica, replicas.key(replica)?))) {
            routes = routes.with(key, &[way.as_slice(), &[replica.into()]].concat());
        }
    }
    let (routes, limits) = (Arc::new(routes), limits(1, false));
    let peer = |id| (id, OnRoutes::new(new_peer(id, &replicas, is_printed), routes.clone()));
    Ok(World::new(limits, (number(first)?..=number(last)?).map(PeerId::new).map(peer)))
}

fn non_e2e(words: &[&str]) -> Result<World<OnRoutes<NonE2e>>, String> {
    let config = |is_printed| if is_printed { non_e2e::Config::PRINTED } else { non_e2e::Config::REPAIRED };
    on_routes(words, |id, replicas, is_printed| NonE2e::new(id, replicas, config(is_printed)))
}

fn e2e(words: &[&str]) -> Result<World<OnRoutes<E2e>>, String> {
    let config = |is_printed| if is_printed { e2e::Config::PRINTED } else { e2e::Config::REPAIRED };
    on_routes(words, |id, replicas, is_printed| E2e::new(id, replicas, config(is_printed)))
}

/// `peers replicas 3 votes 2 clients 2 [printed]`: the replicas, then the clients.
fn sigma(words: &[&str]) -> Result<World<Sigma>, String> {
    let usage = || format!("peers replicas N votes M clients C [printed], not {words:?}");
    let number = |text: &str| text.parse::<u32>().map_err(|_| usage());
    let ["replicas", replicas, "votes", votes, "clients", clients, rest @ ..] = words else { return Err(usage()) };
    let config = match rest {
        [] => sigma::Config::REPAIRED,
        ["printed"] => sigma::Config::PRINTED,
        _ => return Err(usage()),
    };
    let (quorum, clients) = (Quorum::new(number(replicas)?, number(votes)?), number(clients)?);
    let limits = Limits {
        requests: u64::MAX,
        clients: usize::MAX,
        withdrawals: u32::MAX,
        timeouts: u32::MAX,
        resets: u32::MAX,
        replicas: quorum.replicas() as usize,
        longest_timer: Span::from_secs(5), // Retries and renewals, but no end of a lease.
        ..Limits::new(1)
    };
    let (places, peers) = (Replicas::first(quorum), 0..u64::from(quorum.replicas() + clients));
    Ok(World::new(limits, peers.map(PeerId::new).map(|id| (id, Sigma::new(id, &places, config)))))
}

/// `peers 0..5 replicas 3 [printed]`: replicas, then clients.
fn coordinator(words: &[&str]) -> Result<World<Coordinator>, String> {
    let usage = || format!("peers 0..LAST replicas NUMBER [printed], not {words:?}");
    let number = |text: &str| text.parse::<u32>().map_err(|_| usage());
    let [range, "replicas", replicas, switches @ ..] = words else { return Err(usage()) };
    let (replicas, last) = (number(replicas)?, number(range.strip_prefix("0..").ok_or_else(usage)?)?);
    let config = match switches {
        [] => coordinator::Config::REPAIRED,
        ["printed"] => coordinator::Config::PRINTED,
        _ => return Err(usage()),
    };
    let places = Replicas::first(Quorum::new(replicas, replicas / 2 + 1));
    let (requests, clients, withdrawals) = (u64::MAX, usize::MAX, u32::MAX);
    let limits = Limits { requests, clients, withdrawals, replicas: replicas as usize, ..Limits::new(1) };
    let peers = (0..=u64::from(last)).map(PeerId::new);
    Ok(World::new(limits, peers.map(|peer| (peer, Coordinator::new(peer, &places, config)))))
}

/// One slot fewer than there are tokens: the check fails on correct runs.
fn too_strict(words: &[&str]) -> Result<World<FairK>, String> {
    let world = fair_k(words)?;
    let limits = Limits { slots: world.limits().slots - 1, ..*world.limits() };
    Ok(World::new(limits, (0..world.ids().len()).map(|at| (world.ids()[at], world.peer(at).clone()))))
}

fn play_all<P: Explorable + Display>(dir: &str, world_of: fn(&[&str]) -> Result<World<P>, String>) -> io::Result<()> {
    play(dir, || Scenario::new(world_of))
}

fn play<P: Explorable + Display>(dir: &str, scenario: impl Fn() -> Scenario<P>) -> io::Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(dir);
    let mut files = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        println!("{}", file.display());
        goldenscript::run(&mut scenario(), file)?;
    }
    Ok(())
}

#[test]
fn fair_k_scenarios() {
    play_all("fair_k", fair_k).unwrap();
}

#[test]
fn e2e_scenarios() {
    play_all("e2e", e2e).unwrap();
}

#[test]
fn non_e2e_scenarios() {
    play_all("non_e2e", non_e2e).unwrap();
}

#[test]
fn fair_k_late_scenarios() {
    play_all("fair_k_late", fair_k_late).unwrap();
}

#[test]
fn backed_scenarios() {
    play_all("backed", backed).unwrap();
}

#[test]
fn defects_of_backups() {
    play("backed_defects", || Scenario::of_defects(backed)).unwrap();
}

#[test]
fn defect_scenario_must_end_with_its_violation() {
    let play = |script: &str| {
        let script = format!("peers 1..2 tokens 1 root 1 backups 1 never\nrequest 1\n{script}---\n");
        goldenscript::generate(&mut Scenario::of_defects(backed), &script).map_err(|error| error.to_string())
    };
    assert!(play("").unwrap_err().contains("ends without a violation"));
    let broken = "request 2\nsuspect 2 1\n";
    assert!(play(broken).unwrap().contains("violation: 2 clients hold slots, 1 allowed"));
    assert!(play(&format!("{broken}leave 1\n")).unwrap_err().contains("nothing comes after a violation"));
}

#[test]
fn custody_scenarios() {
    play_all("custody", custody).unwrap();
}

#[test]
fn sigma_scenarios() {
    play_all("sigma", sigma).unwrap();
}

#[test]
fn coordinator_scenarios() {
    play_all("coordinator", coordinator).unwrap();
}

const FILE: &str = "PEERLOCK_SCENARIO_FILE";
const TWO_INSIDE: &str = "peers 1..2 tokens 1 2 root 1\nrequest 1\nrequest 2\n---\n";

/// The tests below run this in a process that may rewrite a file.
#[test]
fn play_in_lenient_world() {
    match std::env::var(FILE) {
        Ok(file) => goldenscript::run(&mut Scenario::new(fair_k), file).unwrap(),
        Err(_) => drop(goldenscript::generate(&mut Scenario::new(fair_k), TWO_INSIDE).unwrap()),
    }
}

#[test]
fn play_in_strict_world() {
    match std::env::var(FILE) {
        Ok(file) => goldenscript::run(&mut Scenario::new(too_strict), file).unwrap(),
        Err(_) => drop(goldenscript::generate(&mut Scenario::new(too_strict), TWO_INSIDE).unwrap_err()),
    }
}

/// Returns whether `script` passed, and the file afterwards.
fn rewrite(script: &str, by: &str) -> io::Result<(bool, String)> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("two_inside.scn");
    fs::write(&file, script)?;
    let mut test = Command::new(std::env::current_exe()?);
    test.args([by, "--exact"]).env("UPDATE_GOLDENFILES", "1").env(FILE, &file);
    let output = test.output()?;
    assert!(String::from_utf8_lossy(&output.stdout).contains("running 1 test"), "{output:?}");
    Ok((output.status.success(), fs::read_to_string(file)?))
}

#[test]
fn a_new_trace_is_written_where_no_check_fails() {
    let (went_well, file) = rewrite(TWO_INSIDE, "play_in_lenient_world").unwrap();

    assert!(went_well);
    let trace = "1: request\n1: enter slot 0, fencing 1\n2: request\n2: enter slot 1, fencing 2\n";
    assert_eq!(file, format!("{TWO_INSIDE}{trace}"));
}

#[test]
fn a_violation_fails_before_its_trace_is_written() {
    let (went_well, file) = rewrite(TWO_INSIDE, "play_in_strict_world").unwrap();

    assert!(!went_well);
    assert_eq!(file, TWO_INSIDE);
}

#[test]
fn a_violation_cannot_be_marked_as_expected() {
    let script = TWO_INSIDE.replace("request 2", "! request 2");

    let failure = goldenscript::generate(&mut Scenario::new(too_strict), &script).unwrap_err().to_string();

    assert!(failure.contains("cannot expect failure"), "{failure}");
}

#[test]
fn mistakes_in_a_scenario_are_explained() {
    let table = [
        ("request 1", "begins with `peers"),
        ("peers 1..2", "peers FIRST..LAST"),
        ("peers 1..2 tokens 1 root 1\nrequest 3", "no peer 3"),
        ("peers 1..2 tokens 1 root 1\nrequest one", "not a peer's number"),
        ("peers 1..2 tokens 1 root 1\nrequest", "which peer?"),
        ("peers 1..2 tokens 1 root 1\nleave 2", "no such client holds"),
        ("peers 1..2 tokens 1 root 1\nwithdraw 2", "waits"),
        ("peers 1..2 tokens 1 root 1\ndeliver 1 2", "no such message"),
        ("peers 1..2 tokens 1 root 1\ntimer 1", "no timer"),
        ("peers 1..2 tokens 1 root 1\nreset 1", "no replica"),
        ("peers 1..2 tokens 1 root 1\nstop 1", "not possible there now"),
        ("peers 1..2 tokens 1 root 1\nresize", "no other number of slots"),
        ("peers 1..2 tokens 1 root 1\nexpire", "no detached grant has expired"),
        ("peers 1..2 tokens 1 root 1\njump 1", "no such command"),
        ("peers 1..2 tokens=1", "not a word"),
    ];
    for (script, sentence) in table {
        let failure = goldenscript::generate(&mut Scenario::new(fair_k), &format!("{script}\n---\n"));
        let failure = failure.unwrap_err().to_string();
        assert!(failure.contains(sentence), "{script:?} gave {failure:?}");
    }
}
