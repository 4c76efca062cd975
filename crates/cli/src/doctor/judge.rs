//! Derives the findings from the evidence, without side effects, so that every finding is tested.

use std::time::Duration;

use peerlock::{OtherCluster, PeerView, ResourceHealth, Voter};
use peerlock_http::AgentView;
use peerlock_types::roughly;

use super::evidence::{AgentState, Dir, Evidence, Rates, Running};
use super::{Finding, Level};

const LITTLE: u64 = 256 << 20;
const NOTHING: u64 = 16 << 20;
/// The longest recovery that the expiry of a session explains.
const LONG: Duration = Duration::from_secs(120);

/// The deviation of the system clock from the hardware clock, in millionths, that NTP may cause by a correction.
const SLEWED: u64 = 1000;
/// Leases tolerate an error of 10,000 millionths (`crates/registry/src/leases.rs`). The average is judged after a day
/// at least: within a shorter time, a correction of a minute weighs too much.
const WRONG: u64 = 9000;
/// The limit of the registry (`crates/registry/src/state.rs`).
const MOST_MEMBERS: usize = 16_384;
const A_DAY: Duration = Duration::from_secs(86_400);
/// A session that has been valid for this long has no recent loss.
const SETTLED: Duration = Duration::from_secs(3600);

pub fn judge(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = vec![agent(&evidence.agent, evidence.dir.as_ref())];
    if let AgentState::Running(running) = &evidence.agent {
        findings.extend(session(running));
        findings.extend(cluster(running));
        findings.extend(others(running));
        findings.extend(registry(running));
        findings.push(voters(running));
        findings.push(versions(running));
        findings.extend(secret(running));
        findings.push(ports(running));
        findings.extend(resources(running));
        findings.push(clock(running));
    } else if let Some(dir) = &evidence.dir {
        findings.extend(left_behind(dir));
    }
    findings.extend(evidence.rates.map(rate));
    findings.extend(evidence.dir.as_ref().filter(|dir| dir.exists).map(disk));
    findings
}

fn finding(level: Level, about: &'static str, what: String) -> Finding {
    Finding { level, about, what, todo: None }
}

fn advice(level: Level, about: &'static str, what: String, todo: &str) -> Finding {
    Finding { level, about, what, todo: Some(todo.to_owned()) }
}

fn called(peer: &PeerView) -> String {
    let names = [&peer.name, &peer.address];
    names.into_iter().find(|name| !name.is_empty()).cloned().unwrap_or_else(|| peer.peer.to_string())
}

fn listed<T>(all: impl IntoIterator<Item = T>, name: impl Fn(T) -> String) -> String {
    all.into_iter().map(name).collect::<Vec<_>>().join(", ")
}

fn away(peer: &PeerView) -> String {
    format!("{} for {}", called(peer), roughly(peer.since))
}

fn agent(observed: &AgentState, dir: Option<&Dir>) -> Finding {
    match observed {
        AgentState::Running(running) => runs(running),
        AgentState::Unresponsive { endpoint, why } => {
            let pid = dir.and_then(|dir| dir.last.as_ref()).map(|last| last.pid.to_string());
            let process = pid.as_ref().map(|pid| format!(" (process {pid})")).unwrap_or_default();
            let what = format!("the agent at {endpoint}{process} does not answer correctly: {why}");
            let pid = pid.unwrap_or_else(|| "PID".to_owned());
            let todo = format!(
                "See its log. If it is suspended (SIGSTOP), continue it (`kill -CONT {pid}`) or kill it (`kill -KILL \
                 {pid}`): its jobs continue at the next agent. If its version is older: `peerlock agent --replace`."
            );
            advice(Level::Bad, "agent", what, &todo)
        }
        AgentState::Absent { why } => {
            let dir = dir.filter(|dir| dir.exists);
            let last = dir.and_then(|dir| dir.last.as_ref().map(|last| (dir, last)));
            let (what, todo) = match (why, last) {
                (Some(why), _) => (why.clone(), "Run this as its user or as root, or name it with --agent."),
                (None, None) => {
                    let todo = "Start it with `peerlock agent`; `peerlock run` starts one automatically.";
                    ("no agent is running, and none has run here".to_owned(), todo)
                }
                (None, Some((dir, _))) if dir.is_taken => {
                    let todo = "Wait a moment; if that does not help, see its log.";
                    ("an agent is starting or stopping: it has the data directory and does not answer".to_owned(), todo)
                }
                (None, Some((dir, _))) if dir.is_drained => {
                    let todo = "To end the maintenance, start it with `peerlock agent` or its systemd unit.";
                    ("no agent is running: this machine is drained".to_owned(), todo)
                }
                (None, Some((dir, last))) => {
                    let how = if dir.has_socket { "was killed" } else { "has exited" };
                    let todo = match last.ends_by_itself {
                        true => "The next command starts it again.",
                        false => "Start it again as before: `peerlock agent …`, or its systemd unit.",
                    };
                    (format!("no agent is running; the last one (process {}) {how}", last.pid), todo)
                }
            };
            advice(Level::Bad, "agent", what, todo)
        }
    }
}

