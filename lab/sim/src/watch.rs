//! Watchers, which check every event and report broken rules. A watcher never changes a run.

use peerlock_protocols::Grant;
use peerlock_types::{PeerId, Time};

use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
use crate::report::Sheet;

mod burden;
mod costs;
mod exclusion;
mod fencing;
mod generations;
mod idle;
mod memory;
mod messages;
mod order;
mod passing;
mod per_round;
mod queued;
mod recovery;
mod resets;
mod standstill;
mod structure;
mod trace;
mod waits;
mod window;

pub use burden::Burden;
pub use costs::{Cost, Costs};
pub use exclusion::Exclusion;
pub use fencing::Fencing;
pub use generations::Generations;
pub use idle::Idle;
pub use memory::Memory;
pub use messages::Messages;
pub use order::Order;
pub use passing::Passing;
pub use per_round::{PerRound, Received, Round};
pub use queued::Queued;
pub use recovery::Recovery;
pub use resets::Resets;
pub use standstill::Standstill;
pub use structure::Structure;
pub use trace::Trace;
pub use waits::{Flow, Waits};
pub use window::Window;

/// A broken rule, as a message. One word on the stack, since every step returns it.
pub type Broken = Box<str>;

/// The events that a watcher sees. Each call comes before the next event.
pub trait Watch<A: Actor> {
    fn on_request(&mut self, _now: Time, _client: &Client) -> Result<(), Broken> {
        Ok(())
    }

    /// A client acquires a slot; its request is already removed from `ledger`.
    fn on_grant(&mut self, _now: Time, _client: &Client, _grant: Grant, _ledger: &Ledger) -> Result<(), Broken> {
        Ok(())
    }

    /// A client releases its slot, or loses it for another reason.
    fn on_leave(&mut self, _now: Time, _client: &Client) -> Result<(), Broken> {
        Ok(())
    }

    /// A waiting client stops waiting: it withdrew, was refused, or crashed.
    fn on_give_up(&mut self, _now: Time, _client: &Client) -> Result<(), Broken> {
        Ok(())
    }

    /// A peer is about to lose its memory.
    fn on_reset(&mut self, _now: Time, _peer: PeerId) -> Result<(), Broken> {
        Ok(())
    }

    /// A peer has crashed. Its clients have left or given up just before.
    fn on_crash(&mut self, _now: Time, _peer: PeerId) -> Result<(), Broken> {
        Ok(())
    }

    fn on_send(&mut self, _now: Time, _from: PeerId, _to: PeerId, _message: &A::Message) -> Result<(), Broken> {
        Ok(())
    }

    /// The message sent last will arrive at `arrives`. Not called for a lost one.
    fn on_way(&mut self, _now: Time, _from: PeerId, _arrives: Time) {}

    /// A message arrives, before the peer handles it. Under faults it may never arrive, or arrive twice.
    fn on_deliver(&mut self, _now: Time, _from: PeerId, _to: PeerId, _message: &A::Message) -> Result<(), Broken> {
        Ok(())
    }

    fn on_note(&mut self, _now: Time, _peer: PeerId, _note: &A::Note) -> Result<(), Broken> {
        Ok(())
    }

    /// The workload has reached a point that matters for the counts.
    fn on_mark(&mut self, _now: Time, _mark: Mark<'_>, _ledger: &Ledger) -> Result<(), Broken> {
        Ok(())
    }

    fn after_step(&mut self, _now: Time, _peer: PeerId, _actor: &A) -> Result<(), Broken> {
        Ok(())
    }

    /// No event is left. Not called for a run that stops at a given moment.
    fn at_end(&mut self, _now: Time, _ledger: &Ledger) -> Result<(), Broken> {
        Ok(())
    }

    /// Writes the watcher's counts at the end of the run.
    fn fill(&mut self, _sheet: &mut Sheet) {}
}

/// A point in a run that matters for the counts.
#[derive(Clone, Copy, Debug)]
pub enum Mark<'a> {
    /// A round begins and the previous one ends. These peers take part.
    Round(&'a [PeerId]),
    /// A client did not request, since another client of its peer holds the resource or waits for it.
    Skipped,
    /// No fault has occurred for a while, and none will.
    Quiet,
    /// The last round is over, and all holders leave. These peers took part.
    Drain(&'a [PeerId]),
}

pub type Always = (Exclusion,);

pub fn always(resources: usize, slots: u32, counts: bool) -> Always {
    (Exclusion::new(resources, slots, counts),)
}

pub fn always_seeing_instants(resources: usize, slots: u32, counts: bool) -> Always {
    (Exclusion::new(resources, slots, counts).seeing_instants(),)
}

impl<A: Actor> Watch<A> for () {}

/// Makes a tuple of watchers one watcher, which calls each in turn.
macro_rules! watch_together {
    ($($name:ident)*) => {
        impl<A: Actor, $($name: Watch<A>),*> Watch<A> for ($($name,)*) {
            fn on_request(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_request(now, client)?;)*
                Ok(())
            }
            fn on_grant(&mut self, now: Time, client: &Client, grant: Grant, ledger: &Ledger) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_grant(now, client, grant, ledger)?;)*
                Ok(())
            }
            fn on_leave(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_leave(now, client)?;)*
                Ok(())
            }
            fn on_give_up(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_give_up(now, client)?;)*
                Ok(())
            }
            fn on_reset(&mut self, now: Time, peer: PeerId) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_reset(now, peer)?;)*
                Ok(())
            }
            fn on_crash(&mut self, now: Time, peer: PeerId) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_crash(now, peer)?;)*
                Ok(())
            }
            #[inline]
            fn on_send(&mut self, now: Time, from: PeerId, to: PeerId, message: &A::Message) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_send(now, from, to, message)?;)*
                Ok(())
            }
            #[inline]
            fn on_way(&mut self, now: Time, from: PeerId, arrives: Time) {
                let ($($name,)*) = self;
                $($name.on_way(now, from, arrives);)*
            }
            #[inline]
            fn on_deliver(&mut self, now: Time, from: PeerId, to: PeerId, message: &A::Message) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_deliver(now, from, to, message)?;)*
                Ok(())
            }
            fn on_note(&mut self, now: Time, peer: PeerId, note: &A::Note) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_note(now, peer, note)?;)*
                Ok(())
            }
            fn on_mark(&mut self, now: Time, mark: Mark<'_>, ledger: &Ledger) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_mark(now, mark, ledger)?;)*
                Ok(())
            }
            #[inline(always)]
            fn after_step(&mut self, now: Time, peer: PeerId, actor: &A) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.after_step(now, peer, actor)?;)*
                Ok(())
            }
            fn at_end(&mut self, now: Time, ledger: &Ledger) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.at_end(now, ledger)?;)*
                Ok(())
            }
            fn fill(&mut self, sheet: &mut Sheet) {
                let ($($name,)*) = self;
                $($name.fill(sheet);)*
            }
        }
    };
}

#[allow(non_snake_case, reason = "the macro names each watcher after its type")]
mod together {
    use super::{Actor, Broken, Client, Grant, Ledger, Mark, PeerId, Sheet, Time, Watch};
    watch_together!(B);
    watch_together!(B C);
    watch_together!(B C D);
    watch_together!(B C D E);
    watch_together!(B C D E F);
    watch_together!(B C D E F G);
}
