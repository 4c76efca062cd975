//! Servers for comparison, started on loopback in a temporary directory.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout_at};

use crate::relay::Network;
use crate::system::{LEASE, System};
use crate::worker::Launcher;
use crate::{Against, Error};

const NODES: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const ZOOKEEPER_JAR: &str = "/usr/share/java/zookeeper.jar";
const LOG_JAR: &str = "/usr/share/java/slf4j-simple.jar";

/// A running server or cluster. Its processes and files are removed on drop.
pub struct Server {
    pub addresses: Vec<SocketAddr>,
    pub what: &'static str,
    nodes: Vec<Child>,
    dir: TempDir,
}

struct Start {
    addresses: Vec<SocketAddr>,
    what: &'static str,
    nodes: Vec<Vec<String>>,
}

impl Against {
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::Etcd => ("etcd", "etcd-server"),
            Self::Redis => ("redis-server", "redis-server"),
            Self::ZooKeeper => ("java", "zookeeper"),
        }
    }

    pub(crate) fn check(self) -> Result<(), Error> {
        let (program, package) = self.program();
        let is_there = |program: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
        };
        let missing = match self {
            _ if !is_there(program) => program,
            Self::ZooKeeper if !Path::new(ZOOKEEPER_JAR).is_file() => ZOOKEEPER_JAR,
            Self::Etcd | Self::Redis | Self::ZooKeeper => return Ok(()),
        };
        Err(Error::NoServer { against: self, missing, package })
    }

    pub(crate) async fn start(self, launcher: &Launcher<'_>, network: &mut Network) -> Result<Server, Error> {
        let dir = tempfile::tempdir()?;
        let Start { addresses, what, nodes } = match self {
            Self::Etcd => etcd(dir.path(), network).await?,
            Self::Redis => redis(dir.path(), network).await?,
            Self::ZooKeeper => zookeeper(dir.path(), network).await?,
        };
        let mut running = Vec::new();
        for arguments in nodes {
            let part = ["server", self.program().0].into_iter().chain(arguments.iter().map(String::as_str));
            let log = File::options().create(true).append(true).open(dir.path().join("log"))?;
            let mut command = launcher.command(&part.collect::<Vec<_>>());
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(dir.path());
            running.push(command.spawn()?);
        }
        let mut server = Server { addresses, what, nodes: running, dir };
        server.wait(self).await?;
        Ok(server)
    }

    fn system(self, address: SocketAddr) -> System {
        match self {
            Self::Etcd => System::Etcd(address),
            Self::Redis => System::Redis(address),
            Self::ZooKeeper => System::ZooKeeper(address),
        }
    }
}

impl Server {
    async fn wait(&mut self, against: Against) -> Result<(), Error> {
        let until = Instant::now() + PATIENCE;
        for &address in &self.addresses {
            let system = against.system(address);
            let works = async || system.lock("ready", 1).await?.prepare().await;
            loop {
                let why = match timeout_at(until, works()).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "no answer in time".to_owned(),
                };
                let ended = self.nodes.iter_mut().find_map(|node| node.try_wait().ok().flatten());
                if ended.is_some() || Instant::now() >= until {
                    let why = ended.map_or(why, |status| format!("it exited ({status})"));
                    let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                    let output = log.lines().next_back().unwrap_or("none").to_owned();
                    return Err(Error::NoAnswer { against, why, output });
                }
                sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }
}

async fn ports(count: usize, network: &mut Network) -> Result<Vec<(SocketAddr, SocketAddr)>, Error> {
    let mut ports = Vec::new();
    for port in free_ports(count)? {
        ports.push((port, network.to(port).await?));
    }
    Ok(ports)
}

fn advertised(ports: &[(SocketAddr, SocketAddr)]) -> Vec<SocketAddr> {
    ports.iter().map(|(_, advertised)| *advertised).collect()
}

async fn etcd(dir: &Path, network: &mut Network) -> Result<Start, Error> {
    let all = ports(2 * NODES, network).await?;
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
        addresses: advertised(clients),
        what: "lock of the v3 API through the JSON gateway, 3 nodes, writes synced on two disks",
        nodes: (0..NODES).map(arguments).collect(),
    })
}

async fn redis(dir: &Path, network: &mut Network) -> Result<Start, Error> {
    let clients = ports(1, network).await?;
    let address = clients[0].0;
    let (ip, port, dir) = (address.ip().to_string(), address.port().to_string(), dir.display().to_string());
    let arguments = ["--bind", &ip, "--port", &port, "--dir", &dir, "--save", "", "--appendonly", "no"];
    Ok(Start {
        addresses: advertised(&clients),
        what: "token passed with BLPOP and RPUSH, 1 node; no lease, fencing or disk: not safe",
        nodes: vec![arguments.map(str::to_owned).into()],
    })
}

async fn zookeeper(dir: &Path, network: &mut Network) -> Result<Start, Error> {
    let all = ports(3 * NODES, network).await?;
    let (clients, others) = all.split_at(NODES);
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
        // Java's performance files would not be removed.
        let (log, no_files) = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-XX:-UsePerfData");
        nodes.push([no_files, "-Xmx256m", log, "-cp", &jars, main, &config].map(str::to_owned).into());
    }
    Ok(Start {
        addresses: advertised(clients),
        what: "ephemeral sequential nodes, each watched by the next, 3 nodes, writes synced on two disks",
        nodes,
    })
}

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

pub fn free_ports(count: usize) -> Result<Vec<SocketAddr>, Error> {
    let listeners: Result<Vec<TcpListener>, _> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    Ok(listeners?.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?)
}
