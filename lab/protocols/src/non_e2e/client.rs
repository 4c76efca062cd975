//! The requester's side.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::fmt;

use peerlock_types::{PeerId, Span, Ticket};

use super::message::{Load, Message};
use super::{Config, NonE2e};
use crate::Cx;
use crate::quorum::Voters;
use crate::sigma::client::{Client, Phase};
use crate::sigma::{self, Common, Number, Stamp};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Requester {
    pub votes: Client,
    places: Vec<Place>,
    silent: Voters,
    tries: u32,
}

/// The last answer came from a hop that has queued the request, or from the replica at this peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Unknown,
    Hop(PeerId),
    Replica(PeerId),
}

impl Requester {
    pub fn new(ticket: Ticket, stamp: Stamp, replicas: u32) -> Self {
        let places = vec![Place::Unknown; replicas as usize];
        Self { votes: Client::new(ticket, stamp, replicas), places, silent: Voters::NONE, tries: 0 }
    }

    /// §IV.B, step 1.
    pub fn request(&mut self, config: &Config, common: &mut Common<Message>, cx: &mut Cx<'_, NonE2e>) {
        for replica in 0..common.quorum().replicas() {
            let message = self.queueable(replica, common, cx);
            common.sender.send_to(replica, message, cx);
            self.silent.insert(replica);
        }
        if config.asks_again {
            cx.set_timer(self.wake(), config.retry);
        }
    }

    fn wake(&self) -> super::Timer {
        sigma::Timer::Wake(self.votes.id()).into()
    }

    fn queueable(&self, replica: u32, common: &Common<Message>, cx: &Cx<'_, NonE2e>) -> Message {
        Message::Request { replica, client: self.votes.stamp, sent: cx.now(), fencing: common.fencing }
    }

    fn direct(&self, replica: u32, common: &Common<Message>, cx: &Cx<'_, NonE2e>) -> Message {
        let (client, sent, fencing) = (self.votes.stamp, cx.now(), common.fencing);
        Message::Vote(sigma::Message::Request { replica, client, sent, fencing })
    }

    /// §IV.B, step 5: GRANTREQ from a replica.
    pub fn on_grant_req(
        &mut self,
        from: PeerId,
        mut response: sigma::Message,
        config: &Config,
        common: &mut Common<Message>,
        cx: &mut Cx<'_, NonE2e>,
    ) {
        let sigma::Message::Response { replica, wait, .. } = &mut response else { return };
        *wait = None;
        self.places[*replica as usize] = Place::Replica(from);
        self.silent.remove(*replica);
        let before = self.votes.mine().len();
        self.votes.on_response(response, common, cx);
        if self.votes.mine().len() > before {
            self.tries = 0;
        }
        self.consider_yielding(config, common, cx);
    }

    /// §IV.B, step 2: GRANTREQ from a hop. *Departure:* the paper's requester takes it for the replica's answer, but a
    /// hop knows only the last request that passed.
    pub fn on_queued(
        &mut self,
        from: PeerId,
        (replica, holder): (u32, Stamp),
        config: &Config,
        common: &mut Common<Message>,
        cx: &mut Cx<'_, NonE2e>,
    ) {
        let place = &mut self.places[replica as usize];
        if config.hearsay {
            if !matches!(place, Place::Replica(_)) {
                *place = Place::Hop(from);
                self.silent.remove(replica);
                self.votes.count_reply(replica);
            }
        } else {
            *place = Place::Hop(from);
            self.silent.remove(replica);
            let (to, number, until) = (self.votes.id(), Number::default(), cx.now() + common.config.lease);
            let (owner, fencing) = (Some(holder), common.fencing);
            let response =
                sigma::Message::Response { replica, to, owner, number, until, wait: None, fencing, clock: 0 };
            self.votes.on_response(response, common, cx);
        }
        self.consider_yielding(config, common, cx);
    }

