//! What this peer knows by itself, for whoever watches. Nothing here asks anybody or changes anything.

use std::time::Duration;

use peerlock_base::{Key, Time};
use peerlock_mutex::token::Claim;

use super::Node;
use crate::wire::Client;
use crate::{ClientView, Inspection, Part, PartClient, TicketView, TokenView};

impl Node {
    /// This peer from the inside. Peers lie on a ring by the keys of their numbers.
    pub fn inspect(&self, now: Time) -> Inspection {
        let contacts = &self.membership.contacts;
        let place = Key::of_peer(self.host());
        let beside: Vec<_> = contacts.open().map(|(host, _)| (Key::of_peer(host), host)).collect();
        let next = |distance: &dyn Fn(Key) -> u128| beside.iter().min_by_key(|(key, _)| distance(*key)).map(|at| at.1);
        let others = contacts.all().map(|(host, _)| (host, Key::of_peer(host)));
        let parts = self.resources().into_iter().map(|view| {
            let resource = view.name.key();
            let part = self.parts.get(&resource).map(|part| &part.custody);
            let mut tokens: Vec<TokenView> = part
                .into_iter()
                .flat_map(|part| part.held().map(move |(token, user)| (part, token.slot, user)))
                .map(|(part, slot, user)| TokenView {
                    slot,
                    free: user.is_none(),
                    next: part.next_of(slot).map(ticket_view),
                })
                .collect();
            tokens.sort_by_key(|token| token.slot);
            let line = part.and_then(|part| part.line());
            Part {
                name: view.name,
                slots: view.slots,
                keeper: part.filter(|part| part.is_party()).map(|part| part.coordinator()),
                line: line.map(|line| line.waiting().map(ticket_view).collect()),
                tokens,
                clients: self.clients_of(resource, now).map(part_client).collect(),
            }
        });
        Inspection {
            peer: self.host(),
            place,
            successor: next(&|key| place.distance(key)),
            predecessor: next(&|key| key.distance(place)),
            others: others.collect(),
            parts: parts.collect(),
        }
    }
}

/// For the tests that nobody can fill us up.
#[cfg(any(test, feature = "forge"))]
impl Node {
    /// How many things are kept here because somebody else has said something: hosts, addresses, unconfirmed messages,
    /// connections by way of others, questions, early news, lines.
    pub fn kept(&self) -> usize {
        let parts: usize = self.parts.values().map(|part| 1 + part.custody.kept(None)).sum();
        let contacts: usize = self.membership.contacts.all().map(|(_, contact)| 1 + contact.kept()).sum();
        let register = self.standing.register().map_or(0, peerlock_register::Register::kept);
        let asked = self.survey.kept() + self.revocations.len() + self.orphans.len() + self.foreign.len();
        let asked = asked + self.rations.len() + self.heir.kept();
        parts + contacts + register + asked + self.relay.kept() + self.membership.dialled()
    }
}

fn ticket_view(Claim { peer, ticket }: Claim) -> TicketView {
    TicketView { peer, ticket: ticket.get() }
}

fn part_client(Client { ticket, label, pid, millis, grant, ends, .. }: Client) -> PartClient {
    let client = ClientView {
        label,
        age: Duration::from_millis(millis),
        fencing: grant.map(|(_, fencing)| fencing),
        ends: ends.map(Duration::from_millis),
        pid,
    };
    PartClient { ticket: ticket.map_or(0, |ticket| ticket.get()), slot: grant.map(|(slot, _)| slot), client }
}
