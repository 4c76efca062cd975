//! What the world itself checks, beside its watchers: that a run can come to an end, that a peer speaks only of clients
//! that it has, and that no peer finds its own state broken.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use peerlock_types::{PeerId, Ticket, Time};

use crate::ledger::Client;
use crate::watch::Broken;

/// No more events than these are in line in any run that will come to an end: else messages breed, as those do that go
/// round in circles and come twice.
const MOST_FOR_ALL: usize = 1_000_000;
const MOST_FOR_EACH: usize = 100;

/// A rule was broken: which, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The simulated time at which it was noticed.
    pub at: Time,
    /// Which rule, in a sentence.
    pub what: Broken,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.at, self.what)
    }
}

/// Plays a run. A peer that finds its own state broken panics: that is a broken rule like any other, to be told with
/// its trace.
pub(super) fn caught(play: impl FnOnce() -> Result<(), Broken>) -> Result<(), Broken> {
    catch_unwind(AssertUnwindSafe(play)).unwrap_or_else(|panic| Err(in_words(&*panic)))
}

/// What a panic says.
fn in_words(panic: &(dyn Any + Send)) -> Broken {
    let what = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref().map(String::as_str));
    format!("a peer has panicked: {}", what.unwrap_or("it does not say why")).into()
}

/// How many events may be in line among this many residents.
pub(super) fn most_queued(residents: usize) -> usize {
    MOST_FOR_ALL + MOST_FOR_EACH * residents
}

/// Messages do not breed.
#[inline]
pub(super) fn comes_to_an_end(queued: usize, most: usize) -> Result<(), Broken> {
    if queued <= most {
        return Ok(());
    }
    Err(format!("{queued} events are in line, and there will be more and more").into())
}

/// The clock goes on.
#[inline]
pub(super) fn has_time(now: Time) -> Result<(), Broken> {
    if now < Time::END {
        return Ok(());
    }
    Err("the clock has run out: 584 years are all there is; use shorter times or fewer entries".into())
}

/// A client whom a peer lets in, or sends away (`does`), waits there.
#[inline]
pub(super) fn waits(
    client: Option<Client>,
    peer: PeerId,
    ticket: Ticket,
    does: &'static str,
) -> Result<Client, Broken> {
    let found = client.filter(|client| client.peer == peer);
    found.ok_or_else(|| format!("peer {peer} {does} {ticket:?}, who is not waiting there").into())
}

/// A client to whom a peer says that it is inside no longer was inside: but one that was told its end (`reports_ends`)
/// may have left by itself.
pub(super) fn was_inside(
    client: Option<Client>,
    peer: PeerId,
    ticket: Ticket,
    reports_ends: bool,
) -> Result<Option<Client>, Broken> {
    let found = client.filter(|client| client.peer == peer);
    if found.is_none() && !reports_ends {
        return Err(format!("peer {peer} tells {ticket:?} that it is inside no longer, which it was not").into());
    }
    Ok(found)
}
