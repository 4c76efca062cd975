//! Collects the evidence for `peerlock doctor`. Starts and changes nothing.

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

/// How long to wait for an answer of the registry; the agent has half of that.
const PATIENCE: Duration = Duration::from_secs(5);
/// The shortest time between two readings of the clocks. A reading takes less than 0.01 % of it.
const MEASURED: Duration = Duration::from_millis(100);
/// How many stalled resources are queried. Each query may take two seconds.
const MOST_ASKED: usize = 20;

pub struct Evidence {
    pub agent: AgentState,
    pub dir: Option<Dir>,
    /// `dir` and `rates` are `None` if the agent is on another machine.
    pub rates: Option<Rates>,
}

/// By how much the system clock, disciplined by NTP, is faster than the hardware clock.
#[derive(Clone, Copy)]
pub struct Rates {
    pub now: i64,
    /// On average over `uptime`. Both are in millionths.
    pub average: i64,
    pub uptime: Duration,
}

pub enum AgentState {
    Running(Box<Running>),
    Unresponsive {
        endpoint: String,
        why: String,
    },
    /// The agent does not exist, or this user may not use it.
    Absent {
        why: Option<String>,
    },
}

pub struct Running {
    pub endpoint: String,
    pub about: AgentView,
    pub cluster: ClusterView,
    pub resources: std::result::Result<Vec<ResourceView>, Refusal>,
    pub stalled: Vec<(String, Refusal)>,
}

pub struct Dir {
    pub path: PathBuf,
    pub exists: bool,
    /// The last agent; `is_taken` if it is still running.
    pub last: Option<Occupant>,
    pub is_taken: bool,
    pub is_drained: bool,
    /// An agent leaves its socket only if it is killed.
    pub has_socket: bool,
    pub known: std::result::Result<Known, String>,
    /// The size of the registry file, and its damage unless an agent is running.
    pub registry: Option<(u64, Option<String>)>,
    pub unwritable: Option<io::Error>,
    /// In bytes.
    pub free: Option<u64>,
}

pub async fn collect(agent: &AgentArgs) -> Result<Evidence> {
    let started = Reading::now();
    let endpoint = match agent.named()? {
        Some(endpoint) => Ok(Some(endpoint)),
        None => start::present(),
    };
    let (endpoint, why) = match endpoint {
        Ok(endpoint) => (endpoint, None),
        // Another user's agent, which is not running or which this user may not use.
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
        AgentState::Unresponsive { .. } | AgentState::Absent { .. } => {
            Some(places::data_dir().map_err(StartError::from)?)
        }
    };
    let is_running = matches!(observed, AgentState::Running(_));
    let dir = path.filter(|_| is_here).map(|path| inspect(&path, is_running));
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
    // An agent takes longer to answer when it notices that there is no quorum.
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
        Err(_) => {
            AgentState::Unresponsive { endpoint, why: format!("it has not answered for {} s", 2 * PATIENCE.as_secs()) }
        }
        Ok(Err(Refusal::NoAgent { why, .. })) => {
            AgentState::Absent { why: Some(format!("no agent answers at {endpoint}: {why}")) }
        }
        Ok(Err(error)) => AgentState::Unresponsive { endpoint, why: error.to_string() },
        Ok(Ok((about, cluster, resources))) => {
            let stalled = match &resources {
                Ok(all) => stalled(agent, all).await,
                Err(_) => Vec::new(),
            };
            AgentState::Running(Box::new(Running { endpoint, about, cluster, resources, stalled }))
        }
    }
}

async fn stalled(agent: &Agent, all: &[ResourceView]) -> Vec<(String, Refusal)> {
    let recovering = all.iter().filter(|resource| resource.recovering).take(MOST_ASKED);
    let asked = recovering.map(async |resource| {
        let shown = timeout(PATIENCE, agent.show(resource.name.as_str())).await.ok()?;
        Some((resource.name.to_string(), shown.err()?))
    });
    futures_util::future::join_all(asked).await.into_iter().flatten().collect()
}

fn inspect(path: &Path, is_running: bool) -> Dir {
    let last = dir::last(path);
    let registry = fs::metadata(path.join("registry")).ok().map(|file| {
        let bytes = if is_running { None } else { fs::read(path.join("registry")).ok() };
        let damage = bytes.and_then(|bytes| peerlock_registry::file::read(&bytes).err());
        (file.len(), damage.map(|damage| damage.to_string()))
    });
    Dir {
        path: path.to_owned(),
        exists: path.is_dir(),
        is_taken: dir::is_taken(path),
        is_drained: dir::is_drained(path),
        has_socket: last.as_ref().is_some_and(|last| last.socket.exists()),
        last,
        known: store::known(path).map_err(|error| error.to_string()),
        registry,
        unwritable: access(path, AccessFlags::W_OK | AccessFlags::X_OK).err().map(io::Error::from),
        free: statvfs(path).ok().map(|disk| disk.blocks_available() * disk.fragment_size()),
    }
}
