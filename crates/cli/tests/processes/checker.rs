//! What the log of all clients must look like, whatever happened to them.
//!
//! ```text
//! enter TIME CLIENT FENCING SLOT UNTIL    inside from TIME on, and sure of it until UNTIL
//! leave TIME CLIENT FENCING SLOT          goes out, and then gives the slot back
//! lost TIME CLIENT FENCING SLOT           was told, when it gave it back, that it had lost it before
//! killed TIME CLIENT                      written by whoever is about to kill it
//! error TIME CLIENT WHAT                  gives up
//! ```
//!
//! Times are nanoseconds of one clock that all of them read. A client reads it after it was let in and before it
//! gives the slot back, so the stay that it claims lies within the stay that it had.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stay {
    client: u64,
    fencing: u64,
    slot: u32,
    from: u64,
    /// When it was over: it left, its lease ended, or it was killed. Nobody has said so if it goes on for ever.
    to: u64,
    /// When its lease ended if it did nothing about it.
    lease: u64,
}

/// What the clients did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How often each was inside.
    pub entries: BTreeMap<u64, usize>,
    /// Who had lost it before giving it back, each time.
    pub lost: Vec<u64>,
    /// Who gave up, and why.
    pub errors: Vec<(u64, String)>,
}

impl Summary {
    pub fn all(&self) -> usize {
        self.entries.values().sum()
    }

    /// How often this client was inside.
    pub fn of(&self, client: u64) -> usize {
        self.entries.get(&client).copied().unwrap_or_default()
    }
}

/// What the clients have done so far, right or wrong: a client that has been frozen has not said yet that it lost a
/// slot.
pub fn tally(log: &str) -> Result<Summary, String> {
    stays(log).map(|(_, summary)| summary)
}

/// What the clients did, if it was right. At most `slots` inside at any time, one in each slot; fencing numbers that
/// rise with every entry into a slot, and none of them twice.
pub fn check(log: &str, slots: usize) -> Result<Summary, String> {
    let (mut stays, summary) = stays(log)?;
    stays.sort_by_key(|stay| (stay.from, stay.fencing));
    let (mut seen, mut last) = (BTreeSet::new(), BTreeMap::<u32, Stay>::new());
    for stay in &stays {
        if !seen.insert(stay.fencing) {
            return Err(format!("the number {} was given twice", stay.fencing));
        }
        if let Some(before) = last.insert(stay.slot, *stay) {
            if before.fencing >= stay.fencing {
                return Err(format!("a number goes back: {before:?} and then {stay:?}"));
            }
            if before.to > stay.from {
                return Err(format!("two in one slot: {before:?} and {stay:?}"));
            }
        }
    }
    at_most(slots, &stays)?;
    Ok(summary)
}

fn at_most(slots: usize, stays: &[Stay]) -> Result<(), String> {
    // Who leaves at the very moment when another enters is not inside any more.
    let mut changes: Vec<(u64, i32, usize)> = Vec::new();
    for (index, stay) in stays.iter().enumerate().filter(|(_, stay)| stay.from < stay.to) {
        changes.push((stay.from, 1, index));
        changes.push((stay.to, -1, index));
    }
    changes.sort_unstable();
    let mut inside = BTreeSet::new();
    for (_, change, index) in changes {
        if change < 0 {
            inside.remove(&index);
            continue;
        }
        inside.insert(index);
        if inside.len() > slots {
            let who: Vec<_> = inside.iter().map(|index| stays[*index]).collect();
            return Err(format!("{} inside at once: {who:?}", inside.len()));
        }
    }
    Ok(())
}

