//! What the log of all clients must look like, whatever happened to them.
//!
//! ```text
//! ask TIME CLIENT                         is about to ask
//! waits TIME CLIENT AHEAD                 has heard its place in line, for the first time since it asked
//! enter TIME CLIENT FENCING SLOT UNTIL    inside from TIME on, and sure of it until UNTIL
//! renewed TIME CLIENT FENCING SLOT UNTIL  is sure of it for longer
//! leave TIME CLIENT FENCING SLOT          goes out, and then gives the slot back
//! lost TIME CLIENT FENCING SLOT           was told, when it gave it back, that it had lost it before
//! killed TIME CLIENT                      written by whoever is about to kill it
//! failed TIME CLIENT WHAT                 was sent away, or could not give the slot back; goes on asking
//! error TIME CLIENT WHAT                  the same, and gives up
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
    /// When its client asked for it, and when that heard that it was in line.
    asked: Option<u64>,
    waits: Option<u64>,
}

/// What the clients did.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub struct Summary {
    /// How often each was inside.
    pub entries: BTreeMap<u64, usize>,
    /// Who had lost it before giving it back, each time.
    pub lost: Vec<u64>,
    /// Who was sent away and asked again, and why.
    pub failed: Vec<(u64, String)>,
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

/// The log as far as it was read.
#[derive(Default)]
pub struct Log {
    stays: Vec<Stay>,
    summary: Summary,
    lines: usize,
    /// Where a client's last stay is in the list.
    last: BTreeMap<u64, usize>,
    /// Who has asked, and who of these has heard that it is in line.
    asked: BTreeMap<u64, (u64, Option<u64>)>,
    killed: BTreeMap<u64, u64>,
}

impl Log {
    /// Reads on, in whole lines.
    pub fn read(&mut self, text: &str) -> Result<(), String> {
        text.lines().try_for_each(|line| self.line(line))
    }

