//! What this peer knows by itself, for whoever watches. Nothing here asks anybody or changes anything.

use std::time::Duration;

use peerlock_base::{Key, Time};
use peerlock_mutex::token::Claim;

use super::Node;
use crate::wire::Client;
use crate::{ClientView, Guard, Inspection, Part, PartClient, Routing, TicketView, TokenView};

impl<P: Guard, O: Routing> Node<P, O> {
    /// This peer from the inside. Peers lie on a ring by the keys of their members, whatever overlay there is.
    pub fn inspect(&self, now: Time) -> Inspection {
        let contacts = &self.membership.contacts;
        let place = Key::of_peer(contacts.me());
        let on_ring = contacts.open().map(|(member, _)| (Key::of_peer(member), member));
        let on_ring = on_ring.map(|(key, member)| (key, self.membership.name_of(member)));
        let beside = on_ring.collect::<Vec<_>>();
        let next = |distance: &dyn Fn(Key) -> u128| beside.iter().min_by_key(|(key, _)| distance(*key)).map(|at| at.1);
        let others = contacts.all().filter_map(|(host, contact)| Some((host.0, Key::of_peer(contact.member?))));
        let parts = self.resources().into_iter().map(|view| {
            let resource = view.name.key();
            let protocol = self.peer.protocol(resource);
            // A peer that has had nothing to do with a resource knows only who founded it.
            let home = self.peer.resources().get(resource).map(|charter| charter.home);
            let keeper = protocol.map(Guard::coordinator).or(home);
            let line = protocol.and_then(Guard::line);
            let mut tokens: Vec<TokenView> = protocol
                .map_or(Vec::new(), Guard::held)
                .into_iter()
                .map(|held| TokenView {
                    slot: held.slot,
                    free: held.user.is_none(),
                    next: held.next.map(|claim| self.ticket_view(claim)),
                })
                .collect();
            tokens.sort_by_key(|token| token.slot);
            Part {
                name: view.name,
                slots: view.slots,
                keeper: keeper.map(|keeper| self.membership.name_of(contacts.heir(keeper))),
                line: line.map(|line| line.waiting.into_iter().map(|claim| self.ticket_view(claim)).collect()),
                tokens,
                clients: self.clients_of(resource, now).map(part_client).collect(),
            }
        });
        Inspection {
            peer: self.membership.host(),
            place,
            successor: next(&|key| place.distance(key)),
            predecessor: next(&|key| key.distance(place)),
            others: others.collect(),
            parts: parts.collect(),
        }
    }

    fn ticket_view(&self, Claim { peer, ticket }: Claim) -> TicketView {
        TicketView { peer: self.membership.name_of(peer), ticket: ticket.get() }
    }
}

fn part_client(Client { ticket, label, millis, grant }: Client) -> PartClient {
    let client = ClientView { label, age: Duration::from_millis(millis), fencing: grant.map(|(_, fencing)| fencing) };
    PartClient { ticket: ticket.get(), slot: grant.map(|(slot, _)| slot), client }
}
