//! Statistics of the clients' records.

use std::collections::BTreeMap;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub process: usize,
    pub slot: u32,
    /// The fencing number; 0 if there is none.
    pub fencing: u64,
    pub asked: u64,
    /// The time of its departure from the process, if known, else of the request.
    pub sent: u64,
    pub entered: u64,
    pub left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    pub count: usize,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl Times {
    /// Summarizes durations in nanoseconds; all zero if there are none.
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

/// The results of one turn of a case, without warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    pub gaps: Vec<u64>,
    pub gaps_within: usize,
    pub entries: usize,
    /// The waits of all requests of the period, including those granted after it, which have waited longest.
    pub waits: Vec<u64>,
    pub holds: Vec<u64>,
    pub ahead: Vec<Ahead>,
    pub nanos: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// By how much the earliest overtaken request had left its process earlier.
    pub nanos: u64,
    /// The longest hand-over between processes in progress from then until this entry; 0 if there was none. A request
    /// takes the same path as a token.
    pub message: u64,
}

impl Ahead {
    /// Returns whether the other request was earlier by more than two messages: one to the queue, one to the token. A
    /// message takes as long as concurrent ones, and at least as long as a `bare` one.
    pub fn is_out_of_order(self, bare: u64) -> bool {
        self.nanos > 2 * self.message.max(bare)
    }
}

/// Evaluates and checks the period from `start` to `end`.
///
/// # Errors
/// Two clients held one slot at once, or a fencing number did not increase.
pub fn turn(mut entries: Vec<Entry>, start: u64, end: u64) -> Result<Turn, String> {
    let mut turn = Turn { nanos: end - start, ..Turn::default() };
    entries.sort_unstable_by_key(|entry| entry.entered);
    let (mut last, mut handed): (BTreeMap<u32, Entry>, Vec<(u64, u64)>) = <_>::default();
    for &entry in &entries {
        let counts = start <= entry.entered && entry.entered < end;
        if counts {
            turn.entries += 1;
            turn.holds.push(entry.left - entry.entered);
        }
        if start <= entry.asked && entry.asked < end {
            turn.waits.push(entry.entered - entry.asked);
        }
        let Some(before) = last.insert(entry.slot, entry) else { continue };
        if entry.entered < before.left {
            let both = before.left - entry.entered;
            return Err(format!("two clients held slot {} for {both} ns", entry.slot));
        }
        if entry.fencing <= before.fencing && entry.fencing > 0 {
            return Err(format!("fencing number {} of slot {} after {}", entry.fencing, entry.slot, before.fencing));
        }
        let is_handed = before.process != entry.process;
        if is_handed {
            handed.push((before.left, entry.entered));
        }
        match counts && before.entered >= start {
            true if is_handed => turn.gaps.push(entry.entered - before.left),
            true => turn.gaps_within += 1,
            false => {}
        }
    }
    turn.ahead = ahead(&entries, &handed, start, end);
    Ok(turn)
}

/// Returns the entries from `start` to `end` that overtook an earlier request. The arguments are sorted by grant.
fn ahead(entries: &[Entry], handed: &[(u64, u64)], start: u64, end: u64) -> Vec<Ahead> {
    let most = handed.iter().map(|(left, entered)| entered - left).max().unwrap_or(0);
    let (mut earliest, mut ahead) = (u64::MAX, Vec::new());
    for entry in entries.iter().rev() {
        if entry.asked > earliest && start <= entry.entered && entry.entered < end {
            let message = longest(handed, most, earliest, entry.entered);
            ahead.push(Ahead { nanos: entry.asked - earliest, message });
        }
        earliest = earliest.min(entry.sent);
    }
    ahead
}

/// Returns the longest hand-over in progress between two moments; none takes longer than `most`. They are sorted by
/// grant, which with several slots is not the order of release.
fn longest(handed: &[(u64, u64)], most: u64, from: u64, to: u64) -> u64 {
    let first = handed.partition_point(|&(_, entered)| entered < from);
    let until = handed[first..].iter().take_while(|&&(_, entered)| entered < to.saturating_add(most));
    let meanwhile = until.filter(|&&(left, _)| left < to);
    meanwhile.map(|(left, entered)| entered - left).max().unwrap_or(0)
}