    /// What the clients have done so far, right or wrong: a client that has been frozen has not said yet that it lost a
    /// slot.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        self.lines += 1;
        let wrong = || format!("line {}: {line:?}", self.lines);
        let words: Vec<&str> = line.split(' ').collect();
        let value = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok()).ok_or_else(wrong);
        let (time, client) = (value(1)?, value(2)?);
        // The stay that a later line is about.
        let its = |fencing: u64| {
            self.last.get(&client).copied().filter(|index| self.stays[*index].fencing == fencing).ok_or_else(wrong)
        };
        match words[0] {
            "ask" => drop(self.asked.insert(client, (time, None))),
            "waits" => self.asked.get_mut(&client).ok_or_else(wrong)?.1 = Some(time),
            "enter" => {
                let slot = u32::try_from(value(4)?).map_err(|_| wrong())?;
                let (fencing, lease) = (value(3)?, value(5)?);
                self.last.insert(client, self.stays.len());
                *self.summary.entries.entry(client).or_default() += 1;
                let asked = self.asked.remove(&client);
                let (asked, waits) = (asked.map(|(asked, _)| asked), asked.and_then(|(_, waits)| waits));
                self.stays.push(Stay { client, fencing, slot, from: time, to: u64::MAX, lease, asked, waits });
            }
            "renewed" => {
                let (index, lease) = (its(value(3)?)?, value(5)?);
                self.stays[index].lease = lease;
            }
            "leave" => {
                let index = its(value(3)?)?;
                self.stays[index].to = time;
            }
            "lost" => {
                its(value(3)?)?;
                self.ends_with_its_lease(client);
                self.summary.lost.push(client);
            }
            "killed" => drop(self.killed.insert(client, time)),
            "failed" | "error" => {
                // Who had not asked anew could not give the slot back: it was sure of it until the lease ended.
                if self.asked.remove(&client).is_none() {
                    self.ends_with_its_lease(client);
                }
                let list = if words[0] == "error" { &mut self.summary.errors } else { &mut self.summary.failed };
                list.push((client, words[3..].join(" ")));
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    fn ends_with_its_lease(&mut self, client: u64) {
        if let Some(index) = self.last.get(&client) {
            let stay = &mut self.stays[*index];
            stay.to = stay.to.min(stay.lease);
        }
    }

    /// All stays, when everything was read, in the order in which they began.
    fn stays(&self) -> Vec<Stay> {
        let mut stays = self.stays.clone();
        for stay in stays.iter_mut().filter(|stay| stay.to == u64::MAX) {
            if let Some(time) = self.killed.get(&stay.client) {
                // It may have gone in after that was written, for as long as it took to kill it.
                stay.to = stay.from.max(*time);
            }
        }
        stays.sort_by_key(|stay| (stay.from, stay.fencing));
        stays
    }

    /// Whether it was right. At most `slots` inside at any time, one in each slot; fencing numbers that rise with every
    /// entry into a slot, and none of them twice.
    pub fn check(&self, slots: usize) -> Result<(), String> {
        let stays = self.stays();
        let (mut observed, mut last) = (BTreeSet::new(), BTreeMap::<u32, Stay>::new());
        for stay in &stays {
            if !observed.insert(stay.fencing) {
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
        at_most(slots, &stays)
    }

    /// Who came in, in this order.
    pub fn order(&self) -> Vec<u64> {
        self.stays().iter().map(|stay| stay.client).collect()
    }

    /// When somebody next came in after this time.
    pub fn next_entry(&self, after: u64) -> Option<u64> {
        self.stays.iter().map(|stay| stay.from).filter(|from| *from > after).min()
    }

    /// The times between one client's leaving and another's entering the same slot, of entries between these times.
    pub fn gaps(&self, from: u64, to: u64) -> Vec<u64> {
        let stays = self.stays();
        let mut last = BTreeMap::<u32, Stay>::new();
        let mut gaps = Vec::new();
        for stay in stays.iter().filter(|stay| (from..to).contains(&stay.from)) {
            let before = last.insert(stay.slot, *stay);
            gaps.extend(before.filter(|before| before.client != stay.client).map(|before| stay.from - before.to));
        }
        gaps
    }

    /// Whether this client has asked, and knows that it is in line.
    pub fn waits(&self, client: u64) -> bool {
        self.asked.get(&client).is_some_and(|(_, waits)| waits.is_some())
    }

    /// The longest time between asking and coming in of those who were not sent away, in nanoseconds.
    pub fn longest_wait(&self) -> u64 {
        self.stays.iter().filter_map(|stay| Some(stay.from - stay.asked?)).max().unwrap_or_default()
    }

    /// The longest time in which nobody came in, and the longest in which some slot was not used, in nanoseconds.
    pub fn standstills(&self) -> (u64, u64) {
        let stays = self.stays();
        let all = stays.windows(2).map(|pair| pair[1].from - pair[0].from).max().unwrap_or_default();
        let mut free = BTreeMap::new();
        let mut longest = 0;
        for stay in &stays {
            if let Some(left) = free.insert(stay.slot, stay.to) {
                longest = stay.from.saturating_sub(left).max(longest);
            }
        }
        (all, longest)
    }

    /// For every entry of one that had heard its place in line, how many came in before it who had not even asked then.
    pub fn passed(&self) -> Vec<usize> {
        let stays = self.stays();
        let started: Vec<u64> = stays.iter().map(|stay| stay.from).collect();
        let passes = |stay: &Stay| {
            let waits = stay.waits?;
            let meanwhile = &stays[started.partition_point(|from| *from <= waits)..];
            let earlier = meanwhile.iter().take_while(|other| other.from < stay.from);
            Some(earlier.filter(|other| other.asked.is_some_and(|asked| asked > waits)).count())
        };
        stays.iter().filter_map(passes).collect()
    }
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
            let host: Vec<_> = inside.iter().map(|index| stays[*index]).collect();
            return Err(format!("{} inside at once: {host:?}", inside.len()));
        }
    }
    Ok(())
}

/// The checker bites, or it is worth nothing.
mod tests {
    use super::*;

    fn check(log: &str, slots: usize) -> Result<Summary, String> {
        let mut read = Log::default();
        read.read(log)?;
        read.check(slots)?;
        Ok(read.summary().clone())
    }

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

    /// What `benches/agents.rs` measures: 1 to 2 in slot 0, not from 2 to itself, nor in another slot, nor outside.
    #[test]
    fn a_gap_is_between_two_clients_of_one_slot() {
        let mut log = Log::default();
        let first = "enter 10 1 5 0 99\nleave 20 1 5 0\nenter 12 3 6 1 99\nleave 22 3 6 1\n";
        log.read(&format!("{first}enter 24 2 7 0 99\nleave 30 2 7 0\nenter 31 2 8 0 99\nleave 32 2 8 0\n")).unwrap();
        assert_eq!((log.gaps(0, 99), log.gaps(11, 99), log.gaps(0, 24)), (vec![4], vec![], vec![]));
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
            ("renewed 60 1 5 0 160\nleave 500 1 5 0\nlost 501 1 5 0\n", 160, true),
            ("renewed 60 1 5 0 160\nleave 500 1 5 0\nlost 501 1 5 0\n", 159, false),
            // The agent has gone, so nobody knows: it was sure until 99.
            ("leave 500 1 5 0\nfailed 501 1 no agent\n", 99, true),
            ("leave 500 1 5 0\nfailed 501 1 no agent\n", 98, false),
            // It gave it back, and the next time was sent away.
            ("leave 500 1 5 0\nask 500 1\nfailed 501 1 no agent\n", 99, false),
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

    #[test]
    fn who_is_passed_in_line_is_counted() {
        let read = |log: &str| {
            let mut read = Log::default();
            read.read(log).unwrap();
            (read.order(), read.passed())
        };
        let line = "ask 10 1\nask 11 2\nwaits 12 1 0\nwaits 13 2 1\n";
        let fair = "enter 20 1 5 0 99\nleave 21 1 5 0\nenter 22 2 6 0 99\nleave 23 2 6 0\n";
        assert_eq!(read(&format!("{line}{fair}")), (vec![1, 2], vec![0, 0]));
        // Both had asked before either was in line: nobody can tell who was first.
        let other = "enter 20 2 5 0 99\nleave 21 2 5 0\nenter 22 1 6 0 99\nleave 23 1 6 0\n";
        assert_eq!(read(&format!("{line}{other}")), (vec![2, 1], vec![0, 0]));
        let late = "ask 14 3\nenter 20 3 5 0 99\nleave 21 3 5 0\nenter 22 1 6 0 99\nleave 23 1 6 0\n";
        assert_eq!(read(&format!("{line}{late}")), (vec![3, 1], vec![1]));
    }

    #[test]
    fn the_longest_standstill_is_found_for_all_and_for_a_slot() {
        let mut read = Log::default();
        read.read(&format!("{GOOD}enter 32 1 9 0 99\nleave 34 1 9 0\nenter 70 2 10 1 99\nleave 71 2 10 1\n")).unwrap();
        assert_eq!((read.standstills(), read.next_entry(32)), ((38, 40), Some(70)));
    }
}
