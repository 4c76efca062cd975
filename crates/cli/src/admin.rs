//! Commands of an administrator: `peerlock voters`, `resize`, `remove`, `drain`, `recover`, and `release --slot`.

use std::io::{IsTerminal as _, Write as _, stderr, stdin};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use futures_util::future::ready;
use futures_util::{StreamExt as _, stream};
use nix::unistd::{geteuid, setgid, setuid};
use peerlock::{Class, Client, Listing, PeerId, PeerView, SlotView, StartError, Voter, places, store};
use peerlock_http::Done;
use peerlock_registry::{Versions, recover as recovered};
use peerlock_service::random;
use tokio::time::{sleep, timeout};

use crate::client::{AgentArgs, print};
use crate::dir::{DataDir, Occupant};
use crate::error::exit;
use crate::query::{QueryArgs, holders, host_name, table};
use crate::say::say;
use crate::{Error, Result, dir, duration, start};

const INTERVAL: Duration = Duration::from_millis(50);
const AT_ONCE: usize = 64;
/// How long a message may wait for the list of held resources, and how many of them it names.
const LISTED: Duration = Duration::from_secs(2);
const MOST_NAMED: usize = 5;

/// Show or set the voters, the hosts that store the registry
///
/// One, three or five hosts with a data directory vote, and a majority of them decides. The cluster chooses them unless
/// they are set.
#[derive(Args)]
#[command(after_help = "\
Examples:
  peerlock voters
  peerlock voters --set db1,db2,db3                      by name, or by number if names are not unique
  peerlock voters --auto")]
pub struct Voters {
    /// Make these hosts the voters, by name or number
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', conflicts_with = "auto")]
    set: Vec<String>,
    /// Let the cluster choose the voters again
    #[arg(long)]
    auto: bool,
    #[command(flatten)]
    query: QueryArgs,
}

/// Change the number of slots of a resource, also while it is in use
///
/// If there are fewer slots than holders, the surplus holders keep theirs until they release them.
#[derive(Args)]
pub struct Resize {
    /// Name of the resource
    name: String,
    /// New number of slots
    slots: u32,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Remove resources that are not in use
///
/// A later request creates the resource again, with higher fencing numbers. A resource that is held or waited for is
/// not removed (exit code 75).
#[derive(Args)]
#[command(after_help = "\
Examples:
  peerlock remove build-4711
  peerlock remove --prefix build-                        all unused ones; `peerlock ls build-` lists them")]
pub struct Remove {
    /// Names of the resources
    #[arg(value_name = "NAME", required_unless_present = "prefix")]
    names: Vec<String>,
    /// Remove all resources with this prefix
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), conflicts_with = "names")]
    prefix: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Let the jobs of this machine finish, accept no new ones, and stop the agent
///
/// Waiting requests are refused (their `run` exits with 69). The agent and this command exit when the last job has
/// released its slot; they do not wait for slots of `acquire`. Afterwards commands on this machine do not start an
/// agent (69) until an administrator does (`peerlock agent`).
///
/// An upgrade needs no drain: `peerlock agent --replace` and `systemctl restart peerlock` stop no job.
#[derive(Args)]
pub struct Drain {
    /// Wait at most this long for the agent to exit [default: no limit]
    ///
    /// After that, draining continues and this command exits with 75.
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Recover from a permanent loss of quorum, using this machine's data directory
///
/// Use this only if most voters are permanently lost; otherwise restart them. Run it on only one of the remaining
/// voters, with its agent stopped.
#[derive(Args)]
pub struct Recover {
    /// Data directory of the agent [default: as for `agent`]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

pub async fn drain(options: &Drain) -> Result<ExitCode> {
    let Some(Client::Agent(agent)) = options.agent.present()? else {
        let known = match start::drained() {
            Some(_) => "this machine is drained already",
            None => "nothing to drain; a command may start an agent",
        };
        say(format_args!("no agent is running here: {known}"));
        return Ok(ExitCode::SUCCESS);
    };
    let drained = agent.process().await?;
    agent.drain().await?;
    // Another agent may answer at the same address as soon as this one has exited.
    let next = async {
        loop {
            match agent.process().await {
                Ok(None) => return None,
                Ok(next) if next != drained => return next,
                Ok(_) | Err(_) => sleep(INTERVAL).await,
            }
        }
    };
    match timeout(options.wait.unwrap_or(Duration::MAX), next).await {
        Ok(None) => {
            print(
                "drained: the agent has exited, and commands do not start it again. To end the maintenance, start \
                   it with `peerlock agent` or its systemd unit\n",
            )?;
            return Ok(ExitCode::SUCCESS);
        }
        Ok(Some(next)) => {
            say(format_args!("the drained agent has exited, and another one is running (process {next})"));
        }
        Err(_) => {
            let all = timeout(LISTED, agent.client().resources()).await.ok().and_then(std::result::Result::ok);
            let held = all.iter().flatten().filter(|resource| resource.holding_here > 0);
            let held: Vec<String> = held.map(|resource| resource.name.to_string()).collect();
            let slots = if held.is_empty() { "slots".to_owned() } else { some_of(&held) };
            say(format_args!(
                "jobs still hold {slots}: the agent refuses new requests, and exits when they have finished"
            ));
        }
    }
    Ok(ExitCode::from(exit::NOT_ACQUIRED))
}

fn some_of(names: &[String]) -> String {
    match names.len().saturating_sub(MOST_NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..MOST_NAMED].join(", ")),
    }
}

