//! Who asks when, and stays how long.

mod closed;
mod hold;
mod poisson;
mod rounds;
mod visits;

use peerlock_types::{PeerId, Time};

pub use closed::{Closed, ClosedLoop};
pub use hold::{Hold, HoldError};
pub use poisson::{OpenWorkload, Poisson};
pub use rounds::{InRounds, Load};
pub use visits::{InVisits, Visits};

use crate::actor::Actor;
use crate::ledger::Client;
use crate::report::Sheet;
use crate::watch::{Broken, Watch};
use crate::world::World;

/// What is to happen in a world. All functions but the last have the whole world, of which the workload is the field
/// `load`.
pub trait Workload<A: Actor>: Sized {
    /// What it puts in line for later.
    type Event;

    /// Whether everybody is to be served: who still waits at the end was forgotten. Else the run just stops at some
    /// moment.
    const SERVES_ALL: bool;

    /// Before anything happens.
    fn start<W: Watch<A>>(world: &mut World<'_, A, Self, W>) -> Result<(), Broken>;

    /// One of its events is due.
    fn happen<W: Watch<A>>(world: &mut World<'_, A, Self, W>, event: Self::Event) -> Result<(), Broken>;

    /// A client has come inside: when does it leave?
    fn on_entered<W: Watch<A>>(world: &mut World<'_, A, Self, W>, client: &Client);

    /// A client neither waits nor is inside any more.
    fn on_over<W: Watch<A>>(world: &mut World<'_, A, Self, W>, client: &Client, over: Over) -> Result<(), Broken>;

    /// Whether nobody who lives here will ask any more, and nobody waits or is inside: of a world that is played in
    /// real time, which never runs out of events. By default that is never known.
    fn is_served<W: Watch<A>>(_world: &World<'_, A, Self, W>) -> bool {
        false
    }

    /// A process is back with all its peers, which know nothing any more. What is to come for them is put in line.
    fn resume<W: Watch<A>>(_world: &mut World<'_, A, Self, W>) {}

    /// Whether the run is over before this moment comes, for which something is in line.
    fn is_over<W: Watch<A>>(world: &World<'_, A, Self, W>, at: Time) -> bool;

    /// A peer has crashed, for good or to restart.
    fn on_down<W: Watch<A>>(_world: &mut World<'_, A, Self, W>, _peer: PeerId) {}

    /// Whether a peer may be lost for good, or its disk.
    fn may_lose<W: Watch<A>>(_world: &World<'_, A, Self, W>, _peer: PeerId) -> bool {
        true
    }

    /// A peer, or its disk, is about to be lost for good.
    fn on_losing<W: Watch<A>>(_world: &mut World<'_, A, Self, W>, _peer: PeerId) {}

    /// A peer has crashed for good, by chance: another may come in its place.
    fn on_death<W: Watch<A>>(_world: &mut World<'_, A, Self, W>, _peer: PeerId) -> Result<(), Broken> {
        Ok(())
    }

    /// A peer that had crashed is there again, with what its disk has kept.
    fn on_restarted<W: Watch<A>>(_world: &mut World<'_, A, Self, W>, _peer: PeerId) -> Result<(), Broken> {
        Ok(())
    }

    /// A peer tells something that only its kind of peer has to tell.
    fn on_note<W: Watch<A>>(_world: &mut World<'_, A, Self, W>, _peer: PeerId, _note: A::Note) -> Result<(), Broken> {
        Ok(())
    }

    /// The run is over: what the workload has counted.
    fn fill(&self, _sheet: &mut Sheet) {}

    /// What it has counted in this process, where a run is played in several.
    fn counts(&self) -> Vec<u64> {
        Vec::new()
    }

    /// What it has counted in one of the processes.
    fn add_counts(&mut self, _counts: &[u64]) {}
}

/// Why a client neither waits nor is inside any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// It has been inside, and left.
    Left,
    /// It lost its grant while it was inside.
    Lost,
    /// It was sent away.
    Refused,
    /// It did not want to wait any longer.
    Withdrawn,
    /// It crashed with its peer.
    Crashed,
}
