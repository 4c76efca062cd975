//! Sessions and slots in a world with a registry, whose messages arrive late and in any order.

use std::fmt;
use std::sync::Arc;

use peerlock_protocols::registry::{Detached, EventKind, RegistryEvent, RegistryRequest, Session};
use peerlock_protocols::token::Arrival;
use peerlock_protocols::{Grant, Input};
use peerlock_types::{PeerId, Ticket};

use super::registry::Registry;
use super::{Action, Effects, Explorable, FaultLimits, Local, Node, RegistryMutation, World};
use crate::Violation;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RegistryMessage {
    RegistryEvent(RegistryEvent),
    RegistryRequest(Session, RegistryRequest),
    /// Removes the resource, which had no parties in this generation.
    Remove(u64),
    DropDetached(Session, Ticket, Detached),
}

/// An executed command, of which a duplicate may arrive later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdminCommand {
    /// Evicts a session that is a party since that generation.
    Evict(Session, u64),
    /// Resizes to this number of slots; issued in that generation.
    Resize(u32, u64),
    Revoke(u64),
}

/// An event of a session or a slot. The last number, if it opens a generation, selects the coordinator among the
/// parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Receive(usize),
    Repeat(usize),
    /// This peer crashes or fails to renew its session, and loses all its state.
    Stop(usize),
    End(Session, usize),
    Begin(usize),
    /// Another process continues the clients' grants, except detached ones.
    TakeOver(usize, usize),
    Resize(usize),
    Evict(usize, usize),
    Forget(usize),
    /// An administrator finds no party of the resource and requests its removal.
    Remove,
    Detach(usize, Ticket),
    /// The client of a detached grant without a peer releases.
    LeaveAlone(usize),
    Expire(usize),
    /// The process ends a detached grant without notifying its client.
    EndDetached(usize, u64),
    /// A client renews its detached grant at a later process of the host.
    Renew(usize),
    /// An administrator frees a detached grant whose session is no party.
    Free(usize),
    /// A duplicate of an administrative command arrives.
    Again(usize),
}

