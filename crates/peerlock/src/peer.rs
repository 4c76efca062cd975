//! A peer on the real network, with addresses, a secret and an identity.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use peerlock_net::{self as net, Identity, Keyring, Net, Secret};
use peerlock_types::Span;
use tokio::net::lookup_host;
use tokio::runtime::Runtime;

use peerlock_http::BadEndpoint;
use peerlock_service::store::Unusable;
use peerlock_service::{self as service, Config, Error, PeerId, RealNetwork, Service, places};

use crate::Client;

/// The default port of peers.
pub const PORT: u16 = 7400;
/// How long a peer polls after a message: several times the time that a core needs to wake up.
const AWAKE: Span = Span::from_nanos(200_000);
/// The runtime polls its sockets after this many polls of tasks. With tokio's default of 61, a busy client here
/// acquires a slot a dozen times before a request from another peer is read.
const EVENT_INTERVAL: u32 = 8;

/// A member of the cluster in this process. Clones are handles of the same member. It leaves when the last handle,
/// client and grant are dropped, or by [`leave`](Peer::leave).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let peer = peerlock::Peer::builder().join("10.0.0.7:7400").start().await?;
/// let grant = peer.client().acquire("nightly-backup").await?;
/// grant.release().await?;
/// peer.leave().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) service: Service,
    address: SocketAddr,
    advertised: SocketAddr,
    keyring: Option<Keyring>,
}

/// The settings of a [`Peer`].
#[must_use = "nothing is started before `start`"]
pub struct PeerBuilder {
    listen: SocketAddr,
    advertise: Option<SocketAddr>,
    join: Vec<String>,
    secret: Option<Secret>,
    identity: Option<Identity>,
    descriptors: Option<usize>,
    service: service::Builder,
}

/// Why a peer was not started, or no agent found. No task runs, and no port is open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum StartError {
    #[error(transparent)]
    Network(#[from] net::Error),
    #[error(transparent)]
    Places(#[from] places::NoDataDir),
    #[error(transparent)]
    Dir(#[from] Unusable),
    #[error("cannot find the address of {name}: {source}. Check the name, or give an IP address and port")]
    Unresolved { name: String, source: io::Error },
    #[error(
        "nothing was started: --join names only this host itself ({join}). Name another host, by an address that \
         /etc/hosts does not map to this machine; to create a cluster, omit --join or add --expect 1"
    )]
    OnlyItself { join: String },
    #[error(
        "nothing was started: with --expect {expect} and {hosts} hosts (those of --join and this one), two halves that \
         do not reach each other could create two clusters. Expect more than half of them: --expect {least} or more"
    )]
    ExpectsTooFew { expect: usize, hosts: usize, least: usize },
    #[error(transparent)]
    Join(#[from] Error),
    #[error("PEERLOCK_AGENT: {0}")]
    Endpoint(BadEndpoint),
    #[error("cannot use the bearer token in {from}: {why}")]
    Token { from: String, why: String },
    #[error("cannot start: {0}. Check the limits of this user (`ulimit -a`)")]
    System(io::Error),
}

impl Peer {
    /// Returns a builder with the default settings.
    pub fn builder() -> PeerBuilder {
        let listen = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        PeerBuilder {
            listen,
            advertise: None,
            join: Vec::new(),
            secret: None,
            identity: None,
            descriptors: None,
            service: Service::builder().config(Config { awake: AWAKE, ..Config::default() }),
        }
    }

    pub(crate) fn without_sockets(service: Service) -> Self {
        let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        Self { service, address: nowhere, advertised: nowhere, keyring: None }
    }

    /// Returns a client of this peer.
    pub fn client(&self) -> Client {
        Client::Peer(self.clone())
    }

    /// Returns the host ID of this peer.
    pub fn me(&self) -> PeerId {
        self.service.me()
    }

    /// Returns the address on which this peer listens; `0.0.0.0:0` [without sockets](crate::testing).
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the advertised address. If it is unspecified, each other peer uses the address from which it is
    /// connected.
    pub fn advertised(&self) -> SocketAddr {
        self.advertised
    }

    /// Grants no more slots, withdraws waiting requests, and revokes all grants, so that clients can stop before
    /// [`leave`](Self::leave). Resolves when every grant is released or has expired.
    pub async fn drain(&self) {
        self.service.drain().await;
    }

