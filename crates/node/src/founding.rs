//! The choice of the host that creates a cluster, when enough hosts that know none have met (`--expect`).
//!
//! Each host names the one with the smallest number, and the host that all others name creates the cluster. A host
//! keeps the name until that host disconnects. So two hosts cannot both be named by all hosts they have met, if these
//! are more than half of all expected ones.

use peerlock_types::PeerId;

#[derive(Default)]
pub struct Founding {
    founder: Option<PeerId>,
}

impl Founding {
    pub fn founder(&self) -> Option<PeerId> {
        self.founder
    }

    /// `others` are the hosts that we have met, with their choices. Returns whether a host was named now.
    pub fn name(&mut self, me: PeerId, others: &[(PeerId, Option<PeerId>)]) -> bool {
        let is_new = self.founder.is_none();
        if is_new {
            self.founder = others.iter().map(|(host, _)| *host).chain([me]).min();
        }
        is_new
    }

    /// Returns whether all hosts have named us.
    pub fn is_for(&self, me: PeerId, others: &[(PeerId, Option<PeerId>)]) -> bool {
        self.founder == Some(me) && others.iter().all(|(_, founder)| *founder == Some(me))
    }

    pub fn on_down(&mut self, host: PeerId) {
        self.founder.take_if(|founder| *founder == host);
    }

    pub fn check(&self, is_there: impl Fn(PeerId) -> bool) {
        assert!(self.founder.is_none_or(is_there), "the host that is to create a cluster has disconnected");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_creator_stays_until_it_disconnects() {
        let (me, older, younger) = (PeerId::new(2), PeerId::new(1), PeerId::new(3));
        let mut founding = Founding::default();
        assert!(founding.name(me, &[(younger, None)]));
        assert!(!founding.is_for(me, &[(younger, None)]), "it has not named this host yet");
        assert!(!founding.name(me, &[(older, None), (younger, Some(me))]), "this host remains named");
        assert!(founding.is_for(me, &[(younger, Some(me))]));
        assert!(!founding.is_for(me, &[(older, Some(older)), (younger, Some(me))]));
        founding.on_down(younger);
        assert_eq!(founding.founder(), Some(me));
        founding.on_down(me);
        assert!(founding.name(me, &[(older, Some(older))]));
        assert_eq!(founding.founder(), Some(older));
        founding.check(|host| host == older);
    }

    #[test]
    #[should_panic(expected = "has disconnected")]
    fn absent_creator_panics() {
        let mut founding = Founding::default();
        founding.name(PeerId::new(1), &[]);
        founding.check(|_| false);
    }
}
