//! The network of a service.

use std::future::Future;

pub use peerlock_node::NetEvent as Event;
pub use peerlock_node::Parting;
use peerlock_types::PeerId;

/// Connections to other peers.
///
/// Each connection to a peer is an *epoch*. Within an epoch messages arrive in order and without gaps up to some point;
/// later ones are lost. No message of an epoch arrives after its `Down`. `Down` may come late, on one side only, or
/// never.
pub trait Transport: Send + 'static {
    /// Returns the ID of this peer.
    fn me(&self) -> PeerId;

    /// Returns the addresses at which other peers reach this one.
    fn addresses(&self) -> Vec<String>;

    /// Connects to this address, and again whenever the connection is lost. A failed attempt may be reported as
    /// [`Event::Unreached`].
    fn dial(&mut self, address: &str);

    /// Stops dialling an address. An existing connection stays.
    fn forget(&mut self, address: &str);

    /// Sends on this connection, or drops the message if the connection has ended. Never blocks.
    fn send(&mut self, to: PeerId, epoch: u64, bytes: Vec<u8>);

    /// Sends a message that may wait for a later [`send`](Self::send) to that peer, or for a flush.
    fn send_soon(&mut self, to: PeerId, epoch: u64, bytes: Vec<u8>) {
        self.send(to, epoch, bytes);
    }

    /// Sends all waiting messages.
    fn flush(&mut self) {}

    /// Closes this connection to a peer, after earlier messages if possible.
    fn hang_up(&mut self, peer: PeerId, epoch: u64, why: Parting);

    /// Returns the number of connections that were refused as unauthenticated.
    fn unauthenticated(&self) -> u64 {
        0
    }

    /// Returns the next event; `None` when the transport has stopped. Cancel-safe.
    fn next(&mut self) -> impl Future<Output = Option<Event>> + Send;

    /// Sends all waiting messages and closes all connections.
    fn stop(self) -> impl Future<Output = ()> + Send;
}
