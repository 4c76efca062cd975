//! One peer with all its clients, without I/O: what happened goes in with the time, what is to be done comes out.
//!
//! ```text
//!   clients   acquire, release, renew, show, …  ┐                  ┌ Answer, Granted, Renewed, Lost, Ended, Progress
//!   network   up, down, message, unreached      ├─► Node::step ──►─┤ Send, HangUp, Dial
//!   disk      written, kept                     │                  │ Write, Belongs, Members, Keep
//!   clock     wake                              ┘                  └ Joined, Left, Event, Notice
//! ```
//!
//! [`Node::step`] is the only door. A [`Node`] is put together from rooms that own what they know:
//!
//! ```text
//!   Standing     which cluster, the session, what was asked of the register          standing.rs
//!   Sight        the cluster as the register has told it last                        sight.rs, node/look.rs
//!   Parts        a `Custody` for each resource, under the session that stands        parts.rs, node/part.rs
//!   Clients      tickets, the aliases by which custody knows them, leases            clients.rs, lease.rs
//!   Detached     grants that outlive sessions, between us and the register           detached.rs, node/detached.rs
//!   Heir         what an earlier process of this host has left, and what we leave    heir.rs, node/heir.rs
//!   Troubles     what keeps us from a session, as a log was told it                  trouble.rs
//!   Survey       what was asked about lines                                          survey.rs
//!   Orders       what people have asked for by hand: to give back, to remove         orders.rs, node/re{voke,move}.rs
//!   Others       hosts of other clusters that were met                              others.rs
//!   Founding     who is to found a cluster                                           founding.rs, node/cluster.rs
//!   Membership   where others are                                                    membership.rs
//!   Contacts     hosts; messages that arrive exactly once                            contacts.rs, link.rs
//!   Relay        connections by way of the register's leader                         relay.rs, connections.rs
//! ```
//!
//! A client's way in, where the resource is new:
//!
//! ```text
//!   client           node A                         the register (A's own voter, or others)
//!   │ Acquire          │                              │
//!   ├─────────────────►│ Join(r, 1 slot)              │
//!   │                  ├─────────────────────────────►│  an entry: r is founded, A takes part
//!   │                  │      Joined; Told: opened(1) │
//!   │                  │◄─────────────────────────────┤
//!   │ Granted          │ Close(1)                     │  A counts: nobody else is asked, the token is made
//!   │◄─────────────────┼─────────────────────────────►│
//!   │                  │                              │
//!   │                  │      node B                  │  a client of B asks
//!   │                  │        │ Join(r)             │
//!   │                  │        ├────────────────────►│
//!   │                  │        │  Joined: A keeps the line
//!   │                  │ request│◄────────────────────┤
//!   │ Release          │◄───────┤                     │
//!   ├─────────────────►│ token  │                     │  no entry: tokens go from peer to peer
//!   │                  ├───────►│ Granted, at B       │
//! ```
//!
//! Nothing here reads a clock, a socket or a random source: time comes with each step, and chance with the node's
//! birth. (The register's engine links std, and so does this crate.)

mod bytes;
mod cached_view;
mod clients;
mod config;
pub mod connections;
mod contacts;
mod detached;
mod door;
mod error;
mod founding;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod incidents;
pub mod json;
mod lease;
mod link;
mod membership;
mod mutation;
mod name;
mod node;
mod notice;
mod orders;
mod others;
mod parts;
mod relay;
mod session_state;
mod setup;
mod survey;
mod takeover;
mod timers;
mod view;
mod wire;

pub use clients::{TicketId, Wait, Wanted};
pub use config::Config;
pub use door::{Answer, Effect, Input, NetEvent, Parting};
pub use error::{Class, Error, Missing};
pub use lease::SHORTEST_TTL;
#[cfg(feature = "mutation")]
pub use mutation::{Mutation, mutation};
pub use name::{MOST_SLOTS, Name, check_slots};
pub use node::{Node, Purpose, describe, purpose};
pub use notice::Notice;
pub use peerlock_registry::disk::Write;
pub use peerlock_registry::file::Damage;
pub use peerlock_registry::{ClusterId, Refusal, SessionId, Ttl};
pub use setup::{Origin, Setup};
pub use takeover::{GrantRecord, JournalEntry, Predecessor, Since};
pub use view::{
    ClientView, ClusterView, Counters, Event, Happening, Health, Inspection, Listing, OtherCluster, PartClient,
    PartView, PeerView, Progress, ResourceDetails, ResourceHealth, ResourceView, SlotView, Stall, TicketView,
    TokenView, Voter, WaiterView,
};
pub use wire::{Malformed, hello_cluster};
