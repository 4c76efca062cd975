//! Named resources among peers: at most `slots` inside at a time, in fair order, without a server.
//!
//! [`Service`] is one peer with all its clients; [`Resource`], [`Acquire`] and [`Grant`] are a client's way in and out.
//! Inside, one task owns a [`peerlock_node::Node`], which is pure: `docs/service.md` has the rest.

mod driver;
mod grant;
pub mod memory;
mod net;
mod peer;
pub mod places;
mod product;
mod service;
pub mod transport;

pub use driver::Happening;
pub use grant::{Grant, GrantId};
pub use net::RealNetwork;
pub use peer::{PORT, Peer, PeerBuilder, StartError, runtime};
pub use peerlock_base::{Key, PeerId, Span};
pub use peerlock_net::{Identity, Secret};
pub use peerlock_node::{
    ClientView, Config, Counters, Error, Event, Inspection, MOST_SLOTS, Name, Part, PartClient, PeerView, Progress,
    ResourceDetails, ResourceView, SlotView, TicketView, TokenView, WaiterView,
};
pub use service::{Acquire, Builder, Resource, Service, Session};
