//! Servers for comparison, started on loopback in a temporary directory.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout_at};

use crate::crew::Crew;
use crate::door::{LEASE, Place};
use crate::relay::Way;
use crate::{Against, Error};

/// The nodes of etcd and ZooKeeper: the fewest that survive the loss of one.
const NODES: usize = 3;
/// The time limit for a server's start: three Java VMs on two cores need some of it.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Debian's path of ZooKeeper; its manifest names the dependencies.
const ZOOKEEPER_JAR: &str = "/usr/share/java/zookeeper.jar";
/// Prints ZooKeeper's log, if installed.
const LOG_JAR: &str = "/usr/share/java/slf4j-simple.jar";

/// A running server or cluster. Dropping it kills the processes and removes their files.
pub struct Server {
    /// The addresses for clients, one per node.
    pub addresses: Vec<SocketAddr>,
    /// A description of the competitor.
    pub what: &'static str,
    nodes: Vec<Child>,
    dir: TempDir,
}

/// The arguments of each node.
struct Start {
    addresses: Vec<SocketAddr>,
    what: &'static str,
    nodes: Vec<Vec<String>>,
}

impl Against {
    /// Returns the program and its package.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::Etcd => ("etcd", "etcd-server"),
            Self::Redis => ("redis-server", "redis-server"),
            Self::ZooKeeper => ("java", "zookeeper"),
        }
    }

    /// Fails early if it is not installed.
    pub(crate) fn check(self) -> Result<(), Error> {
        let (program, package) = self.program();
        let is_there = |what: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|dir| dir.join(what).is_file())
        };
        let missing = match self {
            _ if !is_there(program) => program,
            Self::ZooKeeper if !Path::new(ZOOKEEPER_JAR).is_file() => ZOOKEEPER_JAR,
            Self::Etcd | Self::Redis | Self::ZooKeeper => return Ok(()),
        };
        Err(Error::NoServer { against: self, missing, package })
    }

    /// Starts it behind `way` and waits until it works.
    pub(crate) async fn start(self, crew: &Crew<'_>, way: &mut Way) -> Result<Server, Error> {
        let dir = tempfile::tempdir()?;
        let Start { addresses, what, nodes } = match self {
            Self::Etcd => etcd(dir.path(), way).await?,
            Self::Redis => redis(dir.path(), way).await?,
            Self::ZooKeeper => zookeeper(dir.path(), way).await?,
        };
        let mut running = Vec::new();
        for arguments in nodes {
            let part = ["server", self.program().0].into_iter().chain(arguments.iter().map(String::as_str));
            let log = File::options().create(true).append(true).open(dir.path().join("log"))?;
            let mut command = crew.command(&part.collect::<Vec<_>>());
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(dir.path());
            running.push(command.spawn()?);
        }
        let mut server = Server { addresses, what, nodes: running, dir };
        server.wait(self).await?;
        Ok(server)
    }

    fn place(self, address: SocketAddr) -> Place {
        match self {
            Self::Etcd => Place::Etcd(address),
            Self::Redis => Place::Redis(address),
            Self::ZooKeeper => Place::ZooKeeper(address),
        }
    }
}

