//! Fair-K with one thing wrong, made by tampering with what goes into a healthy peer and what comes out of it.

use peerlock_base::{PeerId, Ticket};
use peerlock_mutex::fair_k::{Claim, Config, FairK, Layout, Message};
use peerlock_mutex::{Cx, Effect, Grant, Input, Never, Observe, Protocol, step};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Nothing: the wrapper itself must not change anything.
    None,
    /// Whoever sends a token sends it twice.
    TokenTwice,
    /// A child that comes after its tail has left is forgotten, and the token with it.
    LateChildLosesToken,
    /// The coordinator assigns a requester and leaves the old tail in *token_locations*.
    TailNotUpdated,
    /// The coordinator sends *child* to the tail of the next queue.
    ChildToWrongTail,
    /// *child* never arrives.
    ChildForgotten,
    /// Whoever cannot serve a *child* at once sends it back to where it came from.
    ChildSentBack,
    /// A root that waits for the coordinator's role does not remember who is *next*.
    NextForgotten,
    /// The coordinator assigns a requester and stays coordinator.
    CoordinatorKept,
    /// A node that forwards a request makes node 0 its parent instead of the requester.
    ReversalToWrongPeer,
    /// A client that has to wait is let in as well.
    GrantWithoutToken,
    /// A withdrawal is not heard.
    WithdrawalIgnored,
    /// Every fencing number is used twice.
    FencingNotAdvanced,
    /// A token arrives under the number of another slot.
    SlotMixedUp,
}

/// A healthy peer and what is done to it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Sabotaged {
    inner: FairK,
    fault: Fault,
    /// Who is inside here, so that a withdrawal can be told from a leaving.
    inside: Vec<Ticket>,
}

type Effects = Vec<Effect<Message, Never>>;

impl Sabotaged {
    /// The paper's layout with this fault in every peer.
    pub fn peers(peers: u64, slots: u32, fault: Fault) -> impl Iterator<Item = (PeerId, Self)> {
        let layout = Layout::printed(peers, slots);
        let peer = move |id| Self { inner: FairK::new(id, &layout, Config::REPAIRED), fault, inside: Vec::new() };
        (0..peers).map(PeerId::new).map(move |id| (id, peer(id)))
    }

    fn healthy(&mut self, input: Input<Message, Never>, cx: &mut Cx<'_, Self>) -> Effects {
        let (me, now, mut effects) = (cx.me(), cx.now(), Vec::new());
        step(&mut self.inner, input, &mut Cx::new(me, now, cx.rng(), &mut effects));
        effects
    }

    fn run(&mut self, input: Input<Message, Never>, cx: &mut Cx<'_, Self>) {
        if self.fault == Fault::WithdrawalIgnored
            && matches!(input, Input::Release(ticket) if !self.inside.contains(&ticket))
        {
            return;
        }
        let before = self.inner.clone();
        let mut effects = self.healthy(self.tamper_with_input(input.clone()), cx);
        self.tamper(&before, &input, &mut effects, cx.me());
        for effect in effects {
            match effect {
                Effect::Send { to, message } => cx.send(to, message),
                Effect::Grant { ticket, grant } => {
                    self.inside.push(ticket);
                    cx.grant(ticket, grant);
                }
                Effect::Lost { ticket } => cx.lost(ticket),
                Effect::Refused { ticket } => cx.refuse(ticket),
                Effect::Route { .. } | Effect::Forward { .. } => cx.strange("a message to be routed"),
                Effect::Wish(wish) => cx.wish(wish),
                Effect::Strange { why } => cx.strange(why),
                Effect::SetTimer { timer, .. } | Effect::CancelTimer { timer } => match timer {},
            }
        }
        if let Input::Release(left) = input {
            self.inside.retain(|&ticket| ticket != left);
        }
    }

    fn tamper_with_input(&self, input: Input<Message, Never>) -> Input<Message, Never> {
        match (self.fault, input) {
            (Fault::ReversalToWrongPeer, Input::Message { from, message: Message::Request(_) })
                if self.inner.parent().is_some() =>
            {
                let wrong = Claim { peer: PeerId::new(0), ticket: Ticket::NONE };
                Input::Message { from, message: Message::Request(wrong) }
            }
            (_, input) => input,
        }
    }