    /// §IV.B, steps 5 and 6, in print: all yield after a random time.
    fn consider_yielding(&mut self, config: &Config, common: &Common<Message>, cx: &mut Cx<'_, NonE2e>) {
        let is_stuck = !self.votes.mine().is_empty() && self.votes.is_undecidable(common);
        if !config.surfaces && self.votes.phase == Phase::Waiting && is_stuck {
            let after = cx.rng().between(Span::ZERO, config.retry);
            cx.set_timer(self.wake(), after);
        }
    }

    /// Returns true if the lease has expired.
    pub fn on_wake(&mut self, config: &Config, common: &mut Common<Message>, cx: &mut Cx<'_, NonE2e>) -> bool {
        if let Phase::Holding { until } = self.votes.phase {
            if config.leases && until <= cx.now() {
                return true;
            }
            self.votes.mine().iter().for_each(|replica| self.ask(replica, config, common, cx));
            self.votes.wake_to_renew(until, common, cx);
            return false;
        }
        if !config.surfaces && self.votes.is_undecidable(common) {
            // §IV.B, step 6.
            self.votes.yield_all(common, cx);
        }
        // With m votes but no grant, the replicas' fencing levels differ too much.
        if config.asks_again || self.votes.mine().len() >= common.quorum().votes() {
            (0..common.quorum().replicas()).for_each(|replica| self.ask(replica, config, common, cx));
            let is_near = !self.votes.mine().is_empty() || self.places.contains(&Place::Unknown);
            let (first, most) = match is_near {
                true => (config.retry, config.lease / 3),
                false => (config.patience, config.most_patience),
            };
            let after = (first * (1 << self.tries)).min(most);
            self.tries = (self.tries + 1).min(16);
            cx.set_timer(self.wake(), after);
        }
        false
    }

    /// Asks the peer that answered last, or by a new route if it is silent. A client with too few votes bypasses the
    /// hops: a replica asks for a YIELD only on behalf of requests that it knows.
    fn ask(&mut self, replica: u32, config: &Config, common: &mut Common<Message>, cx: &mut Cx<'_, NonE2e>) {
        let direct = self.direct(replica, common, cx);
        let surfaces = config.surfaces && !self.votes.mine().is_empty();
        match self.places[replica as usize] {
            Place::Unknown => {
                let message = self.queueable(replica, common, cx);
                common.sender.send_to(replica, message, cx);
            }
            Place::Hop(peer) if !surfaces && !self.silent.contains(replica) => {
                let message = self.queueable(replica, common, cx);
                common.sender.send(peer, message, cx);
            }
            Place::Replica(peer) if !self.silent.contains(replica) => common.sender.send(peer, direct, cx),
            Place::Hop(_) | Place::Replica(_) => common.sender.send_to(replica, direct, cx),
        }
        self.silent.insert(replica);
    }

    /// §IV.B, step 4; and withdrawal.
    pub fn release(&mut self, common: &mut Common<Message>, cx: &mut Cx<'_, NonE2e>) {
        cx.cancel_timer(self.wake());
        let (client, fencing) = (self.votes.stamp, common.fencing);
        for replica in 0..common.quorum().replicas() {
            let message = Message::Release { replica, client, fencing, load: Load::default() };
            common.sender.send_to(replica, message, cx);
        }
    }
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.votes.phase == Phase::Waiting { "waits" } else { "holds" };
        let votes: Vec<String> = self.votes.mine().iter().map(|replica| format!("R{replica}")).collect();
        let queued = self.places.iter().enumerate().filter_map(|(replica, place)| match place {
            Place::Hop(peer) => Some(format!("R{replica} at {peer}")),
            Place::Unknown | Place::Replica(_) => None,
        });
        let queued: Vec<String> = queued.collect();
        write!(f, "{} {state}, votes [{}], queued [{}]", self.votes.stamp, votes.join(", "), queued.join(", "))
    }
}
