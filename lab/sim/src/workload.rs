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

/// Most functions receive the whole world, of which the workload is the field `load`.
pub trait Workload<A: Actor>: Sized {
    type Event;

    type Watch: Watch<A>;

    /// A client that still waits at the end is a violation. Otherwise the run stops at some moment.
    const SERVES_ALL: bool;

    fn start(world: &mut World<'_, A, Self>) -> Result<(), Broken>;

    fn happen(world: &mut World<'_, A, Self>, event: Self::Event) -> Result<(), Broken>;

    /// Schedules the client's release.
    fn on_entered(world: &mut World<'_, A, Self>, client: &Client);

    fn on_over(world: &mut World<'_, A, Self>, client: &Client, over: Over) -> Result<(), Broken>;

    /// Whether no client of this process waits, holds or will request again: worlds in real time never run out of
    /// events.
    fn is_served(_world: &World<'_, A, Self>) -> bool {
        false
    }

    /// A process has restarted with all its peers, which have lost their state.
    fn resume(_world: &mut World<'_, A, Self>) {}

    /// Whether the run ends before `at`, the time of the next event.
    fn is_over(world: &World<'_, A, Self>, at: Time) -> bool;

    fn on_down(_world: &mut World<'_, A, Self>, _peer: PeerId) {}

    fn may_lose(_world: &World<'_, A, Self>, _peer: PeerId) -> bool {
        true
    }

    fn on_losing(_world: &mut World<'_, A, Self>, _peer: PeerId) {}

    /// A random crash has removed a peer for good: it may be replaced.
    fn on_death(_world: &mut World<'_, A, Self>, _peer: PeerId) -> Result<(), Broken> {
        Ok(())
    }

    fn on_restarted(_world: &mut World<'_, A, Self>, _peer: PeerId) -> Result<(), Broken> {
        Ok(())
    }

    fn on_note(_world: &mut World<'_, A, Self>, _peer: PeerId, _note: A::Note) -> Result<(), Broken> {
        Ok(())
    }

    fn fill(&self, _sheet: &mut Sheet) {}

    /// For runs in several processes.
    fn counts(&self) -> Vec<u64> {
        Vec::new()
    }

    fn add_counts(&mut self, _counts: &[u64]) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Left,
    Lost,
    Refused,
    Withdrawn,
    Crashed,
}
