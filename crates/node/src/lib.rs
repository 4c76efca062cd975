//! One peer with all its clients, as a state machine without I/O.
//!
//! ```text
//!   clients   acquire, release, renew, show, …  ┐                  ┌ Answer, Granted, Renewed, Lost, Ended, Progress
//!   network   up, down, message, unreached      ├─► Node::step ──►─┤ Send, HangUp, Dial
//!   disk      written, recorded                 │                  │ Write, Belongs, Members, Record
//!   clock     wake                              ┘                  └ Joined, Left, Event, Notice
//! ```
//!
//! The life of one request is in `docs/design/overview.md`. [`Node::step`] is the only entry point: one match, whose
//! arms call one of these flows. Each file begins with the steps and messages of its flow, and has its state.
//!
//! ```text
//!   acquire.rs    from a request to a confirmed grant             clients.rs, lease.rs: tickets and leases
//!   release.rs    the end of a ticket
//!   renew.rs      deadlines move, or pass
//!   detached.rs   grants in the registry, which outlive sessions
//!   session.rs    opened, used, renewed, lost                     session_state.rs: requests to the registry
//!   recovery.rs   generations, the census, lost messages          a `Custody` per resource
//!   reach.rs      unreachable waiters are skipped
//!   takeover.rs   grants of the predecessor process, the journal
//!   admin.rs      resize, evict, revoke, delete, voters
//!   query.rs      show, and questions between peers               cluster.rs: members and resources
//!   health.rs     why nothing is granted                          inspect.rs: for observers
//!   drain.rs      drain, leave
//!   links.rs      which peers are connected                       links/: join, relay, contacts, link
//!   testing.rs    fuzzing member, mutations
//!
//!   door.rs       inputs, effects and answers                     wire.rs: messages between peers
//! ```
//!
//! The crate reads no clock, socket or random source: each step takes the time, and [`Setup`] seeds the randomness. It
//! links std only because the registry's Raft engine does.

mod acquire;
mod admin;
mod bytes;
#[expect(missing_docs, reason = "some fields are named after their content")]
mod clients;
mod cluster;
mod conclude;
mod config;
mod detached;
#[expect(missing_docs, reason = "some fields are named after their content")]
mod door;
mod drain;
#[expect(missing_docs, reason = "some fields are named after their content")]
mod error;
mod health;
mod inspect;
pub mod json;
mod lease;
mod links;
mod name;
mod node;
#[expect(missing_docs, reason = "some fields are named after their content")]
mod notice;
mod query;
mod reach;
mod recovery;
mod release;
mod renew;
mod session;
mod session_state;
#[expect(missing_docs, reason = "some fields are named after their content")]
mod setup;
#[expect(missing_docs, reason = "some fields are named after their content")]
mod takeover;
mod testing;
mod timers;
pub mod verb;
#[expect(missing_docs, reason = "some fields are named after their content")]
mod view;
mod wire;

pub use clients::{TicketId, Wait, Wanted};
pub use conclude::Conclusion;
pub use config::Config;
pub use door::{Answer, Effect, Input, NetEvent, Parting};
pub use error::{Class, Error, Missing};
pub use lease::SHORTEST_TTL;
pub use name::{MOST_SLOTS, Name, check_slots};
pub use node::{Node, Purpose, describe, purpose};
pub use notice::Notice;
pub use peerlock_registry::disk::Write;
pub use peerlock_registry::file::Damage;
pub use peerlock_registry::{ClusterId, Refusal, SessionId, Ttl};
pub use setup::{Origin, Setup};
pub use takeover::places::Place;
pub use takeover::{GrantRecord, JournalEntry, Predecessor, Since};
#[cfg(any(test, feature = "fuzz"))]
pub use testing::fuzz;
#[cfg(feature = "mutation")]
pub use testing::mutation::{Mutation, mutation};
pub use view::{
    ClientView, ClusterView, Counters, Event, Happening, Health, Inspection, Listing, OtherCluster, PartClient,
    PartView, PeerView, PeriodView, Progress, ResourceDetails, ResourceHealth, ResourceView, SlotView, Stall,
    TicketView, TokenView, Voter, WaiterView,
};
pub use wire::{Malformed, hello_cluster};
