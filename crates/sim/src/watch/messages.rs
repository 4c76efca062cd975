use peerlock_base::{PeerId, Time};
use peerlock_mutex::Observe;

use super::{Broken, Watch};

/// How many messages of each type were sent.
#[derive(Debug)]
pub struct Messages(Vec<u64>);

impl Messages {
    /// Counts the messages of protocol `P`.
    pub fn of<P: Observe>() -> Self {
        Self(vec![0; P::KINDS.len()])
    }

    /// By type, in the order of [`Observe::KINDS`].
    pub fn counts(&self) -> &[u64] {
        &self.0
    }
}

impl<P: Observe> Watch<P> for Messages {
    fn on_send(&mut self, _now: Time, _from: PeerId, _to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.0[P::kind(message)] += 1;
        Ok(())
    }
}
