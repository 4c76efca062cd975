//! The local state of this peer, for observers. Has no side effects.

use peerlock_protocol::token::Claim;
use peerlock_types::Time;

use super::Node;
use crate::wire::Client;
use crate::{Inspection, PartClient, PartView, TicketView, TokenView};

impl Node {
    /// Returns the local state.
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
            let queue = part.and_then(|part| part.queue());
            PartView {
                name: view.name,
                slots: view.slots,
                keeper: part.filter(|part| part.is_party()).map(|part| part.coordinator()),
                queue: queue.map(|queue| queue.waiting().map(ticket_view).collect()),
                tokens,
                clients: self.clients_of(resource, now).map(part_client).collect(),
            }
        });
        Inspection { peer: self.host(), others: others.collect(), parts: parts.collect() }
    }
}

#[cfg(any(test, feature = "fuzz"))]
impl Node {
    pub fn retained(&self) -> usize {
        let contacts: usize = self.contacts.all().map(|(_, contact)| 1 + contact.retained()).sum();
        let registry = self.session_state.registry().map_or(0, peerlock_registry::Registry::retained);
        let asked = self.survey.retained()
            + self.orders.retained()
            + self.detached.orphans()
            + self.incidents.retained()
            + self.others.retained();
        let asked = asked + self.parts.retained() + self.takeover.retained();
        contacts + registry + asked + self.relay.retained() + self.membership.dialled()
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
