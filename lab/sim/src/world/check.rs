use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use peerlock_types::{PeerId, Ticket, Time};

use crate::ledger::Client;
use crate::watch::Broken;

/// Beyond it messages multiply, as duplicated ones in a routing loop do.
const MOST_FOR_ALL: usize = 1_000_000;
const MOST_FOR_EACH: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub at: Time,
    pub what: Broken,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.at, self.what)
    }
}

/// Converts a panic of a peer into a broken rule, so that it is reported with its trace.
pub(super) fn caught(play: impl FnOnce() -> Result<(), Broken>) -> Result<(), Broken> {
    catch_unwind(AssertUnwindSafe(play)).unwrap_or_else(|panic| Err(in_words(&*panic)))
}

fn in_words(panic: &(dyn Any + Send)) -> Broken {
    let what = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref().map(String::as_str));
    format!("a peer has panicked: {}", what.unwrap_or("no message")).into()
}

#[inline]
pub(super) fn comes_to_an_end(queued: usize, residents: usize) -> Result<(), Broken> {
    if queued <= MOST_FOR_ALL + MOST_FOR_EACH * residents {
        return Ok(());
    }
    Err(format!("{queued} events are queued: messages multiply").into())
}

#[inline]
pub(super) fn has_time(now: Time) -> Result<(), Broken> {
    if now < Time::END {
        return Ok(());
    }
    Err("the clock has run out after 584 years: use shorter times or fewer entries".into())
}

#[inline]
pub(super) fn waits(
    client: Option<Client>,
    peer: PeerId,
    ticket: Ticket,
    does: &'static str,
) -> Result<Client, Broken> {
    let found = client.filter(|client| client.peer == peer);
    found.ok_or_else(|| format!("peer {peer} {does} {ticket:?}, which is not waiting there").into())
}
