//! What this peer knows by itself, for whoever watches. Nothing here asks anybody or changes anything.

use peerlock_base::Time;
use peerlock_mutex::token::Claim;

use super::Node;
use crate::wire::Client;
use crate::{Inspection, PartClient, PartView, TicketView, TokenView};

impl Node {
    /// This peer from the inside.
    pub fn inspect(&self, now: Time) -> Inspection {
        let others = self.contacts.all().map(|(host, _)| host);
        let parts = self.resources().into_iter().map(|view| {
            let resource = view.name.key();
            let part = self.parts.get(resource).map(|part| &part.custody);
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
            PartView {
                name: view.name,
                slots: view.slots,
                keeper: part.filter(|part| part.is_party()).map(|part| part.coordinator()),
                line: line.map(|line| line.waiting().map(ticket_view).collect()),
                tokens,
                clients: self.clients_of(resource, now).map(part_client).collect(),
            }
        });
        Inspection { peer: self.host(), others: others.collect(), parts: parts.collect() }
    }
}

/// For the tests that nobody can fill us up.
#[cfg(any(test, feature = "forge"))]
impl Node {
    /// How many things are kept here because somebody else has said something: hosts, addresses, unconfirmed messages,
    /// connections by way of others, questions, early news, lines.
    pub fn kept(&self) -> usize {
        let contacts: usize = self.contacts.all().map(|(_, contact)| 1 + contact.kept()).sum();
        let register = self.standing.register().map_or(0, peerlock_register::Register::kept);
        let asked = self.survey.kept()
            + self.orders.kept()
            + self.detached.orphans()
            + self.troubles.kept()
            + self.others.kept();
        let asked = asked + self.parts.kept() + self.heir.kept();
        contacts + register + asked + self.relay.kept() + self.membership.dialled()
    }
}

fn ticket_view(Claim { peer, ticket }: Claim) -> TicketView {
    TicketView { peer, ticket: ticket.get() }
}

fn part_client(client: Client) -> PartClient {
    PartClient {
        ticket: client.ticket.map_or(0, |ticket| ticket.get()),
        slot: client.grant.map(|(slot, _)| slot),
        client: client.view(),
    }
}
