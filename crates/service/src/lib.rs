//! Named resources among peers: at most `slots` inside at a time, in fair order, without a server.
//!
//! [`Service`] is one peer with all its clients; [`Resource`], [`Acquire`] and [`Grant`] are a client's way in and out.
//! Inside, one task owns the engine, which is pure: `docs/service.md` has the rest.

mod config;
mod contacts;
mod driver;
mod engine;
mod error;
mod grant;
mod health;
mod lease;
mod link;
pub mod memory;
mod name;
mod net;
mod peer;
pub mod places;
mod register;
mod service;
mod timers;
pub mod transport;
mod view;
mod wire;

pub use config::Config;
pub use error::Error;
pub use grant::{Grant, GrantId};
pub use name::{MOST_SLOTS, Name};
pub use net::RealNetwork;
pub use peer::{PORT, Peer, PeerBuilder, StartError, runtime};
pub use peerlock_base::{Key, PeerId, Span};
pub use peerlock_net::{Identity, Secret};
pub use service::{Acquire, Builder, Resource, Service, Session};
pub use view::{
    ClientView, Counters, Event, Happening, Inspection, Part, PartClient, PeerView, Progress, ResourceDetails,
    ResourceView, SlotView, TicketView, TokenView, WaiterView,
};
