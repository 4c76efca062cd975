//! Runs of a world in several processes and in real time. This module has the interface of one process's part to the
//! others, and the records that are checked together afterwards.
//!
//! ```text
//!    World ──Arrive is due──► Outside ──bytes──► Outside ──Came::Message──► World of another process
//!      │
//!      └──on_grant, on_send …──► Recorder ──Record──► World::replay ──on_grant, on_send …──► the usual watchers
//! ```
//!
//! The event loop, workloads, timers, delays and faults are those of the simulator. Only time passes by itself, and the
//! receiver of a message may be in another process. See `world/part.rs`.

use peerlock_protocols::Grant;
use peerlock_types::{PeerId, Ticket, Time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
use crate::report::{Report, put_together};
use crate::trials::{self, Failure, SHOWN, Setting, notified, seed_of};
use crate::watch::{Broken, Mark, Trace, Watch};

/// The assignment of peers to processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The number of this process.
    pub me: usize,
    /// The number of processes that run several peers, assigned in turn.
    pub together: usize,
    /// Peers with a process of their own, numbered after those: it can be killed without affecting others.
    pub apart: Vec<PeerId>,
}

impl Share {
    /// Returns the process of a peer.
    pub fn home(&self, peer: PeerId) -> usize {
        match self.apart.iter().position(|&alone| alone == peer) {
            Some(at) => self.together + at,
            None => peer.index() % self.together,
        }
    }

    /// Whether a peer is in this process.
    pub fn is_here(&self, peer: PeerId) -> bool {
        self.home(peer) == self.me
    }

    /// Returns the number of processes of both kinds.
    pub fn processes(&self) -> usize {
        self.together + self.apart.len()
    }
}

/// The other processes, and the time.
pub trait Outside<A: Actor> {
    /// Returns the time since the start of the run.
    fn now(&mut self) -> Time;

    /// Sends a message whose delay is over. All messages take this path, also those within a process.
    fn send(&mut self, from: PeerId, to: PeerId, message: A::Message);

    /// Reports a change: whether all clients of this process are served and none will request again.
    fn served(&mut self, is_served: bool);

    /// Waits for an event from outside, or until the given time.
    fn wait(&mut self, until: Option<Time>) -> Came<A::Message>;
}

/// An event from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came<M> {
    /// None: the given time has come.
    Nothing,
    /// A message has arrived.
    Message {
        /// The sender, a peer of another process.
        from: PeerId,
        /// The receiver.
        to: PeerId,
        /// The message as it was sent.
        message: M,
    },
    /// A process has ended, and these peers with it.
    Gone(Vec<PeerId>),
    /// The run is over.
    Stop,
}

/// A type that can be sent between processes.
pub trait Wire: Serialize + DeserializeOwned {}

impl<T: Serialize + DeserializeOwned> Wire for T {}

/// An event of a peer, as its process has recorded it. Tickets are local to the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record<M, N> {
    /// A client requests.
    Asked {
        /// The client's peer.
        peer: PeerId,
        /// New with this record; identifies the client until it leaves or gives up.
        ticket: Ticket,
        /// The number of the resource.
        resource: usize,
    },
    /// A client enters.
    Entered {
        /// The client's peer.
        peer: PeerId,
        /// The ticket of its request.
        ticket: Ticket,
        /// The slot and the fencing number.
        grant: Grant,
    },
    /// A client has left.
    Left {
        /// The client's peer.
        peer: PeerId,
        /// The ticket of its request.
        ticket: Ticket,
    },
    /// A client has stopped waiting.
    GaveUp {
        /// The client's peer.
        peer: PeerId,
        /// The ticket of its request.
        ticket: Ticket,
    },
    /// A peer is about to lose its memory.
    Reset(PeerId),
    /// The process of a peer was killed with its clients, of which there are no further records.
    Killed(PeerId),
    /// A peer has crashed. The ends of its clients are in other records.
    Crashed(PeerId),
    /// A message is sent.
    Sent {
        /// The sender.
        from: PeerId,
        /// The receiver.
        to: PeerId,
        /// The message.
        message: M,
    },
    /// The message sent last will arrive at `arrives` at the earliest.
    OnWay {
        /// Its sender.
        from: PeerId,
        /// The earliest arrival.
        arrives: Time,
    },
    /// A message has arrived.
    Delivered {
        /// The sender, as in [`Record::Sent`].
        from: PeerId,
        /// The receiver.
        to: PeerId,
        /// The message; under faults it may arrive twice.
        message: M,
    },
    /// A note of this kind of peer.
    Noted {
        /// Its peer.
        peer: PeerId,
        /// The note.
        note: N,
    },
    /// A round begins with these peers of the process.
    Round(Vec<PeerId>),
    /// A client did not request, since its peer waits already.
    Skipped,
    /// The last round is over.
    Drain(Vec<PeerId>),
}

/// The record type of a kind of peer.
pub type RecordOf<A> = Record<<A as Actor>::Message, <A as Actor>::Note>;

/// A watcher that checks nothing and records every event, for a later check with the other processes' records.
#[derive(Debug)]
pub struct Recorder<S> {
    sink: S,
}

