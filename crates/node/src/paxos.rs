//! A resource's founding among the members: which charter it has is decided once, by a majority of all whom we know.
//!
//! Lamport's single-decree Paxos ("The Part-Time Parliament"), with every member as an acceptor. Replicas under keys of
//! the overlay would not do: where the network falls apart, each side of the overlay takes over all keys, with replicas
//! that remember nothing, and would found everything again. Here the smaller side has no majority. A member that
//! forgets is another member, so that nobody says two things.
//!
//! Pure: questions and answers.

use alloc::collections::BTreeSet;

use peerlock_base::PeerId;

use crate::Charter;
use serde::{Deserialize, Serialize};

/// Which attempt to decide this is; of two, the higher wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ballot {
    /// Higher than any that was heard of.
    pub round: u64,
    /// The member whose attempt it is: no two have the same ballot.
    pub member: PeerId,
}

/// What a member asks another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// To agree to nothing lower any more …
    pub ballot: Ballot,
    /// … and to this, if anything.
    pub charter: Option<Charter>,
}

/// What a member remembers of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    promised: Option<Ballot>,
    agreed: Option<(Ballot, Charter)>,
}

impl Memory {
    /// Hears a question, and answers with what it remembers then.
    pub fn on_question(&mut self, question: Question) -> Self {
        if self.promised <= Some(question.ballot) {
            self.promised = Some(question.ballot);
            self.agreed = question.charter.map(|charter| (question.ballot, charter)).or(self.agreed);
        }
        *self
    }

    /// The highest round that it has heard of.
    pub fn round(&self) -> u64 {
        self.promised.map_or(0, |ballot| ballot.round)
    }
}

/// One member's attempt to decide.
#[derive(Clone, Debug)]
pub struct Attempt {
    ballot: Ballot,
    wish: Charter,
    promised: BTreeSet<PeerId>,
    latest: Option<(Ballot, Charter)>,
    proposed: Option<Charter>,
    agreed: BTreeSet<PeerId>,
}

/// What follows from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To wait for more.
    Wait,
    /// To ask everybody this.
    Ask(Question),
    /// It is decided.
    Decided(Charter),
}

impl Attempt {
    /// An attempt to decide for `wish`, unless something else is decided already.
    pub fn new(ballot: Ballot, wish: Charter) -> Self {
        let (promised, agreed) = (BTreeSet::new(), BTreeSet::new());
        Self { ballot, wish, promised, latest: None, proposed: None, agreed }
    }

    /// What to ask everybody first.
    pub fn question(&self) -> Question {
        Question { ballot: self.ballot, charter: self.proposed }
    }

    /// A member answers. `majority` of them decide.
    pub fn on_answer(&mut self, from: PeerId, memory: Memory, majority: usize) -> Next {
        if memory.promised != Some(self.ballot) {
            return Next::Wait;
        }
        if let Some(charter) = self.proposed {
            if memory.agreed == Some((self.ballot, charter)) {
                self.agreed.insert(from);
            }
            return if self.agreed.len() >= majority { Next::Decided(charter) } else { Next::Wait };
        }
        self.promised.insert(from);
        self.latest = self.latest.max(memory.agreed);
        if self.promised.len() < majority {
            return Next::Wait;
        }
        // What may have been decided already must be proposed again.
        self.proposed = Some(self.latest.map_or(self.wish, |(_, charter)| charter));
        Next::Ask(self.question())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use peerlock_base::Rng;

    use super::*;

    fn charter(number: u64) -> Charter {
        Charter { slots: 1, home: PeerId::new(number), above: number }
    }

    #[test]
    fn alone_it_is_decided_at_once() {
        let (me, mut memory) = (PeerId::new(1), Memory::default());
        let mut attempt = Attempt::new(Ballot { round: 1, member: me }, charter(1));
        let promised = memory.on_question(attempt.question());
        let Next::Ask(question) = attempt.on_answer(me, promised, 1) else { panic!("{attempt:?}") };
        let agreed = memory.on_question(question);
        assert_eq!(attempt.on_answer(me, agreed, 1), Next::Decided(charter(1)));
    }

    /// Three who want different things, questions and answers that are late, doubled and lost: at most one is decided.
    #[test]
    fn whatever_is_lost_or_late_all_who_decide_decide_the_same() {
        let mut decided_twice = 0;
        for seed in 0..3000 {
            let mut rng = Rng::new(seed);
            let members: Vec<PeerId> = (0..5).map(PeerId::new).collect();
            let mut memories = [Memory::default(); 5];
            let mut attempts: Vec<Option<Attempt>> = vec![None; 3];
            let mut round = 0;
            let mut letters: Vec<(usize, usize, Result<Question, Memory>)> = Vec::new();
            let mut decided = Vec::new();
            for _ in 0..120 {
                let who = rng.below(3) as usize;
                if attempts[who].is_none() || rng.chance(0.03) {
                    round += rng.below(2);
                    let attempt = Attempt::new(Ballot { round, member: members[who] }, charter(who as u64));
                    letters.extend((0..5).map(|to| (who, to, Ok(attempt.question()))));
                    attempts[who] = Some(attempt);
                }
                if letters.is_empty() {
                    continue;
                }
                let at = rng.below(letters.len() as u64) as usize;
                let (asker, member, letter) = if rng.chance(0.1) { letters[at] } else { letters.swap_remove(at) };
                if rng.chance(0.1) {
                    continue;
                }
                match letter {
                    Ok(question) => {
                        let memory = memories[member].on_question(question);
                        letters.push((asker, member, Err(memory)));
                    }
                    Err(memory) => {
                        let Some(attempt) = &mut attempts[asker] else { continue };
                        match attempt.on_answer(members[member], memory, 3) {
                            Next::Wait => {}
                            Next::Ask(question) => letters.extend((0..5).map(|to| (asker, to, Ok(question)))),
                            Next::Decided(charter) => decided.push(charter),
                        }
                    }
                }
            }
            decided.dedup();
            assert!(decided.len() <= 1, "seed {seed}: {decided:?}");
            decided_twice += usize::from(attempts.iter().flatten().count() > 1 && !decided.is_empty());
        }
        assert!(decided_twice > 1000, "only {decided_twice} runs say anything");
    }
}
