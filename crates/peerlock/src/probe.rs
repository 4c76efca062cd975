//! Determines the clusters of the `--join` hosts, before an agent returns to the cluster of its data directory.
//!
//! ```text
//!   this host                                     a host of --join
//!   │ dials with its identity and the secret        │
//!   ├──────────────────────────────────────────────►│
//!   │                     hello(its cluster, if any)│   an agent sends it first on every connection
//!   │◄──────────────────────────────────────────────┤
//! ```
//!
//! A probing host sends nothing, so two hosts that probe each other receive nothing. The one with the smaller host ID
//! gives up after a second and starts as a member of its own cluster, in which the other one then finds it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use peerlock_net::{self as net, Event, Identity, Net, Refusal, Secret, Unreached};
use peerlock_service::{ClusterId, PeerId};
use tokio::time::{sleep, timeout};

use crate::StartError;
use crate::peer::{is_own, resolve_all};

const CONNECTS: Duration = Duration::from_secs(2);
/// The timeout of the hello from a connected host, and of a host that refuses connections: it may be starting, too.
const ANSWERS: Duration = Duration::from_secs(1);
/// The same for a host with a smaller ID, which gives up before this one if it probes, too.
const GOES_FIRST: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// The result for a `--join` address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The address that was dialled.
    pub address: String,
    /// The answer of its host.
    pub answer: Answer,
}

/// The answer of a host, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It belongs to this cluster.
    Cluster(ClusterId),
    /// It belongs to no cluster yet, or has not answered.
    Unknown,
    /// It has another secret.
    OtherSecret,
    /// It could not be reached.
    Unreached,
}

#[derive(Clone, Copy)]
enum State {
    Dialling,
    /// The latest connection attempt has failed. The network retries.
    Unreached,
    Linked(PeerId),
    /// The connection has ended without an answer: the host may be restarting.
    Parted(PeerId),
    Done(Answer),
}

impl State {
    fn is_settled(self, me: PeerId, since: Duration) -> bool {
        match self {
            Self::Dialling => since >= CONNECTS,
            Self::Unreached => since >= ANSWERS,
            Self::Linked(peer) | Self::Parted(peer) => since >= if peer < me { GOES_FIRST } else { ANSWERS },
            Self::Done(_) => true,
        }
    }

    fn answer(self) -> Answer {
        match self {
            Self::Dialling | Self::Unreached => Answer::Unreached,
            Self::Linked(_) | Self::Parted(_) => Answer::Unknown,
            Self::Done(answer) => answer,
        }
    }
}

/// Dials the hosts of `join` as the peer that listens at `listen`, to receive their clusters. Returns when each has
/// answered or could not be reached, or one belongs to `ours`, and the port is free again. Leaves own addresses out.
pub async fn probe(
    listen: SocketAddr,
    identity: Identity,
    secret: Secret,
    join: &[String],
    ours: ClusterId,
) -> Result<Vec<Probe>, StartError> {
    let found = resolve_all(join).await?;
    let mut net = Net::start(net::Config::new(listen), identity, secret).await?;
    let (me, address) = (net.me(), net.address());
    let others = found.into_iter().flatten().filter(|other| !is_own(other, address));
    let mut hosts: BTreeMap<SocketAddr, State> =
        others.filter_map(|other| Some((other.parse().ok()?, State::Dialling))).collect();
    for address in hosts.keys() {
        // Succeeds: the network's queue has room for all.
        _ = net.maintain(*address);
    }
    let started = Instant::now();
    let is_ours = |state: &State| matches!(state, State::Done(Answer::Cluster(cluster)) if *cluster == ours);
    while !hosts.values().any(is_ours) && hosts.values().any(|state| !state.is_settled(me, started.elapsed())) {
        if let Ok(event) = timeout(LOOK, net.next()).await {
            record(&mut hosts, event);
        }
    }
    net.shutdown().await;
    // Another task closes the listener.
    while TcpListener::bind(listen).is_err() && started.elapsed() < 2 * GOES_FIRST {
        sleep(LOOK).await;
    }
    Ok(hosts
        .into_iter()
        .map(|(address, state)| Probe { address: address.to_string(), answer: state.answer() })
        .collect())
}

fn record(hosts: &mut BTreeMap<SocketAddr, State>, event: Event) {
    let of = |hosts: &mut BTreeMap<SocketAddr, State>, peer: PeerId, next: State| {
        for state in hosts.values_mut() {
            if matches!(state, State::Linked(linked) if *linked == peer) {
                *state = next;
            }
        }
    };
    match event {
        Event::Up { peer, address, .. } => {
            if let Some(state) =
                hosts.get_mut(&address).filter(|state| !matches!(state, State::Done(Answer::Cluster(_))))
            {
                *state = State::Linked(peer);
            }
        }
        Event::Message { from, bytes, .. } => {
            let found = peerlock_service::hello_cluster(&bytes).flatten();
            of(hosts, from, State::Done(found.map_or(Answer::Unknown, Answer::Cluster)));
        }
        Event::Down { peer, .. } => of(hosts, peer, State::Parted(peer)),
        Event::Unreached { address, why } => {
            if let Some(state @ (State::Dialling | State::Unreached)) = hosts.get_mut(&address) {
                *state = match why {
                    Unreached::Refused(Refusal::Secret) => State::Done(Answer::OtherSecret),
                    Unreached::Refused(_) => State::Done(Answer::Unreached),
                    Unreached::Connection(_) => State::Unreached,
                };
            }
        }
    }
}