pub fn spread(waits: &[u64]) -> (f64, f64) {
    let Some(most) = waits.iter().max() else { return (0.0, 0.0) };
    let mean = waits.iter().sum::<u64>() as f64 / waits.len() as f64;
    ((*most as f64 - mean) / 1e6, mean / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(process: usize, slot: u32, fencing: u64, entered: u64, left: u64) -> Entry {
        let asked = entered.saturating_sub(10);
        Entry { process, slot, fencing, asked, sent: asked, entered, left }
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
    fn gap_is_from_release_to_next_grant_of_the_slot() {
        let entries = vec![
            entry(0, 0, 1, 100, 110),
            entry(1, 0, 4, 125, 130),  // 15 after the first, in another process
            entry(1, 0, 7, 131, 140),  // in the same process
            entry(0, 1, 2, 105, 135),  // another slot
            entry(2, 0, 10, 205, 206), // after the end
        ];
        let turn = turn(entries, 100, 200).unwrap();
        assert_eq!((&turn.gaps[..], turn.gaps_within), (&[15][..], 1));
        assert_eq!((turn.entries, turn.nanos), (4, 100));
        assert_eq!(turn.holds, [10, 30, 5, 9]);
    }

    #[test]
    fn warm_up_is_checked_but_not_counted() {
        let early = vec![entry(0, 0, 1, 10, 20), entry(1, 0, 2, 30, 40), entry(0, 0, 3, 110, 120)];
        assert!(turn(early, 100, 200).unwrap().gaps.is_empty());
    }

    #[test]
    fn wait_counts_if_requested_in_the_period() {
        let entry = |asked, entered| Entry { asked, sent: asked, ..entry(0, 0, 0, entered, entered + 1) };
        // The first request is during warm-up, the last after the period; the third is granted after it.
        let entries = vec![entry(90, 105), entry(110, 120), entry(111, 290), entry(200, 300)];
        let turn = turn(entries, 100, 200).unwrap();
        assert_eq!((turn.entries, &turn.waits[..]), (2, &[10, 179][..]));
    }

    #[test]
    fn overtaking_is_measured() {
        let entry =
            |slot, asked, entered| Entry { slot, asked, sent: asked, ..entry(0, slot, 0, entered, entered + 1) };
        let in_order = vec![entry(0, 10, 100), entry(0, 20, 110), entry(1, 30, 120), entry(0, 31, 130)];
        assert!(turn(in_order, 0, 200).unwrap().ahead.is_empty());
        // The third requests first and is granted last.
        let passed = [entry(0, 50, 100), entry(1, 42, 110), entry(0, 40, 120)];
        let nanos = |start, end| {
            let mut nanos: Vec<u64> =
                turn(passed.to_vec(), start, end).unwrap().ahead.iter().map(|ahead| ahead.nanos).collect();
            nanos.sort_unstable();
            nanos
        };
        assert_eq!(nanos(0, 200), [2, 10]);
        // The overtaken client may be granted after the end.
        assert_eq!(nanos(105, 115), [2]);
        // A request counts from its departure.
        let passed = [passed[0], passed[1], Entry { sent: 45, ..passed[2] }];
        let ahead = turn(passed.to_vec(), 0, 200).unwrap().ahead;
        assert_eq!(ahead.iter().map(|ahead| ahead.nanos).collect::<Vec<_>>(), [8], "only the second was passed");
    }

    #[test]
    fn out_of_order_is_by_more_than_two_messages() {
        let entry =
            |process, asked, entered| Entry { asked, sent: asked, ..entry(process, 0, 0, entered, entered + 1) };
        // The hand-overs take 999, 14, 29 and 4; a client requests at 1040 and is granted last.
        let passed_by = |asked| {
            let entries = [(0, 0, 1), (1, 2, 1001), (0, 3, 1016), (1, asked, 1046), (0, 1040, 1051)];
            let entries = entries.map(|(process, asked, entered)| entry(process, asked, entered));
            turn(entries.to_vec(), 1002, 2000).unwrap().ahead
        };
        assert_eq!(passed_by(1040), []);
        assert_eq!(passed_by(1041), [Ahead { nanos: 1, message: 29 }], "in progress at the time of the other request");
        for (nanos, message, bare, expected) in
            [(58, 29, 0, false), (59, 29, 0, true), (59, 29, 30, false), (61, 0, 30, true), (1, 0, 0, true)]
        {
            assert_eq!(Ahead { nanos, message }.is_out_of_order(bare), expected, "{nanos}, {message}, {bare}");
        }
    }

    #[test]
    fn only_hand_overs_of_that_time_excuse_an_entry() {
        let handed = [(0, 900), (901, 910), (911, 930), (931, 935), (940, 2000)];
        for (from, to, expected) in
            [(901, 931, 19), (900, 931, 900), (931, 940, 4), (931, 941, 1060), (936, 940, 0), (2001, 3000, 0)]
        {
            assert_eq!(longest(&handed, 1060, from, to), expected, "from {from} to {to}");
        }
        // On another slot, with an earlier release and a later grant.
        assert_eq!(longest(&[(905, 910), (800, 950), (960, 970)], 150, 900, 905), 150);
    }

    #[test]
    fn double_grants_and_old_fencing_numbers_are_errors() {
        for (second, error) in [
            (entry(1, 0, 4, 109, 130), "two clients held slot 0 for 1 ns"),
            (entry(1, 0, 1, 111, 130), "fencing number 1 of slot 0 after 1"),
        ] {
            assert_eq!(turn(vec![second, entry(0, 0, 1, 100, 110)], 0, 200), Err(error.to_owned()));
        }
        assert!(
            turn(vec![entry(0, 0, 0, 100, 110), entry(1, 0, 0, 111, 130)], 0, 200).is_ok(),
            "0 is not a fencing number"
        );
    }

    #[test]
    fn spread_is_the_longest_wait_less_the_mean() {
        assert_eq!(spread(&[]), (0.0, 0.0));
        assert_eq!(spread(&[1_000_000, 2_000_000, 6_000_000]), (3.0, 3.0));
    }
}
