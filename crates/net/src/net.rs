use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peerlock_types::PeerId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::admission::Admission;
use crate::hub::{self, Command};
use crate::link::Shared;
use crate::log::{self, Log};
use crate::table::{Table, cost};
use crate::{Busy, Error, Fingerprint, Identity, Metrics, Secret, Unreached, Unsent, Why, dials, interfaces};

const COMMANDS: usize = 256;

/// Configuration of the network. `docs/design/network.md` explains the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// Port 0 selects a free one.
    pub listen: SocketAddr,
    /// The address at which others reach this peer, if it differs from what they see: behind a forwarded port, or in a
    /// container. Port 0 means the listening port.
    pub advertise: Option<SocketAddr>,
    /// Interval of probes to a silent peer on a link in use.
    pub beat: Duration,
    pub missed: u32,
    /// How long after the last message a link counts as in use, and the interval of probes after that.
    pub rest: Duration,
    /// The time limit for connecting, and again for the handshake and the hellos.
    pub handshake: Duration,
    /// How long to wait until others have read the goodbye.
    pub goodbye: Duration,
    pub redial: Duration,
    pub redial_most: Duration,
    /// Bytes; the same in the whole cluster, since longer frames end the link.
    pub max_message: usize,
    pub outbox: usize,
    /// Bytes that wait for the application before reading stops.
    pub inbox: usize,
    pub max_peers: usize,
    /// Limit of unproved connections; the same number again for addresses of members.
    pub max_unauthenticated: usize,
    pub max_dials: usize,
}

impl Config {
    pub const fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            advertise: None,
            beat: Duration::from_secs(1),
            missed: 4,
            rest: Duration::from_secs(20),
            handshake: Duration::from_secs(5),
            goodbye: Duration::from_secs(1),
            redial: Duration::from_millis(200),
            redial_most: Duration::from_secs(30),
            max_message: 1024 * 1024,
            outbox: 8 * 1024 * 1024,
            inbox: 2 * 1024 * 1024,
            max_peers: 16 * 1024,
            max_unauthenticated: 64,
            max_dials: dials::MOST,
        }
    }

    /// Bounds the descriptors used for connections. If there are few, a quarter is for unproved incoming connections
    /// and a twelfth for dials.
    pub fn within(mut self, descriptors: usize) -> Self {
        let part = (descriptors / 12).max(1);
        self.max_unauthenticated = self.max_unauthenticated.min(part);
        self.max_dials = self.max_dials.min(part);
        let others = self.max_entries() + self.max_dials;
        self.max_peers = self.max_peers.min(descriptors.saturating_sub(others).max(1));
        self
    }

    /// Returns the limit of unproved connections: places of both kinds, and as many connections that have just arrived
    /// or are closing.
    pub fn max_entries(&self) -> usize {
        3 * self.max_unauthenticated.max(1)
    }
}

fn sound(mut config: Config) -> Config {
    config.max_message = config.max_message.min(u32::MAX as usize);
    config.outbox = config.outbox.max(cost(config.max_message));
    // Without a pause, probes would saturate the link.
    config.beat = config.beat.max(Duration::from_millis(1));
    config.rest = config.rest.max(config.beat);
    config.max_dials = config.max_dials.max(1);
    config
}

/// An *epoch* is one lifetime of a link. Its number increases over all peers of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A link has come up. Others can dial the peer at `address`.
    Up { peer: PeerId, epoch: u64, address: SocketAddr },
    /// A link has ended. Messages that the other side has not read yet may be lost.
    Down { peer: PeerId, epoch: u64, why: Why },
    /// A message has arrived.
    Message { from: PeerId, epoch: u64, bytes: Bytes },
    /// A dial has failed. A maintained address is dialled again.
    Unreached { address: SocketAddr, why: Unreached },
}

/// This peer on the network. Dropping it cuts every link as a crash would; [`Net::shutdown`] sends goodbyes.
pub struct Net {
    me: PeerId,
    address: SocketAddr,
    advertised: SocketAddr,
    goodbye: Duration,
    table: Arc<Table>,
    commands: mpsc::Sender<Command>,
    hub: JoinHandle<()>,
}

impl Net {
    /// Starts listening. Must be called in a tokio runtime.
    pub async fn start(config: Config, identity: Identity, secret: Secret) -> Result<Self, Error> {
        let config = sound(config);
        let me = identity.peer();
        let goodbye = config.goodbye;
        let table = Arc::new(Table::new(me, config.clone(), secret));
        let admission = Admission::new(Arc::clone(&table), config.max_unauthenticated);
        let failed = |source| Error::Listen { address: config.listen, source };
        let listener = hub::listen(config.listen).map_err(failed)?;
        let address = SocketAddr::new(config.listen.ip(), listener.local_addr().map_err(failed)?.port());
        let _ = table.listen.set(address);
        let advertised = table.advertised();
        let shared = Arc::new(Shared { identity, config, table: Arc::clone(&table), admission, log: Log::default() });
        let (commands, inbox) = mpsc::channel(COMMANDS);
        let hub = tokio::spawn(hub::run(listener, shared, inbox));
        Ok(Self { me, address, advertised, goodbye, table, commands, hub })
    }

