use std::fmt;

use peerlock_sim::Report;

/// Names in a [`Report`].
const FAULTS: [&str; 18] = [
    "crashed",
    "reboots",
    "outages",
    "deaths",
    "disks lost",
    "disks slow",
    "disks full",
    "writes torn",
    "frozen",
    "parted",
    "stops",
    "withdrawn",
    "resized",
    "to be removed",
    "removed",
    "forced",
    "voters set",
    "rifts",
];
const MESSAGES: [&str; 4] = ["messages lost", "messages twice", "messages cut off", "messages held up"];
const CLIENTS: [&str; 7] = ["asked", "lost", "orphans", "returned", "resumed", "not acquired", "notified"];

#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    faults: [u64; FAULTS.len()],
    messages: [u64; MESSAGES.len()],
    clients: [u64; CLIENTS.len()],
    entries: u64,
    events: u64,
    /// In milliseconds, and the seed.
    standstill: (u64, u64),
}

impl Summary {
    pub fn of(seed: u64, report: &Report) -> Self {
        Self {
            faults: FAULTS.map(|name| report.numbers.count(name)),
            messages: MESSAGES.map(|name| report.numbers.count(name)),
            clients: CLIENTS.map(|name| report.numbers.count(name)),
            entries: report.entries,
            events: report.events,
            standstill: (report.numbers.count("longest standstill, ms"), seed),
        }
    }

    pub fn plus(mut self, other: Self) -> Self {
        self.faults.iter_mut().zip(other.faults).for_each(|(mine, more)| *mine += more);
        self.messages.iter_mut().zip(other.messages).for_each(|(mine, more)| *mine += more);
        self.clients.iter_mut().zip(other.clients).for_each(|(mine, more)| *mine += more);
        self.entries += other.entries;
        self.events += other.events;
        self.standstill = self.standstill.max(other.standstill);
        self
    }

    pub fn faults(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// Checks that each kind of fault has happened, and each possible end of a client.
    #[allow(dead_code, reason = "few runs do not have all faults")]
    pub fn check(&self) {
        let faults = FAULTS.iter().zip(self.faults).chain(MESSAGES.iter().zip(self.messages));
        for (name, count) in faults.chain(CLIENTS.iter().zip(self.clients)) {
            assert!(count > 0, "nothing was {name} in any of these runs");
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, events, standstill: (standstill, seed), .. } = self;
        write!(f, "{entries} entries, {events} events, {} faults (", self.faults())?;
        let mut comma = "";
        for (name, count) in FAULTS.iter().zip(self.faults) {
            write!(f, "{comma}{name} {count}")?;
            comma = ", ";
        }
        write!(f, "), {} messages lost, twice, cut off or held up; clients: ", self.messages.iter().sum::<u64>())?;
        let mut comma = "";
        for (name, count) in CLIENTS.iter().zip(self.clients) {
            write!(f, "{comma}{name} {count}")?;
            comma = ", ";
        }
        write!(f, "; longest standstill {:.1} s (seed {seed})", *standstill as f64 / 1000.0)
    }
}
