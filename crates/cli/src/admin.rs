//! `peerlock voters`, `resize`, `remove`, `recover`, and `release` of what others hold: what an operator decides.

use std::io::{IsTerminal as _, Write as _, stderr, stdin};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use futures_util::future::ready;
use futures_util::{StreamExt as _, stream};
use peerlock::{Class, Client, Listing, PeerId, PeerView, SlotView, StartError, Voter, places, store};
use peerlock_http::Done;
use peerlock_registry::{Versions, recover as recovered};
use peerlock_service::random;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::client::{AgentArgs, print};
use crate::dir::{DataDir, Occupant};
use crate::error::exit;
use crate::look::{holders, host_name, table};
use crate::say::say;
use crate::{Error, Result, dir, duration};

/// How often we look whether an agent has gone.
const LOOK: Duration = Duration::from_millis(50);
/// At most so many names are removed at a time.
const AT_ONCE: usize = 64;

/// See which hosts vote on the cluster's register, or say which
///
/// One, three or five hosts with a data folder keep what the cluster must not forget. The cluster chooses them itself,
/// unless somebody does.
#[derive(Args)]
#[command(after_help = "\
Examples:
  peerlock voters
  peerlock voters --set db1,db2,db3                      by name, or by number if names are not unique
  peerlock voters --auto")]
pub struct Voters {
    /// These hosts vote from now on, and nobody else
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', conflicts_with = "auto")]
    set: Vec<String>,
    /// The cluster chooses again
    #[arg(long)]
    auto: bool,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Give a resource another number of slots, also while it is in use
///
/// Slots that are too many go when they are left: nobody who is inside is stopped.
#[derive(Args)]
pub struct Resize {
    /// The resource
    name: String,
    /// How many may be inside at a time from now on
    slots: u32,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Remove names that nobody uses
///
/// The cluster forgets them, with their numbers of slots. Who asks for one later founds it again, with higher fencing
/// numbers. A name that somebody holds or waits for stays as it is, and so does whoever holds it (75).
#[derive(Args)]
#[command(after_help = "\
Examples:
  peerlock remove build-4711
  peerlock remove --prefix build-                        all that nobody uses; `peerlock ls build-` lists them")]
pub struct Remove {
    /// The resources
    #[arg(value_name = "NAME", required_unless_present = "prefix")]
    names: Vec<String>,
    /// All whose names begin with this
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), conflicts_with = "names")]
    prefix: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Let the jobs of this machine finish, take no new ones, and end the agent
