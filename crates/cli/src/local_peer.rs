//! A peer in this process, with its options.

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

/// Longer than a leaving peer waits for its last confirmations.
const LEAVING: Duration = Duration::from_secs(10);

#[derive(Args)]
pub struct PeerArgs {
    /// Address for other peers [default: 0.0.0.0:7400]
    ///
    /// If port 7400 is in use, `run` and agents started by a command use any free port. An agent started by a command
    /// listens on 127.0.0.1 while it is alone in its cluster.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Address that other machines dial, if it differs from --listen
    ///
    /// For forwarded ports and containers. Port 0 stands for the listening port.
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<SocketAddr>,
    /// Join the cluster of this peer, HOST or HOST:PORT; repeat for several
    #[arg(long, value_name = "ADDR", value_parser = NonEmptyStringValueParser::new())]
    pub join: Vec<String>,
    /// Cluster secret, mode 600, the same on all machines [default: `secret` in the data directory]
    ///
    /// The default file is created at the first start.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Data directory, with secret and identity
    ///
    /// Default: $PEERLOCK_DATA_DIR, $XDG_DATA_HOME/peerlock or ~/.local/share/peerlock; /var/lib/peerlock for root.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// The settings that the peer of an agent has and that of a single command lacks.
#[derive(Default)]
pub struct Kind {
    pub identity: Option<Identity>,
    /// Whether to use any port if the default one is in use.
    pub any_port: bool,
    pub is_local: bool,
    pub dir: Option<(Store, Known)>,
    pub grants: Option<(GrantFile, Option<Predecessor>)>,
    /// How many agents create a cluster.
    pub expect: Option<usize>,
    pub session: Option<Duration>,
    pub descriptors: Option<usize>,
}

pub struct Prepared {
    builder: PeerBuilder,
    secret: PathBuf,
    is_first: bool,
}

pub struct LocalPeer {
    pub peer: Peer,
    pub secret: PathBuf,
    pub is_first: bool,
}

impl PeerArgs {
    pub fn is_given(&self) -> bool {
        !self.join.is_empty() || self.listen.is_some() || self.secret_file.is_some() || self.data_dir.is_some()
    }

    pub fn data_dir(&self) -> Result<PathBuf> {
        match &self.data_dir {
            Some(dir) => Ok(dir.clone()),
            None => Ok(places::data_dir().map_err(StartError::from)?),
        }
    }

    pub async fn start(&self) -> Result<LocalPeer> {
        self.prepare(Kind { any_port: true, ..Kind::default() })?.start().await
    }

    /// Reads or creates the files. Afterwards only the network can prevent the start.
    pub fn prepare(&self, kind: Kind) -> Result<Prepared> {
        let knows = kind.dir.as_ref().is_some_and(|(_, known)| known.names_cluster());
        let (path, secret) = self.secret(&self.data_dir()?, knows)?;
        let builder = Peer::builder().listen(self.address(kind.any_port, kind.is_local)?).secret(secret);
        let builder = builder.identity(kind.identity.unwrap_or_else(Identity::generate));
        let builder = kind.session.into_iter().fold(builder, PeerBuilder::session);
        let builder = kind.descriptors.into_iter().fold(builder, PeerBuilder::descriptors);
        let builder = builder.service(|mut service| {
            if let Some((store, known)) = kind.dir {
                service = service.dir(store, known);
            }
            if let Some((file, predecessor)) = kind.grants {
                service = service.grants(file, predecessor).clients_elsewhere();
            }
            kind.expect.into_iter().fold(service, |service, hosts| service.expect(hosts))
        });
        let builder = self.advertise.into_iter().fold(builder, |builder, address| builder.advertise(address));
        let builder = self.join.iter().fold(builder, |builder, address| builder.join(address));
        Ok(Prepared { builder, secret: path, is_first: self.join.is_empty() })
    }

    pub async fn probe(&self, identity: &Identity, ours: ClusterId) -> Result<Vec<Probe>> {
        let (_, secret) = self.secret(&self.data_dir()?, true)?;
        Ok(peerlock::probe(self.address(false, false)?, identity.clone(), secret, &self.join, ours).await?)
    }

    /// Creates the secret only for a new cluster in the data directory.
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

    pub fn check(&self) -> Result<()> {
        self.secret_file.as_deref().map(Secret::load).transpose().map_err(StartError::from)?;
        match self.listen {
            // With any port, since the predecessor may use the given one.
            Some(address) => TcpListener::bind((address.ip(), 0)).map(drop).map_err(|source| unusable(address, source)),
            None => Ok(()),
        }
    }

    fn address(&self, any_port: bool, is_local: bool) -> Result<SocketAddr> {
        let ip = if is_local { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let usual = |port| SocketAddr::new(ip.into(), port);
        if is_local && self.listen.is_none() {
            // No host dials it, and the machine's agent may need the usual port.
            return Ok(usual(0));
        }
        let address = self.listen.unwrap_or(usual(PORT));
        // Checked before the start, in order to choose another port if necessary.
        match TcpListener::bind(address) {
            Err(source) if source.kind() == ErrorKind::AddrInUse => match self.listen {
                None if any_port => Ok(usual(0)),
                _ => Err(unusable(address, source)),
            },
            Ok(_) | Err(_) => Ok(address),
        }
    }
}

fn unusable(address: SocketAddr, source: std::io::Error) -> Error {
    StartError::from(net::Error::Listen { address, source }).into()
}

impl Prepared {
    pub async fn start(self) -> Result<LocalPeer> {
        let Self { builder, secret, is_first } = self;
        Ok(LocalPeer { peer: builder.start().await?, secret, is_first })
    }
}

impl LocalPeer {
    pub fn address(&self) -> SocketAddr {
        let advertised = self.peer.advertised();
        net::dialable(advertised).first().copied().unwrap_or(advertised)
    }

    pub async fn leave(self) -> bool {
        timeout(LEAVING, self.peer.leave()).await.unwrap_or(false)
    }
}

/// Returns an address at which this machine reaches a listening address.
pub fn on_this_machine(address: SocketAddr) -> SocketAddr {
    let loopback = |ip: IpAddr| match ip {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    let ip = address.ip();
    SocketAddr::new(if ip.is_unspecified() { loopback(ip) } else { ip }, address.port())
}
