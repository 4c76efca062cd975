//! Links without a connection: frames relayed through the registry leader.
//!
//! A session is renewed over a direct connection to the leader, never relayed. So any two hosts with valid sessions
//! have the leader between them:
//!
//! ```text
//!   A               L (leader)           C
//!   │ A→C: hello     │                    │     A has a message for C, and had no connection for a second
//!   ├───────────────►│ A→C: hello         │
//!   │                ├───────────────────►│
//!   │                │           C→A: ack │
//!   │       C→A: ack │◄───────────────────┤
//!   │◄───────────────┤                    │
//!   │ A→C: data      │                    │     the link (`link.rs`) acknowledges and retransmits as on a connection
//!   ├───────────────►├───────────────────►│
//! ```
//!
//! The leader stores nothing. Only frames of the link's reliable messages and queries are relayed (not those of the
//! registry), and only without a direct connection.
//!
//! A connection on which nothing was received for a second, although a message is unacknowledged, is *in doubt*: it may
//! have broken silently, which the transport notices late. The host is also asked through the leader. A host that
//! receives such a hello, and has received nothing on its own end for two seconds, closes the direct connection and
//! continues through the leader; so does the other host on its answer. A host that is only slow stays on the direct
//! connection.

use peerlock_types::{PeerId, Span};

use super::contacts::Relayed;
use super::link::{Frame, Lives};
use crate::node::{Alarm, Node, Phase};
use crate::testing::mutation::{Mutation, makes};
use crate::wire::{Body, decode};
use crate::{Notice, Parting};

/// The interval of attempts.
pub const BEAT: Span = Span::from_secs(1);
/// How long a host is tried directly. Our choice: longer than re-establishing a broken connection usually takes.
pub const PATIENCE: Span = Span::from_secs(1);
/// A host that was not found for this long is tried …
pub const LONG: Span = Span::from_secs(60);
/// … only once in this many beats.
pub const RARELY: u64 = 30;
/// Unanswered hellos, after which a host is not reachable through the leader.
pub const MOST_ASKED: u32 = 4;

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
        let is_looking = self.session_state.session().is_some() && !makes(Mutation::Relay);
        if self.contacts.ask_via_leader(is_looking, self.now) {
            self.relay_soon();
        }
    }

    pub(crate) fn on_relayed(&mut self, sender: PeerId, (from, to): (PeerId, PeerId), lives: Lives, frame: Vec<u8>) {
        let me = self.host();
        // Answers to ourselves would circulate forever.
        if from == me || from == to {
            return self.unexpected("a frame relayed to its own sender");
        }
        if to != me {
            // Only over direct connections, so that a path has one intermediate host.
            if sender == from && self.contacts.is_linked(to) {
                self.send_unreliable(to, &Body::Relay { from, to, lives, frame });
            }
            return;
        }
        // A host with a session is a member, which voters know. An unknown one is looked up, and tries again.
        if !self.cached_view.registry_hosts.contains(&sender) && !self.is_member(from) {
            return self.include_hosts(&[from]);
        }
        let (frame, version) = match decode(&frame, self.config.versions) {
            Ok(read) => read,
            Err(malformed) => return self.notice(Notice::Malformed(malformed)),
        };
        // Either the other side has not noticed yet that we are connected, or we that we are not.
        if let Some(contact) = self.contacts.get(from).filter(|contact| contact.epoch.is_some()) {
            let is_over = match frame {
                Frame::Hello { .. } => !contact.is_trusted(self.now),
                Frame::Ack { .. } => contact.is_asked(),
                Frame::Data { .. } | Frame::Loose { .. } => false,
            };
            if !is_over {
                return;
            }
            self.give_up_connection(from);
        }
        self.contacts.on_relayed((from, sender), lives, (frame, version), self.now, &mut self.update);
        self.relay_soon();
    }

    /// Closes a connection that the other end has given up: the transport may report that late or never.
    fn give_up_connection(&mut self, host: PeerId) {
        if let Some(epoch) = self.contacts.get(host).and_then(|contact| contact.epoch) {
            self.contacts.end(host, Parting::Broken);
            self.on_down(host, epoch, "it is reachable through another host only".to_owned());
        }
    }

    pub(crate) fn send_relayed(&mut self) {
        let (from, leader) = (self.host(), self.session_state.leader());
        for Relayed { to, lives, frame } in self.contacts.take_relayed() {
            let via = self.contacts.get(to).and_then(|contact| contact.via);
            let mut ways = [leader, via].into_iter().flatten();
            if let Some(way) = ways.find(|way| *way != to && self.contacts.is_linked(*way)) {
                self.counters.relayed += 1;
                self.send_unreliable(way, &Body::Relay { from, to, lives, frame });
            }
        }
    }
}
