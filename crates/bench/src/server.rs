//! Servers to compare with: started on loopback in a temporary folder, and gone with it.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Child;
use tokio::time::sleep;

use crate::crew::Crew;
use crate::door::Place;
use crate::{Against, Error};

/// How many nodes etcd has: the fewest that survive the loss of one.
const ETCD_NODES: usize = 3;
/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A server, or several that are one. They are killed when this is dropped, and what they wrote is removed.
pub struct Server {
    pub address: SocketAddr,
    /// What is compared, in words.
    pub what: &'static str,
    _nodes: Vec<Child>,
    _folder: TempDir,
}

impl Against {
    /// What runs, and the package that it comes from.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::Etcd => ("etcd", "etcd-server"),
            Self::Redis => ("redis-server", "redis-server"),
        }
    }

    /// Says so if it is not installed, before anything else is done.
    pub(crate) async fn check(self) -> Result<(), Error> {
        let (program, package) = self.program();
        let mut command = tokio::process::Command::new(program);
        let status = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().await;
        status.map(drop).map_err(|source| Error::NoServer { against: self, program, package, source })
    }

    /// Starts it, and waits until it works.
    pub(crate) async fn start(self, crew: &Crew<'_>) -> Result<Server, Error> {
        let folder = tempfile::tempdir()?;
        let (program, _) = self.program();
        let (address, nodes, what) = match self {
            Self::Etcd => {
                let ports = free_ports(2 * ETCD_NODES)?;
                let nodes = (0..ETCD_NODES).map(|node| etcd_arguments(&ports, node, folder.path())).collect();
                (ports[0], nodes, "lock of the v3 API by the JSON gateway, 3 nodes, each write on the disks of two")
            }
            Self::Redis => {
                let address = free_ports(1)?[0];
                let nodes: Vec<Vec<String>> = vec![redis_arguments(address, folder.path())];
                (
                    address,
                    nodes,
                    "a token passed with BLPOP and RPUSH, 1 node; no lease, no fencing, not on disk: not safe",
                )
            }
        };
        let mut running = Vec::new();
        for arguments in nodes {
            let part: Vec<&str> = ["server", program].into_iter().chain(arguments.iter().map(String::as_str)).collect();
            let log = File::options().create(true).append(true).open(folder.path().join("log"))?;
            let mut command = crew.command(&part);
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(folder.path());
            running.push(command.spawn()?);
        }
        let server = Server { address, what, _nodes: running, _folder: folder };
        server.wait(self).await?;
        Ok(server)
    }

    fn place(self, address: SocketAddr) -> Place {
        match self {
            Self::Etcd => Place::Etcd(address),
            Self::Redis => Place::Redis(address),
        }
    }
}

impl Server {
    /// Until somebody could go in and out.
    async fn wait(&self, against: Against) -> Result<(), Error> {
        let place = against.place(self.address);
        let works = async || place.door("ready", 1).await?.found().await;
        let mut why = "it was not asked in time".to_owned();
        let until = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < until {
            match tokio::time::timeout(PATIENCE, works()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => why = error.to_string(),
                Err(late) => why = late.to_string(),
            }
            sleep(LOOK_EVERY).await;
        }
        let log = std::fs::read_to_string(self._folder.path().join("log")).unwrap_or_default();
        let words = log.lines().next_back().unwrap_or("none").to_owned();
        Err(Error::Mute { against, why, words })
    }
}

fn etcd_arguments(ports: &[SocketAddr], node: usize, folder: &Path) -> Vec<String> {
    let url = |port: usize| format!("http://{}", ports[port]);
    let peer = |node: usize| url(ETCD_NODES + node);
    let cluster: Vec<String> = (0..ETCD_NODES).map(|node| format!("node{node}={}", peer(node))).collect();
    [
        ("--name", format!("node{node}")),
        ("--data-dir", folder.join(format!("node{node}")).display().to_string()),
        ("--listen-client-urls", url(node)),
        ("--advertise-client-urls", url(node)),
        ("--listen-peer-urls", peer(node)),
        ("--initial-advertise-peer-urls", peer(node)),
        ("--initial-cluster", cluster.join(",")),
        ("--initial-cluster-state", "new".to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}

fn redis_arguments(address: SocketAddr, folder: &Path) -> Vec<String> {
    let (ip, port, folder) = (address.ip().to_string(), address.port().to_string(), folder.display().to_string());
    ["--bind", &ip, "--port", &port, "--dir", &folder, "--save", "", "--appendonly", "no"].map(str::to_owned).into()
}

/// Ports that were free a moment ago. Held together, so that they differ.
fn free_ports(count: usize) -> Result<Vec<SocketAddr>, Error> {
    let listeners: Result<Vec<TcpListener>, _> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    Ok(listeners?.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?)
}
