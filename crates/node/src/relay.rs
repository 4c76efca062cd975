//! Connections by way of a third host, for two that do not reach each other.
//!
//! A session is renewed at the register's leader, over a connection and never by way of anybody. So whoever has one
//! that stands is linked with the leader, and two of them that do not reach each other have it between them:
//!
//! ```text
//!   A               L (leads)            C
//!   │ A→C: open      │                    │     A wants to tell C something, and was not linked with it for a second
//!   ├───────────────►│ A→C: open          │
//!   │                ├───────────────────►│     to A and C this is a connection like any other: their link (`link.rs`)
//!   │                │       C→A: accept  │     begins with a hello, and says again what the last one has lost
//!   │    C→A: accept │◄───────────────────┤
//!   │◄───────────────┤                    │
//!   │ A→C: data      │                    │     packets may get lost on either half: it breaks, and they connect anew
//!   ├───────────────►├───────────────────►│
//! ```
//!
//! So nobody who renews holds up a count or a hand-over, and who cannot be reached does not renew: its session ends,
//! and with that a generation begins without it. Nobody has to accuse anybody, and no command is stopped because two
//! hosts do not reach each other. Only what must arrive goes this way (letters of the register and questions do not),
//! and only as long as there is no connection of the other kind.
//!
//! A connection may break without a word, and a transport notices that late. So one on which nothing was heard for a
//! second, though something was said that is not confirmed, is *in doubt*: the other is looked for by way of the leader
//! while it still counts. Whoever wants a connection that way has none of the other kind, or doubts it; who hears so,
//! and has heard nothing on its own end for two seconds either, takes that for broken at once and goes on by way of the
//! leader. So does who has asked, when it is answered there. Somebody who is only slow is heard on the old one, which
//! stays.

use std::collections::BTreeMap;

use peerlock_types::{PeerId, Span, Time};

use crate::Effect;
use crate::connections::{BEAT, Change, Connections, Packet};

/// Who has not been linked for this long, or has not confirmed for as long what it was told, is looked for by way of
/// the leader. Our choice: longer than it takes to connect again where a connection has broken and nothing else is
/// wrong.
pub const PATIENCE: Span = Span::from_secs(1);
/// Who has not been found for so long is most likely off, and is looked for …
const LONG: Span = Span::from_secs(60);
/// … only once in so many beats.
const RARELY: u64 = 30;
/// Connections by way of others have higher numbers than those of any transport.
const FIRST: u64 = 1 << 63;

/// Whether this is the number of a connection by way of another host.
pub const fn is_relayed(epoch: u64) -> bool {
    epoch >= FIRST
}

/// Whether somebody who was lost then, and for whom there has been something since `missed`, is to be looked for now.
/// To be asked at every beat.
pub fn is_due(lost: Time, missed: Time, now: Time) -> bool {
    let sought = now.since(missed);
    let is_rare = (sought.as_nanos() / BEAT.as_nanos()).is_multiple_of(RARELY);
    now.since(lost) >= PATIENCE && (sought < LONG || is_rare)
}

/// The connections of one host by way of others.
pub struct Relay {
    connections: Connections,
    /// By whose way each of the other ends was heard last.
    via: BTreeMap<PeerId, PeerId>,
}

impl Relay {
    /// There is none yet.
    pub fn new() -> Self {
        Self { connections: Connections::after(FIRST), via: BTreeMap::new() }
    }

    /// A packet of this host has come by way of that one.
    pub fn on_packet(&mut self, from: PeerId, via: PeerId, packet: Packet, me: PeerId, now: Time) {
        self.via.insert(from, via);
        self.connections.on_packet(from, packet, me, now);
    }

    /// Does what a contact that is reached by way of another host wants done.
    pub fn carry_out(&mut self, effect: Effect, now: Time) {
        match effect {
            Effect::Send { to, epoch, bytes } => self.connections.send(to, epoch, bytes, now),
            Effect::HangUp(host, _) => self.connections.hang_up(host, "we hang up"),
            effect => unreachable!("contacts send and hang up, and nothing else: {effect:?}"),
        }
    }

    /// What has become of connections, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.connections.take_changes().collect()
    }

    /// What is to go by way of others, and to whom.
    pub fn take_packets(&mut self) -> Vec<(PeerId, Packet)> {
        self.connections.take_packets().collect()
    }

    /// Looks after the connections that there are, and goes on to connect to these. Who is well is not looked for any
    /// more: a doubt that has passed ends no connection, and who hears of it late would take it for a new one.
    pub fn beat(
        &mut self,
        sought: impl Iterator<Item = PeerId>,
        is_well: impl Fn(PeerId) -> bool,
        me: PeerId,
        now: Time,
    ) {
        self.connections.give_up(is_well);
        self.connections.beat(me, now);
        sought.for_each(|host| self.connections.connect(host, me, now));
    }

    /// Whether there is no connection, and nothing to be sent or told.
    pub fn is_idle(&self) -> bool {
        self.connections.is_idle()
    }

    /// By whose way a host was heard last.
    pub fn via(&self, host: PeerId) -> Option<PeerId> {
        self.via.get(&host).copied()
    }

    /// Whether that connection to a host is up.
    pub fn is_up(&self, host: PeerId, epoch: u64) -> bool {
        self.connections.is_up(host, epoch)
    }

    /// What must be true after each step.
    pub fn check(&self) {
        assert!(
            self.connections.is_settled(),
            "what comes of a connection by way of others is dealt with in that step"
        );
    }

    /// Forgets by whose way those were heard that are not connected so, and not looked for either.
    pub fn prune(&mut self, is_sought: impl Fn(PeerId) -> bool) {
        self.via.retain(|host, _| self.connections.has(*host) || is_sought(*host));
    }

    /// How many hosts are known by way of others.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn retained(&self) -> usize {
        self.via.len() + self.connections.retained()
    }

    /// A host is linked with us now.
    pub fn forget(&mut self, host: PeerId) {
        self.via.remove(&host);
        self.connections.forget(host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "dealt with in that step")]
    fn what_is_to_be_sent_is_not_left_lying() {
        let mut relay = Relay::new();
        relay.check();
        relay.beat([PeerId::new(2)].into_iter(), |_| false, PeerId::new(1), Time::ZERO);
        relay.check();
    }
}
