//! A peer with its clients: [`Service`] is the handle of a task that owns a [`peerlock_node::Node`], which is pure.
//! `docs/design/overview.md` has the protocol.

mod awake;
mod command;
mod driver;
mod grant;
mod grants;
pub mod memory;
mod net;
pub mod places;
mod request;
mod service;
pub mod store;
pub mod transport;
mod verbs;

pub use driver::random;
pub use grant::{Grant, GrantId, Granted};
pub use grants::GrantFile;
pub use net::RealNetwork;
pub use peerlock_clock::{Clock, Moment, slept};
pub use peerlock_net::{Identity, Secret};
pub use peerlock_node::{
    Class, ClientView, ClusterId, ClusterView, Conclusion, Config, Counters, Error, Event, Happening, Health,
    Inspection, Listing, MOST_SLOTS, Missing, Name, OtherCluster, PartClient, PartView, PeerView, PeriodView,
    Predecessor, Progress, ResourceDetails, ResourceHealth, ResourceView, SHORTEST_TTL, SlotView, Stall, TicketView,
    TokenView, Voter, WaiterView, hello_cluster, json, verb,
};
pub use peerlock_types::{Key, PeerId, Span};
pub use request::Request;
pub use service::{Acquire, Builder, Service};
