//! Mutations of Fair-K with late binding: each is detected, and harmless ones are not.

use peerlock_explore::{Counterexample, Explored, Limits, Violation, World, explore};
use peerlock_protocols::fair_k_late::{Config, FairKLate, Message, Update};
use peerlock_protocols::token::{Claim, Layout};
use peerlock_protocols::{Effect, Input, Never, Observe};
use peerlock_types::{PeerId, Ticket};

use crate::mutated::{Mutation, Sabotaged, Step};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fault {
    /// The wrapper itself changes nothing.
    None,
    /// Harmless.
    UpdateTwice,
    /// Harmless.
    NextTwice,
    /// The messages that follow are ignored.
    TurnTooHigh,
    NextBeforeTokenLost,
    /// A token is lost if its client has been served already.
    SurplusLost,
    LeftNotSent,
    LeftToNowhere,
    /// Harmless, but an idle token then goes to the oldest unbound waiter.
    FreeNotSent,
    BusyNotSent,
    /// All reports of one hold have the same number.
    ReportsNotNumbered,
    RoleRetained,
    EarlyUpdateLost,
    LateUpdateLost,
    WithdrawalIgnored,
    TokenTwice,
    FencingNotAdvanced,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Broken {
    fault: Fault,
    waiting: Vec<Ticket>,
    was_coordinator: bool,
}

type Sent = Effect<Message, Never>;

impl Mutation<FairKLate> for Broken {
    fn on_input(&mut self, peer: &FairKLate, input: &mut Input<Message, Never>) -> bool {
        match (self.fault, input) {
            (Fault::WithdrawalIgnored, Input::Release(ticket)) => !self.waiting.contains(ticket),
            (Fault::EarlyUpdateLost, Input::Message { message: Message::Update { .. }, .. }) => {
                self.was_coordinator || peer.is_coordinator()
            }
            (Fault::LateUpdateLost, Input::Message { message: Message::Update { .. }, .. }) => {
                !self.was_coordinator || peer.is_coordinator()
            }
            (Fault::NextBeforeTokenLost, Input::Message { message: Message::Next { .. }, .. }) => peer.tokens() > 0,
            (Fault::SurplusLost, Input::Message { message: Message::Token { to, .. }, .. }) => {
                self.waiting.contains(to)
            }
            (Fault::TurnTooHigh, Input::Message { message: Message::Next { following, replaces, .. }, .. }) => {
                (following.turn, *replaces) = (1 << 40, true);
                true
            }
            _ => true,
        }
    }

    fn on_effects(&mut self, Step { before, input, peer, effects, me, .. }: Step<'_, FairKLate>) {
        let again = |effects: &mut Vec<Sent>, kind: fn(&Message) -> bool| {
            let sent: Vec<Sent> = effects.iter().filter(|effect| is_send(effect, kind)).cloned().collect();
            effects.extend(sent);
        };
        match self.fault {
            Fault::UpdateTwice if matches!(input, Input::Message { message: Message::Update { .. }, .. }) => {}
            Fault::UpdateTwice => again(effects, |message| matches!(message, Message::Update { .. })),
            Fault::NextTwice => again(effects, |message| matches!(message, Message::Next { .. })),
            Fault::TokenTwice => again(effects, |message| matches!(message, Message::Token { .. })),
            Fault::LeftNotSent => unsay(effects, |update| matches!(update, Update::Left { .. })),
            Fault::FreeNotSent => unsay(effects, |update| matches!(update, Update::Free { .. })),
            Fault::BusyNotSent => unsay(effects, |update| matches!(update, Update::Busy { .. })),
            Fault::RoleRetained => {
                if effects.iter().any(|effect| is_send(effect, |message| matches!(message, Message::Queue(_)))) {
                    *peer = before.clone();
                }
            }
            _ => effects.iter_mut().for_each(|effect| self.tamper_with(effect, me)),
        }
        self.was_coordinator |= before.is_coordinator();
        match input {
            Input::Request(ticket) => self.waiting.push(*ticket),
            Input::Release(ticket) => self.waiting.retain(|waiting| waiting != ticket),
            _ => {}
        }
        for effect in effects {
            if let Effect::Grant { ticket, .. } = effect {
                self.waiting.retain(|waiting| waiting != ticket);
            }
        }
    }
}

impl Broken {
    fn tamper_with(&self, effect: &mut Sent, me: PeerId) {
        let Effect::Send { message, .. } = effect else { return };
        match (self.fault, message) {
            (Fault::LeftToNowhere, Message::Update { update: Update::Left { to, .. }, .. }) => {
                *to = Claim { peer: me, ..*to };
            }
            (
                Fault::ReportsNotNumbered,
                Message::Update { update: Update::Free { report, .. } | Update::Busy { report, .. }, .. },
            ) => *report = 1,
            (Fault::FencingNotAdvanced, Message::Token { token, .. }) => token.fencing -= 1,
            _ => {}
        }
    }
}

fn is_send(effect: &Sent, kind: fn(&Message) -> bool) -> bool {
    matches!(effect, Effect::Send { message, .. } if kind(message))
}

fn unsay(effects: &mut Vec<Sent>, kind: fn(&Update) -> bool) {
    effects.retain(
        |effect| !matches!(effect, Effect::Send { message: Message::Update { update, .. }, .. } if kind(update)),
    );
}

const MOST_STATES: usize = 30_000_000;

fn play(fault: Fault, peers: u64, limits: Limits, term: u32) -> Result<Explored, Box<Counterexample>> {
    let layout = Layout::printed(peers, limits.slots as u32);
    let config = Config { term, ..Config::default() };
    let mutation = Broken { fault, waiting: Vec::new(), was_coordinator: false };
    let peer = |id| Sabotaged { peer: FairKLate::new(id, &layout, config), mutation: mutation.clone() };
    explore(&World::new(limits, (0..peers).map(PeerId::new).map(|id| (id, peer(id)))), MOST_STATES)
}

#[test]
fn harmless_mutations_are_not_detected() {
    let limits = |slots| Limits { requests: 2, ordered: true, ..Limits::new(slots) };
    let side_by_side = Limits { clients: 2, ..limits(2) };
    let unordered = Limits { ordered: false, ..limits(1) };
    let worlds = [
        (2, limits(1), 1),
        (2, unordered, 1000),
        (2, side_by_side, 1000),
        (3, Limits { ordered: true, ..Limits::new(1) }, 1),
        (3, Limits::new(1), 1000),
        (3, Limits::new(2), 1000),
    ];
    for fault in [Fault::None, Fault::UpdateTwice, Fault::NextTwice, Fault::FreeNotSent] {
        // These worlds are too large for every run.
        let is_large = |peers, limits: &Limits, term| peers == 3 && (!limits.ordered || term == 1);
        let plays_all = fault != Fault::UpdateTwice || std::env::var_os("PEERLOCK_LARGE").is_some();
        let fits = |&(peers, ref limits, term): &_| plays_all || !is_large(peers, limits, term);
        for (peers, limits, term) in worlds.into_iter().filter(fits) {
            match play(fault, peers, limits, term) {
                Ok(explored) => println!("{fault:?}, {peers} peers, {limits:?}, term {term}: {explored:?}"),
                Err(found) => panic!("{fault:?}, {peers} peers, {limits:?}, term {term}:\n{found}"),
            }
        }
    }
}

#[test]
fn every_fault_is_caught_by_the_right_check() {
    let limits = |slots| Limits { requests: 2, ..Limits::new(slots) };
    let side_by_side = Limits { requests: 3, clients: 2, ..Limits::new(2) };
    let withdrawing = Limits { withdrawals: 1, ..limits(1) };
    type Case = (Fault, u64, Limits, u32, fn(&Violation) -> bool);
    let table: [Case; 13] = [
        (Fault::SurplusLost, 2, withdrawing, 1000, |v| matches!(v, Violation::Tokens { found: 0, expected: 1 })),
        (Fault::TokenTwice, 2, limits(1), 1000, |v| matches!(v, Violation::Tokens { found: 2, expected: 1 })),
        (Fault::LeftNotSent, 3, limits(2), 1000, |v| matches!(v, Violation::Idle(_) | Violation::Stuck(_))),
        (Fault::LeftToNowhere, 3, limits(1), 1000, |v| matches!(v, Violation::Idle(_))),
        (Fault::BusyNotSent, 3, limits(2), 1000, |v| matches!(v, Violation::Idle(_))),
        (Fault::ReportsNotNumbered, 2, side_by_side, 1000, |v| matches!(v, Violation::Idle(_))),
        (Fault::NextBeforeTokenLost, 3, limits(1), 1000, |v| matches!(v, Violation::Idle(_))),
        (Fault::TurnTooHigh, 2, limits(1), 1, |v| matches!(v, Violation::Idle(_) | Violation::Stuck(_))),
        (Fault::RoleRetained, 3, limits(1), 1, |v| matches!(v, Violation::Coordinators(2))),
        (Fault::EarlyUpdateLost, 3, limits(1), 1, |v| matches!(v, Violation::Idle(_) | Violation::Stuck(_))),
        (Fault::LateUpdateLost, 3, limits(1), 1, |v| matches!(v, Violation::Idle(_) | Violation::Stuck(_))),
        (Fault::WithdrawalIgnored, 2, withdrawing, 1000, |v| matches!(v, Violation::NotWaiting(..))),
        (Fault::FencingNotAdvanced, 2, limits(1), 1000, |v| matches!(v, Violation::Fencing(..))),
    ];
    for (fault, peers, limits, term, is_right) in table {
        let found = match play(fault, peers, limits, term) {
            Ok(explored) => panic!("{fault:?} was not detected among {peers} peers with {limits:?}: {explored:?}"),
            Err(found) => found,
        };
        println!("{fault:?}, {} steps:\n{found}\n", found.steps);
        assert!(is_right(&found.violation), "{fault:?} was detected as another violation:\n{found}");
    }
}
