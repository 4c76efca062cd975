use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerlock_types::{Rng, Span, Time};

use crate::client::{TRIES, again};
use crate::command::Command;
use crate::wire::Question;

pub(super) use crate::client::RETRY;

const LONGEST: Span = Span::from_secs(2);
/// The maximum interval while at least `MANY_OUT` questions are open and the leader answers.
const LONGEST_OF_MANY: Span = Span::from_millis(4800);
const MANY_OUT: usize = 64;
const MOST_OUT: usize = 512;
/// Open questions up to which low-priority ones are sent.
const MOST_OUT_LATER: usize = 384;

struct Out {
    question: Question,
    due: Time,
    /// Attempts; one to a busy leader counts as several.
    tries: u32,
}

#[derive(Default)]
pub(super) struct Questions {
    out: BTreeMap<u64, Out>,
    dues: BTreeSet<(Time, u64)>,
    /// `later` has reports of completed censuses and the like, perhaps one per resource.
    soon: VecDeque<(u64, Question)>,
    later: VecDeque<(u64, Question)>,
}

impl Questions {
    pub fn enqueue(&mut self, number: u64, question: Question) {
        match question {
            Question::Do(Command::Close { .. } | Command::Renumber { .. } | Command::Quit { .. }) => {
                self.later.push_back((number, question));
            }
            question => self.soon.push_back((number, question)),
        }
    }

    pub fn turn(&mut self) -> Option<(u64, Question)> {
        let out = self.out.len();
        let soon = if out < MOST_OUT { self.soon.pop_front() } else { None };
        soon.or_else(|| if out < MOST_OUT_LATER { self.later.pop_front() } else { None })
    }

    pub fn begin(&mut self, number: u64, question: Question, now: Time) {
        self.out.insert(number, Out { question, due: now, tries: 0 });
        self.dues.insert((now, number));
    }

    /// Schedules the next retransmission. More of them would add to the load of a leader that answers others of many.
    pub fn attempt(&mut self, number: u64, answers: bool, now: Time, rng: &mut Rng) -> Option<Question> {
        let is_busy = answers && self.out.len() >= MANY_OUT;
        let out = self.out.get_mut(&number)?;
        self.dues.remove(&(out.due, number));
        let (longest, tries) = if is_busy { (LONGEST_OF_MANY, TRIES) } else { (LONGEST, 1) };
        out.due = now + again(out.tries, longest, rng);
        out.tries += tries;
        self.dues.insert((out.due, number));
        Some(out.question.clone())
    }

    /// Makes all questions due soon, after a change of leader.
    pub fn hasten(&mut self, now: Time) {
        self.out.values_mut().for_each(|out| (out.due, out.tries) = (out.due.min(now + RETRY), 0));
        self.dues = self.out.iter().map(|(number, out)| (out.due, *number)).collect();
    }

    /// Removes an answered question. Returns false if it is not open.
    pub fn answered(&mut self, number: u64) -> bool {
        let out = self.out.remove(&number);
        out.is_some_and(|out| self.dues.remove(&(out.due, number)))
    }

    pub fn has(&self, number: u64) -> bool {
        self.out.contains_key(&number)
    }

    pub fn all(&self) -> Vec<u64> {
        self.out.keys().copied().collect()
    }

    pub fn next(&self) -> Option<Time> {
        self.dues.first().map(|(due, _)| *due)
    }

    /// Returns the due questions, oldest first.
    pub fn due(&self, now: Time) -> Vec<u64> {
        let mut due: Vec<u64> = self.dues.range(..=(now, u64::MAX)).map(|(_, number)| *number).collect();
        due.sort_unstable();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionId;

    fn leave() -> Question {
        Question::Do(Command::Leave { session: SessionId::new(1) })
    }

    fn attempts(count: u64, answers: bool) -> Vec<u64> {
        let (mut questions, mut rng) = (Questions::default(), Rng::new(1));
        (1..=count).for_each(|number| questions.begin(number, leave(), Time::ZERO));
        let mut times = Vec::new();
        while let Some(now) = questions.next().filter(|now| *now < Time::ZERO + Span::from_secs(10)) {
            let due = questions.due(now);
            times.extend(due.contains(&1).then_some(now.as_nanos() / 1_000_000));
            due.into_iter().for_each(|number| assert!(questions.attempt(number, answers, now, &mut rng).is_some()));
        }
        times
    }

    #[test]
    fn retransmissions_back_off_while_leader_is_busy() {
        let times = attempts(64, true);
        let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for (pause, most) in pauses.iter().zip([300, 600, 1200, 2400, 4800, 4800, 4800]) {
            assert!((most / 2..=most).contains(pause), "{times:?}");
        }
        assert!((5..=8).contains(&times.len()), "{times:?}");
        for (count, answers) in [(63, true), (64, false), (500, false)] {
            let times = attempts(count, answers);
            assert_eq!(times[..5], [0, 300, 600, 900, 1200], "{count} {answers}");
            let last = times.windows(2).map(|pair| pair[1] - pair[0]).next_back().unwrap();
            assert!((1000..=2000).contains(&last), "{count} {answers}: {times:?}");
        }
    }

    #[test]
    fn new_leader_resets_retransmissions() {
        let (mut questions, mut rng) = (Questions::default(), Rng::new(1));
        (1..=64).for_each(|number| questions.begin(number, leave(), Time::ZERO));
        for _ in 0..5 {
            (1..=64).for_each(|number| _ = questions.attempt(number, true, Time::ZERO, &mut rng));
        }
        assert!(questions.next() >= Some(Time::ZERO + LONGEST_OF_MANY / 2));
        questions.hasten(Time::ZERO);
        assert_eq!(questions.next(), Some(Time::ZERO + RETRY));
        assert_eq!(questions.due(Time::ZERO + RETRY).len(), 64);
        (1..=64).for_each(|number| _ = questions.attempt(number, true, Time::ZERO + RETRY, &mut rng));
        assert_eq!(questions.next(), Some(Time::ZERO + RETRY * 2), "the interval starts again");
        assert!((1..=64).all(|number| questions.answered(number) && !questions.answered(number)));
        assert_eq!(questions.next(), None);
    }

    #[test]
    fn closes_are_sent_after_other_questions() {
        let mut questions = Questions::default();
        let close = |number| {
            let resource = crate::Label::new(format!("r{number}")).expect("a label");
            Question::Do(Command::Close { session: SessionId::new(1), resource, generation: 1, remaining: Vec::new() })
        };
        (1..=1000).for_each(|number| questions.enqueue(number, close(number)));
        (1001..=2000).for_each(|number| questions.enqueue(number, leave()));
        let mut turns = Vec::new();
        while let Some((number, question)) = questions.turn() {
            questions.begin(number, question, Time::ZERO);
            turns.push(number);
        }
        assert_eq!(turns, (1001..=1512).collect::<Vec<_>>());
        (1001..=1300).for_each(|number| assert!(questions.answered(number)));
        assert_eq!(questions.turn().map(|(number, _)| number), Some(1513));
    }
}
