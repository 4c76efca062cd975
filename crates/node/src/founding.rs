//! Who is to found a cluster, where nobody knows one and enough have met who expect that.
//!
//! All name the one with the smallest number, and when all have named it that one founds. Who has named somebody stays
//! with it as long as it is there: then no two can be named by everybody they have met, as long as these are more than
//! half of all who expect each other.

use peerlock_types::PeerId;

/// Whom we have named.
#[derive(Default)]
pub struct Founding {
    founder: Option<PeerId>,
}

impl Founding {
    pub fn founder(&self) -> Option<PeerId> {
        self.founder
    }

    /// Enough have met: us, and these with whom they have named. Whether we name somebody only now.
    pub fn name(&mut self, me: PeerId, others: &[(PeerId, Option<PeerId>)]) -> bool {
        let is_new = self.founder.is_none();
        if is_new {
            self.founder = others.iter().map(|(host, _)| *host).chain([me]).min();
        }
        is_new
    }

    /// Whether everybody has named us.
    pub fn is_for(&self, me: PeerId, others: &[(PeerId, Option<PeerId>)]) -> bool {
        self.founder == Some(me) && others.iter().all(|(_, founder)| *founder == Some(me))
    }

    /// Somebody is not there any more: if we had named it, we name another.
    pub fn on_down(&mut self, host: PeerId) {
        self.founder.take_if(|founder| *founder == host);
    }

    /// What must be true after each step; `is_there` tells whether somebody is ourselves, or connected.
    pub fn check(&self, is_there: impl Fn(PeerId) -> bool) {
        assert!(self.founder.is_none_or(is_there), "who is to found a cluster is gone, and nobody names another");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_named_stays_so_until_it_is_gone() {
        let (me, older, younger) = (PeerId::new(2), PeerId::new(1), PeerId::new(3));
        let mut founding = Founding::default();
        assert!(founding.name(me, &[(younger, None)]));
        assert!(!founding.is_for(me, &[(younger, None)]), "it has not named us yet");
        assert!(!founding.name(me, &[(older, None), (younger, Some(me))]), "and we stay with ourselves");
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
    #[should_panic(expected = "nobody names another")]
    fn who_is_named_is_there() {
        let mut founding = Founding::default();
        founding.name(PeerId::new(1), &[]);
        founding.check(|_| false);
    }
}
