//! The node itself.

use peerlock_base::{PeerId, Time};
use peerlock_mutex::Grant;

use crate::clients::{Clients, TicketId};
use crate::timers::Timers;
use crate::{Birth, Config, Counters, Damage, Effect, Error, Input, PeerView, ResourceView};

/// One peer with all its clients.
pub struct Node {
    host: PeerId,
    addresses: Vec<String>,
    birth: Birth,
    config: Config,
    now: Time,
    timers: Timers<TicketId>,
    clients: Clients,
}

impl Node {
    /// A peer of this host that listens there and knows nobody. [`Input::Start`] comes next.
    ///
    /// # Errors
    /// If it has a voter's file and that is damaged, or of another version. Nothing was changed.
    pub fn new(host: PeerId, addresses: Vec<String>, birth: Birth, config: Config) -> Result<Self, Damage> {
        let (timers, clients) = (Timers::new(), Clients::default());
        Ok(Self { host, addresses, birth, config, now: Time::ZERO, timers, clients })
    }

    /// Hands one input to the node. What it wants done is appended to `out`, what others wait for first. `now` is read
    /// after the input was taken up, from a clock that counts while the machine sleeps.
    pub fn step(&mut self, input: Input, now: Time, out: &mut Vec<Effect>) {
        assert!(now >= self.now, "time does not go back");
        self.now = now;
        if let Input::Acquire { call, .. } = input {
            out.push(Effect::Answer { call, answer: Err(Error::Stopped) });
        }
    }

    /// When to be woken.
    pub fn next_wake(&self) -> Option<Time> {
        self.timers.next()
    }

    /// The grant of a ticket and until when it stands, if it has one.
    pub fn grant(&self, ticket: TicketId) -> Option<(Grant, Time)> {
        self.clients.granted(ticket)
    }

    /// What keeps this process from having a session, if it has none.
    pub fn trouble(&self, _now: Time) -> Option<Error> {
        None
    }

    /// What this peer has counted.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }

    /// The resources that this peer has had to do with, by name.
    pub fn resources(&self) -> Vec<ResourceView> {
        Vec::new()
    }

    /// Everybody whom this peer knows, itself first, with what the register has told of them last.
    pub fn peers(&self, _now: Time) -> Vec<PeerView> {
        Vec::new()
    }
}