    /// Ends the session: grants here are lost, and other peers receive the slots. Returns whether the registry has
    /// confirmed it; if not, the slots become free when the session expires.
    pub async fn leave(&self) -> bool {
        self.service.leave().await
    }

    /// Returns the cluster secret in use, which can be replaced; `None` [without sockets](crate::testing).
    pub fn keyring(&self) -> Option<&Keyring> {
        self.keyring.as_ref()
    }

    #[doc(hidden)]
    pub fn service(&self) -> &Service {
        &self.service
    }
}

impl PeerBuilder {
    /// Sets the TCP address to listen on; port 0 is any free one. By default all addresses and a free port.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Sets the address at which others reach it if it differs, as behind a forwarded port or in a container. Port 0
    /// stands for the port that it listens on.
    pub fn advertise(mut self, address: SocketAddr) -> Self {
        self.advertise = Some(address);
        self
    }

    /// Adds a member to join: `host:port`, or `host` (port 7400), by name or IP address. Repeatable: one member that
    /// answers is enough, and own addresses are ignored. Without any, the peer creates a cluster, which ends with its
    /// last member.
    pub fn join(mut self, address: impl Into<String>) -> Self {
        self.join.push(address.into());
        self
    }

    /// Sets the cluster secret. By default that in the [data directory](places::data_dir), created if it is missing.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Sets the identity. By default a new one.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Limits the file descriptors for connections to other peers.
    #[doc(hidden)]
    pub fn descriptors(mut self, most: usize) -> Self {
        self.descriptors = Some(most);
        self
    }

    /// Changes the settings of its service, for agents and tests.
    #[doc(hidden)]
    pub fn service(mut self, set: impl FnOnce(service::Builder) -> service::Builder) -> Self {
        self.service = set(self.service);
        self
    }

    /// Sets the session length: without a quorum for this long, all grants of this peer are lost, and other peers
    /// receive the slots. 15 s by default.
    pub fn session(self, session: Duration) -> Self {
        self.service(|service| service.session(session))
    }

    /// Starts the peer, and waits until it has joined the cluster.
    pub async fn start(self) -> Result<Peer, StartError> {
        let secret = match self.secret {
            Some(secret) => secret,
            None => Secret::load_or_create(&places::secret(&places::data_dir()?))?,
        };
        let found = resolve_all(&self.join).await?;
        let config = net::Config { advertise: self.advertise, ..net::Config::new(self.listen) };
        let config = self.descriptors.into_iter().fold(config, net::Config::within);
        let net = Net::start(config, self.identity.unwrap_or_else(Identity::generate), secret).await?;
        let (address, advertised) = (net.address(), net.advertised());
        let keyring = Some(net.keyring());
        let is_own = |other: &String| is_own(other, address) || is_own(other, advertised);
        if !self.service.knows_cluster() {
            check_founding(&self.join, &found, self.service.expected(), is_own)?;
        }
        let join: BTreeSet<String> = found.into_iter().flatten().filter(|other| !is_own(other)).collect();
        let builder = join.into_iter().fold(self.service, |builder, address| builder.join(address));
        let service = builder.start(RealNetwork::new(net)).await?;
        Ok(Peer { service, address, advertised, keyring })
    }
}

/// Returns the fastest runtime for a peer: one thread for network, node and clients, so that no step waits for the
/// kernel to wake another thread.
///
/// # Errors
/// If the system refuses a file descriptor.
pub fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build()
}

/// Returns whether a peer that listens at `listens` is reached at this address.
pub(crate) fn is_own(other: &str, listens: SocketAddr) -> bool {
    let Ok(other) = other.parse::<SocketAddr>() else { return false };
    let is_here = || net::is_here(other.ip());
    other.port() == listens.port() && (other.ip() == listens.ip() || listens.ip().is_unspecified() && is_here())
}

/// Refuses a start that could create a second cluster by mistake: all names are addresses of this process, or the named
/// hosts suffice for two groups of the expected size. `found` has the addresses of each name.
fn check_founding(
    names: &[String],
    found: &[Vec<String>],
    expect: Option<usize>,
    is_own: impl Fn(&String) -> bool,
) -> Result<(), StartError> {
    let is_other = |addresses: &Vec<String>| addresses.is_empty() || !addresses.iter().any(&is_own);
    let others = names.iter().zip(found).filter(|(_, addresses)| is_other(addresses));
    // Two names of one host count once. A name without an address may be any host.
    let others = others.map(|(name, addresses)| addresses.first().unwrap_or(name));
    let hosts = 1 + others.collect::<BTreeSet<_>>().len();
    match expect {
        None if !names.is_empty() && found.iter().flatten().all(is_own) => {
            Err(StartError::OnlyItself { join: names.join(", ") })
        }
        Some(expect) if expect * 2 <= hosts => Err(StartError::ExpectsTooFew { expect, hosts, least: hosts / 2 + 1 }),
        _ => Ok(()),
    }
}

