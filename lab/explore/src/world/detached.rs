//! Detached grants, which the registry records: they outlive their peer, and the next process of the host needs no
//! token to renew or release them.
//!
//! A process may also end a grant whose client learns of that only at its next renewal. So the process hands the slot
//! over only after the registry has confirmed the end.

use peerlock_protocols::registry::{Detached, Session};
use peerlock_protocols::{Grant, Input};
use peerlock_types::{PeerId, Ticket};

use super::fault::{AdminCommand, Cluster, Fault, RegistryMessage};
use super::{Effects, Explorable, RegistryMutation, World};
use crate::Violation;

impl Cluster {
    /// Keeps the detached clients of an ended process as holders, and returns the others.
    pub(super) fn leave_alone(&mut self, peer: PeerId, inside: Vec<(Ticket, Grant)>) -> Vec<(Ticket, Grant)> {
        let is_detached = |(_, grant): &(Ticket, Grant)| self.registry.place_of(grant.fencing).is_some();
        let (detached, others): (Vec<_>, Vec<_>) = inside.into_iter().partition(is_detached);
        self.alone.extend(detached.into_iter().map(|(ticket, grant)| (peer, ticket, grant)));
        self.alone.sort_unstable();
        others
    }

    /// Removes the clients of grants that the registry no longer records.
    pub(super) fn forget_forced(&mut self) {
        let Self { registry, alone, .. } = self;
        alone.retain(|(_, _, grant)| registry.place_of(grant.fencing).is_some());
        self.forget_unaware();
    }

    fn forget_unaware(&mut self) {
        let Self { registry, unaware, .. } = self;
        unaware.retain(|(_, _, grant)| registry.place_of(grant.fencing).is_some());
    }

    fn expire(&mut self, at: usize) {
        let event = self.registry.expire(at);
        event.into_iter().for_each(|event| self.send(RegistryMessage::RegistryEvent(event)));
        self.forget_unaware();
    }

    /// Returns whether a client holds this grant, or believes so because another session has ended it.
    fn has_client(&self, it: &Detached, session: Session) -> bool {
        let is_it = |grant: &Grant| grant.fencing == it.fencing;
        let is_unaware = |(by, _, grant): &(Session, Ticket, Grant)| is_it(grant) && *by != session;
        self.alone.iter().any(|(_, _, grant)| is_it(grant)) || self.unaware.iter().any(is_unaware)
    }
}

impl<P: Explorable> World<P> {
    /// Returns each detached grant with the session that granted or last renewed it.
    pub(crate) fn detached(&self) -> &[(Session, Detached)] {
        self.cluster.as_ref().map_or(&[], |cluster| &cluster.registry.detached)
    }

    pub(super) fn faults_of_detached(&self, cluster: &Cluster, mut add: impl FnMut(Fault)) {
        let registry = &cluster.registry;
        for (at, node) in self.nodes.iter().enumerate() {
            let (local, me) = (&node.local, self.ids()[at]);
            if !local.is_up || local.is_forced || !registry.stands(self.session(at)) {
                continue;
            }
            let is_detached = |grant: &Grant| registry.place_of(grant.fencing).is_some();
            if cluster.left.detached > 0 {
                let attached = local.inside.iter().filter(|(_, grant)| !is_detached(grant));
                attached.for_each(|&(ticket, _)| add(Fault::Detach(at, ticket)));
            }
            if cluster.left.renewals > 0 {
                let here = local.inside.iter().map(|(_, grant)| grant);
                let known = cluster.alone.iter().filter(|(peer, ..)| *peer == me).map(|(_, _, grant)| grant);
                let detached = here.chain(known).filter(|grant| is_detached(grant));
                detached.for_each(|grant| add(Fault::EndDetached(at, grant.fencing)));
            }
        }
        (0..cluster.alone.len()).for_each(|at| add(Fault::LeaveAlone(at)));
        for (at, (of, it)) in registry.detached.iter().enumerate() {
            if !self.all_inside().any(|grant| grant.fencing == it.fencing) {
                add(Fault::Expire(at));
            }
            let now = self.session(self.place(of.peer));
            let is_later = now != *of && self.is_up(self.place(of.peer)) && registry.stands(now);
            if cluster.left.renewals > 0 && is_later && cluster.has_client(it, now) {
                add(Fault::Renew(at));
            }
            if cluster.left.forces > 0 && !registry.is_party(*of) {
                add(Fault::Free(at));
            }
        }
    }

