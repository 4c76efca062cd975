//! `peerlock secret`: creates the cluster secret, and replaces it while the agents run.
//!
//! ```text
//!   rotate on one machine            file: new, old   proves and accepts both
//!   copy and reload on all others    file: new, old   all links are proved with the new secret
//!   finish on all machines           file: new        rejects the old secret
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use peerlock::{Endpoint, NetworkError, PeerView, Secret, StartError, places};
use peerlock_http::SecretView;
use peerlock_http::client::Agent;

use crate::client::{AgentArgs, print};
use crate::error::exit;
use crate::query::{QueryArgs, host_name, table};
use crate::say::say;
use crate::{Error, Result, start};

/// Show or rotate the cluster secret, the key that all machines share
///
/// A rotation needs no restart and disconnects no machine: until it is finished, every machine accepts the old and the
/// new secret. The new one is never sent over the network, where a holder of the old one could read it.
#[derive(Args)]
#[command(after_help = "\
Create the secret of a new cluster, on one machine, before its agent is started:
  peerlock secret new /etc/peerlock/secret

Replace the secret on all machines:
  peerlock secret rotate                                 on one machine: its file now has the new and the old secret
  scp -p /etc/peerlock/secret db2:/etc/peerlock/secret   copy the file to every other machine
  peerlock secret reload                                 on each of them, or systemctl reload peerlock
  peerlock secret show                                   list the machines that have proved the new secret
  peerlock secret finish                                 on every machine, when all have: the old one is rejected")]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Create the secret of a new cluster, on its first machine
    ///
    /// An existing file is not changed.
    New {
        /// File to create, mode 600 [default: `secret` in the data directory]
        file: Option<PathBuf>,
    },
    /// Show the agent's secret, and the one that each other machine has proved
    Show(QueryArgs),
    /// Create a new secret, valid beside the old one: the first step, on one machine
    Rotate(Change),
    /// Reload the secret and the bearer token from their files, like SIGHUP
    Reload {
        #[command(flatten)]
        agent: AgentArgs,
    },
    /// Remove the old secret: the last step, on every machine
    Finish {
        /// Finish although a machine is not connected or has not proved the new secret
        ///
        /// Without the new file, such a machine cannot connect afterwards.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        change: Change,
    },
}

#[derive(Args)]
struct Change {
    /// Secret file, if the agent is stopped [default: the agent's file, or `secret` in the data directory]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentArgs,
}

pub async fn run(options: &Options) -> Result<ExitCode> {
    match &options.what {
        What::New { file } => new(file.clone().map_or_else(own, Ok)?),
        What::Show(query) => show(&local(&query.agent)?.ok_or_else(not_running)?, query).await,
        What::Rotate(change) => rotate(change).await,
        What::Reload { agent } => reload(&local(agent)?.ok_or_else(not_running)?).await,
        What::Finish { change, force } => finish(change, *force).await,
    }
}

fn local(agent: &AgentArgs) -> Result<Option<Agent>> {
    let endpoint = match agent.named()? {
        Some(Endpoint::Tcp(address)) => {
            let message = format!("{address} may be another machine: name this machine's agent by its socket");
            return Err(Error::Usage(message));
        }
        Some(endpoint) => Some(endpoint),
        None => start::present()?,
    };
    // The socket requires no token.
    Ok(endpoint.map(|endpoint| Agent::new(endpoint, None)))
}

fn not_running() -> Error {
    if let Some(dir) = start::drained() {
        return Error::Drained { dir };
    }
    let why = "it is not running, and reads the secret when it starts".to_owned();
    peerlock::Error::NoAgent { endpoint: "this machine".to_owned(), why }.into()
}

async fn view(agent: &Agent) -> Result<SecretView> {
    let old = || Error::Usage("the running agent cannot replace its secret: upgrade it".into());
    agent.about().await?.secret.ok_or_else(old)
}

