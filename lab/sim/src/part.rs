//! Some peers of a world, played in real time, while the others live in other processes: what is outside of such a
//! part, and what it leaves behind for whoever judges the whole run.
//!
//! ```text
//!    World ──Arrive is due──► Outside ──bytes──► Outside ──Came::Message──► World of another process
//!      │
//!      └──on_grant, on_send …──► Recorder ──Record──► World::replay ──on_grant, on_send …──► the usual watchers
//! ```
//!
//! It is the loop of the simulator that plays it, with its workloads, timers, delays and faults; only that time passes
//! by itself, and that whoever a message is for may be elsewhere. See `world/part.rs`.

use peerlock_protocols::Grant;
use peerlock_types::{PeerId, Ticket, Time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
use crate::report::{Report, put_together};
use crate::trials::{self, Failure, SHOWN, Setting, notified, seed_of};
use crate::watch::{Broken, Mark, Trace, Watch};

/// Which peers live in which process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// This process.
    pub me: usize,
    /// How many processes there are in which peers live together, taking turns.
    pub together: usize,
    /// Those who live alone, each in a process of its own after those: who is to die without company.
    pub apart: Vec<PeerId>,
}

impl Share {
    /// The process of a peer.
    pub fn home(&self, peer: PeerId) -> usize {
        match self.apart.iter().position(|&alone| alone == peer) {
            Some(at) => self.together + at,
            None => peer.index() % self.together,
        }
    }

    /// Whether a peer lives in this process.
    pub fn is_here(&self, peer: PeerId) -> bool {
        self.home(peer) == self.me
    }

    /// Processes in all: those that peers share, and one for each who lives alone.
    pub fn processes(&self) -> usize {
        self.together + self.apart.len()
    }
}

/// The rest of the world, and the time.
pub trait Outside<A: Actor> {
    /// How long the run has been going on.
    fn now(&mut self) -> Time;

    /// Hands a message over whose time on the way is over. All messages go this way, also those for peers here.
    fn send(&mut self, from: PeerId, to: PeerId, message: A::Message);

    /// Whether everybody here has been served, and nobody here will ask any more; told when it has changed.
    fn served(&mut self, is_served: bool);

    /// Waits until something has come, or until then.
    fn wait(&mut self, until: Option<Time>) -> Came<A::Message>;
}

/// What comes from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came<M> {
    /// Nothing, and it is time to go on.
    Nothing,
    /// A message has arrived.
    Message {
        /// A peer of another process.
        from: PeerId,
        /// Who shall get it.
        to: PeerId,
        /// As the other process has sent it.
        message: M,
    },
    /// A process has gone, and these peers with it.
    Gone(Vec<PeerId>),
    /// The run is over.
    Stop,
}

/// What can be put on a wire and be read again.
pub trait Wire: Serialize + DeserializeOwned {}

impl<T: Serialize + DeserializeOwned> Wire for T {}

/// Something that happened at a peer, as its process has written it down. Tickets are that process's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record<M, N> {
    /// A client asks.
    Asked {
        /// Whose client it is.
        peer: PeerId,
        /// New with this record; it stands for this client until it leaves or gives up.
        ticket: Ticket,
        /// The resource, by its number in the run.
        resource: usize,
    },
    /// A client is inside.
    Entered {
        /// Whose client it is.
        peer: PeerId,
        /// As it has asked.
        ticket: Ticket,
        /// Where, and under which number.
        grant: Grant,
    },
    /// A client is inside no longer.
    Left {
        /// Whose client it is.
        peer: PeerId,
        /// As it has asked.
        ticket: Ticket,
    },
    /// A client does not wait any more.
    GaveUp {
        /// Whose client it is.
        peer: PeerId,
        /// As it has asked.
        ticket: Ticket,
    },
    /// A peer is about to lose what it keeps for others.
    Reset(PeerId),
    /// The process of a peer was killed, and its clients with it: nobody there has written down what became of them.
    Killed(PeerId),
    /// A peer has crashed. What became of its clients stands in other records.
    Crashed(PeerId),
    /// A message is sent.
    Sent {
        /// The peer that says it.
        from: PeerId,
        /// The peer that is to hear it.
        to: PeerId,
        /// As it goes over the socket.
        message: M,
    },
    /// It is on its way, and will arrive then at the soonest.
    OnWay {
        /// The peer whose message it is, the last that it sent.
        from: PeerId,
        /// When it will be there.
        arrives: Time,
    },
    /// A message has arrived.
    Delivered {
        /// As it was in [`Record::Sent`].
        from: PeerId,
        /// Who gets it.
        to: PeerId,
        /// As it came: under faults perhaps twice.
        message: M,
    },
    /// What only this kind of peer has to tell.
    Noted {
        /// Who tells it.
        peer: PeerId,
        /// What it tells.
        note: N,
    },
    /// A round begins with these peers of the process.
    Round(Vec<PeerId>),
    /// A client did not ask, since its peer waits already.
    Skipped,
    /// The last round is over.
    Drain(Vec<PeerId>),
}

/// What peers of this kind leave behind.
pub type RecordOf<A> = Record<<A as Actor>::Message, <A as Actor>::Note>;

/// A watcher that judges nothing: it writes everything down for somebody who knows what happened elsewhere, too.
#[derive(Debug)]
pub struct Recorder<S> {
    sink: S,
}

impl<S> Recorder<S> {
    /// Everything goes into this sink.
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

/// What a process has counted that stands in no record: clients that lost their grant, messages that were lost, and
/// so on. For [`World::replay`](crate::World::replay).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// By the world, in the order of the names.
    pub(crate) world: Vec<u64>,
    /// By the workload.
    pub(crate) load: Vec<u64>,
}

/// What is done with a setting: it is simulated, or played in several processes, or a run of those is judged. A setting
/// has its own types for everything, so this is a call and not a value.
pub trait Drive {
    /// What comes out.
    type Output;

    /// Does it, with a setting of which there are to be so many trials with this seed.
    fn drive<S>(self, setting: &S, trials: u32, seed: u64) -> Self::Output
    where
        S: Setting<Actor: Actor<Message: Wire, Note: Wire + Clone>>;
}

/// All trials in virtual time, on as many threads as rayon has. The closure is told of every trial that has ended.
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

/// What the processes of one run have left behind.
pub struct Run<A: Actor> {
    /// In the order of time.
    pub records: Vec<(Time, RecordOf<A>)>,
    /// Of each process that lived to tell.
    pub counted: Vec<Counted>,
}

/// Shows runs of real peers to the watchers of a setting, one trial after the other, and puts together what they say.
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
            let _ = again.replay(&run.records); // The same again, for its trace.
            return Err(notified(&again.watch.0, trial, seed, violation));
        }
        sheets.push(world.sheet(setting.resources()));
    }
    Ok(put_together(sheets, setting.bound()))
}
