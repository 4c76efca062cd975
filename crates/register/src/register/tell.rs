//! How a leader tells sessions what they must know: see `fact.rs`.

use std::collections::BTreeMap;

use peerlock_base::{PeerId, Span, Time};

use super::Register;
use crate::fact::Topic;
use crate::sabotage::Sabotage;
use crate::state::State;
use crate::wire::Letter;
use crate::{Label, SessionId};

/// How long a word waits before it is told again.
const AGAIN: Span = Span::from_millis(300);
/// At most this many words are told at a time, of at most so many resources; the others have their turn after that.
const MOST_TOLD: usize = 256;
const MOST_LOOKED_AT: usize = 2048;
/// At most this many generations are opened to one coordinator that it has not closed: it asks others about each of them,
/// and what is not confirmed has to be kept.
const MOST_OPENED: usize = 4096;

/// One word: about what, to whom, of which generation.
type Word = (Label, SessionId, u64, Topic);

/// What a leader has told.
#[derive(Default)]
pub(super) struct Told {
    /// When each is due again; never if it was heard.
    words: BTreeMap<Word, Option<Time>>,
    /// How many generations were opened to each coordinator, as far as they are among these.
    opened: BTreeMap<SessionId, usize>,
    /// Whose turn it is.
    next: Option<Label>,
}

impl Told {
    /// Forgets those that do not have to be told any more.
    fn forget(&mut self, state: &State) {
        self.words.retain(|(name, session, generation, topic), _| {
            let words = state.resources().get(name).into_iter().flat_map(|it| it.words());
            words.into_iter().any(|word| word == (*session, *generation, *topic))
        });
        self.opened.clear();
        for (_, session, _, topic) in self.words.keys() {
            *self.opened.entry(*session).or_default() += usize::from(*topic == Topic::Opened);
        }
    }

    fn has_room(&self, session: SessionId) -> bool {
        self.opened.get(&session).is_none_or(|opened| *opened < MOST_OPENED)
    }
}

impl Register {
    /// Tells what is due.
    pub(super) fn tell(&mut self, now: Time) {
        if !self.engine.is_settled() {
            return;
        }
        let Some(lead) = &mut self.lead else { return };
        let told = &mut lead.told;
        if !told.opened.keys().all(|session| told.has_room(*session)) {
            told.forget(&self.state);
        }
        let turn = told.next.take();
        let late = self.state.talked_of(turn.as_ref());
        let early = self.state.talked_of(None).take_while(|(name, _)| turn.as_ref().is_some_and(|turn| *name < turn));
        let mut due: Vec<Word> = Vec::new();
        'turns: for (looked_at, (name, resource)) in late.chain(early).enumerate() {
            if looked_at == MOST_LOOKED_AT {
                told.next = Some(name.clone());
                break;
            }
            for (session, generation, topic) in resource.words() {
                let word = (name.clone(), session, generation, topic);
                if told.words.get(&word).is_some_and(|due| due.is_none_or(|due| now < due)) {
                    continue;
                }
                let is_new = topic == Topic::Opened && !told.words.contains_key(&word);
                if is_new && !told.has_room(session) {
                    continue;
                }
                if due.len() == MOST_TOLD {
                    told.next = Some(name.clone());
                    break 'turns;
                }
                *told.opened.entry(session).or_default() += usize::from(is_new);
                due.push(word);
            }
        }
        for (name, session, generation, topic) in due {
            if let Some((host, fact)) = self.state.word(&name, session, generation, topic) {
                self.send(host, Letter::Told { resource: name.clone(), session, generation, fact });
            }
            if let Some(lead) = &mut self.lead {
                let again = (!self.config.makes(Sabotage::TellsOnce)).then_some(now + AGAIN);
                lead.told.words.insert((name, session, generation, topic), again);
            }
        }
    }

    /// Forgets what does not have to be told any more.
    pub(super) fn forget_told(&mut self) {
        if let Some(lead) = &mut self.lead {
            lead.told.forget(&self.state);
        }
    }

    /// A process has taken note of a word.
    pub(super) fn on_heard(&mut self, from: PeerId, word: Word) {
        let is_theirs = self.state.sessions().get(&word.1).is_none_or(|session| session.host == from);
        if !is_theirs || word.3 == Topic::Opened {
            self.count_strange("word that something was heard, from who was not told it");
        } else if let Some(due) = self.lead.as_mut().and_then(|lead| lead.told.words.get_mut(&word)) {
            *due = None;
        }
    }
}
