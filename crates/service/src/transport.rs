//! What the service needs of a network.

use std::future::Future;

/// What a transport reports.
pub use peerlock_node::NetEvent as Event;
/// Why a connection is ended.
pub use peerlock_node::Parting;
use peerlock_types::PeerId;

/// Connections to other peers, as they come and go.
///
/// Each connection to a peer is an *epoch*. Within one, what arrives is what was sent, in order and without gaps, up to
/// some point; what comes after that point is lost with the epoch. Nothing of an epoch arrives after its `Down`. `Down`
/// may come late, on one side only, or never.
pub trait Transport: Send + 'static {
    /// Who we are to the others.
    fn me(&self) -> PeerId;

    /// The addresses where others can reach us.
    fn addresses(&self) -> Vec<String>;

    /// Tries to connect to whoever listens there, and again whenever the connection is lost. Knows no errors: nothing
    /// comes `Up` then.
    fn dial(&mut self, address: &str);

    /// Dials an address no more. A connection that there is stays.
    fn forget(&mut self, address: &str);

    /// Sends on a connection that is up; drops what it is given for another. Never blocks.
    fn send(&mut self, to: PeerId, epoch: u64, bytes: Vec<u8>);

    /// The same for what may wait until the next message to that peer, or until everything is flushed. Who gathers
    /// nothing sends it at once.
    fn send_soon(&mut self, to: PeerId, epoch: u64, bytes: Vec<u8>) {
        self.send(to, epoch, bytes);
    }

    /// Sends everything that waits.
    fn flush(&mut self) {}

    /// Ends the connection to a peer, for the next one to begin anew. What was sent on it before still goes, if it can.
    fn hang_up(&mut self, peer: PeerId, why: Parting);

    /// How many connections were refused so far because nobody proved on them to belong here.
    fn unauthenticated(&self) -> u64 {
        0
    }

    /// What happens next; `None` when the transport has stopped. May be dropped and called again: nothing is lost.
    fn next(&mut self) -> impl Future<Output = Option<Event>> + Send;

    /// Sends what is still to be sent, and closes all connections.
    fn stop(self) -> impl Future<Output = ()> + Send;
}
