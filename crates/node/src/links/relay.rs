//! Relayed connections between two hosts that cannot connect to each other, through the registry leader.
//!
//! A session is renewed over a direct connection to the leader, never relayed. So any two hosts with valid sessions
//! have the leader between them:
//!
//! ```text
//!   A               L (leader)           C
//!   │ A→C: open      │                    │     A has a message for C, and had no connection for a second
//!   ├───────────────►│ A→C: open          │
//!   │                ├───────────────────►│     for A and C like any other connection: their link (`link.rs`)
//!   │                │       C→A: accept  │     starts with a hello and retransmits
//!   │    C→A: accept │◄───────────────────┤
//!   │◄───────────────┤                    │
//!   │ A→C: data      │                    │     packets may be lost on either half: then the connection is re-opened
//!   ├───────────────►├───────────────────►│
//! ```
//!
//! Only reliable messages are relayed (not those of the registry, nor queries), and only without a direct connection.
//!
//! A connection on which nothing was received for a second, although a message is unacknowledged, is *in doubt*: it may
//! have broken silently, which the transport notices late. The host is also tried through the leader. A host that
//! receives such an attempt, and has received nothing on its own end for two seconds, closes the direct connection and
//! continues through the leader; so does the other host on its answer. A host that is only slow stays on the direct
//! connection.

use std::collections::BTreeMap;

use peerlock_types::{PeerId, Span};

use super::connections::{BEAT, Change, Connections, Packet, Segment};
use crate::node::{Alarm, Node, Phase};
use crate::testing::mutation::{Mutation, makes};
use crate::wire::Body;
use crate::{Effect, Parting};

/// How long a host is tried directly. Our choice: longer than re-establishing a broken connection usually takes.
pub const PATIENCE: Span = Span::from_secs(1);
/// A host that was not found for this long is tried …
pub const LONG: Span = Span::from_secs(60);
/// … only once in this many beats.
pub const RARELY: u64 = 30;
/// The first epoch of relayed connections: higher than those of any transport.
const FIRST: u64 = 1 << 63;

pub const fn is_relayed(epoch: u64) -> bool {
    epoch >= FIRST
}

pub struct Relay {
    pub(crate) connections: Connections,
    /// The host that relayed the last packet of each peer.
    pub(crate) via: BTreeMap<PeerId, PeerId>,
}

impl Relay {
    pub fn new() -> Self {
        Self { connections: Connections::after(FIRST), via: BTreeMap::new() }
    }

    pub fn check(&self) {
        assert!(self.connections.is_settled(), "packets and changes of a step are handled in that step");
    }

    pub fn forget(&mut self, host: PeerId) {
        self.via.remove(&host);
        self.connections.forget(host);
    }
}

impl Node {
    pub(crate) fn relay_soon(&mut self) {
        self.timers.set_if_none(Alarm::Relay, self.now + BEAT);
    }

    pub(crate) fn relay_for(&mut self, host: PeerId) {
        match !self.contacts.is_connected(host) && self.contacts.is_due(host, self.now) {
            true => self.timers.set(Alarm::Relay, self.now),
            false => self.relay_soon(),
        }
    }

    pub(crate) fn on_relay_alarm(&mut self) {
        if self.phase == Phase::Left {
            return;
        }
        let (me, now) = (self.host(), self.now);
        let awaited = self.contacts.awaited();
        let is_looking = self.session_state.session().is_some() && !makes(Mutation::Relay);
        let is_due = |host: &PeerId| is_looking && self.contacts.is_due(*host, now);
        let Relay { connections, via } = &mut self.relay;
        // The doubt has passed, and a late packet must not look like a new attempt.
        connections.give_up(|host| self.contacts.is_well(host, now));
        connections.beat(me, now);
        awaited.iter().copied().filter(is_due).for_each(|host| connections.connect(host, me, now));
        via.retain(|host, _| connections.has(*host) || awaited.binary_search(host).is_ok());
        if !awaited.is_empty() || !connections.is_idle() {
            self.relay_soon();
        }
    }

    pub(crate) fn on_relayed(&mut self, sender: PeerId, from: PeerId, to: PeerId, packet: Packet) {
        let me = self.host();
        // Answers to ourselves would circulate forever.
        if from == me || from == to {
            return self.unexpected("a packet to its own sender");
        }
        if to != me {
            // Only over direct connections, so that a path has one intermediate host.
            if sender == from && self.contacts.is_linked(to) {
                self.send_unreliable(to, &Body::Relay { from, to, packet });
            }
            return;
        }
        // A host with a session is a member, which voters know. An unknown one is looked up, and tries again.
        if !self.cached_view.registry_hosts.contains(&sender) && !self.is_member(from) {
            return self.include_hosts(&[from]);
        }
        // Either the other side has not noticed yet that we are connected, or we that we are not.
        if matches!(packet.segment, Segment::Knock | Segment::Open)
            && let Some(contact) = self.contacts.get(from)
            && contact.epoch.is_some()
        {
            if contact.is_trusted(self.now) {
                return;
            }
            self.give_up_connection(from);
        }
        self.relay.via.insert(from, sender);
        self.relay.connections.on_packet(from, packet, me, self.now);
        self.relay_soon();
    }

    /// Closes a connection that the other end has given up: the transport may report that late or never.
    fn give_up_connection(&mut self, host: PeerId) {
        if let Some(epoch) = self.contacts.get(host).and_then(|contact| contact.epoch) {
            self.effects.push(Effect::HangUp(host, Parting::Broken));
            self.on_down(host, epoch, "it is reachable through another host only".to_owned());
        }
    }

    pub(crate) fn exchange_relayed(&mut self) {
        if self.relay.connections.is_idle() {
            return;
        }
        loop {
            for effect in self.contacts.take_relayed() {
                match effect {
                    Effect::Send { to, epoch, bytes } => {
                        self.counters.relayed += 1;
                        self.relay.connections.send(to, epoch, bytes, self.now);
                    }
                    Effect::HangUp(host, _) => self.relay.connections.hang_up(host, "closed by this side"),
                    effect => unreachable!("contacts only send and hang up: {effect:?}"),
                }
            }
            let changes: Vec<Change> = self.relay.connections.take_changes().collect();
            if changes.is_empty() {
                break;
            }
            let (ours, now) = (self.session_state.cluster(), self.now);
            for change in changes {
                match change {
                    Change::Up(host, epoch) => {
                        self.give_up_connection(host); // It was in doubt.
                        self.contacts.relayed_up(host, epoch, ours, now);
                    }
                    Change::Down(host, epoch, _) => self.contacts.relayed_down(host, epoch, now),
                    Change::Message(host, epoch, bytes) => {
                        self.contacts.on_bytes(host, epoch, &bytes, ours, now, &mut self.update);
                    }
                    Change::Unreached(_) => {} // Relayed connections are not kept open.
                }
            }
        }
        let (from, leader) = (self.host(), self.session_state.leader());
        let packets: Vec<(PeerId, Packet)> = self.relay.connections.take_packets().collect();
        for (to, packet) in packets {
            let mut ways = [leader, self.relay.via.get(&to).copied()].into_iter().flatten();
            if let Some(way) = ways.find(|way| *way != to && self.contacts.is_linked(*way)) {
                self.send_unreliable(way, &Body::Relay { from, to, packet });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use peerlock_types::Time;

    use super::*;

    #[test]
    #[should_panic(expected = "are handled in that step")]
    fn unsent_relayed_packet_panics() {
        let mut relay = Relay::new();
        relay.check();
        relay.connections.connect(PeerId::new(2), PeerId::new(1), Time::ZERO);
        relay.check();
    }
}
