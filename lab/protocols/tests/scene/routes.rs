//! Three replicas, some hops, and clients A, B, C, D.
//!
//! ```text
//!   A 20 ─┬─► 10 ─┬─► 11 ─► R (0, 1, 2)      if 10 or 11 dies: 12 instead
//!   B 21 ─┘       │                          if R dies: 13 instead
//!   C 22 ─────────┘
//!   D 23 ─────────────────► R
//! ```

use std::collections::BTreeSet;
use std::fmt::Display;

use peerlock_protocols::{Observe, Quorum, Replicas};
use peerlock_types::{PeerId, Span};

use super::Scene;

pub const A: u64 = 20;
pub const B: u64 = 21;
pub const C: u64 = 22;
pub const D: u64 = 23;

impl<P: Observe + Display> Scene<P> {
    /// Two of three votes win.
    pub fn on_routes(new: impl Fn(PeerId, &Replicas) -> P) -> Self {
        let replicas = Replicas::on_overlay("resource", Quorum::new(3, 2));
        let peers = (0..3).chain(10..14).chain(A..=D);
        let routes = replicas.clone();
        let next = move |key, here, dead: &BTreeSet<u64>| {
            let replica = u64::from(routes.under(key).expect("a key of a replica"));
            let ways: &[u64] = match here {
                A | B => &[10, 12],
                10 => &[11, 12],
                C => &[11, 12],
                D | 11 | 12 => &[replica, 13],
                _ => &[],
            };
            ways.iter().copied().find(|peer| !dead.contains(peer))
        };
        Self::of(peers, |me| new(me, &replicas), Box::new(next))
    }

    /// The clients request in turn, each after all earlier messages have arrived.
    pub fn with_requests(mut self, clients: &[u64]) -> Self {
        for &client in clients {
            self.request(client);
            self.pass(Span::from_secs(1));
        }
        self
    }

    pub fn leave(&mut self, client: u64) {
        self.release(client);
        self.pass(Span::from_secs(1));
    }

    pub fn state(&self, peer: u64) -> String {
        self.peers[&peer].to_string()
    }
}
