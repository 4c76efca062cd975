//! Sends events to sessions: see `event.rs`.

use std::collections::BTreeMap;

use peerlock_types::{PeerId, Span, Time};

use super::Registry;
use crate::event::Topic;
use crate::mutation::Mutation;
use crate::state::State;
use crate::wire::RegistryMessage;
use crate::{Label, SessionId};

const AGAIN: Span = Span::from_millis(300);
/// The longest interval, while `MANY_OPENED` generations are open at a session that closes others.
const LONGEST: Span = Span::from_millis(4800);
const MANY_OPENED: usize = 64;
/// Limits of one call.
const MAX_SENT: usize = 256;
const MOST_LOOKED_AT: usize = 2048;
/// Open generations of a coordinator: each costs it memory. Our choice: more than its open questions, so that it never
/// waits for an event.
const MOST_OPENED: usize = 1024;

/// Resource, session, generation, topic.
type Announcement = (Label, SessionId, u64, Topic);

#[derive(Clone, Copy)]
struct Sending {
    at: Time,
    /// The time until the next repetition; `None` once acknowledged.
    pause: Option<Span>,
}

#[derive(Default)]
pub(super) struct SentEvents {
    events: BTreeMap<Announcement, Sending>,
    /// The last `Close` of each coordinator.
    pub(super) closed: BTreeMap<SessionId, Time>,
    opened: BTreeMap<SessionId, usize>,
    next: Option<Label>,
}

impl SentEvents {
    pub(super) fn forget(&mut self, state: &State) {
        self.events.retain(|(name, session, generation, topic), _| {
            let pending = state.resources().get(name).into_iter().flat_map(|it| it.pending_events());
            pending.into_iter().any(|event| event == (*session, *generation, *topic))
        });
        self.closed.retain(|session, _| state.sessions().contains_key(session));
        self.opened.clear();
        for (_, session, _, topic) in self.events.keys() {
            *self.opened.entry(*session).or_default() += usize::from(*topic == Topic::Opened);
        }
    }

    fn has_room(&self, session: SessionId) -> bool {
        self.opened.get(&session).is_none_or(|opened| *opened < MOST_OPENED)
    }

    fn is_due(&self, event: &Announcement, now: Time) -> bool {
        self.events.get(event).is_none_or(|sent| sent.pause.is_some_and(|pause| now >= sent.at + pause))
    }

    /// Returns the time until the next repetition. More of them would add to the load of a busy coordinator.
    fn pause(&self, event: &Announcement) -> Span {
        let Some(Sending { at, pause: Some(pause) }) = self.events.get(event) else { return AGAIN };
        let closes = self.closed.get(&event.1).is_some_and(|closed| closed > at);
        let is_busy = closes && self.opened.get(&event.1).is_some_and(|opened| *opened >= MANY_OPENED);
        if is_busy { (*pause * 2).min(LONGEST) } else { AGAIN }
    }
}

impl Registry {
    pub(super) fn delivery(&mut self, now: Time) {
        if !self.engine.is_settled() {
            return;
        }
        // Nothing may be granted in the quarantine.
        let is_quarantined = self.state.quarantine().is_some() && !self.config.makes(Mutation::NoQuarantine);
        let Some(lead) = &mut self.lead else { return };
        let sent = &mut lead.sent;
        if !sent.opened.keys().all(|session| sent.has_room(*session)) {
            sent.forget(&self.state);
        }
        let turn = sent.next.take();
        let late = self.state.with_events(turn.as_ref());
        let early = self.state.with_events(None).take_while(|(name, _)| turn.as_ref().is_some_and(|turn| *name < turn));
        let mut due: Vec<Announcement> = Vec::new();
        'turns: for (looked_at, (name, resource)) in late.chain(early).enumerate() {
            if looked_at == MOST_LOOKED_AT {
                sent.next = Some(name.clone());
                break;
            }
            for (session, generation, topic) in resource.pending_events() {
                let event = (name.clone(), session, generation, topic);
                if topic == Topic::Opened && is_quarantined || !sent.is_due(&event, now) {
                    continue;
                }
                let is_new = topic == Topic::Opened && !sent.events.contains_key(&event);
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
                lead.sent.events.insert(event, Sending { at: now, pause });
            }
        }
    }

    pub(super) fn on_received(&mut self, from: PeerId, event: Announcement) {
        let is_theirs = self.state.sessions().get(&event.1).is_none_or(|session| session.host == from);
        if !is_theirs || event.3 == Topic::Opened {
            self.count_unexpected("an acknowledgement from a host that was not sent the event");
        } else if let Some(sending) = self.lead.as_mut().and_then(|lead| lead.sent.events.get_mut(&event)) {
            sending.pause = None;
        }
    }
}
