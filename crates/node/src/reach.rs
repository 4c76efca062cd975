//! Unreachable waiters: a coordinator skips them, so that no slot is idle until such a host's session expires.
//!
//! ```text
//!   coordinator          host of the next waiter      holder of a token (knows its successors)
//!   │ probe                │                            │   at every beat in which nothing was received from the host
//!   ├─────────────────────►│                            │
//!   │    acknowledgement   │                            │   by the link: it is reachable
//!   │◄─────────────────────┤                            │
//!   │ probe                ✂                            │
//!   ├─────────────────────►                             │   nothing is received for two seconds
//!   │ next(another waiter) │                            │
//!   ├──────────────────────┼───────────────────────────►│   replaces the successors
//! ```
//!
//! The waiter keeps its position, and is announced to a holder again within a beat after its host was received. Only
//! the coordinator decides this, since it sends the successors, and a later list replaces an earlier one. A token
//! already sent to an unreachable host is lost until that host's session ends. Two hosts that cannot connect to each
//! other are linked via the leader (`relay.rs`), so the waiter is reachable.

use std::collections::BTreeSet;

use peerlock_protocol as protocol;
use peerlock_types::{Key, PeerId};

use crate::links::relay::BEAT;
use crate::node::{Alarm, Node};
use crate::recovery::Part;
use crate::wire::Body;

impl Node {
    pub(crate) fn probe_soon(&mut self, resource: Key) {
        if self.parts.get(resource).is_some_and(has_waiters) {
            self.timers.set_if_none(Alarm::Waiters, self.now + BEAT);
        }
    }

    pub(crate) fn probe_waiters(&mut self) {
        let mut awaited: Vec<(Key, BTreeSet<PeerId>)> = Vec::new();
        for (resource, part) in self.parts.iter().filter(|(_, part)| has_waiters(part)) {
            let announced = part.custody.queue().into_iter().flat_map(|queue| queue.announced());
            let hosts = announced.chain(part.custody.unreachable().iter().copied());
            awaited.push((*resource, hosts.filter(|host| *host != self.host()).collect()));
        }
        if awaited.is_empty() {
            return;
        }
        self.timers.set(Alarm::Waiters, self.now + BEAT);
        let hosts: BTreeSet<PeerId> = awaited.iter().flat_map(|(_, hosts)| hosts).copied().collect();
        for host in hosts {
            if self.contacts.is_silent(host, self.now, BEAT) {
                self.send_reliable(host, &Body::Probe);
            }
        }
        for (resource, hosts) in awaited {
            for peer in hosts {
                let reachable = !self.contacts.is_unreachable(peer, self.now);
                let part =
                    self.parts.get(resource).filter(|part| part.custody.unreachable().contains(&peer) == reachable);
                if part.is_some() {
                    self.part_step(resource, protocol::Input::Reachable { peer, reachable });
                }
            }
        }
    }
}

fn has_waiters(part: &Part) -> bool {
    part.custody.queue().is_some_and(|queue| !queue.is_empty())
}
