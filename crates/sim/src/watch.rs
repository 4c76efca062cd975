//! Watchers: each looks at every event and says when a rule is broken. A watcher never changes a run.

use peerlock_base::{PeerId, Ticket, Time};
use peerlock_mutex::{Grant, Observe};

use crate::ledger::{Ledger, Request};

mod costs;
mod exclusion;
mod fencing;
mod idle;
mod messages;
mod order;
mod resets;
mod structure;
mod trace;
mod waits;
mod window;

pub use costs::{Cost, Costs};
pub use exclusion::Exclusion;
pub use fencing::Fencing;
pub use idle::Idle;
pub use messages::Messages;
pub use order::Order;
pub use resets::Resets;
pub use structure::{Acyclic, OneCoordinator, Tokens};
pub use trace::Trace;
pub use waits::{Flow, Waits};
pub use window::Window;

/// A rule that was broken, in a sentence.
pub type Broken = String;

/// What a watcher is told. Each call comes before the next event happens.
pub trait Watch<P: Observe> {
    /// A client asks.
    fn on_request(&mut self, _now: Time, _peer: PeerId, _ticket: Ticket) -> Result<(), Broken> {
        Ok(())
    }

    /// A client goes inside; `ledger` no longer has its request.
    fn on_grant(&mut self, _now: Time, _entry: &Entry, _ledger: &Ledger) -> Result<(), Broken> {
        Ok(())
    }

    /// A client leaves, or is inside no longer for some other reason.
    fn on_leave(&mut self, _now: Time, _peer: PeerId, _ticket: Ticket) -> Result<(), Broken> {
        Ok(())
    }

    /// A client that waited does not wait any more: it was sent away, or crashed. `ledger` had its request.
    fn on_give_up(&mut self, _now: Time, _peer: PeerId, _ticket: Ticket) -> Result<(), Broken> {
        Ok(())
    }

    /// A replica is about to lose its memory.
    fn on_reset(&mut self, _now: Time, _replica: PeerId) -> Result<(), Broken> {
        Ok(())
    }

    /// A message is sent.
    fn on_send(&mut self, _now: Time, _from: PeerId, _to: PeerId, _message: &P::Message) -> Result<(), Broken> {
        Ok(())
    }

    /// A message arrives; the peer has not seen it yet. Under faults a message may never arrive, or arrive twice.
    fn on_deliver(&mut self, _now: Time, _from: PeerId, _to: PeerId, _message: &P::Message) -> Result<(), Broken> {
        Ok(())
    }

    /// `peer` has done its step. An open run, where peers come and go, does not tell this.
    fn after_step(&mut self, _now: Time, _peer: PeerId, _peers: &[P]) -> Result<(), Broken> {
        Ok(())
    }

    /// Nothing is left to happen. An open run has no such end.
    fn at_end(&mut self, _now: Time, _ledger: &Ledger) -> Result<(), Broken> {
        Ok(())
    }
}

/// One client going inside.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The peer whose client it is.
    pub peer: PeerId,
    /// Its ticket.
    pub ticket: Ticket,
    /// The request that is served.
    pub request: Request,
    /// Slot and fencing number.
    pub grant: Grant,
}

/// Nobody watches.
impl<P: Observe> Watch<P> for () {}

/// Several watchers are one: each is told in turn.
macro_rules! watch_together {
    ($($name:ident)*) => {
        impl<P: Observe, $($name: Watch<P>),*> Watch<P> for ($($name,)*) {
            fn on_request(&mut self, now: Time, peer: PeerId, ticket: Ticket) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_request(now, peer, ticket)?;)*
                Ok(())
            }
            fn on_grant(&mut self, now: Time, entry: &Entry, ledger: &Ledger) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_grant(now, entry, ledger)?;)*
                Ok(())
            }
            fn on_leave(&mut self, now: Time, peer: PeerId, ticket: Ticket) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_leave(now, peer, ticket)?;)*
                Ok(())
            }
            fn on_give_up(&mut self, now: Time, peer: PeerId, ticket: Ticket) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_give_up(now, peer, ticket)?;)*
                Ok(())
            }
            fn on_reset(&mut self, now: Time, replica: PeerId) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_reset(now, replica)?;)*
                Ok(())
            }
            fn on_send(&mut self, now: Time, from: PeerId, to: PeerId, message: &P::Message) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_send(now, from, to, message)?;)*
                Ok(())
            }
            fn on_deliver(&mut self, now: Time, from: PeerId, to: PeerId, message: &P::Message) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.on_deliver(now, from, to, message)?;)*
                Ok(())
            }
            fn after_step(&mut self, now: Time, peer: PeerId, peers: &[P]) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.after_step(now, peer, peers)?;)*
                Ok(())
            }
            fn at_end(&mut self, now: Time, ledger: &Ledger) -> Result<(), Broken> {
                let ($($name,)*) = self;
                $($name.at_end(now, ledger)?;)*
                Ok(())
            }
        }
    };
}

#[allow(non_snake_case, reason = "the macro names each watcher after its type")]
mod together {
    use super::{Broken, Entry, Ledger, Observe, PeerId, Ticket, Time, Watch};
    watch_together!(A B);
    watch_together!(A B C);
    watch_together!(A B C D);
    watch_together!(A B C D E);
    watch_together!(A B C D E F);
}
