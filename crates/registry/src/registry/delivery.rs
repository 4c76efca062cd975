//! How a leader tells sessions what they must know: see `kind.rs`.

use std::collections::BTreeMap;

use peerlock_types::{PeerId, Span, Time};

use super::Registry;
use crate::kind::Topic;
use crate::mutation::Mutation;
use crate::state::State;
use crate::wire::RegistryMessage;
use crate::{Label, SessionId};

/// How long a word waits before it is told again …
const AGAIN: Span = Span::from_millis(300);
/// … and at most so long, where as many generations as this are opened to a session, and it closes others meanwhile.
const LONGEST: Span = Span::from_millis(4800);
const MANY_OPENED: usize = 64;
/// At most this many words are told at a time, of at most so many resources; the others have their turn after that.
const MAX_SENT: usize = 256;
const MOST_LOOKED_AT: usize = 2048;
/// At most this many generations are opened to one coordinator that it has not closed: it asks others about each of
/// them, and what is not confirmed has to be kept. Our choice: more than it has out as questions to the register at a
/// time, so that it never waits for the next.
const MOST_OPENED: usize = 1024;

/// One word: about what, to whom, of which generation.
type Announcement = (Label, SessionId, u64, Topic);

/// How a word was told.
#[derive(Clone, Copy)]
struct Telling {
    at: Time,
    /// How long after that it is due again; never if it was heard.
    pause: Option<Span>,
}

/// What a leader has told.
#[derive(Default)]
pub(super) struct Event {
    words: BTreeMap<Announcement, Telling>,
    /// When each coordinator has last asked for a generation to be closed.
    closed: BTreeMap<SessionId, Time>,
    /// How many generations were opened to each coordinator, as far as they are among these.
    opened: BTreeMap<SessionId, usize>,
    /// Whose turn it is.
    next: Option<Label>,
}

impl Event {
    /// Forgets those that do not have to be told any more.
    fn forget(&mut self, state: &State) {
        self.words.retain(|(name, session, generation, topic), _| {
            let words = state.resources().get(name).into_iter().flat_map(|it| it.words());
            words.into_iter().any(|event| event == (*session, *generation, *topic))
        });
        self.closed.retain(|session, _| state.sessions().contains_key(session));
        self.opened.clear();
        for (_, session, _, topic) in self.words.keys() {
            *self.opened.entry(*session).or_default() += usize::from(*topic == Topic::Opened);
        }
    }

    fn has_room(&self, session: SessionId) -> bool {
        self.opened.get(&session).is_none_or(|opened| *opened < MOST_OPENED)
    }

    fn is_due(&self, event: &Announcement, now: Time) -> bool {
        self.words.get(event).is_none_or(|sent| sent.pause.is_some_and(|pause| now >= sent.at + pause))
    }

    /// How long a word that is told now waits until it is told again. Who has closed others of many since the last time
    /// hears us and has much to do: to tell it more often would be more of that.
    fn pause(&self, event: &Announcement) -> Span {
        let Some(Telling { at, pause: Some(pause) }) = self.words.get(event) else { return AGAIN };
        let closes = self.closed.get(&event.1).is_some_and(|closed| closed > at);
        let is_busy = closes && self.opened.get(&event.1).is_some_and(|opened| *opened >= MANY_OPENED);
        if is_busy { (*pause * 2).min(LONGEST) } else { AGAIN }
    }

    /// A coordinator has counted a generation.
    pub(super) fn on_close(&mut self, session: SessionId, now: Time) {
        self.closed.insert(session, now);
    }
}

impl Registry {
    /// Tells what is due.
    pub(super) fn delivery(&mut self, now: Time) {
        if !self.engine.is_settled() {
            return;
        }
        // Generations are announced after the quarantine of a recovery: before that nothing can be granted.
        let is_quarantined = self.state.quarantine().is_some() && !self.config.makes(Mutation::NoQuarantine);
        let Some(lead) = &mut self.lead else { return };
        let sent = &mut lead.sent;
        if !sent.opened.keys().all(|session| sent.has_room(*session)) {
            sent.forget(&self.state);
        }
        let turn = sent.next.take();
        let late = self.state.talked_of(turn.as_ref());
        let early = self.state.talked_of(None).take_while(|(name, _)| turn.as_ref().is_some_and(|turn| *name < turn));
        let mut due: Vec<Announcement> = Vec::new();
        'turns: for (looked_at, (name, resource)) in late.chain(early).enumerate() {
            if looked_at == MOST_LOOKED_AT {
                sent.next = Some(name.clone());
                break;
            }
            for (session, generation, topic) in resource.words() {
                let event = (name.clone(), session, generation, topic);
                if topic == Topic::Opened && is_quarantined || !sent.is_due(&event, now) {
                    continue;
                }
                let is_new = topic == Topic::Opened && !sent.words.contains_key(&event);
                if is_new && !sent.has_room(session) {
                    continue;
                }
                if due.len() == MAX_SENT {
                    sent.next = Some(name.clone());
                    break 'turns;
                }
                *sent.opened.entry(session).or_default() += usize::from(is_new);
                due.push(event);
            }
        }
        for (name, session, generation, topic) in due {
            if let Some((host, kind)) = self.state.event(&name, session, generation, topic) {
                self.send(host, RegistryMessage::Event { resource: name.clone(), session, generation, kind });
            }
            if let Some(lead) = &mut self.lead {
                let event = (name, session, generation, topic);
                let pause = (!self.config.makes(Mutation::SendsOnce)).then(|| lead.sent.pause(&event));
                lead.sent.words.insert(event, Telling { at: now, pause });
            }
        }
    }

    /// Forgets what does not have to be told any more.
    pub(super) fn forget_sent(&mut self) {
        if let Some(lead) = &mut self.lead {
            lead.sent.forget(&self.state);
        }
    }

    /// A process has taken note of a word.
    pub(super) fn on_received(&mut self, from: PeerId, event: Announcement) {
        let is_theirs = self.state.sessions().get(&event.1).is_none_or(|session| session.host == from);
        if !is_theirs || event.3 == Topic::Opened {
            self.count_unexpected("word that something was heard, from who was not told it");
        } else if let Some(telling) = self.lead.as_mut().and_then(|lead| lead.sent.words.get_mut(&event)) {
            telling.pause = None;
        }
    }
}