///
/// Those who wait are sent away (their `run` ends with 69). The agent ends when the last slot is given back, and so
/// does this command; slots of `acquire` are not waited for. After that commands on this machine start no agent (69)
/// until `peerlock agent` does. Who only wants another agent, after an upgrade, has no need of it: `peerlock agent
/// --replace`, or `systemctl restart`, stop no job.
#[derive(Args)]
pub struct Drain {
    /// How long to wait for the agent's end; it goes on draining after that, and this ends with 75 [default: as long as
    /// it takes]
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Go on after the loss of a majority of the voters, from what this machine's folder knows
///
/// For when a majority of the voters will never come back; otherwise bring them back. Run it on one of those that are
/// left, with its agent stopped, and only on that one.
#[derive(Args)]
pub struct Recover {
    /// The folder of the agent [default: as for `agent`]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub async fn drain(options: &Drain) -> Result<ExitCode> {
    let Some(Client::Agent(agent)) = options.agent.present()? else {
        say("no agent runs here");
        return Ok(ExitCode::SUCCESS);
    };
    let drained = agent.process().await?;
    agent.drain().await?;
    // Another agent may be at the same place as soon as this one has ended.
    let gone = async {
        loop {
            match agent.process().await {
                Ok(None) => return None,
                Ok(next) if next != drained => return next,
                Ok(_) | Err(_) => sleep(LOOK).await,
            }
        }
    };
    match timeout(options.wait.unwrap_or(Duration::MAX), gone).await {
        Ok(None) => Ok(ExitCode::SUCCESS),
        Ok(Some(next)) => {
            say(format_args!("the agent that was drained has ended, and another one runs here (process {next})"));
            Ok(ExitCode::from(exit::NOT_ACQUIRED))
        }
        Err(_) => {
            say("jobs still hold slots here: the agent lets nobody else in, and ends when they have finished");
            Ok(ExitCode::from(exit::NOT_ACQUIRED))
        }
    }
}

pub async fn voters(options: &Voters) -> Result<ExitCode> {
    let client = options.agent.agent().await?;
    if options.auto || !options.set.is_empty() {
        let known = client.cluster().await?.peers;
        let hosts = options.set.iter().map(|host| find(&known, host)).collect::<Result<Vec<_>>>()?;
        client.set_voters((!options.auto).then_some(hosts)).await?;
        if options.json {
            print(&(json!(Done {}).to_string() + "\n"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let cluster = client.cluster().await?;
    if options.json {
        print(&(json!(cluster).to_string() + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |peer: &PeerView| {
        let part = if peer.keeps { part(peer.voter) } else { "never: it has no data folder" };
        [peer.name.clone(), peer.peer.to_string(), peer.address.clone(), part.to_owned()]
    };
    let head = format!("cluster {}\n", cluster.cluster);
    print(&(head + &table(["host", "number", "address", "votes"], cluster.peers.iter().map(row).collect())))?;
    Ok(ExitCode::SUCCESS)
}

/// A host's part in keeping the register, for people.
pub fn part(voter: Voter) -> &'static str {
    match voter {
        Voter::No => "no",
        Voter::Learns => "learns",
        Voter::Votes => "yes",
        Voter::Leads => "leads",
        _ => "unknown",
    }
}

/// A host by its name, its number or its address.
fn find(known: &[PeerView], host: &str) -> Result<PeerId> {
    let is_it = |peer: &&PeerView| peer.name == host || peer.peer.to_string() == host || peer.address == host;
    let mut found = known.iter().filter(is_it);
    match (found.next(), found.next()) {
        (Some(peer), None) => Ok(peer.peer),
        (Some(_), Some(_)) => Err(Error::Usage(format!("several hosts are called {host}: give the number of one"))),
        (None, _) => Err(Error::Usage(format!("no member is called {host}: `peerlock peers` lists them"))),
    }
}

pub async fn resize(options: &Resize) -> Result<ExitCode> {
    options.agent.agent().await?.resize(&options.name, options.slots).await?;
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
        // Somebody else has removed it since it was listed.
        refused.retain(|error| error.class() != Class::NoSuchResource);
    }
    if is_one && let Some(error) = refused.pop() {
        return Err(error.into());
    }
    refused.iter().for_each(say);
    if options.prefix.is_some() {
        say(format_args!("{} of {all} names removed", all - refused.len()));
    }
    Ok(refused.first().map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.class().exit_code())))
}

/// Gets a slot back from whoever holds it: asks it to stop and waits for that, or takes it away by force.
pub async fn take_back(client: &Client, name: &str, slot: Option<u32>, force: bool) -> Result<()> {
    let details = client.show(name).await?;
    let held = || details.holders.iter().filter(|holder| !holder.free);
    let mut meant = held().filter(|holder| slot.is_none_or(|slot| holder.slot == slot));
    let holder = match (meant.next(), meant.next(), slot) {
        (Some(holder), None, _) => holder,
        (None, _, Some(slot)) if slot >= details.slots => {
            let slots = details.slots;
            return Err(Error::Usage(format!("{name} has no slot {slot}: they are numbered from 0 to {}", slots - 1)));
        }
        (None, _, slot) => {
            let which = slot.map_or_else(|| "every slot".to_owned(), |slot| format!("slot {slot}"));
            say(format_args!("{which} of {name} is free"));
            return Ok(());
        }
        (Some(_), Some(_), _) => {
            let held = holders(&details);
            let message = format!("several slots of {name} are held: say which with --slot\n{}", held.trim_end());
            return Err(Error::Usage(message));
        }
    };
    if force {
        client.expel(name, holder.peer).await?;
        for taken in held().filter(|taken| taken.peer == holder.peer) {
            say(format_args!(
                "{} was taken away by force, and may go on beside others until it hears of it",
                in_words(taken, name)
            ));
        }
        return Ok(());
    }
    let Some(fencing) = holder.client.as_ref().and_then(|client| client.fencing) else {
        let message = format!(
            "{}: that host has not told who it is, so nobody can be asked to stop. The slot is free when the session \
             of that host has ended; only --force does not wait for that",
            in_words(holder, name)
        );
        return Err(peerlock::Error::Refused { class: Class::Unavailable, message }.into());
    };
    say(format_args!("{} {}", in_words(holder, name), if holder.detached { "is freed" } else { "is asked to stop" }));
    match client.revoke(name, fencing).await {
        // It has left by itself meanwhile.
        Ok(()) | Err(peerlock::Error::Lost) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Which slot, and who holds it.
fn in_words(holder: &SlotView, name: &str) -> String {
    let client = holder.client.as_ref();
    let label = client.map(|client| client.label.as_str()).filter(|label| !label.is_empty()).unwrap_or("somebody");
    let pid = client.and_then(|client| client.pid).map(|pid| format!(", process {pid}")).unwrap_or_default();
    format!("slot {} of {name}, held by {label} on {}{pid},", holder.slot, host_name(&holder.host, holder.peer))
}

pub async fn recover(options: &Recover) -> Result<ExitCode> {
    let dir = match &options.data_dir {
        Some(dir) => dir.clone(),
        None => places::data_dir().map_err(StartError::from)?,
    };
    let path = dir.join("registry");
    let file = |source| Error::File { path: path.clone(), source };
    // Before a folder is made for a lock that nobody needs.
    std::fs::metadata(&path).map_err(file)?;
    let socket = dir::last(&dir).map(|last| last.socket).unwrap_or_default();
    let me = Occupant { pid: std::process::id(), ends_by_itself: false, socket };
    let _only_one = DataDir::take(&dir, Duration::ZERO, &me, || false).await?;
    // Only now: an agent that is just ending still writes.
    let bytes = std::fs::read(&path).map_err(file)?;
    let damaged = |why: peerlock_registry::file::Damage| file(std::io::Error::other(why.to_string()));
    let recovered = recovered(&bytes, Versions::OURS, random()).map_err(damaged)?;
    let (term, index) = recovered.last;
    let quarantine = recovered.quarantine.as_nanos().div_ceil(1_000_000_000);
    let risk = format!(
        "This makes {} the only voter, with what it knew last (term {term}, entry {index}).\n\
         - What the lost voters have confirmed since is lost: resources, their slots, detached grants.\n\
         - Of several folders that are left, take the one with the highest term, and of these the highest entry.\n\
         - Nothing is granted until {} s after the agent has started: sessions that the lost voters opened may be \
         valid until then. An agent with a longer --session that has joined since this folder was last up to date \
         is not covered: stop it first.\n\
         - The cluster has another id from now on ({}). Old members that meet it go over to it, voters without what \
         they had kept.\n\
         - A majority of the old voters that comes back after all goes on beside it, and both let clients in: see to \
         it that it does not.\n",
        dir.display(),
        quarantine,
        recovered.cluster
    );
    if !options.yes && !agreed(&risk)? {
        return Err(Error::Usage("nothing was changed. Answer with yes on a terminal, or give --yes".into()));
    }
    store::replace(&dir, recovered.file, recovered.cluster).map_err(StartError::from)?;
    print(&format!(
        "Recovered. Start the agent of this folder: it grants nothing for the first {} s. Agents of the old cluster \
         end when they meet it, and belong to it when they are started again.\n",
        quarantine
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Asks a person, if there is one.
fn agreed(risk: &str) -> Result<bool> {
    let mut out = stderr();
    out.write_all(risk.as_bytes())?;
    if !stdin().is_terminal() {
        return Ok(false);
    }
    out.write_all(b"Go on? Type yes: ")?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