impl Fault {
    /// Returns whether the event must happen at some time. All others are optional.
    pub(crate) fn is_certain(&self) -> bool {
        matches!(self, Self::Receive(_) | Self::End(..) | Self::LeaveAlone(_) | Self::Expire(_))
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Cluster {
    pub(super) registry: Registry,
    messages: Vec<RegistryMessage>,
    /// Holders by the registry's record, without a token at their peer.
    pub(super) alone: Vec<(PeerId, Ticket, Grant)>,
    /// Clients whose grant was revoked without their knowledge, and the revoking session.
    pub(super) unaware: Vec<(Session, Ticket, Grant)>,
    pub(super) commands: Vec<AdminCommand>,
    pub(super) left: FaultLimits,
    resized: usize,
}

impl Cluster {
    pub(super) fn new(ids: &[PeerId], fault_actions: &FaultLimits, slots: usize) -> Self {
        Self {
            registry: Registry::new(ids, fault_actions, slots as u32),
            messages: Vec::new(),
            alone: Vec::new(),
            unaware: Vec::new(),
            commands: Vec::new(),
            left: *fault_actions,
            resized: 0,
        }
    }

    pub(super) fn send(&mut self, message: RegistryMessage) {
        let place = self.messages.partition_point(|other| *other <= message);
        self.messages.insert(place, message);
    }

    pub(super) fn note_command(&mut self, command: AdminCommand) {
        if self.left.repeats > 0 {
            let place = self.commands.partition_point(|other| *other <= command);
            self.commands.insert(place, command);
        }
    }

    fn repeat_command(&mut self, at: usize) -> Result<Option<RegistryEvent>, Violation> {
        let command = self.commands.remove(at);
        self.left.repeats -= 1;
        if self.left.repeats == 0 {
            self.commands.clear();
        }
        match command {
            AdminCommand::Evict(session, since) => {
                let counts = self.registry.since(session) == Some(since);
                if !counts && (!self.registry.has(RegistryMutation::EvictsLate) || !self.registry.is_party(session)) {
                    return Ok(None);
                }
                let [notified, opened] = self.registry.evict(session, 0);
                notified.into_iter().for_each(|event| self.send(RegistryMessage::RegistryEvent(event)));
                Ok(opened)
            }
            AdminCommand::Resize(slots, _) if slots == self.registry.slots => Ok(None),
            AdminCommand::Resize(_, looked) => {
                match looked >= self.registry.resized || self.registry.has(RegistryMutation::ResizesLate) {
                    true => Err(Violation::Undone(self.registry.slots)),
                    false => Ok(None),
                }
            }
            AdminCommand::Revoke(fencing) => match self.registry.place_of(fencing) {
                Some(at) => Ok(self.registry.expire(at)),
                None => Ok(None),
            },
        }
    }

    fn on_request(&mut self, from: Session, registry_request: RegistryRequest) -> Option<RegistryEvent> {
        let RegistryRequest::Quit { generation } = registry_request else {
            return self.registry.grant(from, &registry_request);
        };
        let [notified, opened] = self.registry.quit(from, generation, 0);
        notified.into_iter().for_each(|event| self.send(RegistryMessage::RegistryEvent(event)));
        opened
    }

    fn remove(&mut self, generation: u64) {
        if self.registry.remove(generation) {
            let is_eviction = |message: &RegistryMessage| match message {
                RegistryMessage::RegistryEvent(event) => event.kind == EventKind::Evicted,
                _ => false,
            };
            self.messages.retain(|message| !is_eviction(message));
        }
    }
}

impl<P: Explorable> World<P> {
    pub(super) fn cluster_mut(&mut self) -> &mut Cluster {
        Arc::make_mut(self.cluster.as_mut().expect("a world with faults has a registry"))
    }

    pub(super) fn session(&self, at: usize) -> Session {
        Session { peer: self.ids()[at], number: self.nodes[at].local.session }
    }

    pub fn is_up(&self, at: usize) -> bool {
        self.nodes[at].local.is_up
    }

    pub(super) fn actor_of(&self, fault: Fault) -> PeerId {
        match fault {
            Fault::LeaveAlone(_) | Fault::Expire(_) | Fault::Resize(_) | Fault::Remove => self.ids()[0],
            Fault::Again(at) => match self.admin_commands()[at] {
                AdminCommand::Evict(session, _) => session.peer,
                AdminCommand::Resize(..) | AdminCommand::Revoke(_) => self.ids()[0],
            },
            Fault::Receive(at) | Fault::Repeat(at) => match &self.registry_messages()[at] {
                RegistryMessage::RegistryEvent(event) => event.to.peer,
                RegistryMessage::RegistryRequest(from, _) | RegistryMessage::DropDetached(from, ..) => from.peer,
                RegistryMessage::Remove(_) => self.ids()[0],
            },
            Fault::End(session, _) => session.peer,
            Fault::Renew(at) | Fault::Free(at) => self.detached()[at].0.peer,
            Fault::Stop(at) | Fault::Begin(at) | Fault::TakeOver(at, _) | Fault::Evict(at, _) => self.ids()[at],
            Fault::Forget(at) | Fault::Detach(at, _) | Fault::EndDetached(at, _) => self.ids()[at],
        }
    }

    pub(crate) fn next_slots(&self) -> u32 {
        let resized = self.cluster.as_ref().map_or(0, |cluster| cluster.resized);
        self.rules.limits.faults.map_or(0, |fault_actions| fault_actions.resizes[resized])
    }

    pub fn registry_messages(&self) -> &[RegistryMessage] {
        self.cluster.as_ref().map_or(&[], |cluster| &cluster.messages)
    }

    pub fn admin_commands(&self) -> &[AdminCommand] {
        self.cluster.as_ref().map_or(&[], |cluster| &cluster.commands)
    }

    pub(super) fn registry_request(&mut self, at: usize, registry_request: &RegistryRequest) -> Option<Violation> {
        if self.cluster.is_none() {
            return Some(Violation::Unexpected(self.ids()[at], "a registry request in a world without a registry"));
        }
        let message = RegistryMessage::RegistryRequest(self.session(at), registry_request.clone());
        self.cluster_mut().send(message);
        None
    }

    pub(super) fn fault_actions(&self, actions: &mut Vec<Action<P::Timer>>) {
        let (Some(cluster), Some(fault_actions)) = (&self.cluster, self.rules.limits.faults) else { return };
        let registry = &cluster.registry;
        let choices = || 0..registry.choices(fault_actions.any_coordinator);
        let mut add = |fault| actions.push(Action::Fault(fault));
        let is_new = |at: &usize| *at == 0 || cluster.messages[*at] != cluster.messages[*at - 1];
        (0..cluster.messages.len()).filter(is_new).for_each(|at| add(Fault::Receive(at)));
        if cluster.left.repeats > 0 {
            (0..cluster.messages.len()).filter(is_new).for_each(|at| add(Fault::Repeat(at)));
            let is_new = |at: &usize| *at == 0 || cluster.commands[*at] != cluster.commands[*at - 1];
            (0..cluster.commands.len()).filter(is_new).for_each(|at| add(Fault::Again(at)));
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let (local, session) = (&node.local, self.session(at));
            if cluster.left.forces > 0 && registry.is_party(session) {
                choices().for_each(|choice| add(Fault::Evict(at, choice)));
            }
            if !local.is_up {
                if cluster.left.sessions > 0 {
                    add(Fault::Begin(at));
                }
                continue;
            }
            if cluster.left.stops > 0 {
                add(Fault::Stop(at));
            }
            if cluster.left.takeovers > 0 {
                choices().for_each(|choice| add(Fault::TakeOver(at, choice)));
            }
            if cluster.left.forgets > 0 && local.inside.is_empty() && local.waiting.is_empty() {
                add(Fault::Forget(at));
            }
        }
        let has_stopped = |session: &Session| {
            let local = &self.nodes[self.place(session.peer)].local;
            !local.is_up || local.session != session.number
        };
        for session in registry.sessions().filter(has_stopped) {
            choices().for_each(|choice| add(Fault::End(session, choice)));
        }
        if fault_actions.resizes.get(cluster.resized).is_some_and(|&slots| slots > 0) {
            choices().for_each(|choice| add(Fault::Resize(choice)));
        }
        if cluster.left.removes > 0 && registry.is_left() {
            add(Fault::Remove);
        }
        self.faults_of_detached(cluster, add);
    }

    pub(super) fn inject(&mut self, fault: Fault, effects: &mut Effects<P>) -> Option<Violation> {
        let event = match fault {
            Fault::Receive(at) => match self.cluster_mut().messages.remove(at) {
                RegistryMessage::RegistryEvent(event) => {
                    let at = self.place(event.to.peer);
                    let local = self.nodes[at].local.clone();
                    return if local.is_up { self.step(at, local, Input::RegistryEvent(event), effects) } else { None };
                }
                RegistryMessage::RegistryRequest(from, registry_request) => {
                    self.cluster_mut().on_request(from, registry_request)
                }
                RegistryMessage::Remove(generation) => {
                    self.cluster_mut().remove(generation);
                    None
                }
                RegistryMessage::DropDetached(from, ticket, it) => {
                    return self.drop_detached(from, ticket, it, effects);
                }
            },
            Fault::Repeat(at) => {
                let cluster = self.cluster_mut();
                cluster.left.repeats -= 1;
                if cluster.left.repeats == 0 {
                    cluster.commands.clear();
                }
                cluster.messages.insert(at, cluster.messages[at].clone());
                None
            }
            Fault::Again(at) => match self.cluster_mut().repeat_command(at) {
                Ok(event) => event,
                Err(violation) => return Some(violation),
            },
            Fault::Stop(at) => {
                self.stop(at);
                None
            }
            Fault::End(session, choice) => self.cluster_mut().registry.end(session, choice),
            Fault::Begin(at) => {
                self.begin(at);
                None
            }
            Fault::TakeOver(at, choice) => self.take_over(at, choice),
            Fault::Resize(choice) => {
                let slots = self.next_slots();
                let cluster = self.cluster_mut();
                cluster.resized += 1;
                let looked = cluster.registry.generation;
                let event = cluster.registry.resize(slots, choice);
                if cluster.left.repeats > 0 {
                    cluster.registry.resized = cluster.registry.generation;
                    cluster.note_command(AdminCommand::Resize(slots, looked));
                }
                event
            }
            Fault::Evict(at, choice) => self.evict(at, choice),
            Fault::Forget(at) => {
                self.cluster_mut().left.forgets -= 1;
                return self.step(at, self.nodes[at].local.clone(), Input::Forget, effects);
            }
            Fault::Remove => {
                let cluster = self.cluster_mut();
                cluster.left.removes -= 1;
                cluster.send(RegistryMessage::Remove(cluster.registry.generation));
                None
            }
            Fault::EndDetached(at, fencing) => return self.end_detached(at, fencing, effects),
            Fault::Detach(..) | Fault::LeaveAlone(_) | Fault::Expire(_) | Fault::Renew(_) | Fault::Free(_) => {
                self.inject_detached(fault);
                None
            }
        };
        if let Some(event) = event {
            self.cluster_mut().send(RegistryMessage::RegistryEvent(event));
        }
        self.forget_undeliverable();
        None
    }

    pub(super) fn set(&mut self, at: usize, local: Local<P>) {
        self.nodes[at] = Arc::new(Node::new(local, &self.rules.ids, &self.rules.limits));
    }

    fn successor(&self, at: usize, inside: &[(Ticket, Grant)]) -> P {
        let Local { peer, session, .. } = &self.nodes[at].local;
        peer.successor(session + 1, inside).expect("a protocol with sessions has successors")
    }

    fn stop(&mut self, at: usize) {
        let me = self.ids()[at];
        let Local { asked, session, ref inside, .. } = self.nodes[at].local;
        let inside = inside.clone();
        let (peer, timers, waiting) = (self.successor(at, &[]), Vec::new(), Vec::new());
        let (is_up, is_forced) = (false, false);
        self.set(at, Local { peer, timers, asked, waiting, inside: Vec::new(), session, is_up, is_forced });
        let cluster = self.cluster_mut();
        cluster.left.stops -= 1;
        cluster.leave_alone(me, inside);
    }

    fn begin(&mut self, at: usize) {
        let (peer, session) = (self.successor(at, &[]), self.nodes[at].local.session + 1);
        self.set(at, Local { peer, session, is_up: true, ..self.nodes[at].local.clone() });
        let new = self.session(at);
        let cluster = self.cluster_mut();
        cluster.left.sessions -= 1;
        cluster.registry.begin(new);
    }

    fn evict(&mut self, at: usize, choice: usize) -> Option<RegistryEvent> {
        let session = self.session(at);
        let local = self.nodes[at].local.clone();
        // A stopped peer holds nothing.
        let local = Local { is_forced: local.is_up, ..local };
        self.set(at, local);
        let may_be_removed = self.rules.limits.faults.is_some_and(|fault_actions| fault_actions.removes > 0);
        let cluster = self.cluster_mut();
        cluster.left.forces -= 1;
        if let Some(since) = cluster.registry.since(session) {
            cluster.note_command(AdminCommand::Evict(session, since));
        }
        let [notified, opened] = cluster.registry.evict(session, choice);
        if may_be_removed {
            cluster.registry.note_forced(session);
        }
        notified.into_iter().for_each(|event| cluster.send(RegistryMessage::RegistryEvent(event)));
        cluster.forget_forced();
        opened
    }

    fn take_over(&mut self, at: usize, choice: usize) -> Option<RegistryEvent> {
        let old = self.session(at);
        let inside = self.nodes[at].local.inside.clone();
        let cluster = self.cluster_mut();
        let inside = cluster.leave_alone(old.peer, inside);
        let known = if cluster.registry.has(RegistryMutation::NoGrantFile) { &[] } else { &inside[..] };
        let (peer, has_clients) = (self.successor(at, known), !known.is_empty());
        let Local { asked, session, is_forced, .. } = self.nodes[at].local;
        let (timers, waiting, session, is_up) = (Vec::new(), Vec::new(), session + 1, true);
        self.set(at, Local { peer, timers, asked, waiting, inside, session, is_up, is_forced });
        let new = self.session(at);
        let cluster = self.cluster_mut();
        cluster.left.takeovers -= 1;
        if cluster.registry.has(RegistryMutation::TakeOverUnnoticed) {
            cluster.registry.replace(old, new);
            return None;
        }
        cluster.registry.take_over(old, new, has_clients, choice)
    }

    /// Returns whether an evicted peer has rejoined without any earlier state.
    pub(super) fn is_back(&self, at: usize, local: &Local<P>) -> bool {
        let Some(registry) = self.cluster.as_ref().map(|cluster| &cluster.registry) else { return false };
        let is_there = registry.is_party(self.session(at)) && local.peer.generation() == registry.generation;
        is_there && local.inside.is_empty() && local.peer.tokens() == 0
    }

    /// Returns whether a waiter with this arrival number has its position in a generation. One whose session joined
    /// with the number has it from the next census on.
    pub(super) fn is_queued(&self, peer: PeerId, arrival: Arrival, generation: u64) -> bool {
        let Some(registry) = self.cluster.as_ref().map(|cluster| &cluster.registry) else { return true };
        let since = registry.since(self.session(self.place(peer)));
        since.is_some_and(|since| arrival.generation >= since || generation > since)
    }

    /// Returns the number of slots if nothing is pending: then none may be free while a client waits.
    pub(super) fn slots_when_calm(&self) -> Option<usize> {
        let cluster = self.cluster.as_ref()?;
        let is_calm = |node: &Arc<Node<P>>| node.local.is_up && !node.local.is_forced && node.local.timers.is_empty();
        let none_is_detached = self.detached().is_empty() && cluster.unaware.is_empty();
        let is_used = |session: Session| self.session(self.place(session.peer)) == session;
        let is_known = cluster.messages.is_empty() && cluster.registry.sessions().all(is_used);
        let is_calm = is_known && none_is_detached && self.nodes.iter().all(is_calm);
        is_calm.then_some(cluster.registry.slots as usize)
    }

    pub(super) fn is_to_be_evicted(&self, peer: PeerId) -> bool {
        self.registry_messages().iter().any(|message| match message {
            RegistryMessage::RegistryEvent(event) => event.to.peer == peer && event.kind == EventKind::Evicted,
            _ => false,
        })
    }

    /// Discards messages to a peer that has stopped for good and, if the limits say so, of an ended session or a
    /// superseded generation.
    pub(super) fn forget_undeliverable(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let is_down = |peer: PeerId| cluster.left.sessions == 0 && !self.nodes[self.place(peer)].local.is_up;
        let is_over = |session: Session| self.session(self.place(session.peer)) != session;
        let is_tidy = self.rules.limits.tidy;
        let is_lost = |message: &RegistryMessage| match message {
            RegistryMessage::RegistryEvent(event) => is_down(event.to.peer) || is_tidy && is_over(event.to),
            RegistryMessage::RegistryRequest(from, _) if is_tidy && !cluster.registry.stands(*from) => true,
            RegistryMessage::RegistryRequest(
                _,
                RegistryRequest::Close { generation, .. } | RegistryRequest::Renumber { generation },
            ) => is_tidy && *generation < cluster.registry.generation,
            RegistryMessage::DropDetached(from, ..) if is_tidy && !cluster.registry.stands(*from) => true,
            RegistryMessage::RegistryRequest(_, RegistryRequest::Join | RegistryRequest::Quit { .. })
            | RegistryMessage::Remove(_)
            | RegistryMessage::DropDetached(..) => false,
        };
        let message = cluster.messages.iter().any(is_lost).then(|| {
            let retained = cluster.messages.iter().filter(|message| !is_lost(message));
            retained.cloned().collect()
        });
        let is_any_down = cluster.left.sessions == 0 && self.nodes.iter().any(|node| !node.local.is_up);
        if is_any_down {
            let mut packets = std::mem::take(&mut self.packets);
            packets.retain(|sealed| self.nodes[self.place(sealed.packet.to)].local.is_up);
            self.packets = packets;
        }
        if let Some(message) = message {
            self.cluster_mut().messages = message;
        }
    }

    /// Returns whether only optional events are left: a client that waits now may wait forever.
    pub(crate) fn is_at_rest(&self, actions: &[Action<P::Timer>]) -> bool {
        let may_wait = |action: &Action<P::Timer>| match action {
            Action::Fault(fault) => !fault.is_certain(),
            Action::Request(_) | Action::Withdraw(..) => self.cluster.is_some(),
            _ => false,
        };
        actions.iter().all(may_wait)
    }

    pub(crate) fn wrong_at_rest(&self) -> Option<Violation> {
        if self.has_timers() {
            return None;
        }
        let waiting = self.all_waiting();
        if waiting.is_empty() { self.lost_slot() } else { Some(Violation::Stuck(waiting)) }
    }

    fn lost_slot(&self) -> Option<Violation> {
        let Registry { coordinator, slots, .. } = self.cluster.as_ref()?.registry;
        coordinator?;
        let is_here = |slot: &u32| self.nodes.iter().any(|node| node.summary.slots().contains(slot));
        (0..slots).find(|slot| !is_here(slot)).map(Violation::SlotLost)
    }

    /// Returns a slot with two tokens. Those of evicted sessions do not count.
    pub(super) fn slot_twice(&self) -> Option<Violation> {
        let cluster = self.cluster.as_ref()?;
        let honest = || self.nodes.iter().filter(|node| !node.local.is_forced);
        let slots = || honest().flat_map(|node| node.summary.slots()).copied();
        let alone = |slot: u32| cluster.alone.iter().filter(|(_, _, grant)| grant.slot == slot).count();
        let count = |slot: u32| slots().filter(|other| *other == slot).count() + alone(slot);
        let taken_alone = cluster.alone.iter().map(|(_, _, grant)| grant.slot);
        slots().chain(taken_alone).find(|&slot| count(slot) > 1).map(Violation::SlotTwice)
    }
}

impl fmt::Display for AdminCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evict(session, since) => write!(f, "→ registry  evict({session}, party since {since})"),
            Self::Resize(slots, looked) => {
                write!(f, "→ registry  resize(slots {slots}, issued in generation {looked})")
            }
            Self::Revoke(fencing) => write!(f, "→ registry  revoke({fencing})"),
        }
    }
}

impl fmt::Display for RegistryMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RegistryEvent(event) => write!(f, "registry → {}  {event}", event.to),
            Self::RegistryRequest(from, registry_request) => write!(f, "{from} → registry  {registry_request}"),
            Self::Remove(generation) => write!(f, "→ registry  remove(generation {generation})"),
            Self::DropDetached(from, _, Detached { slot, fencing }) => {
                write!(f, "{from} → registry  drop(slot {slot} detached as {fencing})")
            }
        }
    }
}