    pub fn me(&self) -> PeerId {
        self.me
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address that others receive. If it is unspecified, each uses the source address it sees.
    pub fn advertised(&self) -> SocketAddr {
        self.advertised
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        interfaces::dialable(self.advertised)
    }

    /// Dials once. Success is an `Up`, unless the peer is up already; failure is an `Unreached`.
    pub fn dial(&self, address: SocketAddr) -> Result<(), Busy> {
        self.command(Command::Dial { address, maintain: false })
    }

    pub fn maintain(&self, address: SocketAddr) -> Result<(), Busy> {
        self.command(Command::Dial { address, maintain: true })
    }

    /// Stops dialling. An existing link stays.
    pub fn forget(&self, address: SocketAddr) -> Result<(), Busy> {
        self.command(Command::Forget(address))
    }

    fn command(&self, command: Command) -> Result<(), Busy> {
        self.commands.try_send(command).map_err(|_| Busy)
    }

    /// Queues a message for a peer. The epoch is that of the last `Up` that the caller has received, so a message for
    /// an ended link never travels on the next one.
    pub fn send(&self, to: PeerId, epoch: u64, bytes: Bytes) -> Result<(), Unsent> {
        self.table.send(to, epoch, bytes)
    }

    /// Queues a message, perhaps until the next one to the same peer or a [flush](Self::flush). Messages sent together
    /// share a packet and one wake-up of the receiver.
    pub fn send_soon(&self, to: PeerId, epoch: u64, bytes: Bytes) -> Result<(), Unsent> {
        self.table.send_soon(to, epoch, bytes)
    }

    pub fn flush(&self) {
        self.table.flush();
    }

    /// Ends the link, unless that epoch has ended already. Queued messages are still sent, for a bounded time. The peer
    /// may connect again, in a new epoch.
    pub fn hang_up(&self, peer: PeerId, epoch: u64, why: Why) {
        self.table.hang_up(peer, epoch, why);
    }

    /// Returns the next event. Cancel-safe.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            self.table.changed.notified().await;
        }
    }

    pub fn try_next(&mut self) -> Option<Event> {
        let event = self.table.pop()?;
        if let Event::Unreached { address, why } = &event {
            log::unreached(*address, why);
        }
        Some(event)
    }

    pub fn peers(&self) -> BTreeMap<PeerId, (u64, SocketAddr)> {
        self.table.peers()
    }

    pub fn keyring(&self) -> Keyring {
        Keyring(Arc::clone(&self.table))
    }

    pub fn metrics(&self) -> Metrics {
        self.table.metrics()
    }

    /// Sends all queued messages and a goodbye to every peer, and waits for a bounded time until they have been read.
    pub async fn shutdown(self) {
        self.table.leave();
        let all_ended = async {
            loop {
                let ended = self.table.ended.notified();
                tokio::pin!(ended);
                ended.as_mut().enable();
                if self.table.is_empty() {
                    return;
                }
                ended.await;
            }
        };
        // A link whose queue does not drain never reaches its goodbye.
        let _ = timeout(2 * self.goodbye, all_ended).await;
    }
}

/// The secret that a peer uses. Copies share it.
#[derive(Clone)]
pub struct Keyring(Arc<Table>);

impl Keyring {
    /// Replaces the secret. Links proved with a secret that is no longer accepted end at once and are proved again. If
    /// the preferred secret changes, so are all links proved with another one.
    pub fn replace(&self, secret: Secret) {
        self.0.replace_secret(secret);
    }

    /// Returns the accepted secrets, the preferred one first.
    pub fn fingerprints(&self) -> Vec<Fingerprint> {
        self.0.secret().fingerprints()
    }

    pub fn proved(&self) -> BTreeMap<PeerId, Fingerprint> {
        self.0.proved()
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keyring").field(&self.fingerprints()).finish()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.hub.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_fit_any_number_of_descriptors() {
        let usual = Config::new("127.0.0.1:0".parse().unwrap());
        for descriptors in (5..20_000).chain([1 << 20, usize::MAX]) {
            let config = usual.clone().within(descriptors);
            let (unauthenticated, dials, peers) = (config.max_unauthenticated, config.max_dials, config.max_peers);
            assert!(config.max_entries() + dials + peers <= descriptors, "of {descriptors}: {config:?}");
            assert!(unauthenticated > 0 && dials > 0 && peers > 0, "of {descriptors}: {config:?}");
        }
        let config = usual.clone().within(1 << 20);
        assert_eq!((config.max_peers, config.max_unauthenticated), (usual.max_peers, usual.max_unauthenticated));
        assert_eq!(config.max_dials, usual.max_dials);
        assert_eq!(usual.within(360).max_peers, 240);
    }
}
