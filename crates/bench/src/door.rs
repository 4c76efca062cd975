//! A client's way in and out, the same for everything that is measured.

use std::net::SocketAddr;
use std::time::Duration;

use peerlock_http::client::Agent;
use peerlock_http::{Endpoint, Want};
use peerlock_service::{Grant, Service};

use crate::{etcd, redis};

/// What went wrong, in words: the parent tells them to the person.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where clients go.
#[derive(Clone)]
pub enum Place {
    /// This process is a peer.
    Peer(Service),
    /// An agent is asked.
    Agent(Endpoint),
    Etcd(SocketAddr),
    Redis(SocketAddr),
}

/// One client at the door of one resource.
pub enum Door {
    Peer { peer: Service, name: String, slots: u32, grant: Option<Grant> },
    Agent { agent: Agent, name: String, want: Want, grant: String },
    Etcd(etcd::Client),
    Redis(redis::Client),
}

/// Slot and fencing number.
pub type Pass = (u32, u64);

/// Longer than any turn: nobody loses anything while it is measured.
pub const LEASE: Duration = Duration::from_secs(60);

impl Place {
    /// A client, connected.
    pub async fn door(&self, name: &str, slots: u32) -> Result<Door, Failure> {
        Ok(match self {
            Self::Peer(peer) => Door::Peer { peer: peer.clone(), name: name.to_owned(), slots, grant: None },
            Self::Agent(endpoint) => {
                let ttl_ms = u64::try_from(LEASE.as_millis()).ok();
                let (agent, want) =
                    (Agent::new(endpoint.clone(), None), Want { slots: Some(slots), ttl_ms, ..Want::default() });
                Door::Agent { agent, name: name.to_owned(), want, grant: String::new() }
            }
            Self::Etcd(address) => Door::Etcd(etcd::Client::connect(*address, name).await?),
            Self::Redis(address) => Door::Redis(redis::Client::connect(*address, name).await?),
        })
    }

    /// How many clients wait here.
    pub async fn waiting(&self) -> Result<usize, Failure> {
        match self {
            Self::Peer(peer) => Ok(peer.counters().await?.waiting as usize),
            Self::Agent(endpoint) => {
                let resources = Agent::new(endpoint.clone(), None).resources().await?;
                Ok(resources.iter().map(|resource| resource.waiting_here).sum())
            }
            Self::Etcd(_) | Self::Redis(_) => Err("a server does not say who waits".into()),
        }
    }
}

impl Door {
    /// Makes the resource ready to be entered.
    pub async fn found(&mut self) -> Result<(), Failure> {
        if let Self::Redis(client) = self {
            return client.found().await;
        }
        self.enter().await?;
        self.leave().await
    }

    /// Waits until the client is inside.
    pub async fn enter(&mut self) -> Result<Pass, Failure> {
        match self {
            Self::Peer { peer, name, slots, grant } => {
                let granted = peer.resource(name).slots(*slots).ttl(LEASE).acquire().await?;
                let pass = (granted.slot(), granted.fencing());
                *grant = Some(granted);
                Ok(pass)
            }
            Self::Agent { agent, name, want, grant } => {
                let granted = agent.acquire(name, want).await?;
                *grant = granted.grant;
                Ok((granted.slot, granted.fencing))
            }
            Self::Etcd(client) => client.lock().await.map(|fencing| (0, fencing)),
            Self::Redis(client) => client.take().await.map(|()| (0, 0)),
        }
    }

    /// Leaves. Returns when the client may ask again.
    pub async fn leave(&mut self) -> Result<(), Failure> {
        match self {
            Self::Peer { grant, .. } => match grant.take() {
                Some(grant) => Ok(grant.release().await?),
                None => Ok(()),
            },
            Self::Agent { agent, name, grant, .. } => Ok(agent.release(name, grant).await?),
            Self::Etcd(client) => client.unlock().await,
            Self::Redis(client) => client.give().await,
        }
    }
}
