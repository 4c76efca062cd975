//! What this peer knows by itself, for whoever watches. Nothing here asks anybody or changes anything.

use std::time::Duration;

use peerlock_base::{Key, Time};
use peerlock_mutex::token::Claim;
use peerlock_overlay::{Node, Overlay as _};

use super::Engine;
use crate::wire::Client;
use crate::{ClientView, Inspection, Part, PartClient, TicketView, TokenView};

impl Engine {
    /// This peer from the inside.
    pub fn inspect(&self, now: Time) -> Inspection {
        let overlay = self.peer.overlay();
        // Nobody stands on the ring beside one who is alone, or not in it.
        let before = overlay.range().map(|range| range.after);
        let successor = before.and_then(|_| overlay.neighbours().next());
        let predecessor = before.and_then(|key| overlay.neighbours().find(|node| node.key == key));
        let others = self.contacts.all().filter_map(|(host, contact)| Some((host.0, Key::of_peer(contact.member?))));
        let parts = self.resources().into_iter().map(|view| {
            let resource = view.name.key();
            let protocol = self.protocol(resource);
            // Who has had nothing to do with a resource knows only who founded it.
            let keeper = protocol.map(|protocol| protocol.coordinator());
            let keeper = keeper.or_else(|| self.charter(resource).map(|charter| charter.home));
            let line = protocol.and_then(|protocol| protocol.line());
            let mut tokens: Vec<TokenView> = protocol.map_or(Vec::new(), |protocol| {
                let next = |slot| protocol.next_of(slot).map(|claim| self.ticket_view(claim));
                let token = |(token, user): (peerlock_mutex::token::Token, Option<_>)| TokenView {
                    slot: token.slot,
                    free: user.is_none(),
                    next: next(token.slot),
                };
                protocol.held().map(token).collect()
            });
            tokens.sort_by_key(|token| token.slot);
            Part {
                name: view.name,
                slots: view.slots,
                keeper: keeper.map(|keeper| self.name_of(self.contacts.heir(keeper))),
                line: line.map(|line| line.waiting().map(|claim| self.ticket_view(claim)).collect()),
                tokens,
                clients: self.clients(resource, now).map(part_client).collect(),
            }
        });
        let name = |node: Node| self.name_of(node.peer);
        Inspection {
            peer: self.me.0,
            place: overlay.me().key,
            successor: successor.map(name),
            predecessor: predecessor.map(name),
            others: others.collect(),
            parts: parts.collect(),
        }
    }

    fn ticket_view(&self, Claim { peer, ticket }: Claim) -> TicketView {
        TicketView { peer: self.name_of(peer), ticket: ticket.get() }
    }
}

fn part_client(Client { ticket, label, millis, grant }: Client) -> PartClient {
    let client = ClientView { label, age: Duration::from_millis(millis), fencing: grant.map(|(_, fencing)| fencing) };
    PartClient { ticket: ticket.get(), slot: grant.map(|(slot, _)| slot), client }
}
