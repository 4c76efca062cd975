use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peerlock_base::PeerId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::doorstep::Doorstep;
use crate::hub::{self, Command};
use crate::log::{self, Log};
use crate::session::Shared;
use crate::table::{Table, cost};
use crate::{Busy, Error, Fingerprint, Identity, Metrics, Secret, Unreached, Unsent, Why, dials, interfaces};

/// How many requests to dial may wait for the hub, which never takes long.
const COMMANDS: usize = 256;

/// How a peer is connected. Every default is our choice; `docs/network.md` says why.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen; port 0 is any free one.
    pub listen: SocketAddr,
    /// Where others reach us, if that is neither `listen` nor, where `listen` is every address of the machine, the
    /// address they see us at: behind a forwarded port, or in a container. Port 0 is the one that we listen on.
    pub advertise: Option<SocketAddr>,
    /// How often a peer of which nothing is heard is asked whether it is there, on a link that is in use.
    pub beat: Duration,
    /// How many such questions in a row may be without an answer.
    pub missed: u32,
    /// How long after the last message a link is in use; and how often the peer is asked after that.
    pub rest: Duration,
    /// How long connecting, and after it handshake and proof, may take.
    pub proof: Duration,
    /// How long to wait for others to have read our goodbye.
    pub goodbye: Duration,
    /// The first wait before a kept address is dialled again; doubled with every failure.
    pub redial: Duration,
    /// The longest such wait.
    pub redial_most: Duration,
    /// The longest message, in bytes. The same in the whole cluster: longer frames end the link.
    pub max_message: usize,
    /// How many bytes may wait for one peer to read them.
    pub outbox: usize,
    /// How many bytes from one peer may wait for the application, before no more is read.
    pub inbox: usize,
    /// How many links there may be.
    pub max_peers: usize,
    /// How many connections made by others may be without proof at any time; as many again from where members are.
    pub max_strangers: usize,
    /// How many addresses may be dialled at the same time.
    pub max_dials: usize,
}

impl Config {
    /// The defaults, listening here.
    pub const fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            advertise: None,
            beat: Duration::from_secs(1),
            missed: 4,
            rest: Duration::from_secs(20),
            proof: Duration::from_secs(5),
            goodbye: Duration::from_secs(1),
            redial: Duration::from_millis(200),
            redial_most: Duration::from_secs(30),
            max_message: 1024 * 1024,
            outbox: 8 * 1024 * 1024,
            inbox: 2 * 1024 * 1024,
            max_peers: 16 * 1024,
            max_strangers: 64,
            max_dials: dials::MOST,
        }
    }

    /// No more than this many descriptors are for connections with others, however many want to come or are to be
    /// dialled. Of few a quarter are for those who have proved nothing yet, and a twelfth for dials.
    pub fn within(mut self, descriptors: usize) -> Self {
        let part = (descriptors / 12).max(1);
        self.max_strangers = self.max_strangers.min(part);
        self.max_dials = self.max_dials.min(part);
        let others = self.max_entries() + self.max_dials;
        self.max_peers = self.max_peers.min(descriptors.saturating_sub(others).max(1));
        self
    }

    /// How many connections there can be that others have made, and on which nothing is proved: those who have a place,
    /// of both kinds, and those who have just come or have to go.
    pub fn max_entries(&self) -> usize {
        3 * self.max_strangers.max(1)
    }
}

/// How a peer is connected, made sound.
fn sound(mut config: Config) -> Config {
    // A length on the wire has four bytes.
    config.max_message = config.max_message.min(u32::MAX as usize);
    // A queue takes at least one message.
    config.outbox = config.outbox.max(cost(config.max_message));
    // Without a pause between them questions would fill the line.
    config.beat = config.beat.max(Duration::from_millis(1));
    config.rest = config.rest.max(config.beat);
    // Else nobody would ever be dialled.
    config.max_dials = config.max_dials.max(1);
    config
}

/// One life of the link with a peer, counted by this process over all peers: later is higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub(crate) u64);

/// What the network tells the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A member of the cluster is linked with us.
    Up {
        /// The member, by its proven number.
        peer: PeerId,
        /// This life of the link.
        epoch: Epoch,
        /// Where others can dial it.
        address: SocketAddr,
    },
    /// The link is over. What was sent and not yet read by the other side may be lost.
    Down {
        /// The member that was linked with us.
        peer: PeerId,
        /// Which life of the link.
        epoch: Epoch,
        /// Why it ended, as far as we can tell.
        why: Why,
    },
    /// A message has come.
    Message {
        /// The peer at the other end, by the key that it has proved.
        from: PeerId,
        /// In which life of the link.
        epoch: Epoch,
        /// The payload of one send, without its frame.
        bytes: Bytes,
    },
    /// A dial led nowhere. A kept address is dialled again all the same.
    Unreached {
        /// What was dialled.
        address: SocketAddr,
        /// Why nobody was reached.
        why: Unreached,
    },
}

