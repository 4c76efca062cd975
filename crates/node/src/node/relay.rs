//! What goes by way of another host: our own packets, and those that others send by way of us.

use peerlock_registry::Registry;
use peerlock_types::PeerId;

use super::{Alarm, Effect, Node, Phase};
use crate::Parting;
use crate::connections::{BEAT, Change, Packet, Segment};
use crate::mutation::{Mutation, makes};
use crate::wire::Body;

impl Node {
    /// Somebody for whom there is something may have to be reached by way of another, or is connected so.
    pub(super) fn relay_soon(&mut self) {
        self.timers.set_if_none(Alarm::Relay, self.now + BEAT);
    }

    /// There is something for a host: if it is known to be cut off, it is looked for at once.
    pub(super) fn relay_for(&mut self, host: PeerId) {
        match !self.contacts.is_connected(host) && self.contacts.is_due(host, self.now) {
            true => self.timers.set(Alarm::Relay, self.now),
            false => self.relay_soon(),
        }
    }

    /// Looks for those who are cut off from us or may be, and after those connections that there are.
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

    /// A packet that comes by way of `sender`, or is to go by way of us.
    pub(super) fn on_relayed(&mut self, sender: PeerId, from: PeerId, to: PeerId, packet: Packet) {
        let me = self.host();
        // Answers to ourselves would go round without end.
        if from == me || from == to {
            return self.unexpected("a packet from somebody to itself");
        }
        if to != me {
            // Only over connections: there is one host on the way, and no circle.
            if sender == from && self.contacts.is_linked(to) {
                self.mention(to, &Body::Relay { from, to, packet });
            }
            return;
        }
        // Whoever has a session is a member, as those who vote know. Who is not known yet is looked for otherwise, and
        // knocks again in a second.
        if !self.cached_view.is_seated(sender) && !self.is_member(from) {
            return self.note_mentioned(&[from]);
        }
        // It has not noticed yet that we are connected; or we that we are not any more: where the connection rests
        // nobody else would tell us for a while.
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

    /// The other end has given up a connection that we took for good. It is over for us from now on: the transport may
    /// tell us so late, or never, and what comes by way of another is heard at once.
    fn give_up_connection(&mut self, host: PeerId) {
        if let Some(epoch) = self.contacts.get(host).and_then(|contact| contact.epoch) {
            self.effects.push(Effect::HangUp(host, Parting::Broken));
            self.on_down(host, epoch, "it is reached by way of another host only".to_owned());
        }
    }

    /// The voter of this host, if it has one: what was decided, and whether it leads, by whose way others reach each
    /// other. For who watches from outside.
    pub fn registry(&self) -> Option<&Registry> {
        self.session_state.registry()
    }

    /// Hands over between the contacts and the connections by way of others.
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
                        self.give_up_connection(host); // Which was in doubt.
                        self.contacts.relayed_up(host, epoch, ours, now);
                    }
                    Change::Down(host, epoch, _) => self.contacts.relayed_down(host, epoch, now),
                    Change::Message(host, epoch, bytes) => {
                        self.contacts.on_bytes(host, epoch, &bytes, ours, now, &mut self.update);
                    }
                    Change::Unreached(_) => {} // Nobody is wanted here but for as long as there is something for it.
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
