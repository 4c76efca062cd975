//! Waiters whose hosts cannot be reached: a coordinator passes over them, so that no slot is idle for the rest of such
//! a host's session while others wait.
//!
//! ```text
//!   coordinator          host of the next waiter      holder of a token (was told who is next)
//!   │ probe                │                            │   at every beat in which nothing was received from the host
//!   ├─────────────────────►│                            │
//!   │       confirmation   │                            │   by the link: it can be reached
//!   │◄─────────────────────┤                            │
//!   │ probe                ✂                            │
//!   ├─────────────────────►                             │   nothing is received for two seconds
//!   │ next(another waiter) │                            │
//!   ├──────────────────────┼───────────────────────────►│   takes the place of what it was told before
//! ```
//!
//! The waiter keeps its place, and is told to a holder again within a beat of when its host is heard. Only the
//! coordinator decides this: it tells each holder who comes next, also far ahead, and what it tells a holder anew is
//! what that one acts on when it releases. A token that has left for the host before that stays on its way until the
//! host's session ends. Where two hosts do not reach each other, the coordinator and the waiter are linked via the
//! leader (`relay.rs`), and the waiter is reachable.

use std::collections::BTreeSet;

use peerlock_protocol as protocol;
use peerlock_types::{Key, PeerId};

use super::{Alarm, Node};
use crate::connections::BEAT;
use crate::parts::Part;
use crate::wire::Body;

impl Node {
    /// Looks after the hosts of those who come next, if somebody waits and this host is the coordinator.
    pub(super) fn probe_soon(&mut self, resource: Key) {
        if self.parts.get(resource).is_some_and(has_waiters) {
            self.timers.set_if_none(Alarm::Waiters, self.now + BEAT);
        }
    }

    /// Probes the hosts of those who come next, and tells the parts which of them cannot be reached.
    pub(super) fn probe_waiters(&mut self) {
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
                self.send_body(host, &Body::Probe);
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

/// Whether somebody waits in the line of this part.
fn has_waiters(part: &Part) -> bool {
    part.custody.queue().is_some_and(|queue| !queue.is_empty())
}
