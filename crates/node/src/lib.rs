//! One peer with all its clients, without I/O: what happened goes in with the time, what is to be done comes out.
//!
//! ```text
//!   clients   acquire, release, renew, show, …  ┐                  ┌ Answer, Granted, Lost, Ended, Progress
//!   network   up, down, message, unreached      ├─► Node::step ──►─┤ Send, HangUp, Dial
//!   clock     wake                              ┘                  └ Joined, Left, Event, Notice
//! ```
//!
//! [`Node::step`] is the only door. A [`Node`] is generic over the protocol that guards its resources ([`Guard`]) and
//! the overlay that finds peers by keys ([`Routing`]), and is put together from rooms that own what they know:
//!
//! ```text
//!   Clients      tickets, the claims under which the protocol knows them, leases     clients.rs, lease.rs
//!   Founding     attempts to found resources, answers to those of others             founding.rs, paxos.rs
//!   Charters     every resource that is founded; a part in it is opened from here    charter.rs
//!   Survey       what was asked about lines and tokens; what has come to a halt      survey.rs, health.rs
//!   Membership   whether we are in the cluster, and everybody else in it             membership.rs
//!   Contacts     members; messages that arrive exactly once                          contacts.rs, link.rs
//!   Peer         the protocols on their overlay                                      peerlock-peer
//! ```
//!
//! A client's way in, where the resource is new:
//!
//! ```text
//!   client           node A                         node B                     node C
//!   │ Acquire          │                              │                          │
//!   ├─────────────────►│ Ask(Found, ballot)           │                          │
//!   │                  ├─────────────────────────────►├─ …                       │   Founding: A, B and C decide
//!   │                  │◄─────────────────────────────┤                          │
//!   │                  │ Charters(r: 1 slot, home A)  │                          │
//!   │                  ├─────────────────────────────►├─────────────────────────►│   everybody knows that r is founded
//!   │ Granted          │                              │                          │   A has all tokens at first
//!   │◄─────────────────┤                              │        Peer(request)     │
//!   │                  │◄─────────────────────────────┼──────────────────────────┤   a client of C asks
//!   │ Release          │                              │                          │
//!   ├─────────────────►│ Peer(token)                  │                          │
//!   │                  ├──────────────────────────────┼─────────────────────────►│   Granted, at C
//! ```
//!
//! Nothing here reads a clock, a socket or a random source: time comes with each step, and chance with the node's
//! birth.
// The derives for the OpenAPI document need std; the proof in .ci/no-std builds without them.
#![cfg_attr(not(feature = "schema"), no_std)]

extern crate alloc;

mod charter;
mod clients;
mod config;
mod contacts;
mod error;
mod founding;
mod guard;
mod health;
pub mod json;
mod lease;
mod link;
mod membership;
mod name;
mod node;
mod notice;
mod paxos;
mod sabotage;
mod survey;
mod timers;
mod view;
mod wire;

pub use charter::{Charter, Charters};
pub use clients::{SessionId, TicketId, Wait, Wanted};
pub use config::Config;
pub use error::{Class, Error};
pub use guard::{Guard, Held, Line, Routing, Seat};
pub use name::{MOST_SLOTS, Name, check_slots};
pub use node::{Answer, Birth, Effect, Input, NetEvent, Node, describe};
pub use notice::Notice;
#[cfg(feature = "sabotage")]
pub use sabotage::{Sabotage, sabotage};
pub use view::{
    ClientView, Counters, Event, Happening, Inspection, Part, PartClient, PeerView, Progress, ResourceDetails,
    ResourceView, SlotView, TicketView, TokenView, WaiterView,
};
pub use wire::Malformed;
