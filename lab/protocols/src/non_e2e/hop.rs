//! The hop's side: the replica list.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Time};

use super::message::{Load, Message, Timer};
use super::{Config, NonE2e};
use crate::outbox::To;
use crate::route_quorum::Waiting;
use crate::sigma::replica::{Entry as Request, is_same};
use crate::sigma::{self, Stamp};
use crate::{Cx, Hop};

/// The request that passed to the replica, and those queued after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    /// *Replica Id*.
    pub replica: u32,
    /// *Node Id*: the holder.
    pub holder: Stamp,
    /// *Replica Request Queue*.
    pub queue: Vec<Request>,
    pub age: u32,
    /// *Next*.
    pub next: Neighbour,
    /// *Previous*.
    pub previous: Neighbour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Neighbour {
    pub peer: PeerId,
    pub is_silent: bool,
}

impl Neighbour {
    fn new(peer: PeerId) -> Self {
        Self { peer, is_silent: false }
    }
}

impl Entry {
    pub fn new(replica: u32, holder: Stamp, hop: Hop, next: PeerId) -> Self {
        let (next, previous) = (Neighbour::new(next), Neighbour::new(hop.previous));
        Self { replica, holder, queue: Vec::new(), age: 0, next, previous }
    }

    pub fn renew(&mut self, hop: Hop, next: PeerId) {
        (self.next, self.previous) = (Neighbour::new(next), Neighbour::new(hop.previous));
    }

    pub fn neighbours(&mut self) -> [&mut Neighbour; 2] {
        [&mut self.next, &mut self.previous]
    }

    pub fn enqueue(&mut self, request: Request) {
        match self.queue.binary_search_by_key(&request.client, |queued| queued.client) {
            Ok(at) => self.queue[at] = request,
            Err(at) => {
                self.queue.insert(at, request);
                self.age = 0;
            }
        }
    }

    pub fn into_load(self, now: Time) -> impl Iterator<Item = Waiting> {
        self.queue.into_iter().map(move |queued| queued.into_waiting(now))
    }
}

impl NonE2e {
    pub(super) fn waits_at(&self, at: usize, client: Stamp) -> bool {
        self.entries[at].queue.iter().any(|queued| self.is_same(queued.client, client))
    }

    /// §IV.B, step 2, *if found*.
    pub(super) fn queue(&mut self, at: usize, request: Request, cx: &mut Cx<'_, Self>) {
        let entry = &mut self.entries[at];
        entry.enqueue(request);
        let (replica, holder, to) = (entry.replica, entry.holder, request.client.client.ticket);
        self.common.sender.send(request.client.peer(), Message::Queued { replica, to, holder }, cx);
        if !self.pings_run {
            self.pings_run = true;
            cx.set_timer(Timer::Ping, self.config.patience);
        }
    }

    /// §IV.B, step 2. Returns whether the request is forwarded.
    pub(super) fn on_request_by(&mut self, hop: Hop, next: PeerId, message: &Message, cx: &mut Cx<'_, Self>) -> bool {
        let (replica, client, sent, is_direct) = match *message {
            Message::Request { replica, client, sent, .. } => (replica, client, sent, false),
            Message::Vote(sigma::Message::Request { replica, client, sent, .. }) => (replica, client, sent, true),
            _ => return true,
        };
        let Some(at) = self.entries.iter().position(|entry| entry.replica == replica) else {
            self.entries.push(Entry::new(replica, client, hop, next));
            return true;
        };
        if self.config.hearsay && self.is_same(self.entries[at].holder, client) {
            self.entries[at].renew(hop, next);
            return true;
        }
        if is_direct {
            self.entries[at].queue.retain(|queued| queued.client != client);
            return true;
        }
        self.queue(at, Request { client, sent, arrived: cx.now() }, cx);
        false
    }

    /// §IV.B, step 4, *all quorum set members*; and §V.B, cleanup. Returns the message to forward.
    pub(super) fn on_release_by(&mut self, message: Message, cx: &mut Cx<'_, Self>) -> Option<Message> {
        let (replica, client, is_over) = match message {
            Message::Release { replica, client, .. } => (replica, client, true),
            Message::Cleanup { replica, holder, .. } => (replica, holder, false),
            other => return Some(other),
        };
        let Some(at) = self.entries.iter().position(|entry| entry.replica == replica) else { return Some(message) };
        if self.is_same(self.entries[at].holder, client) {
            let entry = self.entries.swap_remove(at);
            return self.add_to(message, entry, cx);
        }
        if is_over && self.waits_at(at, client) {
            // The request has not passed this hop, so its RELEASE stops here.
            let config = self.common.config;
            let entry = &mut self.entries[at];
            entry.queue.retain(|queued| !is_same(queued.client, client, &config));
            let load = message.into_load();
            load.queue.into_iter().for_each(|waiting| entry.enqueue(waiting.arrived(cx.now())));
            self.take_over(load.keeper, cx);
            return None;
        }
        Some(message)
    }

