//! A protocol in which the owner of one key has the only queue. Correct without faults, except for a selectable defect.

use std::collections::VecDeque;

use peerlock_protocols::{Cx, Grant, Hop, Never, Observe, Protocol};
use peerlock_types::{Key, PeerId, Ticket};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    TooManyHolders,
    NeverGrants,
    GrantsTwice,
    RepeatsFencing,
    UnexpectedMessage,
}

#[derive(Clone, Copy, Debug)]
pub enum Message {
    Request(Ticket),
    Grant(Ticket, u64),
    Release(Ticket),
}

pub struct Clerk {
    me: PeerId,
    key: Key,
    fault: Fault,
    list: VecDeque<(PeerId, Ticket)>,
    given: u64,
}

impl Clerk {
    pub fn new(me: PeerId, key: Key, fault: Fault) -> Self {
        Self { me, key, fault, list: VecDeque::new(), given: 0 }
    }

    fn admit(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(&(peer, ticket)) = self.list.front() else { return };
        self.given += 1;
        let fencing = if self.fault == Fault::RepeatsFencing { 7 } else { self.given };
        if peer == self.me {
            self.let_in(ticket, fencing, cx);
        } else {
            cx.send(peer, Message::Grant(ticket, fencing));
        }
    }

    fn let_in(&mut self, ticket: Ticket, fencing: u64, cx: &mut Cx<'_, Self>) {
        cx.grant(ticket, Grant { slot: 0, fencing });
        if self.fault == Fault::GrantsTwice {
            cx.grant(ticket, Grant { slot: 0, fencing: fencing + 1000 });
        }
    }
}

impl Protocol for Clerk {
    type Message = Message;
    type Timer = Never;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if self.fault == Fault::UnexpectedMessage {
            cx.unexpected("nonsense");
        }
        cx.route(self.key, Message::Request(ticket));
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        cx.route(self.key, Message::Release(ticket));
    }

    fn on_message(&mut self, _from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        if let Message::Grant(ticket, fencing) = message {
            self.let_in(ticket, fencing, cx);
        }
    }

    fn on_routed(&mut self, hop: Hop, message: Message, cx: &mut Cx<'_, Self>) {
        match message {
            Message::Request(_) if self.fault == Fault::NeverGrants => {}
            Message::Request(ticket) if self.fault == Fault::TooManyHolders => {
                self.list = [(hop.origin, ticket)].into();
                self.admit(cx);
            }
            Message::Request(ticket) => {
                self.list.push_back((hop.origin, ticket));
                if self.list.len() == 1 {
                    self.admit(cx);
                }
            }
            Message::Release(ticket) => {
                let was_inside = self.list.front().is_some_and(|first| first.1 == ticket);
                self.list.retain(|entry| entry.1 != ticket);
                if was_inside {
                    self.admit(cx);
                }
            }
            Message::Grant(..) => cx.unexpected("a routed answer"),
        }
    }
}

impl Observe for Clerk {
    const KINDS: &'static [&'static str] = &["ask", "grant", "done"];

    fn kind(message: &Message) -> usize {
        match message {
            Message::Request(_) => 0,
            Message::Grant(..) => 1,
            Message::Release(_) => 2,
        }
    }
}