    /// Changes what the healthy peer wanted done, or the peer itself.
    fn tamper(&mut self, before: &FairK, input: &Input<Message, Never>, effects: &mut Effects, me: PeerId) {
        let message = match input {
            Input::Message { message, .. } => Some(message),
            _ => None,
        };
        let assigns = effects.iter().any(|effect| is_send(effect, is_role));
        match self.fault {
            Fault::None | Fault::WithdrawalIgnored => {}
            Fault::TokenTwice => {
                let tokens: Vec<_> = effects.iter().filter(|effect| is_send(effect, is_token)).cloned().collect();
                effects.extend(tokens);
            }
            Fault::LateChildLosesToken => {
                if message.is_some_and(is_child) {
                    effects.retain(|effect| !is_send(effect, is_token));
                }
            }
            Fault::TailNotUpdated => restore_tail(effects),
            Fault::ChildToWrongTail => send_child_astray(effects, me),
            Fault::ChildForgotten => effects.retain(|effect| !is_send(effect, is_child)),
            Fault::ChildSentBack => {
                if let Input::Message { from, message } = input
                    && is_child(message)
                    && !effects.iter().any(|effect| is_send(effect, is_token))
                {
                    self.inner = before.clone();
                    *effects = vec![Effect::Send { to: *from, message: message.clone() }];
                }
            }
            Fault::NextForgotten => {
                if matches!(message, Some(Message::Request(_))) && effects.is_empty() {
                    self.inner = before.clone();
                }
            }
            Fault::CoordinatorKept => {
                if assigns && !effects.iter().any(|effect| is_send(effect, is_token)) {
                    self.inner = before.clone();
                }
            }
            Fault::ReversalToWrongPeer => {
                for effect in effects {
                    if let (Effect::Send { message: sent @ Message::Request(_), .. }, Some(message)) = (effect, message)
                    {
                        *sent = message.clone();
                    }
                }
            }
            Fault::GrantWithoutToken => {
                if let Input::Request(ticket) = *input
                    && effects.iter().any(|effect| is_send(effect, |message| matches!(message, Message::Request(_))))
                {
                    effects.push(Effect::Grant { ticket, grant: Grant { slot: 0, fencing: 100 } });
                }
            }
            Fault::FencingNotAdvanced => tokens(effects).for_each(|token| token.fencing -= 1),
            Fault::SlotMixedUp => tokens(effects).for_each(|token| token.slot ^= 1),
        }
    }
}

fn is_send(effect: &Effect<Message, Never>, wanted: impl Fn(&Message) -> bool) -> bool {
    matches!(effect, Effect::Send { message, .. } if wanted(message))
}

fn is_token(message: &Message) -> bool {
    matches!(message, Message::Token { .. })
}

fn is_child(message: &Message) -> bool {
    matches!(message, Message::Child { .. })
}

fn is_role(message: &Message) -> bool {
    matches!(message, Message::TokenLocations { .. })
}

/// The tokens that are sent.
fn tokens(effects: &mut Effects) -> impl Iterator<Item = &mut peerlock_mutex::fair_k::Token> {
    effects.iter_mut().filter_map(|effect| match effect {
        Effect::Send { message: Message::Token { token, .. }, .. } => Some(token),
        _ => None,
    })
}

/// Puts the tail back to whom `child` goes, in the `token_locations` that go with it.
fn restore_tail(effects: &mut Effects) {
    let child = effects.iter().find_map(|effect| match effect {
        Effect::Send { to, message: Message::Child { slot, tail, .. } } => Some((*to, *slot, *tail)),
        _ => None,
    });
    let role = effects.iter_mut().find_map(|effect| match effect {
        Effect::Send { message: Message::TokenLocations { locations, .. }, .. } => Some(locations),
        _ => None,
    });
    if let (Some((peer, slot, ticket)), Some(locations)) = (child, role) {
        locations.tails[slot as usize] = Claim { peer, ticket };
    }
}

/// Sends `child` to the tail of the queue after the right one.
fn send_child_astray(effects: &mut Effects, me: PeerId) {
    let tails = effects.iter().find_map(|effect| match effect {
        Effect::Send { message: Message::TokenLocations { locations, .. }, .. } => Some(locations.tails.clone()),
        _ => None,
    });
    for effect in effects {
        if let Effect::Send { to, message: Message::Child { slot, tail, .. } } = effect
            && let Some(wrong) = tails.as_ref().map(|tails| tails[(*slot as usize + 1) % tails.len()])
            && wrong.peer != me
        {
            (*to, *tail) = (wrong.peer, wrong.ticket);
        }
    }
}

impl Protocol for Sabotaged {
    type Message = Message;
    type Timer = Never;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.run(Input::Request(ticket), cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.run(Input::Release(ticket), cx);
    }

    fn on_message(&mut self, from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        self.run(Input::Message { from, message }, cx);
    }
}

impl Observe for Sabotaged {
    const KINDS: &'static [&'static str] = FairK::KINDS;
    const HAS_COORDINATOR: bool = FairK::HAS_COORDINATOR;

    fn kind(message: &Message) -> usize {
        FairK::kind(message)
    }

    fn tokens_in_all(&self) -> Option<usize> {
        self.inner.tokens_in_all()
    }

    fn tokens(&self) -> usize {
        self.inner.tokens()
    }

    fn tokens_in(message: &Message) -> usize {
        FairK::tokens_in(message)
    }

    fn is_coordinator(&self) -> bool {
        self.inner.is_coordinator()
    }

    fn carries_coordinator(message: &Message) -> bool {
        FairK::carries_coordinator(message)
    }

    fn parent(&self) -> Option<PeerId> {
        self.inner.parent()
    }
}
