//! Whether stays are so short that word from the coordinator comes too late.

/// With several tokens who comes next is bound late, and each holder hears of its next one message after it has
/// entered. Who leaves before that finds nobody to hand its token to. If most do, it is better to be told ahead, as
/// with one token, though that binds waiters early. Whether they do can be seen only while nobody is told ahead: so
/// after a while that is tried again, after twice as long if it was in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Pace {
    /// Goes up by [`LATE`] for each token that was left before word came, and down by one for every entry.
    haste: u32,
    /// For so many entries it is told ahead, or was: the last of them are of those who were told before. `u32::MAX` for
    /// good.
    ahead: u32,
    /// For how many entries of each token it is the next time.
    patience: u32,
}

/// Our choice: then it is told ahead where more than one in three is late. One in ten is late where stays are
/// exponential and ten times as long as a message, and there late binding serves better.
const LATE: u32 = 3;

/// For how many entries of each token it is told ahead at least and at most before it is tried without. Our choice: a
/// trial costs each token about two messages, so in the end one message in four hundred hand-overs.
const PATIENCE: (u32, u32) = (25, 800);

/// Of each token so many entries are waited for before it is tried without: those that were told ahead show nothing.
const DRAIN: u32 = 8;

impl Pace {
    /// As measured, or `always` ahead.
    pub(super) fn new(always: bool) -> Self {
        Self { haste: 0, ahead: if always { u32::MAX } else { 0 }, patience: PATIENCE.0 }
    }

    /// Whether with so many tokens who comes next is told ahead.
    pub(super) fn is_ahead(&self, tokens: usize) -> bool {
        self.ahead > DRAIN.saturating_mul(tokens as u32)
    }

    /// Whether stays were short until now: told ahead, or just tried without.
    pub(super) fn were_short(&self) -> bool {
        self.ahead > 0 || self.patience > PATIENCE.0
    }

    /// A token was left before word of its next had come, though others waited.
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

    /// Somebody has got a token.
    pub(super) fn entry(&mut self, tokens: u32) {
        match self.ahead {
            u32::MAX => {}
            0 => {
                self.haste = self.haste.saturating_sub(1);
                if self.haste == 0 {
                    self.patience = PATIENCE.0;
                }
            }
            1 => (self.ahead, self.haste) = (0, 2 * tokens), // Half of the proof: it is soon found out.
            _ => self.ahead -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many entries, every `every`th of which was late: how many were told ahead. Told ahead, nobody is late.
    fn ahead(entries: u32, every: u32) -> u32 {
        let mut pace = Pace::new(false);
        let (mut ahead, mut since) = (0, 100);
        for entry in 0..entries {
            // Who was told ahead is not late, nor are those who were told before that ended.
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
    fn it_is_told_ahead_where_most_are_late() {
        assert_eq!(ahead(10_000, 10), 0);
        assert_eq!(ahead(10_000, 4), 0);
        assert!(ahead(100_000, 2) > 97_000, "{}", ahead(100_000, 2));
        assert!(ahead(100_000, 1) > 98_000, "{}", ahead(100_000, 1));
    }

    #[test]
    fn it_ends_when_stays_are_long_again_and_is_as_patient_as_in_the_beginning() {
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
