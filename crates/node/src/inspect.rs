//! The local state of this peer, for observers.

use peerlock_protocol::token::Claim;
use peerlock_registry::Registry;
use peerlock_types::Time;

use crate::node::Node;
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

    /// Returns the voter of this host, if there is one. For observers.
    pub fn registry(&self) -> Option<&Registry> {
        self.session_state.registry()
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