fn runs(Running { endpoint, about, .. }: &Running) -> Finding {
    let program = &about.program;
    let commit: String = program.commit.chars().take(12).collect();
    let what = format!(
        "version {} ({commit}), process {}, for {}, at {endpoint}",
        program.version,
        about.pid,
        roughly(about.runs)
    );
    let ours = (env!("CARGO_PKG_VERSION"), env!("PEERLOCK_COMMIT"));
    if about.health.leaves {
        return advice(
            Level::Warn,
            "agent",
            format!("{what}; draining"),
            "It accepts no requests, and exits when the jobs that hold slots here have finished.",
        );
    }
    match (&program.version[..], &program.commit[..]) == ours {
        true => finding(Level::Ok, "agent", what),
        false => {
            let what = format!("{what}; this program is version {}, another build", ours.0);
            let todo = "To run this build: `peerlock agent --replace` or `systemctl restart peerlock`. Its jobs \
                        continue.";
            advice(Level::Warn, "agent", what, todo)
        }
    }
}

fn session(Running { about, .. }: &Running) -> Vec<Finding> {
    let health = &about.health;
    let since = roughly(health.since);
    let times = match health.sessions_lost {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    let mut findings = vec![match (health.session, health.ends, &health.problem) {
        (Some(session), Some(ends), _) => {
            let before = if health.sessions_lost > 0 { format!("; expired {times} before") } else { String::new() };
            let what = format!("number {session}, for {since}, expires in {} unless renewed{before}", roughly(ends));
            finding(Level::Ok, "session", what)
        }
        (_, _, problem) => {
            finding(Level::Bad, "session", problem.clone().unwrap_or_else(|| format!("none for {since}")))
        }
    }];
    if health.sessions_lost > 0 && !is_settled(about) {
        let what = format!("expired {times} since the agent's start; its jobs were stopped each time");
        let todo = "The agent's log has times and reasons: no quorum, a suspended process or machine.";
        findings.push(advice(Level::Warn, "session", what, todo));
    }
    findings
}

/// Returns whether the last loss of a session, by a suspension or otherwise, is no longer worth a warning.
fn is_settled(about: &AgentView) -> bool {
    about.health.session.is_some() && about.health.since >= SETTLED
}

fn cluster(Running { cluster, about, .. }: &Running) -> Vec<Finding> {
    if cluster.cluster.is_empty() {
        let todo = "Check --join, --expect and the secret file; an agent without --join creates a cluster.";
        return vec![advice(Level::Bad, "cluster", "this agent has not found its cluster yet".to_owned(), todo)];
    }
    let members: Vec<&PeerView> = cluster.peers.iter().filter(|peer| peer.version.is_some()).collect();
    let count = members.len();
    let many = if count == 1 { "member" } else { "members" };
    let what = format!("{} with {count} {many}: {}", cluster.cluster, listed(&members, |peer| called(peer)));
    let mut findings = vec![finding(Level::Ok, "cluster", what)];
    let gone: Vec<&&PeerView> = members.iter().filter(|peer| !peer.up).collect();
    if !gone.is_empty() {
        let what = format!("not connected to {}", listed(gone, |peer| away(peer)));
        let todo = "Check that their agents are running and their ports are open. Their slots are granted to others \
                    when their sessions expire.";
        findings.push(advice(Level::Warn, "cluster", what, todo));
    }
    if count == 1 && !about.program.join.is_empty() && about.health.others.is_empty() {
        let what =
            format!("this host is alone in its cluster, although --join names {}", about.program.join.join(", "));
        let todo = "A host there may grant slots of the same names. Check its agent, its port and the address; the \
                    agent joins that cluster when it is restarted and can reach it.";
        findings.push(advice(Level::Warn, "cluster", what, todo));
    }
    if count * 10 >= MOST_MEMBERS * 8 {
        let what = format!("{count} members of at most {MOST_MEMBERS}: beyond that, no host can join");
        let todo = "Hosts with a data directory stay members. Remove those that will not return: `peerlock peers \
                    --forget HOST`.";
        findings.push(advice(Level::Warn, "cluster", what, todo));
    }
    findings
}

fn registry(Running { about, .. }: &Running) -> Option<Finding> {
    let fault = about.health.registry_fault.clone()?;
    Some(finding(Level::Bad, "registry", fault))
}

/// Reports hosts of other clusters, which grant slots of the same names.
fn others(Running { about, .. }: &Running) -> Vec<Finding> {
    let ours = about.program.data_dir.as_deref().unwrap_or("the data directory");
    let finding = |other: &OtherCluster| {
        let OtherCluster { host, address, cluster, is_joined, met, .. } = other;
        let how = if *is_joined { "it is given in --join" } else { "it has the same secret" };
        let name = if host == address { String::new() } else { format!("{host} at ") };
        let what = format!("{name}{address} belongs to another cluster ({cluster}), seen {} ago; {how}", roughly(*met));
        let todo = match is_joined {
            true => format!(
                "Both clusters grant slots of the same names. To move this host there, restart its agent with the same \
                 --join: it joins if it holds nothing and its own cluster has no other host; otherwise it reports the \
                 obstacle. To stay, correct --join. Its own cluster is in {ours}."
            ),
            false => "Both clusters grant slots of the same names. Move the hosts of one cluster to the other, or \
                      give it another secret."
                .to_owned(),
        };
        advice(Level::Bad, "cluster", what, &todo)
    };
    about.health.others.iter().map(finding).collect()
}

fn voters(Running { cluster, about, .. }: &Running) -> Finding {
    let votes = |peer: &&PeerView| matches!(peer.voter, Voter::Votes | Voter::Leads);
    let voters: Vec<&PeerView> = cluster.peers.iter().filter(votes).collect();
    let (up, gone): (Vec<&PeerView>, Vec<&PeerView>) = voters.iter().partition(|peer| peer.up);
    let name = |peer: &PeerView| match peer.voter {
        Voter::Leads if peer.up => format!("{} (leads)", called(peer)),
        _ => called(peer),
    };
    let names = listed(&voters, |peer| name(peer));
    let majority = voters.len() / 2 + 1;
    if voters.is_empty() {
        let todo = "The agent continues automatically when it can reach one.";
        return advice(Level::Bad, "voters", "no voter is known".to_owned(), todo);
    }
    let host = format!("{} of {} connected: {names}", up.len(), voters.len());
    if up.len() < majority {
        let what = format!("{host}; not connected to {}: no quorum", listed(gone, away));
        let todo = "Nothing is granted without a quorum: start their agents, or fix the network. Only if they are \
                    lost for good: `peerlock recover`.";
        return advice(Level::Bad, "voters", what, todo);
    }
    if !gone.is_empty() {
        let (spare, missing) = (up.len() - majority, listed(gone, away));
        let what = format!("{host}; not connected to {missing}. Without {} more, nothing is granted", spare + 1);
        let todo = "Start their agents; a voter that is away for a minute is replaced by another host, if any.";
        return advice(Level::Warn, "voters", what, todo);
    }
    let members = cluster.peers.iter().filter(|peer| peer.version.is_some()).count();
    let changes = cluster.peers.iter().any(|peer| peer.voter == Voter::Learns);
    if voters.len() < 3 && members >= 3 && !changes {
        let what = format!("{host}, of {members} members: the loss of one stops the cluster");
        let todo = "Let three hosts with data directories vote: `peerlock voters --auto`, or --set. `peerlock voters` \
                    lists them.";
        return advice(Level::Warn, "voters", what, todo);
    }
    let leads = voters.iter().any(|peer| peer.voter == Voter::Leads);
    match leads || about.health.session.is_some() {
        true => finding(Level::Ok, "voters", host),
        false => advice(Level::Warn, "voters", format!("{host}; no leader"), "They elect a leader within seconds."),
    }
}

fn versions(Running { cluster, .. }: &Running) -> Finding {
    let newest = cluster.peers.iter().filter_map(|peer| peer.version).max().unwrap_or(0);
    let old: Vec<&PeerView> = cluster.peers.iter().filter(|peer| peer.version.is_some_and(|it| it < newest)).collect();
    let used =
        cluster.version.map_or_else(|| "unknown".to_owned(), |version| format!("the registry has version {version}"));
    match old.is_empty() {
        true => finding(Level::Ok, "versions", format!("{used}, like the programs of all members")),
        false => {
            let version = |peer: &PeerView| peer.version.unwrap_or_default();
            let old = listed(old, |peer| format!("{} ({})", called(peer), version(peer)));
            let what = format!("{used}, the newest known is {newest}; older programs: {old}");
            advice(Level::Warn, "versions", what, "Upgrade these hosts, one after another.")
        }
    }
}

fn ports(Running { about, cluster, .. }: &Running) -> Finding {
    let program = &about.program;
    let is_local = |address: &str| {
        let socket = address.parse::<std::net::SocketAddr>();
        socket.is_ok_and(|socket| socket.ip().is_loopback())
    };
    let what = format!("listens on {}; advertises {}", program.listens, program.addresses.join(", "));
    let is_far = |peer: &PeerView| !peer.is_me && !peer.address.is_empty() && !is_local(&peer.address);
    let is_local_only = program.addresses.iter().all(|address| is_local(address));
    if is_local_only && cluster.peers.iter().any(is_far) {
        let todo = "Other machines cannot connect to that: pass a network address to --listen or --advertise.";
        return advice(Level::Warn, "ports", what, todo);
    }
    match is_local_only {
        true => finding(Level::Ok, "ports", format!("{what}, for this machine only")),
        false => finding(Level::Ok, "ports", what),
    }
}

fn resources(Running { about, resources, stalled, .. }: &Running) -> Vec<Finding> {
    let mut findings = Vec::new();
    let here = &about.health.resources;
    for ResourceHealth { name, stall, .. } in here {
        let Some(stall) = stall else { continue };
        let level = if about.health.session.is_none() || stall.since > LONG { Level::Bad } else { Level::Warn };
        let named = stall.why.starts_with(name.as_str());
        let what = if named { stall.why.clone() } else { format!("{name} is stalled: {}", stall.why) };
        findings.push(finding(level, "resources", what));
    }
    for (name, why) in stalled.iter().filter(|(name, _)| here.iter().all(|known| known.name.as_str() != name)) {
        let what = why.to_string();
        let what = if what.starts_with(name.as_str()) { what } else { format!("{name} is stalled: {what}") };
        let is_long = matches!(why, peerlock::Error::Recovering { since, .. } if *since > LONG);
        findings.push(finding(if is_long { Level::Bad } else { Level::Warn }, "resources", what));
    }
    match resources {
        Ok(all) if findings.is_empty() => {
            let clients: usize = all.iter().map(|resource| resource.holding_here + resource.waiting_here).sum();
            let what = format!("{} in the cluster, none stalled; {clients} clients here", all.len());
            findings.push(finding(Level::Ok, "resources", what));
        }
        Ok(_) => {}
        Err(_) if about.health.session.is_none() => {
            findings.push(finding(Level::Bad, "resources", "none can be acquired without a session".to_owned()));
        }
        Err(error) => findings.push(finding(Level::Bad, "resources", format!("they cannot be listed: {error}"))),
    }
    findings
}

fn clock(Running { about, .. }: &Running) -> Finding {
    match about.slept {
        // The two clocks are not read at the same instant.
        slept if slept < Duration::from_millis(100) => {
            finding(Level::Ok, "clock", "the machine was not suspended since the agent's start".to_owned())
        }
        slept => {
            let what = format!("the machine was suspended for {} since the agent's start", roughly(slept));
            if is_settled(about) {
                return finding(Level::Ok, "clock", what);
            }
            let todo = "A suspension longer than the session stops the jobs (76): keep the machine awake.";
            advice(Level::Warn, "clock", what, todo)
        }
    }
}

/// Compares the system clock with the hardware clock, which measures leases.
fn rate(Rates { now, average, uptime }: Rates) -> Finding {
    let percent =
        |ppm: i64| format!("{:.3} % {}", ppm.unsigned_abs() as f64 / 1e4, if ppm < 0 { "slower" } else { "faster" });
    if uptime >= A_DAY && average.unsigned_abs() >= WRONG {
        let what = format!(
            "since boot, the system clock has run {} than the hardware clock that leases are counted by",
            percent(average)
        );
        let todo = "Leases assume a hardware clock with an error below 1 %. Unless NTP has corrected hours since boot, \
                    select another clock source (/sys/devices/system/clocksource/clocksource0).";
        return advice(Level::Warn, "rate", what, todo);
    }
    let what = format!("the system clock runs {} than the hardware clock", percent(now));
    match now.unsigned_abs() >= SLEWED {
        true => finding(Level::Ok, "rate", format!("{what}: NTP corrects it, which does not affect leases")),
        false => finding(Level::Ok, "rate", what),
    }
}

/// Reports the secret; during a rotation also the hosts without the new one.
fn secret(Running { about, cluster, .. }: &Running) -> Option<Finding> {
    let secret = about.secret.as_ref()?;
    let file = &secret.file;
    let behind: Vec<&PeerView> =
        cluster.peers.iter().filter(|peer| secret.behind.contains(&peer.peer.to_string())).collect();
    let [new, old] = &secret.fingerprints[..] else {
        return Some(finding(Level::Ok, "secret", format!("{} in {file}", secret.fingerprints.join(", "))));
    };
    let what = format!("{new} is new, and {old} still accepted, in {file}");
    Some(match behind.is_empty() {
        true => {
            let todo = "When all machines have it and are connected, run `peerlock secret finish` on each machine.";
            advice(Level::Warn, "secret", what, todo)
        }
        false => {
            let what = format!("{what}; {} proved only the old one", listed(behind, called));
            let todo = "Copy the file there and run `peerlock secret reload`; when all have it, run `peerlock secret \
                        finish` on each machine.";
            advice(Level::Warn, "secret", what, todo)
        }
    })
}

fn left_behind(dir: &Dir) -> Vec<Finding> {
    let path = dir.path.display();
    if !dir.exists {
        return vec![finding(Level::Ok, "directory", format!("{path} does not exist"))];
    }
    let known = match &dir.known {
        Err(why) => finding(Level::Bad, "cluster", why.clone()),
        Ok(known) => match known.cluster {
            None => finding(Level::Ok, "cluster", format!("{path} belongs to no cluster")),
            Some(cluster) => {
                let members = match &known.members[..] {
                    [] => "no other member is known".to_owned(),
                    members => format!("other members were at {}", members.join(", ")),
                };
                finding(Level::Ok, "cluster", format!("{path} belongs to {cluster}; {members}"))
            }
        },
    };
    let votes = match &dir.registry {
        None => finding(Level::Ok, "voters", "this host does not vote".to_owned()),
        Some((_, None)) => {
            let what = "this host is a voter without a running agent".to_owned();
            advice(Level::Warn, "voters", what, "Start its agent: without a quorum nothing is granted.")
        }
        Some((_, Some(damage))) => advice(
            Level::Bad,
            "voters",
            format!("{path}/registry is damaged: {damage}"),
            "If a majority of the other voters is running, move the file away and start the agent: it becomes a new \
             voter.",
        ),
    };
    vec![known, votes]
}

fn disk(dir: &Dir) -> Finding {
    let path = dir.path.display();
    let registry = match dir.registry {
        Some((bytes, _)) => format!("the registry has {}", size(bytes)),
        None => "no registry, as this host does not vote".to_owned(),
    };
    if let Some(error) = &dir.unwritable {
        let what = format!("{path} cannot be written: {error}");
        return match error.kind() {
            // The agent's user may have more permissions than this one.
            std::io::ErrorKind::PermissionDenied => {
                advice(Level::Warn, "disk", what, "Run this as the agent's user or as root to check it.")
            }
            _ => advice(Level::Bad, "disk", what, "Make it writable: an agent that cannot write exits (74)."),
        };
    }
    let Some(free) = dir.free else { return finding(Level::Ok, "disk", format!("{path} is writable; {registry}")) };
    let what = format!("{path} is writable, with {} free; {registry}", size(free));
    match free {
        ..NOTHING => advice(Level::Bad, "disk", what, "Free space: an agent that cannot write exits (74)."),
        NOTHING..LITTLE => advice(Level::Warn, "disk", what, "Free space before it is full."),
        _ => finding(Level::Ok, "disk", what),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        10_000_000..10_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests;
