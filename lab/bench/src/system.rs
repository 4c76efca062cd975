//! The lock interface of a client, for all measured systems.

use std::net::SocketAddr;
use std::time::Duration;

use peerlock::{Agent, Client, Endpoint, Grant, Peer, Request};

use crate::{etcd, redis, zookeeper};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
pub enum System {
    Peer(Peer),
    Agent(Endpoint),
    Etcd(SocketAddr),
    Redis(SocketAddr),
    ZooKeeper(SocketAddr),
}

#[expect(clippy::large_enum_variant, reason = "one per client")]
pub enum Lock {
    Peerlock { client: Client, request: Request, grant: Option<Grant> },
    Etcd(etcd::Client),
    Redis(redis::Client),
    ZooKeeper(zookeeper::Client),
}

/// Slot and fencing number.
pub type Granted = (u32, u64);

pub const LEASE: Duration = Duration::from_secs(3600);

impl System {
    pub async fn lock(&self, name: &str, slots: u32) -> Result<Lock, Failure> {
        Ok(match self {
            Self::Peer(_) | Self::Agent(_) => {
                let request = Request::new(name).slots(slots).ttl(LEASE);
                Lock::Peerlock { client: self.client()?, request, grant: None }
            }
            Self::Etcd(address) => Lock::Etcd(etcd::Client::connect(*address, name, LEASE).await?),
            Self::Redis(address) => Lock::Redis(redis::Client::connect(*address, name).await?),
            Self::ZooKeeper(address) => Lock::ZooKeeper(zookeeper::Client::connect(*address, name).await?),
        })
    }

    pub async fn waiting(&self) -> Result<usize, Failure> {
        Ok(self.client()?.resources().await?.iter().map(|resource| resource.waiting_here).sum())
    }

    fn client(&self) -> Result<Client, Failure> {
        match self {
            Self::Peer(peer) => Ok(peer.client()),
            Self::Agent(endpoint) => Ok(Agent::at(endpoint.clone(), None).client()),
            Self::Etcd(_) | Self::Redis(_) | Self::ZooKeeper(_) => Err("this server is not a peer".into()),
        }
    }
}

impl Lock {
    pub async fn prepare(&mut self) -> Result<(), Failure> {
        match self {
            Self::Redis(client) => return client.prepare().await,
            Self::ZooKeeper(client) => client.prepare().await?,
            Self::Peerlock { .. } | Self::Etcd(_) => {}
        }
        self.acquire().await?;
        self.release().await
    }

    pub async fn acquire(&mut self) -> Result<Granted, Failure> {
        match self {
            Self::Peerlock { client, request, grant } => {
                let grant = grant.insert(client.acquire(&*request).await?);
                Ok((grant.slot(), grant.fencing()))
            }
            Self::Etcd(client) => client.lock().await.map(|fencing| (0, fencing)),
            Self::Redis(client) => client.pop().await.map(|()| (0, 0)),
            Self::ZooKeeper(client) => client.lock().await.map(|fencing| (0, fencing)),
        }
    }

    pub async fn release(&mut self) -> Result<(), Failure> {
        match self {
            Self::Peerlock { grant, .. } => match grant.take() {
                Some(grant) => Ok(grant.release().await?),
                None => Ok(()),
            },
            Self::Etcd(client) => client.unlock().await,
            Self::Redis(client) => client.push().await,
            Self::ZooKeeper(client) => client.unlock().await,
        }
    }
}