impl Server {
    /// Waits until each node serves a lock.
    async fn wait(&mut self, against: Against) -> Result<(), Error> {
        let until = Instant::now() + PATIENCE;
        for &address in &self.addresses {
            let place = against.place(address);
            let works = async || place.door("ready", 1).await?.found().await;
            loop {
                let why = match timeout_at(until, works()).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "there was no answer in time".to_owned(),
                };
                // A node that has ended does not answer: its port was taken, or an option is unknown.
                let ended = self.nodes.iter_mut().find_map(|node| node.try_wait().ok().flatten());
                if ended.is_some() || Instant::now() >= until {
                    let why = ended.map_or(why, |status| format!("it has ended ({status})"));
                    let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                    let words = log.lines().next_back().unwrap_or("none").to_owned();
                    return Err(Error::Mute { against, why, words });
                }
                sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }
}

/// Returns free ports with the addresses at which others reach them.
async fn ports(count: usize, way: &mut Way) -> Result<Vec<(SocketAddr, SocketAddr)>, Error> {
    let mut ports = Vec::new();
    for port in free_ports(count)? {
        ports.push((port, way.to(port).await?));
    }
    Ok(ports)
}

fn commands(ports: &[(SocketAddr, SocketAddr)]) -> Vec<SocketAddr> {
    ports.iter().map(|(_, commands)| *commands).collect()
}

async fn etcd(dir: &Path, way: &mut Way) -> Result<Start, Error> {
    let all = ports(2 * NODES, way).await?;
    let (clients, peers) = all.split_at(NODES);
    let url = |address: SocketAddr| format!("http://{address}");
    let cluster: Vec<String> = (0..NODES).map(|node| format!("node{node}={}", url(peers[node].1))).collect();
    let arguments = |node: usize| {
        [
            ("--name", format!("node{node}")),
            ("--data-dir", dir.join(format!("node{node}")).display().to_string()),
            ("--listen-client-urls", url(clients[node].0)),
            ("--advertise-client-urls", url(clients[node].1)),
            ("--listen-peer-urls", url(peers[node].0)),
            ("--initial-advertise-peer-urls", url(peers[node].1)),
            ("--initial-cluster", cluster.join(",")),
            ("--initial-cluster-state", "new".to_owned()),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
    };
    Ok(Start {
        addresses: commands(clients),
        what: "lock of the v3 API by the JSON gateway, 3 nodes, each write on the disks of two",
        nodes: (0..NODES).map(arguments).collect(),
    })
}

async fn redis(dir: &Path, way: &mut Way) -> Result<Start, Error> {
    let clients = ports(1, way).await?;
    let address = clients[0].0;
    let (ip, port, dir) = (address.ip().to_string(), address.port().to_string(), dir.display().to_string());
    let arguments = ["--bind", &ip, "--port", &port, "--dir", &dir, "--save", "", "--appendonly", "no"];
    Ok(Start {
        addresses: commands(&clients),
        what: "a token passed with BLPOP and RPUSH, 1 node; no lease, no fencing, not on disk: not safe",
        nodes: vec![arguments.map(str::to_owned).into()],
    })
}

async fn zookeeper(dir: &Path, way: &mut Way) -> Result<Start, Error> {
    let all = ports(3 * NODES, way).await?;
    let (clients, others) = all.split_at(NODES);
    // Followers connect to the leader on the first, and elect it on the second.
    let (peers, elections) = others.split_at(NODES);
    let mut nodes = Vec::new();
    for (node, (client, _)) in clients.iter().enumerate() {
        let data = dir.join(format!("node{node}"));
        std::fs::create_dir(&data)?;
        std::fs::write(data.join("myid"), node.to_string())?;
        let config = data.join("zoo.cfg");
        std::fs::write(&config, zookeeper_config(node, &data, *client, peers, elections))?;
        let (jars, config) = (format!("{ZOOKEEPER_JAR}:{LOG_JAR}"), config.display().to_string());
        let main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
        // Java's monitoring files would not be removed.
        let (log, no_files) = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-XX:-UsePerfData");
        nodes.push([no_files, "-Xmx256m", log, "-cp", &jars, main, &config].map(str::to_owned).into());
    }
    Ok(Start {
        addresses: commands(clients),
        what: "ephemeral sequential nodes, each watched by the next, 3 nodes, each write on the disks of two",
        nodes,
    })
}

/// Returns a node's configuration: it listens on its own ports and knows the others' addresses.
fn zookeeper_config(
    node: usize,
    data: &Path,
    client: SocketAddr,
    peers: &[(SocketAddr, SocketAddr)],
    elections: &[(SocketAddr, SocketAddr)],
) -> String {
    let mut config = format!(
        "dataDir={}\nclientPortAddress={}\nclientPort={}\nmaxClientCnxns=0\nadmin.enableServer=false\n\
         tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxSessionTimeout={}\n",
        data.display(),
        client.ip(),
        client.port(),
        LEASE.as_millis(),
    );
    for (other, ((own_peer, peer), (own_election, election))) in peers.iter().zip(elections).enumerate() {
        let (peer, election) = if other == node { (own_peer, own_election) } else { (peer, election) };
        config += &format!("server.{other}={peer}:{}\n", election.port());
    }
    config
}

/// Returns distinct ports that are free at the moment.
pub fn free_ports(count: usize) -> Result<Vec<SocketAddr>, Error> {
    let listeners: Result<Vec<TcpListener>, _> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    Ok(listeners?.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?)
}
