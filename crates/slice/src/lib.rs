//! A short time slice for the thread that others wait for.
//!
//! Of all who want a core and had no more than their share of it, Linux takes the one whose slice would be over first
//! (EEVDF, since 6.6), and who gives way is put back by a slice. The usual one is 1.4 to 3 ms, and whether it is over
//! is looked at with the tick only: so a peer that gives way, or wakes up beside a process that computes, may wait for
//! a tick of 4 ms, which is 200 hand-overs. With a slice of a third of a millisecond it is next. It gets no more of the
//! core than before, only sooner, which is what others wait for.
//!
//! Since Linux 6.12 every thread may choose its own slice, without privileges. Older ones take the wish and do nothing.

use std::io;
use std::mem::size_of;
use std::time::Duration;

use libc::{SCHED_FLAG_RESET_ON_FORK, SCHED_OTHER, SYS_sched_getattr, SYS_sched_setattr, c_uint, sched_attr};

/// What is asked for. Our choice: with 0.1 ms, the shortest that Linux gives, a hand-over takes a tenth longer where
/// many processes of ours share few cores and nobody else wants them; with 0.3 ms it takes no longer there.
pub const SHORT: Duration = Duration::from_micros(300);

/// The calling thread wants a [`SHORT`] slice from now on. Nothing that it starts does, neither threads nor processes.
/// Whoever was given a policy or a higher priority (a nice value below 0) on purpose keeps what it has; the latter also
/// since what it starts would lose that priority.
///
/// # Errors
/// If the kernel does not answer, or refuses. Nothing was changed.
pub fn shorten() -> io::Result<()> {
    let attributes = get()?;
    if attributes.sched_policy == SCHED_OTHER as u32 && attributes.sched_nice >= 0 {
        let sched_flags = attributes.sched_flags | SCHED_FLAG_RESET_ON_FORK as u64;
        set(&sched_attr { sched_flags, sched_runtime: SHORT.as_nanos() as u64, ..attributes })?;
    }
    Ok(())
}

/// How the kernel schedules the calling thread.
#[allow(unsafe_code, reason = "the kernel fills in what it is given the size of")]
fn get() -> io::Result<sched_attr> {
    let mut attributes = sched_attr {
        size: size_of::<sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the pointer is to a whole `sched_attr` that is ours alone, of which the kernel writes no more than the
    // size it is told. 0 is the calling thread, and there are no flags.
    let done = unsafe { libc::syscall(SYS_sched_getattr, 0, &raw mut attributes, attributes.size, 0 as c_uint) };
    if done == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel schedule the calling thread so.
#[allow(unsafe_code, reason = "the kernel only reads what it is given, and that has its size in it")]
fn set(attributes: &sched_attr) -> io::Result<()> {
    let attributes = sched_attr { size: size_of::<sched_attr>() as u32, ..*attributes };
    // SAFETY: the pointer is to a whole `sched_attr`, which the kernel reads and does not keep. 0 is the calling
    // thread, and there are no flags.
    let done = unsafe { libc::syscall(SYS_sched_setattr, 0, &raw const attributes, 0 as c_uint) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The slice of the calling thread, if its kernel lets threads choose one.
    fn current() -> io::Result<Option<Duration>> {
        let nanos = get()?.sched_runtime;
        Ok((nanos > 0).then(|| Duration::from_nanos(nanos)))
    }

    /// In a thread of its own, so that no other test has a short slice.
    fn apart<R: Send + 'static>(test: impl FnOnce() -> R + Send + 'static) -> R {
        thread::spawn(test).join().expect("the test itself fails in this thread")
    }

    #[test]
    fn the_slice_is_short_and_nobody_inherits_it() {
        apart(|| {
            let usual = current().unwrap();
            shorten().unwrap();
            let Some(usual) = usual else {
                println!("not tried: the kernel of this machine is older than 6.12, and has one slice for all");
                return;
            };
            assert_eq!(current().unwrap(), Some(SHORT));
            assert!(usual > SHORT, "{usual:?}");
            assert_eq!(apart(|| current().unwrap()), Some(usual), "a thread that it starts");
            shorten().unwrap();
            assert_eq!(current().unwrap(), Some(SHORT), "asking again changes nothing");
        });
    }

    #[test]
    fn nice_values_stay_as_they_are() {
        apart(|| {
            let before = get().unwrap();
            set(&sched_attr { sched_nice: before.sched_nice + 1, ..before }).unwrap();
            shorten().unwrap();
            let after = get().unwrap();
            assert_eq!((after.sched_nice, after.sched_policy), (before.sched_nice + 1, before.sched_policy));
        });
    }

    #[test]
    fn who_was_put_above_others_keeps_what_it_has() {
        apart(|| {
            let before = get().unwrap();
            if set(&sched_attr { sched_nice: -1, ..before }).is_err() {
                println!("not tried: only root may put itself above others");
                return;
            }
            shorten().unwrap();
            let after = get().unwrap();
            assert_eq!((after.sched_nice, after.sched_runtime), (-1, before.sched_runtime));
            assert_eq!(apart(|| get().unwrap().sched_nice), -1, "and so does what it starts");
        });
    }
}
