use peerlock_types::Time;

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::report::Sheet;

/// Counts the sent messages of each type.
#[derive(Debug)]
pub struct Messages(Vec<u64>);

impl Messages {
    pub fn of<A: Actor>() -> Self {
        Self(vec![0; A::KINDS.len()])
    }
}

impl<A: Actor> Watch<A> for Messages {
    #[inline(always)]
    fn on(&mut self, _now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        if let Event::Send { message, .. } = event
            && let Some(kind) = A::kind(message)
        {
            self.0[kind] += 1;
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.messages = A::KINDS.iter().copied().zip(self.0.iter().copied()).collect();
    }
}
