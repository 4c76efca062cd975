//! Being a peer: where to listen, whom to join, with which secret.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use peerlock::store::{Known, Store};
use peerlock::{
    ClusterId, GrantFile, Identity, PORT, Peer, PeerBuilder, Predecessor, Probe, Secret, StartError, places,
};
use peerlock_net as net;
use tokio::time::timeout;

use crate::{Error, Result};

/// Longer than a peer waits when it leaves until others have confirmed what it gave them.
const LEAVING: Duration = Duration::from_secs(10);

/// How a process takes part as a peer.
#[derive(Args)]
#[command(next_help_heading = "As a peer")]
pub struct PeerArgs {
    /// Where to listen for other peers [default: 0.0.0.0:7400; any free port if that one is taken, for `run` and for an
    /// agent that a command has started, which listens on 127.0.0.1 while it is alone in its cluster]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where other machines reach it, if not where it listens: behind a forwarded port, or in a container. Port 0 is
    /// the one that it listens on
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<SocketAddr>,
    /// A peer to join the cluster of: HOST or HOST:PORT. Repeatable; one that answers is enough
    #[arg(long, value_name = "ADDR", value_parser = NonEmptyStringValueParser::new())]
    pub join: Vec<String>,
    /// What the members of the cluster have in common: the same file on all machines, mode 600 [default: `secret` in
    /// the data folder, made at the first start]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The folder for secret and identity [default: $PEERLOCK_DATA_DIR, $XDG_DATA_HOME/peerlock or
    /// ~/.local/share/peerlock; /var/lib/peerlock for root]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// What an agent has, and a peer that only runs a command has not.
#[derive(Default)]
pub struct Kind {
    /// Who it is, if it is always the same.
    pub identity: Option<Identity>,
    /// Rather on any port than not at all.
    pub any_port: bool,
    /// For peers of this machine only, unless it was said where to listen.
    pub is_local: bool,
    /// What it keeps, and what those before it have kept.
    pub dir: Option<(Store, Known)>,
    /// Where it writes down what it grants, and what the one before it has left there.
    pub grants: Option<(GrantFile, Option<Predecessor>)>,
    /// How many have to meet before one of them founds a cluster.
    pub expect: Option<usize>,
    /// How long its session stands.
    pub session: Option<Duration>,
    /// How many descriptors are for connections with other peers.
    pub descriptors: Option<usize>,
}

/// A peer that can start.
pub struct Prepared {
    builder: PeerBuilder,
    secret: PathBuf,
    is_first: bool,
}

/// A peer that has started.
pub struct LocalPeer {
    pub peer: Peer,
    /// The secret's file.
    pub secret: PathBuf,
    /// It began a cluster of its own.
    pub is_first: bool,
}

impl PeerArgs {
    /// Whether something was said that only a peer can do.
    pub fn is_asked_for(&self) -> bool {
        !self.join.is_empty() || self.listen.is_some() || self.secret_file.is_some() || self.data_dir.is_some()
    }

    pub fn data_dir(&self) -> Result<PathBuf> {
        match &self.data_dir {
            Some(dir) => Ok(dir.clone()),
            None => Ok(places::data_dir().map_err(StartError::from)?),
        }
    }

    /// Starts a peer that keeps nothing.
    pub async fn start(&self) -> Result<LocalPeer> {
        self.prepare(Kind { any_port: true, ..Kind::default() })?.start().await
    }

