//! Watchers check every event and report broken rules. A watcher never changes a run.

use peerlock_protocols::Grant;
use peerlock_types::{PeerId, Time};

use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
use crate::report::Sheet;

mod costs;
mod exclusion;
mod fencing;
mod generations;
mod memory;
mod passing;
mod per_round;
mod queued;
mod resets;
mod structure;
mod trace;
mod traffic;
mod usage;
mod waits;

pub use costs::{Cost, Costs};
pub use exclusion::Exclusion;
pub use fencing::Fencing;
pub use generations::Generations;
pub use memory::Memory;
pub use passing::{Order, Passing};
pub use per_round::{PerRound, Received, Round};
pub use queued::Queued;
pub use resets::Resets;
pub use structure::Structure;
pub use trace::Trace;
pub use traffic::{Burden, Messages, Window};
pub use usage::{Idle, Recovery, Standstill};
pub use waits::{Flow, Waits};

/// One word on the stack, since every step returns it.
pub type Broken = Box<str>;

pub enum Event<'a, A: Actor> {
    Request(&'a Client),
    // The request is already removed from the ledger.
    Grant(&'a Client, Grant, &'a Ledger),
    // By release or loss.
    Leave(&'a Client),
    // By withdrawal, refusal or crash.
    GiveUp(&'a Client),
    // The peer is about to lose its memory.
    Reset(PeerId),
    // Its clients have left or given up just before.
    Crash(PeerId),
    Send { from: PeerId, to: PeerId, message: &'a A::Message },
    // Of the message sent last, unless it is lost.
    OnWay { from: PeerId, arrives: Time },
    // Before the peer handles the message, which under faults may arrive twice.
    Deliver { from: PeerId, to: PeerId, message: &'a A::Message },
    Note(PeerId, &'a A::Note),
    Mark(Mark<'a>, &'a Ledger),
    Step(PeerId, &'a A),
    // No event is left. Not for a run that stops at a given moment.
    End(&'a Ledger),
}

impl<A: Actor> Clone for Event<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Actor> Copy for Event<'_, A> {}

#[derive(Clone, Copy, Debug)]
pub enum Mark<'a> {
    /// These peers take part.
    Round(&'a [PeerId]),
    /// Another client of the peer holds the resource or waits for it.
    Skipped,
    /// No fault has occurred for a while, and none will.
    Quiet,
    /// The last round is over, and all holders leave.
    Drain(&'a [PeerId]),
}

/// Checks or counts events. `on` is inlined where the kind of event is known, so that ignored events cost nothing.
pub trait Watch<A: Actor> {
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken>;

    fn fill(&mut self, _sheet: &mut Sheet) {}
}

impl<A: Actor, W: Watch<A>> Watch<A> for Option<W> {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match self {
            Some(watcher) => watcher.on(now, event),
            None => Ok(()),
        }
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        self.iter_mut().for_each(|watcher| watcher.fill(sheet));
    }
}

macro_rules! watch_together {
    ($($name:ident $at:tt)*) => {
        impl<A: Actor, $($name: Watch<A>),*> Watch<A> for ($($name,)*) {
            #[inline(always)]
            fn on(&mut self, _now: Time, _event: Event<'_, A>) -> Result<(), Broken> {
                $(self.$at.on(_now, _event)?;)*
                Ok(())
            }

            fn fill(&mut self, _sheet: &mut Sheet) {
                $(self.$at.fill(_sheet);)*
            }
        }
    };
}

watch_together!();
watch_together!(B 0);
watch_together!(B 0 C 1 D 2 E 3 F 4);
watch_together!(B 0 C 1 D 2 E 3 F 4 G 5 H 6 I 7);
watch_together!(B 0 C 1 D 2 E 3 F 4 G 5 H 6 I 7 J 8 K 9 L 10);

/// An observer sees each event first, except steps. It is outside the hot path.
pub(crate) struct Watchers<'a, A: Actor, W> {
    pub observer: Option<&'a mut (dyn Watch<A> + 'a)>,
    /// `None` in one of several processes, which has only some of the peers: the records of all are replayed.
    pub rules: Option<W>,
}

impl<A: Actor, W: Watch<A>> Watchers<'_, A, W> {
    #[inline(always)]
    pub fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        if self.observer.is_some() {
            self.observe(now, event)?;
        }
        self.judge(now, event)
    }

    #[inline(always)]
    pub fn judge(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match &mut self.rules {
            Some(rules) => rules.on(now, event),
            None => Ok(()),
        }
    }

    #[cold]
    fn observe(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match &mut self.observer {
            Some(observer) => observer.on(now, event),
            None => Ok(()),
        }
    }
}