impl<S> Recorder<S> {
    /// Creates a recorder that writes to this sink.
    pub fn new(sink: S) -> Self {
        Self { sink }
    }
}

impl<A, S> Watch<A> for Recorder<S>
where
    A: Actor<Note: Clone>,
    S: FnMut(Time, RecordOf<A>),
{
    fn on_request(&mut self, now: Time, &Client { peer, ticket, resource, .. }: &Client) -> Result<(), Broken> {
        (self.sink)(now, Record::Asked { peer, ticket, resource });
        Ok(())
    }

    fn on_grant(&mut self, now: Time, client: &Client, grant: Grant, _ledger: &Ledger) -> Result<(), Broken> {
        (self.sink)(now, Record::Entered { peer: client.peer, ticket: client.ticket, grant });
        Ok(())
    }

    fn on_leave(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
        (self.sink)(now, Record::Left { peer: client.peer, ticket: client.ticket });
        Ok(())
    }

    fn on_give_up(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
        (self.sink)(now, Record::GaveUp { peer: client.peer, ticket: client.ticket });
        Ok(())
    }

    fn on_reset(&mut self, now: Time, peer: PeerId) -> Result<(), Broken> {
        (self.sink)(now, Record::Reset(peer));
        Ok(())
    }

    fn on_crash(&mut self, now: Time, peer: PeerId) -> Result<(), Broken> {
        (self.sink)(now, Record::Crashed(peer));
        Ok(())
    }

    fn on_send(&mut self, now: Time, from: PeerId, to: PeerId, message: &A::Message) -> Result<(), Broken> {
        (self.sink)(now, Record::Sent { from, to, message: message.clone() });
        Ok(())
    }

    fn on_way(&mut self, now: Time, from: PeerId, arrives: Time) {
        (self.sink)(now, Record::OnWay { from, arrives });
    }

    fn on_deliver(&mut self, now: Time, from: PeerId, to: PeerId, message: &A::Message) -> Result<(), Broken> {
        (self.sink)(now, Record::Delivered { from, to, message: message.clone() });
        Ok(())
    }

    fn on_note(&mut self, now: Time, peer: PeerId, note: &A::Note) -> Result<(), Broken> {
        (self.sink)(now, Record::Noted { peer, note: note.clone() });
        Ok(())
    }

    fn on_mark(&mut self, now: Time, mark: Mark<'_>, _ledger: &Ledger) -> Result<(), Broken> {
        match mark {
            Mark::Skipped => (self.sink)(now, Record::Skipped),
            Mark::Round(peers) => (self.sink)(now, Record::Round(peers.to_vec())),
            Mark::Drain(peers) => (self.sink)(now, Record::Drain(peers.to_vec())),
            Mark::Quiet => {}
        }
        Ok(())
    }
}

/// The counts of a process that are in no record, such as lost grants and messages. For
/// [`World::replay`](crate::World::replay).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The world's counts, in the order of the names.
    pub(crate) world: Vec<u64>,
    /// The workload's counts.
    pub(crate) load: Vec<u64>,
}

/// A way to run a setting: simulated, in several processes, or as a check of their records. A trait, since each setting
/// has its own types.
pub trait Drive {
    /// The result.
    type Output;

    /// Runs this many trials of a setting with this seed.
    fn drive<S>(self, setting: &S, trials: u32, seed: u64) -> Self::Output
    where
        S: Setting<Actor: Actor<Message: Wire, Note: Wire + Clone>>;
}

/// Runs all trials in virtual time on rayon's threads. Calls the closure for every trial that has ended.
#[derive(Debug)]
pub struct Simulated<F>(pub F);

impl<F: Fn(u64) + Sync> Drive for Simulated<F> {
    type Output = Result<Report, Box<Failure>>;

    fn drive<S>(self, setting: &S, trials: u32, seed: u64) -> Self::Output
    where
        S: Setting<Actor: Actor<Message: Wire, Note: Wire + Clone>>,
    {
        trials::run(setting, trials, seed, self.0)
    }
}

/// The results of all processes of one run.
pub struct Run<A: Actor> {
    /// The records in the order of time.
    pub records: Vec<(Time, RecordOf<A>)>,
    /// The counts of each process that was not killed.
    pub counted: Vec<Counted>,
}

/// Passes the records of real runs to the watchers of a setting, one trial after the other, and merges the results.
///
/// # Errors
/// A rule was broken.
pub fn judge<S: Setting>(setting: &S, runs: &[Run<S::Actor>], seed: u64) -> Result<Report, Box<Failure>> {
    let mut sheets = Vec::new();
    for (trial, run) in (0..).zip(runs) {
        let trial_seed = seed_of(trial, seed);
        let mut world = setting.world(trial_seed, |rules, counts| (rules, counts));
        run.counted.iter().for_each(|counted| world.add_counted(counted));
        if let Err(violation) = world.replay(&run.records) {
            let mut again = setting.world(trial_seed, |rules, _| (Trace::of_last(SHOWN), rules));
            let _ = again.replay(&run.records); // Repeats the replay for its trace.
            return Err(notified(&again.watch.0, trial, seed, violation));
        }
        sheets.push(world.sheet(setting.resources()));
    }
    Ok(put_together(sheets, setting.bound()))
}
