//! What the clients' notes come to. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

/// One entry, as its client noted it: nanoseconds on the common clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which process the client is in.
    pub process: usize,
    /// Which slot it got.
    pub slot: u32,
    /// Its fencing number; 0 where there are none.
    pub fencing: u64,
    /// When it asked …
    pub asked: u64,
    /// … got in …
    pub entered: u64,
    /// … and left.
    pub left: u64,
}

/// How long something took, over many times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// How many times.
    pub count: usize,
    /// The median, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile, in microseconds.
    pub p99_us: f64,
    /// The longest, in microseconds.
    pub max_us: f64,
}

impl Times {
    /// Of these many nanoseconds each. All zero if there are none.
    pub fn of(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        let at = |share: f64| match nanos.len() {
            0 => 0.0,
            count => micros(nanos[((count - 1) as f64 * share).round() as usize]),
        };
        Self { count: nanos.len(), p50_us: at(0.5), p99_us: at(0.99), max_us: at(1.0) }
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// What one turn of a case came to: the part of it after warming up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// From leaving to the next entering, where the next was in another process.
    pub gaps: Vec<u64>,
    /// The same where it was in the same process.
    pub gaps_within: usize,
    /// From asking to entering.
    pub waits: Vec<u64>,
    /// From entering to leaving.
    pub holds: Vec<u64>,
    /// Of each entry that passed somebody by: how much earlier than its client the one who had waited longest had
    /// asked, of those who got in after it.
    pub ahead: Vec<u64>,
    /// How long was counted.
    pub nanos: u64,
}

/// Counts what happened from `start` to `end`, and checks all of it.
///
/// # Errors
/// A sentence, if two clients were in one slot at once or a fencing number did not go up.
pub fn turn(mut entries: Vec<Entry>, start: u64, end: u64) -> Result<Turn, String> {
    let mut turn = Turn { nanos: end - start, ..Turn::default() };
    entries.sort_unstable_by_key(|entry| entry.entered);
    turn.ahead = ahead(&entries, start, end);
    let mut last: BTreeMap<u32, Entry> = BTreeMap::new();
    for entry in entries {
        let counts = start <= entry.entered && entry.entered < end;
        if counts {
            turn.waits.push(entry.entered - entry.asked);
            turn.holds.push(entry.left - entry.entered);
        }
        let Some(before) = last.insert(entry.slot, entry) else { continue };
        if entry.entered < before.left {
            let both = before.left - entry.entered;
            return Err(format!("two clients were in slot {} for {both} ns", entry.slot));
        }
        if entry.fencing <= before.fencing && entry.fencing > 0 {
            return Err(format!("fencing number {} of slot {} after {}", entry.fencing, entry.slot, before.fencing));
        }
        match counts && before.entered >= start {
            true if before.process != entry.process => turn.gaps.push(entry.entered - before.left),
            true => turn.gaps_within += 1,
            false => {}
        }
    }
    Ok(turn)
}

/// By how much those who got in from `start` to `end` asked after somebody who was let in later. Whoever asked in the
/// order of entering is not among them. The entries are in the order of entering.
fn ahead(entries: &[Entry], start: u64, end: u64) -> Vec<u64> {
    let (mut earliest, mut ahead) = (u64::MAX, Vec::new());
    for entry in entries.iter().rev() {
        if entry.asked > earliest && start <= entry.entered && entry.entered < end {
            ahead.push(entry.asked - earliest);
        }
        earliest = earliest.min(entry.asked);
    }
    ahead
}

/// By how much the longest wait was longer than the mean, and the mean: milliseconds.
pub fn spread(waits: &[u64]) -> (f64, f64) {
    let Some(most) = waits.iter().max() else { return (0.0, 0.0) };
    let mean = waits.iter().sum::<u64>() as f64 / waits.len() as f64;
    ((*most as f64 - mean) / 1e6, mean / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(process: usize, slot: u32, fencing: u64, entered: u64, left: u64) -> Entry {
        Entry { process, slot, fencing, asked: entered.saturating_sub(10), entered, left }
    }

    #[test]
    fn quantiles_are_of_the_sorted_times() {
        for (nanos, expected) in [
            (vec![], (0, 0.0, 0.0, 0.0)),
            (vec![5_000], (1, 5.0, 5.0, 5.0)),
            ((0..=100).rev().map(|n| n * 1_000).collect(), (101, 50.0, 99.0, 100.0)),
        ] {
            let Times { count, p50_us, p99_us, max_us } = Times::of(nanos);
            assert_eq!((count, p50_us, p99_us, max_us), expected);
        }
    }

    #[test]
    fn a_gap_is_from_leaving_to_the_next_entering_the_same_slot() {
        let entries = vec![
            entry(0, 0, 1, 100, 110),
            entry(1, 0, 4, 125, 130),  // 15 after the first, in another process
            entry(1, 0, 7, 131, 140),  // in the same process
            entry(0, 1, 2, 105, 135),  // another slot
            entry(2, 0, 10, 205, 206), // after the end
        ];
        let turn = turn(entries, 100, 200).unwrap();
        assert_eq!((&turn.gaps[..], turn.gaps_within), (&[15][..], 1));
        assert_eq!((turn.waits.len(), turn.nanos), (4, 100));
        assert_eq!(turn.holds, [10, 30, 5, 9]);
    }

    #[test]
    fn what_happens_while_warming_up_is_checked_and_not_counted() {
        let early = vec![entry(0, 0, 1, 10, 20), entry(1, 0, 2, 30, 40), entry(0, 0, 3, 110, 120)];
        assert!(turn(early, 100, 200).unwrap().gaps.is_empty());
    }

    #[test]
    fn who_passed_somebody_by_and_by_how_much() {
        let entry = |slot, asked, entered| Entry { process: 0, slot, fencing: 0, asked, entered, left: entered + 1 };
        let in_order = vec![entry(0, 10, 100), entry(0, 20, 110), entry(1, 30, 120), entry(0, 31, 130)];
        assert!(turn(in_order, 0, 200).unwrap().ahead.is_empty());
        // The third asked first and got in last: both others passed it by, on whichever slot.
        let passed = [entry(0, 50, 100), entry(1, 42, 110), entry(0, 40, 120)];
        let mut ahead = turn(passed.to_vec(), 0, 200).unwrap().ahead;
        ahead.sort_unstable();
        assert_eq!(ahead, [2, 10]);
        // Only the second of them while it is counted; who was passed by may get in after the end.
        assert_eq!(turn(passed.to_vec(), 105, 115).unwrap().ahead, [2]);
    }

    #[test]
    fn two_at_once_and_numbers_that_go_back_are_errors() {
        for (second, complaint) in [
            (entry(1, 0, 4, 109, 130), "two clients were in slot 0 for 1 ns"),
            (entry(1, 0, 1, 111, 130), "fencing number 1 of slot 0 after 1"),
        ] {
            assert_eq!(turn(vec![second, entry(0, 0, 1, 100, 110)], 0, 200), Err(complaint.to_owned()));
        }
        assert!(turn(vec![entry(0, 0, 0, 100, 110), entry(1, 0, 0, 111, 130)], 0, 200).is_ok(), "0 is no number");
    }

    #[test]
    fn spread_is_the_longest_wait_less_the_mean() {
        assert_eq!(spread(&[]), (0.0, 0.0));
        assert_eq!(spread(&[1_000_000, 2_000_000, 6_000_000]), (3.0, 3.0));
    }
}