    fn all_inside(&self) -> impl Iterator<Item = &Grant> {
        let alone = self.cluster.iter().flat_map(|cluster| &cluster.alone).map(|(_, _, grant)| grant);
        self.nodes.iter().flat_map(|node| &node.local.inside).map(|(_, grant)| grant).chain(alone)
    }

    pub(super) fn inject_detached(&mut self, fault: Fault) {
        match fault {
            Fault::Detach(at, ticket) => {
                let session = self.session(at);
                let inside = self.inside(at).iter().find(|(inside, _)| *inside == ticket);
                let Grant { slot, fencing } = inside.expect("only a holder can be detached").1;
                let cluster = self.cluster_mut();
                cluster.left.detached -= 1;
                cluster.registry.detached.push((session, Detached { slot, fencing }));
            }
            Fault::LeaveAlone(at) => _ = self.cluster_mut().alone.remove(at),
            Fault::Expire(at) => self.cluster_mut().expire(at),
            Fault::Renew(at) => {
                let (of, it) = self.detached()[at];
                let now = self.session(self.place(of.peer));
                let cluster = self.cluster_mut();
                cluster.left.renewals -= 1;
                cluster.registry.detached[at].0 = now;
                let Cluster { alone, unaware, .. } = cluster;
                let clients = unaware.extract_if(.., |(_, _, grant)| grant.fencing == it.fencing);
                alone.extend(clients.map(|(_, ticket, grant)| (of.peer, ticket, grant)));
                alone.sort_unstable();
            }
            Fault::Free(at) => {
                let (_, it) = self.detached()[at];
                let cluster = self.cluster_mut();
                cluster.left.forces -= 1;
                cluster.note_command(AdminCommand::Revoke(it.fencing));
                cluster.expire(at);
                cluster.forget_forced();
            }
            _ => unreachable!("not a fault of a detached grant"),
        }
    }

    pub(super) fn end_detached(&mut self, at: usize, fencing: u64, effects: &mut Effects<P>) -> Option<Violation> {
        let session = self.session(at);
        let mut local = self.nodes[at].local.clone();
        let here = local.inside.extract_if(.., |(_, grant)| grant.fencing == fencing);
        let here: Vec<(Ticket, Grant)> = here.collect();
        let is_here = !here.is_empty();
        let cluster = self.cluster_mut();
        let alone = cluster.alone.extract_if(.., |(_, _, grant)| grant.fencing == fencing);
        let alone = alone.map(|(_, ticket, grant)| (ticket, grant));
        let (ticket, grant) = here.into_iter().chain(alone).next().expect("a grant that ends has a client");
        cluster.unaware.push((session, ticket, grant));
        cluster.unaware.sort_unstable();
        cluster.send(RegistryMessage::DropDetached(session, ticket, Detached { slot: grant.slot, fencing }));
        if is_here && cluster.registry.has(RegistryMutation::HandsOnFirst) {
            return self.step(at, local, Input::Release(ticket), effects);
        }
        self.set(at, local);
        None
    }

    /// The process releases the slot after the registry's answer.
    pub(super) fn drop_detached(
        &mut self,
        from: Session,
        ticket: Ticket,
        it: Detached,
        effects: &mut Effects<P>,
    ) -> Option<Violation> {
        let cluster = self.cluster_mut();
        let event = cluster.registry.drop_detached(from, it.fencing);
        event.into_iter().for_each(|event| cluster.send(RegistryMessage::RegistryEvent(event)));
        cluster.forget_unaware();
        let at = self.place(from.peer);
        if self.is_up(at) && self.session(at) == from {
            return self.step(at, self.nodes[at].local.clone(), Input::Release(ticket), effects);
        }
        self.forget_undeliverable();
        None
    }
}
