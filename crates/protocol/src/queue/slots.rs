use alloc::vec::Vec;
use core::ops::Deref;

/// The tokens whose holders know one waiter, in order of insertion; few, and then without allocation, for nearly all
/// waiters.
#[derive(Clone, Debug)]
pub(super) enum Slots {
    Few(u8, [u32; FEW]),
    Many(Vec<u32>),
}

/// Takes no more space than a vector.
const FEW: usize = 5;

impl Slots {
    pub(super) const fn new() -> Self {
        Self::Few(0, [0; FEW])
    }

    pub(super) fn push(&mut self, slot: u32) {
        match self {
            Self::Few(len, few) => match few.get_mut(usize::from(*len)) {
                Some(place) => (*place, *len) = (slot, *len + 1),
                None => *self = Self::Many(few.iter().copied().chain([slot]).collect()),
            },
            Self::Many(many) => many.push(slot),
        }
    }

    pub(super) fn remove(&mut self, slot: u32) {
        let Some(at) = self.iter().position(|&other| other == slot) else { return };
        match self {
            Self::Few(len, few) => {
                few.copy_within(at + 1..usize::from(*len), at);
                *len -= 1;
            }
            Self::Many(many) => _ = many.remove(at),
        }
    }
}

impl Deref for Slots {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            Self::Few(len, few) => &few[..usize::from(*len)],
            Self::Many(many) => many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_agree_with_vector() {
        let (mut slots, mut expected) = (Slots::new(), Vec::new());
        for slot in 0..4 * FEW as u32 {
            slots.push(slot);
            expected.push(slot);
            assert_eq!(*slots, *expected);
            if slot % 3 == 1 {
                slots.remove(slot / 2);
                expected.retain(|&other| other != slot / 2);
                assert_eq!(*slots, *expected);
            }
        }
        slots.remove(1000);
        assert_eq!(*slots, *expected);
        for slot in expected.clone() {
            slots.remove(slot);
            expected.remove(0);
            assert_eq!(*slots, *expected);
        }
    }
}
