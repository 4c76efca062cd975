//! The lock interface of a client, the same for everything that is measured.

use std::net::SocketAddr;
use std::time::Duration;

use peerlock::{Agent, Client, Endpoint, Grant, Peer, Request};

use crate::{etcd, redis, zookeeper};

/// A failure that the parent prints.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where clients connect.
#[derive(Clone)]
pub enum Place {
    /// A peer in this process.
    Peer(Peer),
    /// An agent, with one connection per client.
    Agent(Endpoint),
    Etcd(SocketAddr),
    Redis(SocketAddr),
    ZooKeeper(SocketAddr),
}

/// One client of one resource.
#[expect(clippy::large_enum_variant, reason = "there is one for each client, and ours is the one that is measured")]
pub enum Door {
    Ours { client: Client, request: Request, grant: Option<Grant> },
    Etcd(etcd::Client),
    Redis(redis::Client),
    ZooKeeper(zookeeper::Client),
}

/// Slot and fencing number.
pub type Pass = (u32, u64);

/// Longer than any bench: no lease expires during a measurement.
pub const LEASE: Duration = Duration::from_secs(3600);

impl Place {
    /// Connects a client.
    pub async fn door(&self, name: &str, slots: u32) -> Result<Door, Failure> {
        Ok(match self {
            Self::Peer(_) | Self::Agent(_) => {
                let request = Request::new(name).slots(slots).ttl(LEASE);
                Door::Ours { client: self.client()?, request, grant: None }
            }
            Self::Etcd(address) => Door::Etcd(etcd::Client::connect(*address, name, LEASE).await?),
            Self::Redis(address) => Door::Redis(redis::Client::connect(*address, name).await?),
            Self::ZooKeeper(address) => Door::ZooKeeper(zookeeper::Client::connect(*address, name).await?),
        })
    }

    /// Returns the number of waiting clients.
    pub async fn waiting(&self) -> Result<usize, Failure> {
        Ok(self.client()?.resources().await?.iter().map(|resource| resource.waiting_here).sum())
    }

    fn client(&self) -> Result<Client, Failure> {
        match self {
            Self::Peer(peer) => Ok(peer.client()),
            Self::Agent(endpoint) => Ok(Agent::at(endpoint.clone(), None).client()),
            Self::Etcd(_) | Self::Redis(_) | Self::ZooKeeper(_) => Err("a server to compare with is no peer".into()),
        }
    }
}

impl Door {
    /// Creates the resource.
    pub async fn found(&mut self) -> Result<(), Failure> {
        match self {
            Self::Redis(client) => return client.found().await,
            Self::ZooKeeper(client) => client.found().await?,
            Self::Ours { .. } | Self::Etcd(_) => {}
        }
        self.enter().await?;
        self.leave().await
    }

    /// Waits for the grant.
    pub async fn enter(&mut self) -> Result<Pass, Failure> {
        match self {
            Self::Ours { client, request, grant } => {
                let grant = grant.insert(client.acquire(&*request).await?);
                Ok((grant.slot(), grant.fencing()))
            }
            Self::Etcd(client) => client.lock().await.map(|fencing| (0, fencing)),
            Self::Redis(client) => client.take().await.map(|()| (0, 0)),
            Self::ZooKeeper(client) => client.lock().await.map(|fencing| (0, fencing)),
        }
    }

    /// Releases. Returns when the client may request again.
    pub async fn leave(&mut self) -> Result<(), Failure> {
        match self {
            Self::Ours { grant, .. } => match grant.take() {
                Some(grant) => Ok(grant.release().await?),
                None => Ok(()),
            },
            Self::Etcd(client) => client.unlock().await,
            Self::Redis(client) => client.give().await,
            Self::ZooKeeper(client) => client.unlock().await,
        }
    }
}
