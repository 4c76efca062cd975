//! Which peers are connected. No peer is connected to all others.
//!
//! A peer with a session needs connections to the voters, to hosts with which it exchanged messages within a minute,
//! and for each resource in use to the coordinator, the holders and the next waiters, whose hosts are dialled before a
//! token is sent. A peer without a session needs any connection. The registry leader needs all hosts that have a
//! session. A connection that neither side needs is closed:
//!
//! ```text
//!   A                         B
//!   │ idle                     │     A does not need the connection, which was idle for a minute
//!   ├─────────────────────────►│     B needs it: nothing happens, and A sends this again after a while
//!   │                    idle  │     later B does not need it either
//!   │◄─────────────────────────┤
//!   ✂ closes it, and both stop dialling each other
//! ```
//!
//! Messages in flight are not lost: `link.rs` retransmits them on the next connection, and a host with unacknowledged
//! messages dials.

pub mod contacts;
pub mod join;
pub mod link;
pub mod membership;
pub mod relay;

use std::collections::BTreeSet;

use peerlock_types::{Key, PeerId, Span};

use self::contacts::Contact;
use crate::node::{Alarm, Node, Phase};
use crate::testing::mutation::{Mutation, makes};
use crate::wire::Body;
use crate::{Effect, Parting};

const SEEK: Span = Span::from_secs(3);

impl Node {
    pub(crate) fn reach(&mut self, host: PeerId) {
        if host == self.host() || self.contacts.is_linked(host) || self.phase == Phase::Left {
            return;
        }
        let met_at = self.contacts.get(host).map(|contact| contact.address.clone());
        self.dial_host(host, met_at.filter(|address| !address.is_empty()));
        match self.listens_at(host) {
            Some(addresses) => self.dial_host(host, addresses),
            None if self.cached_view.looked_for.contains(&host) => self.look_again(),
            None => {
                self.cached_view.named.insert(host);
                self.look_at_cluster();
            }
        }
    }

    fn dial_host(&mut self, host: PeerId, addresses: impl IntoIterator<Item = String>) {
        let (over, due) = self.membership.dial_host(host, addresses);
        self.effects.extend(over.into_iter().map(Effect::Forget));
        self.effects.extend(due.into_iter().map(Effect::Dial));
    }

    fn listens_at(&self, host: PeerId) -> Option<Vec<String>> {
        Some(self.info_of(host)?.addresses.iter().map(ToString::to_string).collect())
    }

    pub(crate) fn reach_next(&mut self, resource: Key, slot: u32) {
        let next = self.parts.get(resource).and_then(|part| part.custody.next_of(slot));
        if let Some(next) = next {
            self.reach(next.peer);
        }
    }

    pub(crate) fn on_link_down(&mut self, host: PeerId) {
        if self.session_state.session().is_none() {
            return; // The network redials.
        }
        match self.needs_now(host) {
            true => self.reach(host),
            false => self.stop_dialling(host),
        }
    }

    fn stop_dialling(&mut self, host: PeerId) {
        self.stop_dialling_at(self.membership.dialled_at(|it, _| it == host));
    }

    fn stop_dialling_at(&mut self, addresses: Vec<String>) {
        self.membership.stop(&addresses);
        self.effects.extend(addresses.into_iter().map(Effect::Forget));
    }

    fn end_link(&mut self, host: PeerId) {
        self.stop_dialling(host);
        self.contacts.end(host, Parting::Unneeded);
    }

    pub(crate) fn check_voters(&mut self) {
        self.cached_view.set_registry_hosts(self.session_state.registry_hosts());
        let unmet: Vec<PeerId> =
            self.cached_view.registry_hosts.iter().copied().filter(|host| !self.contacts.is_linked(*host)).collect();
        unmet.into_iter().for_each(|host| self.reach(host));
    }

    /// As registry leader, connects to hosts with a session but no connection: they may have joined through a leader
    /// that failed before it named the other voters.
    pub(crate) fn reach_isolated(&mut self) {
        let Some(registry) = self.session_state.registry().filter(|registry| registry.is_leader()) else { return };
        let hosts = registry.state().sessions().values().map(|session| session.host);
        let is_isolated = |host: &PeerId| *host != self.host() && !self.contacts.is_connected(*host);
        let isolated: BTreeSet<PeerId> = hosts.filter(is_isolated).collect();
        self.cached_view.rounds += 1;
        self.cached_view.in_turn(&isolated).into_iter().for_each(|host| self.reach(host));
    }

