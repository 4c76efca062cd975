//! Named resources among peers: at most `slots` inside at a time, in fair order, without a server.
//!
//! [`Service`] is one peer with all its clients; [`Request`], [`Acquire`] and [`Grant`] are a client's way in and out.
//! Inside, one task owns the engine, which is pure: `docs/service.md` has the rest.

mod config;
mod contacts;
mod driver;
mod engine;
mod error;
mod grant;
mod health;
pub mod json;
mod lease;
mod link;
pub mod memory;
mod name;
mod net;
pub mod places;
mod register;
mod request;
mod service;
mod timers;
pub mod transport;
mod view;
mod wire;

pub use config::Config;
pub use error::{Class, Error};
pub use grant::{Grant, GrantId, Granted};
pub use name::{MOST_SLOTS, Name};
pub use net::RealNetwork;
pub use peerlock_base::{Key, PeerId, Span};
pub use peerlock_net::{Identity, Secret};
pub use request::Request;
pub use service::{Acquire, Builder, Service, Session};
pub use view::{
    ClientView, Counters, Event, Happening, Inspection, Part, PartClient, PeerView, Progress, ResourceDetails,
    ResourceView, SlotView, TicketView, TokenView, WaiterView,
};
