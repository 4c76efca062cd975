/// Measures whether stays are so short that successors have to be sent ahead.
///
/// With several tokens a holder receives its successor one message after it has entered. If holders often release
/// earlier, tokens lie unused, and successors are sent ahead, although this binds waiters early. Lateness can be
/// measured only while nothing is sent ahead: so that is tried again after a while, and after twice as long if stays
/// are still short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Pace {
    /// Grows by [`LATE`] for each token released too early, and shrinks by one per entry.
    haste: u32,
    /// Remaining entries for which successors are sent ahead, including those of [`DRAIN`]. `u32::MAX`: always.
    ahead: u32,
    /// Entries per token of the next such period.
    patience: u32,
}

/// Our choice: successors are sent ahead if more than one token in three is late. With exponential stays ten times as
/// long as a message, one in ten is late, and late binding serves better.
const LATE: u32 = 3;

/// Bounds of `patience`. Our choice: a trial costs about two messages per token, in the end one in 400 hand-overs.
const PATIENCE: (u32, u32) = (25, 800);

/// Entries per token before a trial that still use successors sent ahead, and prove nothing.
const DRAIN: u32 = 8;

impl Pace {
    pub(super) fn new(always: bool) -> Self {
        Self { haste: 0, ahead: if always { u32::MAX } else { 0 }, patience: PATIENCE.0 }
    }

    pub(super) fn is_ahead(&self, tokens: usize) -> bool {
        self.ahead > DRAIN.saturating_mul(tokens as u32)
    }

    /// Also during a trial.
    pub(super) fn were_short(&self) -> bool {
        self.ahead > 0 || self.patience > PATIENCE.0
    }

    /// A token was released before its successors arrived, although clients waited.
    pub(super) fn late(&mut self, tokens: u32) {
        if self.ahead > 0 {
            return;
        }
        self.haste += LATE;
        if self.haste >= 4 * tokens {
            let entries = (DRAIN + self.patience).saturating_mul(tokens);
            (self.haste, self.ahead) = (0, entries.min(u32::MAX - 1));
            self.patience = (2 * self.patience).min(PATIENCE.1);
        }
    }

    pub(super) fn entry(&mut self, tokens: u32) {
        match self.ahead {
            u32::MAX => {}
            0 => {
                self.haste = self.haste.saturating_sub(1);
                if self.haste == 0 {
                    self.patience = PATIENCE.0;
                }
            }
            // Half of the limit, so that short stays are soon detected.
            1 => (self.ahead, self.haste) = (0, 2 * tokens),
            _ => self.ahead -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `entries` are sent ahead, if every `every`th of the others is late.
    fn ahead(entries: u32, every: u32) -> u32 {
        let mut pace = Pace::new(false);
        let (mut ahead, mut since) = (0, 100);
        for entry in 0..entries {
            // Entries sent ahead are not late, nor are the first ones after these.
            since = if pace.is_ahead(3) { 0 } else { since + 1 };
            ahead += u32::from(since == 0);
            if since > 12 && entry % every == 0 {
                pace.late(3);
            }
            pace.entry(3);
        }
        ahead
    }

    #[test]
    fn successors_are_sent_ahead_if_most_tokens_are_late() {
        assert_eq!(ahead(10_000, 10), 0);
        assert_eq!(ahead(10_000, 4), 0);
        assert!(ahead(100_000, 2) > 97_000, "{}", ahead(100_000, 2));
        assert!(ahead(100_000, 1) > 98_000, "{}", ahead(100_000, 1));
    }

    #[test]
    fn long_stays_reset_pace_to_its_initial_state() {
        let mut pace = Pace::new(false);
        let first = pace;
        (0..4).for_each(|_| pace.late(3));
        assert!(pace.is_ahead(3));
        (0..75).for_each(|_| pace.entry(3));
        assert!(!pace.is_ahead(3));
        (0..24 + 6).for_each(|_| pace.entry(3));
        assert_eq!(pace, first);
    }
}
