//! `peerlock secret`: which secret the agent of this machine goes by, and how it is replaced on all machines while they
//! run.
//!
//! ```text
//!   rotate on one machine       file: new, old      it proves either, and accepts either
//!   the file to every other     reload              all links are proved with the new one
//!   finish on every machine     file: new           the old one counts no more
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use peerlock::{Endpoint, NetworkError, PeerView, Secret, StartError, places};
use peerlock_http::SecretView;
use peerlock_http::client::Agent;
use serde_json::json;

use crate::client::{AgentArgs, print};
use crate::error::exit;
use crate::look::{host_name, table};
use crate::say::say;
use crate::{Error, Result, start};

/// Make, show and replace the cluster secret, the key that all machines share
///
/// The secret is replaced without a restart, and nobody is left out: for a while every machine accepts both, the new
/// one and the one before it. Nothing of it goes over the network: whoever has the old one must not learn the new one
/// by it.
#[derive(Args)]
#[command(after_help = "\
To make the first one, on one machine, before any agent is started with it:
  peerlock secret new /etc/peerlock/secret

To replace it on all machines:
  peerlock secret rotate                                 on one machine: its file has the new one and the old one now
  scp -p /etc/peerlock/secret db2:/etc/peerlock/secret   the file to every other machine, by whatever way it came there
  peerlock secret reload                                 on each of them; or systemctl reload peerlock
  peerlock secret show                                   who has proved that it knows the new one, and who has not yet
  peerlock secret finish                                 on every machine, when all have: the old one counts no more")]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make the secret of a new cluster, on its first machine. A file that is there is not changed
    New {
        /// Where to write it, mode 600 [default: `secret` in the data folder]
        file: Option<PathBuf>,
    },
    /// Show which secret the agent goes by, and which each of the others has proved to know
    Show {
        /// JSON instead of a table
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        agent: AgentArgs,
    },
    /// Make a new secret, which counts beside the old one from now on: the first step, on one machine
    Rotate(Change),
    /// Have the agent read its files again, the secret and the bearer token, as SIGHUP does
    Reload {
        #[command(flatten)]
        agent: AgentArgs,
    },
    /// Take the old secret out: the last step, on every machine
    Finish {
        #[command(flatten)]
        change: Change,
        /// Also if somebody is away, or has not proved to know the new one: it is left out until it has the file
        #[arg(long)]
        force: bool,
    },
}

#[derive(Args)]
struct Change {
    /// The file of an agent that does not run [default: what the running agent has read; `secret` in the data folder]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentArgs,
}

pub async fn run(options: &Options) -> Result<ExitCode> {
    match &options.what {
        What::New { file } => new(file.clone().map_or_else(own, Ok)?),
        What::Show { json, agent } => show(&local(agent)?.ok_or_else(nobody)?, *json).await,
        What::Rotate(change) => rotate(change).await,
        What::Reload { agent } => reload(&local(agent)?.ok_or_else(nobody)?).await,
        What::Finish { change, force } => finish(change, *force).await,
    }
}

/// The agent of this machine, if it runs: the file is here, and so must it be. None is started.
fn local(agent: &AgentArgs) -> Result<Option<Agent>> {
    let endpoint = match agent.named()? {
        Some(Endpoint::Tcp(address)) => {
            let message = format!("{address} may be another machine, and the file is on this one: ask at its socket");
            return Err(Error::Usage(message));
        }
        Some(endpoint) => Some(endpoint),
        None => start::present()?,
    };
    // At its socket nothing proves anything.
    Ok(endpoint.map(|endpoint| Agent::new(endpoint, None)))
}

fn nobody() -> Error {
    let why = "none runs here, and it reads its files when it starts".to_owned();
    peerlock::Error::NoAgent { endpoint: "this machine".to_owned(), why }.into()
}

/// What the agent says of its secret. One of an earlier version says nothing.
async fn view(agent: &Agent) -> Result<SecretView> {
    let old = || Error::Usage("the agent that runs is of a version that cannot replace its secret: upgrade it".into());
    agent.about().await?.secret.ok_or_else(old)
}

impl Change {
    /// The agent, if it runs, and the file that it reads, or would.
    async fn file(&self) -> Result<(Option<(Agent, SecretView)>, PathBuf)> {
        let Some(agent) = local(&self.agent)? else {
            let path = self.secret_file.clone().map_or_else(own, Ok)?;
            return Ok((None, path));
        };
        let observed = view(&agent).await?;
        let path = PathBuf::from(&observed.file);
        let named = self.secret_file.as_ref().filter(|named| !is_same(named, &path));
        if let Some(named) = named {
            let (named, path) = (named.display(), path.display());
            return Err(Error::Usage(format!(
                "the agent that runs reads {path}, and not {named}: leave --secret-file out"
            )));
        }
        Ok((Some((agent, observed)), path))
    }
}

fn own() -> Result<PathBuf> {
    Ok(places::secret(&places::data_dir().map_err(StartError::from)?))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    one == other || real(one).is_some_and(|one| Some(one) == real(other))
}