    pub(crate) fn seek(&mut self) {
        self.timers.set(Alarm::Sweep, self.now + SEEK);
        let spare = self.membership.spare();
        self.effects.extend(spare.into_iter().map(Effect::Dial));
        self.cached_view.rounds += 1;
        let members = self.cached_view.members().map(|(host, _)| host);
        let unmet: BTreeSet<PeerId> = members.filter(|host| !self.contacts.is_linked(*host)).collect();
        // Voters know most; the others take turns.
        let sought: BTreeSet<PeerId> =
            self.cached_view.registry_hosts.iter().copied().chain(self.cached_view.in_turn(&unmet)).collect();
        for host in sought {
            if let Some(addresses) = self.listens_at(host).filter(|_| !self.contacts.is_linked(host)) {
                self.dial_host(host, addresses);
            }
        }
        if self.session_state.cluster().is_some() {
            let met = self.contacts.open().map(|(host, _)| host).collect();
            self.cached_view.in_turn(&met).into_iter().for_each(|host| self.send_unreliable(host, &Body::Seek));
        }
    }

    pub(crate) fn on_seek(&mut self, from: PeerId) {
        let greeting = self.greeting(self.announced());
        self.send_unreliable(from, &greeting);
    }

    pub(crate) fn sweep(&mut self) {
        if self.is_leaving() {
            return;
        }
        if self.session_state.session().is_none() {
            return self.seek();
        }
        self.timers.set(Alarm::Sweep, self.now + self.config.idle / 4);
        self.check_voters();
        self.look_at_others();
        self.look_at_returned();
        self.give_up_unused();
        self.takeover.forget_old_places(self.now);
        let in_use = self.needed_by_parts();
        // A voter waits for the others: they need it, and it is connected to all members anyway.
        let votes = self.cached_view.registry_hosts.contains(&self.host());
        let unneeded: Vec<PeerId> = {
            let open = self.contacts.open().filter(|(host, _)| !votes && !self.needs(*host, &in_use));
            open.map(|(host, _)| host).collect()
        };
        for host in unneeded {
            match self.contacts.let_go(host) {
                true => self.end_link(host),
                false => self.send_unreliable(host, &Body::Idle),
            }
        }
        self.stop_dialling_unneeded(&in_use);
    }

    fn needs(&self, host: PeerId, in_use: &BTreeSet<PeerId>) -> bool {
        self.needs_anyway(host) || in_use.contains(&host)
    }

    fn needs_anyway(&self, host: PeerId) -> bool {
        let is_used = |it: &Contact| it.is_used(self.now, self.config.idle);
        self.session_state.session().is_none()
            || self.cached_view.registry_hosts.contains(&host)
            || self.contacts.get(host).is_some_and(is_used)
    }

    fn needs_now(&self, host: PeerId) -> bool {
        self.needs_anyway(host) || self.needed_by_parts().contains(&host)
    }

    fn needed_by_parts(&self) -> BTreeSet<PeerId> {
        let mut needed = BTreeSet::new();
        for (resource, part) in self.parts.iter() {
            let held = part.custody.held().filter_map(|(token, _)| part.custody.next_of(token.slot));
            needed.extend(held.map(|next| next.peer));
            let is_used_here = self.clients.has_any(*resource);
            needed.extend((is_used_here && part.custody.is_party()).then(|| part.custody.coordinator()));
            // Tokens of an unused resource stay where they are.
            let locations =
                part.custody.queue().into_iter().flat_map(|queue| queue.locations()).filter(|location| !location.free);
            needed.extend(locations.map(|location| location.at));
        }
        needed
    }

    /// Redials configured addresses at which another cluster was found: the host may have joined ours.
    fn look_at_others(&mut self) {
        let unmet = self.others.hosts.iter().filter(|(host, _)| !self.contacts.is_connected(**host));
        let addresses: Vec<String> = unmet.map(|(_, other)| other.address.clone()).collect();
        let again = addresses.into_iter().filter(|address| self.membership.dial_spare(address));
        self.effects.extend(again.map(Effect::Dial));
    }

    fn stop_dialling_unneeded(&mut self, in_use: &BTreeSet<PeerId>) {
        let has_moved = |host: PeerId, address: &str| {
            self.info_of(host).is_some_and(|info| info.addresses.iter().all(|it| it.as_str() != address))
        };
        let is_over = |host: PeerId, needed_at: Option<&str>| {
            let is_moved = || needed_at.is_some_and(|address| has_moved(host, address));
            !self.contacts.is_connected(host) && (!self.needs(host, in_use) || is_moved())
        };
        self.stop_dialling_at(self.membership.dialled_at(is_over));
    }

    pub(crate) fn on_idle(&mut self, from: PeerId) {
        let needs = self.needs_now(from) && !makes(Mutation::IdleForgets);
        self.contacts.let_go_by(from);
        if !needs && self.contacts.is_linked(from) {
            self.contacts.let_go(from);
            if makes(Mutation::IdleForgets) {
                self.contacts.drop_unconfirmed(from);
            }
            self.end_link(from);
        }
    }
}
