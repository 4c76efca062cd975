//! Mutations of Fair-K, made by changing the inputs and effects of a correct peer.

use peerlock_protocols::fair_k::{Claim, Config, FairK, Layout, Message};
use peerlock_protocols::{Effect, Grant, Input, Never, Observe};
use peerlock_types::{PeerId, Ticket};

use crate::mutated::{Mutation, Sabotaged, Step};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The wrapper itself changes nothing.
    None,
    TokenTwice,
    LateChildLosesToken,
    /// The coordinator leaves the old tail in *token_locations*.
    TailNotUpdated,
    ChildToWrongTail,
    ChildForgotten,
    ChildSentBack,
    /// A root that waits for the coordinator's role forgets its *next*.
    NextForgotten,
    CoordinatorRetained,
    /// A forwarding node makes node 0 its parent.
    ReversalToWrongPeer,
    GrantWithoutToken,
    WithdrawalIgnored,
    FencingNotAdvanced,
    SlotMixedUp,
}

/// A peer with a mutation. Its holders distinguish withdrawals from releases.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Broken {
    fault: Fault,
    inside: Vec<Ticket>,
}

pub type BrokenFairK = Sabotaged<FairK, Broken>;

type Effects = Vec<Effect<Message, Never>>;

pub fn peers(peers: u64, slots: u32, fault: Fault) -> impl Iterator<Item = (PeerId, BrokenFairK)> {
    let layout = Layout::printed(peers, slots);
    let mutation = Broken { fault, inside: Vec::new() };
    let peer = move |id| Sabotaged { peer: FairK::new(id, &layout, Config::REPAIRED), mutation: mutation.clone() };
    (0..peers).map(PeerId::new).map(move |id| (id, peer(id)))
}

impl Mutation<FairK> for Broken {
    fn on_input(&mut self, peer: &FairK, input: &mut Input<Message, Never>) -> bool {
        match (self.fault, input) {
            (Fault::WithdrawalIgnored, Input::Release(ticket)) => self.inside.contains(ticket),
            (Fault::ReversalToWrongPeer, Input::Message { message: Message::Request(claim), .. })
                if peer.parent().is_some() =>
            {
                *claim = Claim { peer: PeerId::new(0), ticket: Ticket::NONE };
                true
            }
            _ => true,
        }
    }

    fn on_effects(&mut self, Step { before, input, peer, effects, me, .. }: Step<'_, FairK>) {
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
                    *peer = before.clone();
                    *effects = vec![Effect::Send { to: *from, message: message.clone() }];
                }
            }
            Fault::NextForgotten => {
                if matches!(message, Some(Message::Request(_))) && effects.is_empty() {
                    *peer = before.clone();
                }
            }
            Fault::CoordinatorRetained => {
                if assigns && !effects.iter().any(|effect| is_send(effect, is_token)) {
                    *peer = before.clone();
                }
            }
            Fault::ReversalToWrongPeer => {
                for effect in effects.iter_mut() {
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
        self.inside.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Grant { ticket, .. } => Some(*ticket),
            _ => None,
        }));
        if let Input::Release(left) = input {
            self.inside.retain(|ticket| ticket != left);
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

fn tokens(effects: &mut Effects) -> impl Iterator<Item = &mut peerlock_protocols::fair_k::Token> {
    effects.iter_mut().filter_map(|effect| match effect {
        Effect::Send { message: Message::Token { token, .. }, .. } => Some(token),
        _ => None,
    })
}

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