impl Change {
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
            return Err(Error::Usage(format!("the running agent uses {path}, not {named}: omit --secret-file")));
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
         1. Copy the file to every other machine of the cluster (mode 600). Every machine with it can be a member.\n\
         2. Start the agents: `peerlock agent --secret-file {file}`, and with --join of the first on the others.\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

async fn rotate(change: &Change) -> Result<ExitCode> {
    let (running, path) = change.file().await?;
    let file = path.display();
    if let [new, old] = &fingerprints(&Secret::load(&path).map_err(StartError::from)?)[..] {
        return Err(Error::Usage(format!(
            "{file} already has a new secret ({new}) before the old one ({old}): finish this rotation first. Copy the \
             file to all machines and run `peerlock secret finish` on each"
        )));
    }
    let now = fingerprints(&Secret::rotate(&path).map_err(StartError::from)?);
    let effect = match running {
        Some((agent, _)) => {
            agent.reload().await?;
            "and the agent accepts both"
        }
        None => "and the agent will accept both when it is started",
    };
    print(&format!(
        "{file} has a new secret, {}, before the old one, {}, {effect}.\n\
         1. Copy the file to every other machine (mode 600), and run `peerlock secret reload` there.\n\
         2. When `peerlock secret show` lists no machine with the old one, run `peerlock secret finish` on each.\n",
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
        say(format_args!("{file} has only one secret: nothing to finish"));
        return match running {
            Some((agent, _)) => reload(&agent).await,
            None => Ok(ExitCode::SUCCESS),
        };
    };
    let late = match &running {
        Some((agent, observed)) => late(agent, observed, new).await?,
        None => vec!["No agent is running here, so the other machines are unknown".to_owned()],
    };
    if !late.is_empty() && !force {
        say(format_args!(
            "nothing was changed: not all machines are known to have the new secret, {new}. {}. Without the new file \
             they could not connect; --force finishes anyway",
            late.join("; ")
        ));
        return Ok(ExitCode::from(exit::NOT_ACQUIRED));
    }
    Secret::finish(&path).map_err(StartError::from)?;
    if let Some((agent, _)) = running {
        agent.reload().await?;
    }
    print(&format!("{file}: {new}. The old secret, {old}, is no longer accepted on this machine.\n"))?;
    Ok(ExitCode::SUCCESS)
}

async fn late(agent: &Agent, observed: &SecretView, new: &str) -> Result<Vec<String>> {
    if observed.fingerprints.first().is_none_or(|first| first != new) {
        return Ok(vec!["The agent has not read the file: run `peerlock secret reload`, and try again".to_owned()]);
    }
    let peers = agent.cluster().await?.peers;
    let others = peers.iter().filter(|peer| !peer.is_me && (peer.up || peer.keeps));
    let why = |peer| match Proof::of(peer, observed) {
        Proof::New => None,
        Proof::Old => Some("has proved only the old one"),
        Proof::Away => Some("is not connected"),
        Proof::Unknown => Some("has no link with this host (run this on a voter)"),
    };
    let late = others.filter_map(|peer| Some(format!("{} {}", host_name(&peer.name, peer.peer), why(peer)?)));
    Ok(late.collect())
}

enum Proof {
    New,
    Old,
    Away,
    /// It is connected, but has no link with this agent, which two hosts that do not vote need not have.
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

async fn show(agent: &Agent, query: &QueryArgs) -> Result<ExitCode> {
    let observed = view(agent).await?;
    let peers = agent.cluster().await?.peers;
    let row = |peer: &PeerView| {
        let proved = match Proof::of(peer, &observed) {
            _ if peer.is_me => observed.fingerprints.join(", "),
            Proof::New => observed.fingerprints.first().cloned().unwrap_or_default(),
            Proof::Old => format!("{} (old)", observed.fingerprints.last().map_or("?", String::as_str)),
            Proof::Away => "? (not connected)".to_owned(),
            Proof::Unknown => "? (no link from here: run this on a voter)".to_owned(),
        };
        [host_name(&peer.name, peer.peer), peer.address.clone(), proved]
    };
    let rows = peers.iter().map(row).collect();
    query.print(&observed, |observed| {
        let head = format!("{}: {}\n", observed.file, in_words(&observed.fingerprints));
        head + &table(["host", "address", "proved"], rows)
    })
}

fn in_words(fingerprints: &[String]) -> String {
    match fingerprints {
        [new, old] => format!("{new} (new), {old} (old, still accepted)"),
        all => all.join(", "),
    }
}

fn fingerprints(secret: &Secret) -> Vec<String> {
    secret.fingerprints().iter().map(ToString::to_string).collect()
}