pub async fn voters(options: &Voters) -> Result<ExitCode> {
    let client = options.query.agent.agent().await?;
    if options.auto || !options.set.is_empty() {
        let known = client.cluster().await?.peers;
        let hosts = options.set.iter().map(|host| find(&known, host)).collect::<Result<Vec<_>>>()?;
        client.set_voters((!options.auto).then_some(hosts)).await?;
        let set = match &options.set[..] {
            [] => "the cluster chooses the voters".to_owned(),
            [host] => format!("the voter is {host}"),
            hosts => format!("the voters are {}", hosts.join(", ")),
        };
        return options.query.print(&Done {}, |_| set + "\n");
    }
    options.query.print(&client.cluster().await?, |cluster| {
        let row = |peer: &PeerView| {
            let role = if peer.keeps { role(peer.voter) } else { "never: no data directory" };
            [peer.name.clone(), peer.peer.to_string(), peer.address.clone(), role.to_owned()]
        };
        let rows = cluster.peers.iter().map(row).collect();
        format!("cluster {}\n{}", cluster.cluster, table(["host", "number", "address", "votes"], rows))
    })
}

pub fn role(voter: Voter) -> &'static str {
    match voter {
        Voter::No => "no",
        Voter::Learns => "learns",
        Voter::Votes => "yes",
        Voter::Leads => "leads",
        _ => "unknown",
    }
}

pub fn find(known: &[PeerView], host: &str) -> Result<PeerId> {
    let is_it = |peer: &&PeerView| peer.name == host || peer.peer.to_string() == host || peer.address == host;
    let mut found = known.iter().filter(is_it);
    match (found.next(), found.next()) {
        (Some(peer), None) => Ok(peer.peer),
        (Some(_), Some(_)) => Err(Error::Usage(format!("several hosts have the name {host}: give a number"))),
        (None, _) => Err(Error::Usage(format!("no member has the name {host}: `peerlock peers` lists them"))),
    }
}

pub async fn resize(options: &Resize) -> Result<ExitCode> {
    let Resize { name, slots, agent } = options;
    agent.agent().await?.resize(name, *slots).await?;
    print(&format!("{name} has {slots} slot{}\n", if *slots == 1 { "" } else { "s" }))?;
    Ok(ExitCode::SUCCESS)
}

pub async fn remove(options: &Remove) -> Result<ExitCode> {
    let client = options.agent.agent().await?;
    let names = match &options.prefix {
        Some(prefix) => {
            let listing = Listing { prefix: prefix.clone(), ..Listing::default() };
            client.list(&listing).await?.into_iter().map(|resource| resource.name.to_string()).collect()
        }
        None => options.names.clone(),
    };
    let (all, is_one) = (names.len(), options.prefix.is_none() && names.len() == 1);
    let removed = stream::iter(names).map(|name| {
        let client = &client;
        async move { client.remove(&name).await }
    });
    let mut refused: Vec<peerlock::Error> =
        removed.buffer_unordered(AT_ONCE).filter_map(|removed| ready(removed.err())).collect().await;
    if options.prefix.is_some() {
        refused.retain(|error| error.class() != Class::NoSuchResource);
    }
    if is_one && let Some(error) = refused.pop() {
        return Err(error.into());
    }
    refused.iter().for_each(say);
    print(&match &options.names[..] {
        [name] => format!("{name} is removed\n"),
        _ => format!("{} of {all} names removed\n", all - refused.len()),
    })?;
    Ok(refused.first().map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.class().exit_code())))
}

