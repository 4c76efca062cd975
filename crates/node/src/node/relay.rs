//! Relaying: our own packets through the leader, and those of others through us.

use peerlock_registry::Registry;
use peerlock_types::PeerId;

use super::{Alarm, Effect, Node, Phase};
use crate::Parting;
use crate::connections::{BEAT, Change, Packet, Segment};
use crate::mutation::{Mutation, makes};
use crate::wire::Body;

impl Node {
    pub(super) fn relay_soon(&mut self) {
        self.timers.set_if_none(Alarm::Relay, self.now + BEAT);
    }

    /// A message is queued for a host.
    pub(super) fn relay_for(&mut self, host: PeerId) {
        match !self.contacts.is_connected(host) && self.contacts.is_due(host, self.now) {
            true => self.timers.set(Alarm::Relay, self.now),
            false => self.relay_soon(),
        }
    }

    pub(super) fn look_after_relays(&mut self) {
        if self.phase == Phase::Left {
            return;
        }
        let (me, now) = (self.host(), self.now);
        let awaited = self.contacts.awaited();
        let is_looking = self.session_state.session().is_some() && !makes(Mutation::Relay);
        let is_due = |host: &PeerId| is_looking && self.contacts.is_due(*host, now);
        let sought = awaited.iter().copied().filter(is_due);
        self.relay.beat(sought, |host| self.contacts.is_well(host, now), me, now);
        self.relay.prune(|host| awaited.binary_search(&host).is_ok());
        if !awaited.is_empty() || !self.relay.is_idle() {
            self.relay_soon();
        }
    }

    /// Handles a packet that `sender` has relayed to us, or that we are to relay.
    pub(super) fn on_relayed(&mut self, sender: PeerId, from: PeerId, to: PeerId, packet: Packet) {
        let me = self.host();
        // Answers to ourselves would circulate forever.
        if from == me || from == to {
            return self.unexpected("a packet to its own sender");
        }
        if to != me {
            // Only over direct connections, so that a path has one intermediate host.
            if sender == from && self.contacts.is_linked(to) {
                self.mention(to, &Body::Relay { from, to, packet });
            }
            return;
        }
        // A host with a session is a member, which voters know. An unknown one is looked up, and tries again.
        if !self.cached_view.is_seated(sender) && !self.is_member(from) {
            return self.note_mentioned(&[from]);
        }
        // Either the other side has not noticed yet that we are connected, or we that we are not: an idle connection
        // does not show that for a while.
        if matches!(packet.segment, Segment::Knock | Segment::Open)
            && let Some(contact) = self.contacts.get(from)
            && contact.epoch.is_some()
        {
            if contact.is_trusted(self.now) {
                return;
            }
            self.give_up_connection(from);
        }
        self.relay.on_packet(from, sender, packet, me, self.now);
        self.relay_soon();
    }

    /// Closes a connection that the other end has given up: the transport may report its end late or never.
    fn give_up_connection(&mut self, host: PeerId) {
        if let Some(epoch) = self.contacts.get(host).and_then(|contact| contact.epoch) {
            self.effects.push(Effect::HangUp(host, Parting::Broken));
            self.on_down(host, epoch, "it is reachable through another host only".to_owned());
        }
    }

    /// Returns the voter of this host, if there is one. For observers.
    pub fn registry(&self) -> Option<&Registry> {
        self.session_state.registry()
    }

    pub(super) fn detour(&mut self) {
        if self.relay.is_idle() {
            return;
        }
        loop {
            for effect in self.contacts.take_relayed() {
                self.counters.relayed += u64::from(matches!(effect, Effect::Send { .. }));
                self.relay.carry_out(effect, self.now);
            }
            let changes = self.relay.take_changes();
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
        for (to, packet) in self.relay.take_packets() {
            let mut ways = [leader, self.relay.via(to)].into_iter().flatten();
            if let Some(way) = ways.find(|way| *way != to && self.contacts.is_linked(*way)) {
                self.mention(way, &Body::Relay { from, to, packet });
            }
        }
    }
}