fn stays(log: &str) -> Result<(Vec<Stay>, Summary), String> {
    let mut summary = Summary::default();
    let mut stays: Vec<Stay> = Vec::new();
    // Where a client's last stay is in the list.
    let mut last: BTreeMap<u64, usize> = BTreeMap::new();
    let mut killed = BTreeMap::new();
    for (number, line) in log.lines().enumerate() {
        let wrong = || format!("line {}: {line:?}", number + 1);
        let words: Vec<&str> = line.split(' ').collect();
        let value = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok()).ok_or_else(wrong);
        let (time, client) = (value(1)?, value(2)?);
        // The stay that a later line is about.
        let its = |fencing: u64| {
            last.get(&client).copied().filter(|index| stays[*index].fencing == fencing).ok_or_else(wrong)
        };
        match words[0] {
            "enter" => {
                let slot = u32::try_from(value(4)?).map_err(|_| wrong())?;
                last.insert(client, stays.len());
                *summary.entries.entry(client).or_default() += 1;
                stays.push(Stay { client, fencing: value(3)?, slot, from: time, to: u64::MAX, lease: value(5)? });
            }
            "leave" => {
                let index = its(value(3)?)?;
                stays[index].to = time;
            }
            "lost" => {
                let index = its(value(3)?)?;
                let stay = &mut stays[index];
                stay.to = stay.to.min(stay.lease);
                summary.lost.push(client);
            }
            "killed" => drop(killed.insert(client, time)),
            "error" => summary.errors.push((client, words[3..].join(" "))),
            _ => return Err(wrong()),
        }
    }
    for stay in stays.iter_mut().filter(|stay| stay.to == u64::MAX) {
        if let Some(time) = killed.get(&stay.client) {
            // It may have gone in after that was written, for as long as it took to kill it.
            stay.to = stay.from.max(*time);
        }
    }
    Ok((stays, summary))
}

/// The checker bites, or it is worth nothing.
mod tests {
    use super::*;

    const GOOD: &str = "enter 10 1 5 0 99\nenter 11 2 6 1 99\nleave 20 1 5 0\nenter 20 3 7 0 99\nleave 30 2 6 1\n";

    #[test]
    fn a_good_log_is_good() {
        let summary = check(GOOD, 2).unwrap();
        assert_eq!((summary.all(), summary.of(1), summary.of(9), summary.lost), (3, 1, 0, vec![]));
        assert_eq!(check("", 1), Ok(Summary::default()));
        let errors = check("error 5 2 it has stalled\n", 1).unwrap().errors;
        assert_eq!(errors, [(2, "it has stalled".to_owned())]);
    }

    #[test]
    fn what_must_not_be_is_found() {
        for (what, more, found) in [
            ("a fourth in a slot of its own", "enter 21 4 8 2 99\n", "3 inside at once"),
            ("somebody else in a slot", "enter 21 4 8 0 99\n", "two in one slot"),
            ("a number that was given before, in another slot", "enter 31 4 7 1 99\n", "given twice"),
            ("a number that goes back", "enter 31 4 4 1 99\n", "goes back"),
            ("half a line", "enter 31 4", "line 6"),
            ("something else", "hello 1 2\n", "line 6"),
            ("out without having been in", "leave 31 4 9 1\n", "line 6"),
            ("out of another stay", "leave 31 3 9 0\n", "line 6"),
        ] {
            let error = check(&format!("{GOOD}{more}"), 2).unwrap_err();
            assert!(error.contains(found), "{what}: {error}");
        }
    }

    /// Lines come as they were written, which is not quite the order of their times.
    #[test]
    fn the_order_of_lines_does_not_matter_but_that_of_times_does() {
        let late = "enter 10 1 5 0 99\nenter 21 2 6 0 99\nleave 20 1 5 0\n";
        assert!(check(late, 1).is_ok());
        let over = "enter 10 1 5 0 99\nenter 19 2 6 0 99\nleave 20 1 5 0\n";
        assert!(check(over, 1).is_err());
    }

    #[test]
    fn a_stay_ends_with_its_lease_or_its_client_but_not_earlier() {
        for (end, next, good) in [
            // Frozen until 500, and its lease ended at 99.
            ("leave 500 1 5 0\nlost 501 1 5 0\n", 99, true),
            ("leave 500 1 5 0\nlost 501 1 5 0\n", 98, false),
            // It gave it back in time: the lease's end does not matter.
            ("leave 500 1 5 0\n", 99, false),
            ("leave 50 1 5 0\nlost 51 1 5 0\n", 50, true),
            ("killed 40 1\n", 40, true),
            ("killed 40 1\n", 39, false),
            ("killed 5 1\n", 10, true),
            ("killed 40 1\nleave 50 1 5 0\n", 49, false),
            // Nothing was heard of it: it may be inside for ever.
            ("", 1_000_000, false),
        ] {
            let log = format!("enter 10 1 5 0 99\n{end}enter {next} 2 6 0 99999999\n");
            assert_eq!(check(&log, 1).is_ok(), good, "{log}");
        }
    }
}