/// Returns the addresses of each name. Fails if none has an address.
pub(crate) async fn resolve_all(names: &[String]) -> Result<Vec<Vec<String>>, StartError> {
    let (mut found, mut unresolved) = (Vec::new(), None);
    for name in names {
        found.push(resolve(name).await.unwrap_or_else(|source| {
            tracing::warn!(name, %source, "cannot find the address of a host to join");
            unresolved = Some(StartError::Unresolved { name: name.clone(), source });
            Vec::new()
        }));
    }
    match unresolved {
        Some(error) if found.iter().all(Vec::is_empty) => Err(error),
        Some(_) | None => Ok(found),
    }
}

async fn resolve(name: &str) -> io::Result<Vec<String>> {
    let addresses = lookup_host(with_port(name)).await?.map(|address| address.to_string()).collect::<Vec<_>>();
    if addresses.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(addresses) }
}

fn with_port(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, PORT).to_string(),
        Err(_) if host.contains(':') => host.to_owned(),
        Err(_) => format!("{host}:{PORT}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_to_join_are_resolved() {
        for (name, address) in
            [("10.0.0.7:1", "10.0.0.7:1"), ("10.0.0.7", "10.0.0.7:7400"), ("::1", "[::1]:7400"), ("[::1]:2", "[::1]:2")]
        {
            assert_eq!(resolve(name).await.unwrap(), [address], "{name}");
        }
        assert!(resolve("localhost").await.unwrap().iter().all(|address| address.ends_with(":7400")));
        for name in ["", "10.0.0.7:port", "10.0.0.7:70000", "no such name.invalid:1"] {
            let error = resolve_all(&[name.to_owned()]).await.unwrap_err();
            assert!(matches!(error, StartError::Unresolved { .. }), "{name}: {error}");
        }
        for (other, listens, own) in [
            ("127.0.0.1:7400", "0.0.0.0:7400", true),
            ("127.0.0.1:7401", "0.0.0.0:7400", false),
            ("192.0.2.77:7400", "0.0.0.0:7400", false),
            ("127.0.0.2:7400", "127.0.0.1:7400", false),
            ("127.0.0.1:7400", "127.0.0.1:7400", true),
        ] {
            assert_eq!(is_own(other, listens.parse().unwrap()), own, "{other} at {listens}");
        }
        let names = ["no such name.invalid".to_owned(), "127.0.0.1:9".to_owned()];
        assert_eq!(resolve_all(&names).await.unwrap().concat(), ["127.0.0.1:9"]);
    }

    #[test]
    fn expect_must_be_more_than_half_of_all_hosts() {
        let own = |other: &String| other == "10.0.0.1:7400";
        let hosts = |named: &[&str]| named.iter().map(|name| vec![format!("{name}:7400")]).collect::<Vec<_>>();
        let three = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        for (named, expect, good) in [
            (&three[..], Some(1), false),
            (&three, Some(2), true),
            (&three, Some(3), true),
            (&three[1..], Some(1), false),
            (&three[1..], Some(2), true),
            (&["10.0.0.2", "10.0.0.2"], Some(2), true),
            (&["10.0.0.1"], Some(1), true),
            (&["10.0.0.1"], None, false),
            (&three, None, true),
            (&[], None, true),
            (&[], Some(1), true),
        ] {
            let names: Vec<String> = named.iter().map(ToString::to_string).collect();
            let checked = check_founding(&names, &hosts(named), expect, own);
            assert_eq!(checked.is_ok(), good, "{named:?} {expect:?}: {checked:?}");
        }
        let names = ["a".to_owned(), "b".to_owned()];
        let checked = check_founding(&names, &[vec!["10.0.0.1:7400".into()], Vec::new()], Some(1), own);
        assert!(matches!(checked, Err(StartError::ExpectsTooFew { hosts: 2, least: 2, .. })), "{checked:?}");
    }
}