pub async fn take_back(client: &Client, name: &str, slot: Option<u32>, force: bool) -> Result<()> {
    let details = client.show(name).await?;
    let held = || details.holders.iter().filter(|holder| !holder.free);
    let mut meant = held().filter(|holder| slot.is_none_or(|slot| holder.slot == slot));
    let holder = match (meant.next(), meant.next(), slot) {
        (Some(holder), None, _) => holder,
        (None, _, Some(slot)) if slot >= details.slots => {
            let slots = details.slots;
            return Err(Error::Usage(format!("{name} has no slot {slot}: its slots are 0 to {}", slots - 1)));
        }
        (None, _, slot) => {
            let which = slot.map_or_else(|| "every slot".to_owned(), |slot| format!("slot {slot}"));
            say(format_args!("{which} of {name} is free"));
            return Ok(());
        }
        (Some(_), Some(_), _) => {
            let held = holders(&details);
            let message = format!("several slots of {name} are held: choose one with --slot\n{}", held.trim_end());
            return Err(Error::Usage(message));
        }
    };
    if force {
        client.evict(name, holder.peer).await?;
        for taken in held().filter(|taken| taken.peer == holder.peer) {
            say(format_args!(
                "revoked {} by force: its job may run beside others until it is notified",
                described(taken, name)
            ));
        }
        return Ok(());
    }
    let Some(fencing) = holder.client.as_ref().and_then(|client| client.fencing) else {
        let message = format!(
            "cannot ask the holder of {} to stop: its host does not respond. The slot is free when the session of that \
             host expires; --force does not wait for that",
            described(holder, name)
        );
        return Err(peerlock::Error::Refused { class: Class::Unavailable, message }.into());
    };
    let effect = if holder.detached { "revoking" } else { "asking to stop: the holder of" };
    say(format_args!("{effect} {}", described(holder, name)));
    match client.revoke(name, fencing).await {
        Ok(()) | Err(peerlock::Error::Lost) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn described(holder: &SlotView, name: &str) -> String {
    let client = holder.client.as_ref();
    let label = client.map(|client| client.label.as_str()).filter(|label| !label.is_empty()).unwrap_or("a client");
    let pid = client.and_then(|client| client.pid).map(|pid| format!(", process {pid}")).unwrap_or_default();
    format!("slot {} of {name} ({label} on {}{pid})", holder.slot, host_name(&holder.host, holder.peer))
}

pub async fn recover(options: &Recover) -> Result<ExitCode> {
    let dir = match &options.data_dir {
        Some(dir) => dir.clone(),
        None => places::data_dir().map_err(StartError::from)?,
    };
    let path = dir.join("registry");
    let file = |source| Error::File { path: path.clone(), source };
    // Checked before the lock, which would create the directory.
    let found = std::fs::metadata(&path).map_err(file)?;
    if geteuid().is_root() && found.uid() != 0 {
        // Otherwise the agent could not read the files that are written here.
        let become_owner = || setgid(found.gid().into()).and_then(|()| setuid(found.uid().into()));
        become_owner().map_err(|error| file(error.into()))?;
    }
    let socket = dir::last(&dir).map(|last| last.socket).unwrap_or_default();
    let me = Occupant { pid: std::process::id(), ends_by_itself: false, socket };
    let is_running = |error| match error {
        Error::SecondAgent { path, pid } => Error::RecoveryOfRunningAgent { path, pid },
        error => error,
    };
    let _lock = DataDir::take(&dir, Duration::ZERO, &me, || false).await.map_err(is_running)?;
    // Read with the directory locked: an exiting agent may still write.
    let bytes = std::fs::read(&path).map_err(file)?;
    let damaged = |why: peerlock_registry::file::Damage| file(std::io::Error::other(why.to_string()));
    let recovered = recovered(&bytes, Versions::OURS, random()).map_err(damaged)?;
    let (term, index) = recovered.last;
    let quarantine = recovered.quarantine.as_nanos().div_ceil(1_000_000_000);
    let risk = format!(
        "This makes {} the only voter, with the registry as of term {term}, entry {index}.\n\
         - Later changes that the lost voters confirmed are lost: resources, their slots, detached grants.\n\
         - If several data directories remain, recover the one with the highest term, then the highest entry.\n\
         - Nothing is granted in the first {} s after the agent has started: sessions that the lost voters opened may \
         be valid until then. An agent with a longer --session that has joined since this registry was up to date is \
         not covered: stop it first.\n\
         - The cluster gets a new ID, {}. Old members that connect to it change to it; former voters discard their \
         registry.\n\
         - If a majority of the old voters returns, both clusters grant slots: prevent that.\n",
        dir.display(),
        quarantine,
        recovered.cluster
    );
    if !options.yes && !agreed(&risk)? {
        return Err(Error::Usage("nothing was changed: answer yes on a terminal, or give --yes".into()));
    }
    store::replace(&dir, recovered.file, recovered.cluster).map_err(StartError::from)?;
    print(&format!(
        "Recovered. Start the agent of this data directory: it grants nothing for the first {} s. Agents of the old \
         cluster exit when they connect to it, and are members of it when they are started again.\n",
        quarantine
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn agreed(risk: &str) -> Result<bool> {
    let mut out = stderr();
    out.write_all(risk.as_bytes())?;
    if !stdin().is_terminal() {
        return Ok(false);
    }
    out.write_all(b"Continue? Type yes: ")?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