    /// Reads and makes what the peer needs, so that only the network can still be in its way.
    pub fn prepare(&self, kind: Kind) -> Result<Prepared> {
        let knows = kind.dir.as_ref().is_some_and(|(_, known)| known.cluster.is_some() || known.registry.is_some());
        let (path, secret) = self.secret(&self.data_dir()?, knows)?;
        let builder = Peer::builder().listen(self.address(kind.any_port, kind.is_local)?).secret(secret);
        let builder = builder.identity(kind.identity.unwrap_or_else(Identity::generate));
        let builder = kind.session.into_iter().fold(builder, PeerBuilder::session);
        let builder = kind.descriptors.into_iter().fold(builder, PeerBuilder::descriptors);
        let builder = kind.expect.into_iter().fold(builder, PeerBuilder::expect);
        let builder = match kind.dir {
            Some((store, known)) => builder.dir(store, known),
            None => builder,
        };
        let builder = match kind.grants {
            Some((file, predecessor)) => builder.grants(file, predecessor).clients_elsewhere(),
            None => builder,
        };
        let builder = self.advertise.into_iter().fold(builder, |builder, address| builder.advertise(address));
        let builder = self.join.iter().fold(builder, |builder, address| builder.join(address));
        Ok(Prepared { builder, secret: path, is_first: self.join.is_empty() })
    }

    /// Asks the hosts of `--join` to which clusters they belong, as the peer that this will be.
    pub async fn probe(&self, identity: &Identity, ours: ClusterId) -> Result<Vec<Probe>> {
        let (_, secret) = self.secret(&self.data_dir()?, true)?;
        Ok(peerlock::probe(self.address(false, false)?, identity.clone(), secret, &self.join, ours).await?)
    }

    /// A secret that was named must be there, and so must that of a cluster that is joined; our own is made.
    fn secret(&self, data_dir: &Path, knows_cluster: bool) -> Result<(PathBuf, Secret)> {
        let own = || places::secret(data_dir);
        let path = self.secret_file.clone().unwrap_or_else(own);
        if self.secret_file.is_none() && (knows_cluster || !self.join.is_empty()) && !path.exists() {
            return Err(Error::NoSecret { path });
        }
        let secret = match self.secret_file {
            Some(_) => Secret::load(&path),
            None => Secret::load_or_create(&path),
        };
        Ok((path, secret.map_err(StartError::from)?))
    }

    /// Whether what was named is there: the secret, and an address of this machine.
    pub fn check(&self) -> Result<()> {
        self.secret_file.as_deref().map(Secret::load).transpose().map_err(StartError::from)?;
        match self.listen {
            // With any port: the one that is meant may be that of the agent before this one.
            Some(address) => TcpListener::bind((address.ip(), 0)).map(drop).map_err(|source| unheard(address, source)),
            None => Ok(()),
        }
    }

    fn address(&self, any_port: bool, is_local: bool) -> Result<SocketAddr> {
        let ip = if is_local { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let usual = |port| SocketAddr::new(ip.into(), port);
        let address = self.listen.unwrap_or(usual(PORT));
        // Asked before there is anything else: where the port is taken, another may do.
        match TcpListener::bind(address) {
            Err(source) if source.kind() == ErrorKind::AddrInUse => match self.listen {
                None if any_port => Ok(usual(0)),
                _ => Err(unheard(address, source)),
            },
            Ok(_) | Err(_) => Ok(address),
        }
    }
}

fn unheard(address: SocketAddr, source: std::io::Error) -> Error {
    StartError::from(net::Error::Listen { address, source }).into()
}

impl Prepared {
    /// Starts the peer.
    pub async fn start(self) -> Result<LocalPeer> {
        let Self { builder, secret, is_first } = self;
        Ok(LocalPeer { peer: builder.start().await?, secret, is_first })
    }
}

impl LocalPeer {
    /// Where other machines can dial it, as far as we can tell.
    pub fn address(&self) -> SocketAddr {
        let notified = self.peer.advertised();
        net::dialable(notified).first().copied().unwrap_or(notified)
    }

    /// Says goodbye to the others, but not for ever. Whether they know.
    pub async fn leave(self) -> bool {
        timeout(LEAVING, self.peer.leave()).await.unwrap_or(false)
    }
}

/// Where those on the same machine reach who listens here.
pub fn on_this_machine(address: SocketAddr) -> SocketAddr {
    let loopback = |ip: IpAddr| match ip {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    let ip = address.ip();
    SocketAddr::new(if ip.is_unspecified() { loopback(ip) } else { ip }, address.port())
}
