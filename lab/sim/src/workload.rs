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

/// The workload of a world. Most functions receive the whole world, of which the workload is the field `load`.
pub trait Workload<A: Actor>: Sized {
    type Event;

    /// The watchers of its worlds.
    type Watch: Watch<A>;

    /// Whether every client is to be served: a client that still waits at the end is a violation. Otherwise the run
    /// stops at some moment.
    const SERVES_ALL: bool;

    fn start(world: &mut World<'_, A, Self>) -> Result<(), Broken>;

    fn happen(world: &mut World<'_, A, Self>, event: Self::Event) -> Result<(), Broken>;

    /// Called when a client has acquired a slot: schedules its release.
    fn on_entered(world: &mut World<'_, A, Self>, client: &Client);

    /// Called when a client neither waits nor holds any more.
    fn on_over(world: &mut World<'_, A, Self>, client: &Client, over: Over) -> Result<(), Broken>;

    /// Whether no client of this process waits, holds or will request again: worlds in real time never run out of
    /// events.
    fn is_served(_world: &World<'_, A, Self>) -> bool {
        false
    }

    /// Called when a process has restarted with all its peers, which have lost their state.
    fn resume(_world: &mut World<'_, A, Self>) {}

    /// Whether the run ends before `at`, the time of the next event.
    fn is_over(world: &World<'_, A, Self>, at: Time) -> bool;

    /// Called when a peer has crashed, for good or to restart.
    fn on_down(_world: &mut World<'_, A, Self>, _peer: PeerId) {}

    /// Whether a peer or its disk may be lost for good.
    fn may_lose(_world: &World<'_, A, Self>, _peer: PeerId) -> bool {
        true
    }

    /// Called before a peer or its disk is lost for good.
    fn on_losing(_world: &mut World<'_, A, Self>, _peer: PeerId) {}

    /// Called when a random crash has removed a peer for good: it may be replaced.
    fn on_death(_world: &mut World<'_, A, Self>, _peer: PeerId) -> Result<(), Broken> {
        Ok(())
    }

    /// Called when a crashed peer has restarted from its disk.
    fn on_restarted(_world: &mut World<'_, A, Self>, _peer: PeerId) -> Result<(), Broken> {
        Ok(())
    }

    fn on_note(_world: &mut World<'_, A, Self>, _peer: PeerId, _note: A::Note) -> Result<(), Broken> {
        Ok(())
    }

    fn fill(&self, _sheet: &mut Sheet) {}

    /// Returns the counts of this process, for runs in several processes.
    fn counts(&self) -> Vec<u64> {
        Vec::new()
    }

    fn add_counts(&mut self, _counts: &[u64]) {}
}

/// Why a client neither waits nor holds any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Left,
    Lost,
    Refused,
    Withdrawn,
    /// It crashed with its peer.
    Crashed,
}
