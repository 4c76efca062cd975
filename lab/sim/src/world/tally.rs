use crate::faults::Mishaps;

pub(crate) const COUNTS: usize = 21;

pub(crate) type Counts = [u64; COUNTS];

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub asked: u64,
    pub lost: u64,
    pub refused: u64,
    pub withdrawn: u64,
    pub crashed: u64,
    pub restarted: u64,
    pub resets: u64,
    pub unexpected: u64,
    pub frozen: u64,
    pub parted: u64,
    pub outages: u64,
    pub disks_lost: u64,
    pub disks_slow: u64,
    pub disks_full: u64,
    pub torn: u64,
    pub orphans: u64,
    pub reboots: u64,
}

impl Tally {
    pub fn counts(&self, mishaps: Mishaps) -> [(&'static str, u64); COUNTS] {
        [
            ("asked", self.asked),
            ("lost", self.lost),
            ("refused", self.refused),
            ("withdrawn", self.withdrawn),
            ("crashed", self.crashed),
            ("restarted", self.restarted),
            ("resets", self.resets),
            ("unexpected", self.unexpected),
            ("frozen", self.frozen),
            ("parted", self.parted),
            ("outages", self.outages),
            ("disks lost", self.disks_lost),
            ("disks slow", self.disks_slow),
            ("disks full", self.disks_full),
            ("writes torn", self.torn),
            ("orphans", self.orphans),
            ("reboots", self.reboots),
            ("messages lost", mishaps.lost),
            ("messages twice", mishaps.twice),
            ("messages cut off", mishaps.cut_off),
            ("messages held up", mishaps.held_up),
        ]
    }
}