fn new(path: PathBuf) -> Result<ExitCode> {
    let made = match Secret::create(&path) {
        Ok(made) => made,
        Err(NetworkError::SecretUncreatable { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {
            return Err(Error::SecretExists { path });
        }
        Err(error) => return Err(StartError::from(error).into()),
    };
    let (file, fingerprint) = (path.display(), &made.fingerprints()[0]);
    print(&format!(
        "{file} has the secret {fingerprint} of a new cluster.\n\
         1. Copy the file to every other machine of the cluster (mode 600): who has it is a member.\n\
         2. Start an agent on each: `peerlock agent --secret-file {file}`, with --join of the first on the others.\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

async fn rotate(change: &Change) -> Result<ExitCode> {
    let (running, path) = change.file().await?;
    let file = path.display();
    if let [new, old] = &fingerprints(&Secret::load(&path).map_err(StartError::from)?)[..] {
        return Err(Error::Usage(format!(
            "{file} has a new secret ({new}) before the old one ({old}) already: give it to all machines and run \
             `peerlock secret finish` on each, before the next one is made"
        )));
    }
    let now = fingerprints(&Secret::rotate(&path).map_err(StartError::from)?);
    let goes_by = match running {
        Some((agent, _)) => {
            agent.reload().await?;
            "and the agent goes by both"
        }
        None => "and the agent goes by both when it is started",
    };
    print(&format!(
        "{file} has a new secret, {}, before the old one, {}, {goes_by}.\n\
         1. Copy the file to every other machine (mode 600), and run `peerlock secret reload` there.\n\
         2. When `peerlock secret show` has nobody with the old one any more, run `peerlock secret finish` on each.\n",
        now[0], now[1]
    ))?;
    Ok(ExitCode::SUCCESS)
}

async fn reload(agent: &Agent) -> Result<ExitCode> {
    let SecretView { file, fingerprints, .. } = agent.reload().await?;
    print(&format!("{file}: {}\n", in_words(&fingerprints)))?;
    Ok(ExitCode::SUCCESS)
}

async fn finish(change: &Change, force: bool) -> Result<ExitCode> {
    let (running, path) = change.file().await?;
    let file = path.display();
    let [new, old] = &fingerprints(&Secret::load(&path).map_err(StartError::from)?)[..] else {
        say(format_args!("{file} has one secret: there is nothing to take out"));
        return match running {
            Some((agent, _)) => reload(&agent).await,
            None => Ok(ExitCode::SUCCESS),
        };
    };
    let late = match &running {
        Some((agent, observed)) => late(agent, observed, new).await?,
        None => vec!["no agent runs here that could tell who knows it".to_owned()],
    };
    if !late.is_empty() && !force {
        say(format_args!(
            "nothing was changed: not everybody is known to have the new secret, {new}. {}. They would be left out \
             until they have the file; --force does it all the same",
            late.join("; ")
        ));
        return Ok(ExitCode::from(exit::NOT_ACQUIRED));
    }
    Secret::finish(&path).map_err(StartError::from)?;
    if let Some((agent, _)) = running {
        agent.reload().await?;
    }
    print(&format!("{file}: {new}. The old one, {old}, counts no more on this machine.\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Who may not know the new secret, as far as the agent can tell.
async fn late(agent: &Agent, observed: &SecretView, new: &str) -> Result<Vec<String>> {
    if observed.fingerprints.first().is_none_or(|first| first != new) {
        return Ok(vec!["the agent has not read the file: run `peerlock secret reload`, and try again".to_owned()]);
    }
    let peers = agent.cluster().await?.peers;
    let others = peers.iter().filter(|peer| !peer.is_me && (peer.up || peer.keeps));
    let why = |peer| match Proof::of(peer, observed) {
        Proof::New => None,
        Proof::Old => Some("has proved only the old one"),
        Proof::Away => Some("is not connected"),
        Proof::Unknown => Some("has no link with this host: ask on one that votes"),
    };
    let late = others.filter_map(|peer| Some(format!("{} {}", host_name(&peer.name, peer.peer), why(peer)?)));
    Ok(late.collect())
}

/// What another peer has proved to the agent that is asked.
enum Proof {
    New,
    Old,
    /// It is not there.
    Away,
    /// It is there, and not linked with the agent: of two that do not vote neither knows.
    Unknown,
}

impl Proof {
    fn of(peer: &PeerView, observed: &SecretView) -> Self {
        let is_among = |numbers: &[String]| numbers.contains(&peer.peer.to_string());
        match peer.up {
            false => Self::Away,
            true if is_among(&observed.behind) => Self::Old,
            true if is_among(&observed.proved) => Self::New,
            true => Self::Unknown,
        }
    }
}

async fn show(agent: &Agent, json: bool) -> Result<ExitCode> {
    let observed = view(agent).await?;
    if json {
        print(&(json!(observed).to_string() + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |peer: &PeerView| {
        let proved = match Proof::of(peer, &observed) {
            _ if peer.is_me => observed.fingerprints.join(", "),
            Proof::New => observed.fingerprints.first().cloned().unwrap_or_default(),
            Proof::Old => format!("{}, the old one", observed.fingerprints.last().map_or("?", String::as_str)),
            Proof::Away => "? (not connected)".to_owned(),
            Proof::Unknown => "? (no link from here: ask on a host that votes)".to_owned(),
        };
        [host_name(&peer.name, peer.peer), peer.address.clone(), proved]
    };
    let rows = agent.cluster().await?.peers.iter().map(row).collect();
    let head = format!("{}: {}\n", observed.file, in_words(&observed.fingerprints));
    print(&(head + &table(["host", "address", "has proved"], rows)))?;
    Ok(ExitCode::SUCCESS)
}

fn in_words(fingerprints: &[String]) -> String {
    match fingerprints {
        [new, old] => format!("{new} is new, and {old} counts besides"),
        all => all.join(", "),
    }
}

fn fingerprints(secret: &Secret) -> Vec<String> {
    secret.fingerprints().iter().map(ToString::to_string).collect()
}
