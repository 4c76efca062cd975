//! The agent's local HTTP API, its [client](client::Agent), and the live page. `docs/http.md` has every route.

mod body;
pub mod client;
mod endpoint;
mod failure;
mod token;

pub use body::{
    Client, Details, Event, Granted, Happening, Line, Peer, Released, Renewed, Resource, Slot, Waiter, Waiting, Want,
    Which,
};
pub use endpoint::{BadEndpoint, Endpoint};
pub use failure::{Failure, Kind};
pub use token::{BadToken, Token};
