//! Runs of a world in several processes and in real time: the interface of one process's part to the others, and the
//! records that are checked together afterwards. See `world/part.rs`.
//!
//! ```text
//!    World ──Arrive is due──► Outside ──bytes──► Outside ──Came::Message──► World of another process
//!      │
//!      └──Event──► Recorder ──Record──► World::replay ──Event──► the usual watchers
//! ```

use peerlock_protocols::Grant;
use peerlock_types::{PeerId, Ticket, Time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::ledger::Client;
use crate::report::{Report, put_together};
use crate::trials::{self, Failure, Setting, seed_of};
use crate::watch::{Broken, Event, Mark, Watch};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub me: usize,
    pub together: usize,
    /// Each has a process of its own, which can be killed without affecting others.
    pub apart: Vec<PeerId>,
}

impl Share {
    pub fn home(&self, peer: PeerId) -> usize {
        match self.apart.iter().position(|&alone| alone == peer) {
            Some(at) => self.together + at,
            None => peer.index() % self.together,
        }
    }

    pub fn is_here(&self, peer: PeerId) -> bool {
        self.home(peer) == self.me
    }

    pub fn processes(&self) -> usize {
        self.together + self.apart.len()
    }
}

pub trait Outside<A: Actor> {
    fn now(&mut self) -> Time;

    /// Sends a message whose delay is over, also to a peer of this process.
    fn send(&mut self, from: PeerId, to: PeerId, message: A::Message);

    /// Reports a change: whether all clients of this process are served and none will request again.
    fn served(&mut self, is_served: bool);

    fn wait(&mut self, until: Option<Time>) -> Came<A::Message>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came<M> {
    Nothing,
    Message { from: PeerId, to: PeerId, message: M },
    Gone(Vec<PeerId>),
    Stop,
}

pub trait Wire: Serialize + DeserializeOwned {}

impl<T: Serialize + DeserializeOwned> Wire for T {}

/// Tickets are local to the process. There are no further records of the clients of a killed peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record<M, N> {
    Asked { peer: PeerId, ticket: Ticket, resource: usize },
    Entered { peer: PeerId, ticket: Ticket, grant: Grant },
    Left { peer: PeerId, ticket: Ticket },
    GaveUp { peer: PeerId, ticket: Ticket },
    Reset(PeerId),
    Killed(PeerId),
    Crashed(PeerId),
    Sent { from: PeerId, to: PeerId, message: M },
    OnWay { from: PeerId, arrives: Time },
    Delivered { from: PeerId, to: PeerId, message: M },
    Noted { peer: PeerId, note: N },
    Round(Vec<PeerId>),
    Skipped,
    Drain(Vec<PeerId>),
}

pub type RecordOf<A> = Record<<A as Actor>::Message, <A as Actor>::Note>;

/// Records every event, for a later check with the other processes' records.
#[derive(Debug)]
pub struct Recorder<S> {
    sink: S,
}

impl<S> Recorder<S> {
    pub fn new(sink: S) -> Self {
        Self { sink }
    }
}

impl<A, S> Watch<A> for Recorder<S>
where
    A: Actor<Note: Clone>,
    S: FnMut(Time, RecordOf<A>),
{
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        let record = match event {
            Event::Request(&Client { peer, ticket, resource, .. }) => Record::Asked { peer, ticket, resource },
            Event::Grant(&Client { peer, ticket, .. }, grant, _) => Record::Entered { peer, ticket, grant },
            Event::Leave(&Client { peer, ticket, .. }) => Record::Left { peer, ticket },
            Event::GiveUp(&Client { peer, ticket, .. }) => Record::GaveUp { peer, ticket },
            Event::Reset(peer) => Record::Reset(peer),
            Event::Crash(peer) => Record::Crashed(peer),
            Event::Send { from, to, message } => Record::Sent { from, to, message: message.clone() },
            Event::OnWay { from, arrives } => Record::OnWay { from, arrives },
            Event::Deliver { from, to, message } => Record::Delivered { from, to, message: message.clone() },
            Event::Note(peer, note) => Record::Noted { peer, note: note.clone() },
            Event::Mark(Mark::Skipped, _) => Record::Skipped,
            Event::Mark(Mark::Round(peers), _) => Record::Round(peers.to_vec()),
            Event::Mark(Mark::Drain(peers), _) => Record::Drain(peers.to_vec()),
            Event::Mark(Mark::Quiet, _) | Event::Step(..) | Event::End(_) => return Ok(()),
        };
        (self.sink)(now, record);
        Ok(())
    }
}

/// Counts that are in no record, such as lost grants and messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub(crate) world: Vec<u64>,
    pub(crate) load: Vec<u64>,
}

/// A way to run a setting in several processes: one of the processes, or the check of their records.
pub trait Drive {
    type Output;

    fn drive<S>(self, setting: &S, trials: u32, seed: u64) -> Self::Output
    where
        S: Setting<Actor: Actor<Message: Wire, Note: Wire + Clone>>;
}

pub struct Run<A: Actor> {
    pub records: Vec<(Time, RecordOf<A>)>,
    /// Of each process that was not killed.
    pub counted: Vec<Counted>,
}

/// Passes the records of real runs to the watchers of a setting.
///
/// # Errors
/// A rule was broken.
pub fn judge<S: Setting>(setting: &S, runs: &[Run<S::Actor>], seed: u64) -> Result<Report, Box<Failure>> {
    let mut sheets = Vec::new();
    for (trial, run) in (0..).zip(runs) {
        let trial_seed = seed_of(trial, seed);
        let mut world = setting.world(trial_seed);
        run.counted.iter().for_each(|counted| world.add_counted(counted));
        if let Err(violation) = world.replay(&run.records) {
            let trace = trials::traced(setting, trial_seed, |again| _ = again.replay(&run.records));
            return Err(Box::new(Failure { trial, seed, violation, events: trace }));
        }
        sheets.push(world.sheet(setting.resources()));
    }
    Ok(put_together(sheets, setting.bound()))
}