    fn add_to(&mut self, mut message: Message, entry: Entry, cx: &mut Cx<'_, Self>) -> Option<Message> {
        let replica = entry.replica;
        if entry.queue.is_empty() {
            return Some(message);
        }
        let load = message.load_mut()?;
        load.queue.extend(entry.into_load(cx.now()));
        load.queue.sort_unstable();
        load.queue.dedup_by_key(|waiting| waiting.client);
        let keeper = load.keeper.take();
        if !self.config.keeps_copies {
            return Some(message);
        }
        self.take_over(keeper, cx);
        self.send_queues(replica, message, cx);
        None
    }

    /// §V.B: *an alive predecessor would act as the temporary token holder*.
    fn send_queues(&mut self, replica: u32, mut message: Message, cx: &mut Cx<'_, Self>) {
        let sender = &mut self.common.sender;
        if !self.config.keeps_copies {
            return sender.send_to(replica, message, cx);
        }
        let me = sender.me;
        let with = |receipt| {
            if let Some(load) = message.load_mut() {
                load.keeper = Some((me, receipt));
            }
            message
        };
        if self.outbox.send(To::Replica(replica), with, sender, cx) {
            cx.set_timer(Timer::Again, self.config.again);
        }
    }

    pub(super) fn on_again_timer(&mut self, cx: &mut Cx<'_, Self>) {
        self.outbox.resend(Config::TRIES, &mut self.common.sender, cx);
        if !self.outbox.is_empty() {
            cx.set_timer(Timer::Again, self.config.again);
        }
    }

    pub(super) fn take_over(&mut self, keeper: Option<(PeerId, u64)>, cx: &mut Cx<'_, Self>) {
        if let Some((peer, receipt)) = keeper {
            self.common.sender.send(peer, Message::Taken { receipt }, cx);
        }
    }

    /// Answers a ping (§V.B): whether this peer is on the way of the request.
    pub(super) fn knows(&mut self, index: u32, request: Stamp) -> bool {
        let is_client = self.clients.iter().any(|client| client.votes.stamp == request);
        let at_replica = self.replicas.iter().any(|here| here.index == index && here.knows(request, &self.common));
        let on_way = self.entries.iter().enumerate().any(|(at, entry)| {
            entry.replica == index && (self.is_same(entry.holder, request) || self.waits_at(at, request))
        });
        is_client || at_replica || on_way
    }

    /// §V.B. A neighbour that has not answered the last ping counts as dead.
    pub(super) fn on_ping_timer(&mut self, cx: &mut Cx<'_, Self>) {
        let is_broken = |entry: &mut Entry| {
            !entry.queue.is_empty() && entry.neighbours().iter().any(|neighbour| neighbour.is_silent)
        };
        for entry in self.entries.extract_if(.., is_broken).collect::<Vec<_>>() {
            self.clean_up(entry, cx);
        }
        for entry in self.entries.iter_mut().filter(|entry| !entry.queue.is_empty()) {
            entry.age = entry.age.saturating_add(1);
            if !entry.age.is_power_of_two() {
                continue;
            }
            let (replica, holder) = (entry.replica, entry.holder);
            for neighbour in entry.neighbours() {
                neighbour.is_silent = true;
                self.common.sender.send(neighbour.peer, Message::Ping { replica, holder }, cx);
            }
        }
        self.pings_run = self.entries.iter().any(|entry| !entry.queue.is_empty());
        if self.pings_run {
            cx.set_timer(Timer::Ping, self.config.patience);
        }
    }

    pub(super) fn on_ack(&mut self, from: PeerId, (replica, holder): (u32, Stamp), known: bool, cx: &mut Cx<'_, Self>) {
        let is_it = |entry: &Entry| entry.replica == replica && entry.holder == holder;
        let Some(at) = self.entries.iter().position(is_it) else { return };
        let mut is_neighbour = false;
        for neighbour in self.entries[at].neighbours().into_iter().filter(|neighbour| neighbour.peer == from) {
            neighbour.is_silent = false;
            is_neighbour = true;
        }
        if is_neighbour && !known {
            let entry = self.entries.swap_remove(at);
            self.clean_up(entry, cx);
        }
    }

    /// §V.B. *Departure:* in the paper the predecessor of a dead peer makes a new route for the holder's request, and
    /// its successor cleans up; but the holder may have finished. Here both send the queue to the replica.
    fn clean_up(&mut self, entry: Entry, cx: &mut Cx<'_, Self>) {
        let (replica, holder) = (entry.replica, entry.holder);
        let queue: Vec<Waiting> = entry.into_load(cx.now()).collect();
        if !queue.is_empty() {
            self.send_queues(replica, Message::Cleanup { replica, holder, load: Load { queue, keeper: None } }, cx);
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue: Vec<Stamp> = self.queue.iter().map(|queued| queued.client).collect();
        write!(f, "{} then {queue:?}", self.holder)
    }
}