/// This peer on the network. Dropping it cuts every link as a crash would; [`Net::shutdown`] says goodbye.
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
    /// Starts to listen. Must be called inside a tokio runtime.
    pub async fn start(config: Config, identity: Identity, secret: Secret) -> Result<Self, Error> {
        let config = sound(config);
        let me = identity.peer();
        let goodbye = config.goodbye;
        let table = Arc::new(Table::new(me, config.clone(), secret));
        let doorstep = Doorstep::new(Arc::clone(&table), config.max_strangers);
        let failed = |source| Error::Listen { address: config.listen, source };
        let listener = hub::listen(config.listen).map_err(failed)?;
        let address = SocketAddr::new(config.listen.ip(), listener.local_addr().map_err(failed)?.port());
        // Set once: this is the only call.
        let _ = table.listen.set(address);
        let advertised = table.advertised();
        let shared = Arc::new(Shared { identity, config, table: Arc::clone(&table), doorstep, log: Log::default() });
        let (commands, inbox) = mpsc::channel(COMMANDS);
        let hub = tokio::spawn(hub::run(listener, shared, inbox));
        Ok(Self { me, address, advertised, goodbye, table, commands, hub })
    }

    /// Our own number.
    pub fn me(&self) -> PeerId {
        self.me
    }

    /// Where we listen, with the port that we got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the others are told to find us. If that is every address of this machine, each takes the one it sees.
    pub fn advertised(&self) -> SocketAddr {
        self.advertised
    }

    /// Where others can dial us, the likeliest first: see [`dialable`](crate::dialable).
    pub fn addresses(&self) -> Vec<SocketAddr> {
        interfaces::dialable(self.advertised)
    }

    /// Dials an address once. Success is an `Up`, unless its peer is up already; failure is an `Unreached`.
    pub fn dial(&self, address: SocketAddr) -> Result<(), Busy> {
        self.command(Command::Dial { address, keep: false })
    }

    /// Stays linked with whoever is at this address: dials it now, and again whenever the link is gone.
    pub fn keep(&self, address: SocketAddr) -> Result<(), Busy> {
        self.command(Command::Dial { address, keep: true })
    }

    /// Dials this address no more. A link that there is stays.
    pub fn forget(&self, address: SocketAddr) -> Result<(), Busy> {
        self.command(Command::Forget(address))
    }

    fn command(&self, command: Command) -> Result<(), Busy> {
        self.commands.try_send(command).map_err(|_| Busy)
    }

    /// Queues a message for a peer in this epoch.
    ///
    /// The epoch is the one that the sender knows of, from the last `Up` it has seen. So a message that was meant for a
    /// link that is gone never travels on the next one.
    pub fn send(&self, to: PeerId, epoch: Epoch, bytes: Bytes) -> Result<(), Unsent> {
        self.table.send(to, epoch, bytes)
    }

    /// As [`send`](Self::send), for a message that may wait a little: it goes with the next one to the same peer, or
    /// when everything is [flushed](Self::flush). Two that go together are one packet, and wake its process once.
    pub fn send_soon(&self, to: PeerId, epoch: Epoch, bytes: Bytes) -> Result<(), Unsent> {
        self.table.send_soon(to, epoch, bytes)
    }

    /// Sends everything that waits for others to go with.
    pub fn flush(&self) {
        self.table.flush();
    }

    /// Ends the link with a peer who makes no sense, or is not needed, unless that epoch is over already. What was
    /// queued before is still sent, for a bounded time. The peer may come back: with what it says on the next link, it
    /// begins anew.
    pub fn hang_up(&self, peer: PeerId, epoch: Epoch, why: Why) {
        self.table.hang_up(peer, epoch, why);
    }

    /// The next event. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            self.table.news.notified().await;
        }
    }

    /// The next event, if there is one now.
    pub fn try_next(&mut self) -> Option<Event> {
        let event = self.table.pop()?;
        if let Event::Unreached { address, why } = &event {
            log::unreached(*address, why);
        }
        Some(event)
    }

    /// Who is up, in which epoch and where, also if its `Up` has not been taken yet.
    pub fn peers(&self) -> BTreeMap<PeerId, (Epoch, SocketAddr)> {
        self.table.peers()
    }

    /// What its members must know, for whoever may replace that while the peer runs.
    pub fn keyring(&self) -> Keyring {
        Keyring(Arc::clone(&self.table))
    }

    /// What has been counted so far.
    pub fn metrics(&self) -> Metrics {
        self.table.metrics()
    }

    /// Sends what is queued, tells every peer goodbye and waits until they have heard it, for a bounded time.
    pub async fn shutdown(self) {
        self.table.leave();
        let everybody = async {
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
        // A link whose queue does not drain would never come to its goodbye.
        let _ = timeout(2 * self.goodbye, everybody).await;
    }
}

/// The secret that a peer goes by. Copies are the same one.
#[derive(Clone)]
pub struct Keyring(Arc<Table>);

impl Keyring {
    /// Goes by this from now on. Links that were proved with what counts no more end at once, and are proved anew; if
    /// another one is to be proved first from now on, all those do that were proved otherwise.
    pub fn replace(&self, secret: Secret) {
        self.0.replace_secret(secret);
    }

    /// What counts now: the one that is proved first, and then the one before it if there is one.
    pub fn fingerprints(&self) -> Vec<Fingerprint> {
        self.0.secret().fingerprints()
    }

    /// With which of them each peer that is up has proved itself.
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
    fn however_few_descriptors_there_are_they_are_enough() {
        let usual = Config::new("127.0.0.1:0".parse().unwrap());
        for descriptors in (5..20_000).chain([1 << 20, usize::MAX]) {
            let config = usual.clone().within(descriptors);
            let (strangers, dials, peers) = (config.max_strangers, config.max_dials, config.max_peers);
            assert!(config.max_entries() + dials + peers <= descriptors, "of {descriptors}: {config:?}");
            assert!(strangers > 0 && dials > 0 && peers > 0, "of {descriptors}: {config:?}");
        }
        let config = usual.clone().within(1 << 20);
        assert_eq!((config.max_peers, config.max_strangers), (usual.max_peers, usual.max_strangers));
        assert_eq!(config.max_dials, usual.max_dials);
        assert_eq!(usual.within(360).max_peers, 240);
    }
}
