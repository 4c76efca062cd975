//! What there is to be seen. Nothing is judged here, started or changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use peerlock::store::{self, Known};
use peerlock::{Class, ClusterView, Endpoint, Error as Refusal, ResourceView, StartError, places};
use peerlock_clock::Reading;
use peerlock_http::AgentView;
use peerlock_http::client::Agent;
use tokio::time::{sleep, timeout};

use crate::client::AgentArgs;
use crate::dir::{self, Occupant};
use crate::{Error, Result, start};

/// How long the register has to answer, and twice as long the agent: longer than that it is frozen.
const PATIENCE: Duration = Duration::from_secs(5);
/// For so long at least the clocks are compared: what reading them takes is less than 1 % of 1 % of that.
const MEASURED: Duration = Duration::from_millis(100);
/// Of so many resources that do not move is asked what they wait for: each may take two seconds.
const MOST_ASKED: usize = 20;

/// All that is known.
pub struct Evidence {
    pub agent: AgentState,
    /// Nothing if the agent is on another machine.
    pub dir: Option<Dir>,
    /// Nothing if the agent is on another machine.
    pub rates: Option<Rates>,
}

/// How much faster the system's clock, which NTP disciplines, runs than the hardware's, by which leases are counted.
#[derive(Clone, Copy)]
pub struct Rates {
    /// At present, in millionths.
    pub now: i64,
    /// On average since the machine was started, which is so long ago, suspend excluded.
    pub average: i64,
    pub uptime: Duration,
}

/// What has become of the agent.
pub enum AgentState {
    Running(Box<Running>),
    /// It is there, and does not answer, or not as it should.
    Mute {
        endpoint: String,
        why: String,
    },
    /// There is none, or none that we may ask.
    Absent {
        why: Option<String>,
    },
}

/// What an agent says.
pub struct Running {
    pub endpoint: String,
    pub about: AgentView,
    pub cluster: ClusterView,
    pub resources: std::result::Result<Vec<ResourceView>, Refusal>,
    /// What became of asking for those that do not move.
    pub stalled: Vec<(String, Refusal)>,
}

/// The data folder.
pub struct Dir {
    pub path: PathBuf,
    pub exists: bool,
    /// The last agent that had it, and whether that still does.
    pub last: Option<Occupant>,
    pub is_taken: bool,
    /// The socket of an agent that has ended in good order is gone.
    pub has_socket: bool,
    pub known: std::result::Result<Known, String>,
    /// How long the voter's file is, if there is one; and if it is damaged how, where no agent uses it.
    pub registry: Option<(u64, Option<String>)>,
    /// Why it cannot be written, if it cannot, and whether only by this user.
    pub unwritable: Option<io::Error>,
    /// In bytes.
    pub free: Option<u64>,
}

pub async fn look(agent: &AgentArgs) -> Result<Evidence> {
    let started = Reading::now();
    let endpoint = match agent.named()? {
        Some(endpoint) => Ok(Some(endpoint)),
        None => start::present(),
    };
    let (endpoint, why) = match endpoint {
        Ok(endpoint) => (endpoint, None),
        // One that another user runs, and does not let us in, or has not started.
        Err(error @ (Error::Peerlock(_) | Error::ForeignAgent { .. } | Error::SystemAgentDown { .. })) => {
            (None, Some(error.to_string()))
        }
        Err(error) => return Err(error),
    };
    let is_here = !matches!(endpoint, Some(Endpoint::Tcp(_)));
    let observed = match endpoint {
        None => AgentState::Absent { why },
        Some(endpoint) => ask(&Agent::new(endpoint.clone(), agent.token(&endpoint)?), &endpoint).await,
    };
    let path = match &observed {
        AgentState::Running(running) => running.about.program.data_dir.as_ref().map(PathBuf::from),
        AgentState::Mute { .. } | AgentState::Absent { .. } => Some(places::data_dir().map_err(StartError::from)?),
    };
    let is_running = matches!(observed, AgentState::Running(_));
    let dir = path.filter(|_| is_here).map(|path| look_into(&path, is_running));
    let rates = if is_here { Some(rates(started).await) } else { None };
    Ok(Evidence { agent: observed, dir, rates })
}

async fn rates(started: Reading) -> Rates {
    sleep(MEASURED.saturating_sub(Reading::now().since(started))).await;
    let now = Reading::now();
    Rates { now: now.ppm_since(started), average: now.ppm_since(Reading::BOOT), uptime: now.since(Reading::BOOT) }
}

async fn ask(agent: &Agent, endpoint: &Endpoint) -> AgentState {
    let endpoint = endpoint.to_string();
    // What the register has to answer may take longer than an agent does: it loses its majority before its session.
    let late = || Refusal::Refused {
        class: Class::Unavailable,
        message: format!("the voters have not answered for {} s", PATIENCE.as_secs()),
    };
    let asked = async {
        let about = agent.about().await?;
        let (cluster, resources) = tokio::join!(agent.cluster(), timeout(PATIENCE, agent.resources()));
        Ok((about, cluster?, resources.unwrap_or_else(|_| Err(late()))))
    };
    match timeout(PATIENCE * 2, asked).await {
        Err(_) => AgentState::Mute { endpoint, why: format!("it has not answered for {} s", 2 * PATIENCE.as_secs()) },
        Ok(Err(Refusal::NoAgent { why, .. })) => {
            AgentState::Absent { why: Some(format!("nobody answers at {endpoint}: {why}")) }
        }
        Ok(Err(error)) => AgentState::Mute { endpoint, why: error.to_string() },
        Ok(Ok((about, cluster, resources))) => {
            let stalled = match &resources {
                Ok(all) => stalled(agent, all).await,
                Err(_) => Vec::new(),
            };
            AgentState::Running(Box::new(Running { endpoint, about, cluster, resources, stalled }))
        }
    }
}

/// What those wait for that the register says are being counted. Most are through by the time they are asked.
async fn stalled(agent: &Agent, all: &[ResourceView]) -> Vec<(String, Refusal)> {
    let recovering = all.iter().filter(|resource| resource.recovering).take(MOST_ASKED);
    let asked = recovering.map(async |resource| {
        let shown = timeout(PATIENCE, agent.show(resource.name.as_str())).await.ok()?;
        Some((resource.name.to_string(), shown.err()?))
    });
    futures_util::future::join_all(asked).await.into_iter().flatten().collect()
}

fn look_into(path: &Path, is_running: bool) -> Dir {
    let last = dir::last(path);
    let registry = fs::metadata(path.join("registry")).ok().map(|file| {
        // A running agent writes to it.
        let bytes = if is_running { None } else { fs::read(path.join("registry")).ok() };
        let damage = bytes.and_then(|bytes| peerlock_registry::file::read(&bytes).err());
        (file.len(), damage.map(|damage| damage.to_string()))
    });
    Dir {
        path: path.to_owned(),
        exists: path.is_dir(),
        is_taken: dir::is_taken(path),
        has_socket: last.as_ref().is_some_and(|last| last.socket.exists()),
        last,
        known: store::known(path).map_err(|error| error.to_string()),
        registry,
        unwritable: access(path, AccessFlags::W_OK | AccessFlags::X_OK).err().map(io::Error::from),
        free: statvfs(path).ok().map(|disk| disk.blocks_available() * disk.fragment_size()),
    }
}
