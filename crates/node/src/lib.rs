//! One peer with all its clients, without I/O: what happened goes in with the time, what is to be done comes out.
//!
//! [`Node::step`] is the only door.
//!
//! Nothing here reads a clock, a socket or a random source: time comes with each step, and chance with the node's
//! birth.

mod birth;
mod clients;
mod config;
mod contacts;
mod door;
mod error;
pub mod json;
mod lease;
mod link;
mod membership;
mod name;
mod node;
mod notice;
mod sabotage;
mod standing;
mod survey;
mod timers;
mod view;
mod wire;

pub use birth::{Birth, Origin};
pub use clients::{SessionId, TicketId, Wait, Wanted};
pub use config::Config;
pub use door::{Answer, Effect, Input, NetEvent};
pub use error::{Class, Error, Missing};
pub use name::{MOST_SLOTS, Name, check_slots};
pub use node::{Node, describe};
pub use notice::Notice;
pub use peerlock_register::disk::Write;
pub use peerlock_register::file::Damage;
pub use peerlock_register::{ClusterId, Refusal, Ttl};
#[cfg(feature = "sabotage")]
pub use sabotage::{Sabotage, sabotage};
pub use view::{
    ClientView, ClusterView, Counters, Event, Happening, Inspection, Part, PartClient, PeerView, Progress,
    ResourceDetails, ResourceView, SlotView, TicketView, TokenView, Voter, WaiterView,
};
pub use wire::Malformed;
