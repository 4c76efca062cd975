//! The agent's local HTTP API, its [client](client::Agent), and the live page. `docs/http.md` has every route.

mod app;
mod body;
pub mod client;
mod endpoint;
mod events;
mod failure;
mod guard;
mod hold;
mod input;
mod listen;
mod metrics;
mod page;
mod resources;
mod serve;
mod token;
mod view;
mod waits;

pub use app::App;
pub use body::{
    Client, Details, Event, Granted, Happening, Line, Peer, Released, Renewed, Resource, Slot, Waiter, Waiting, Want,
    Which,
};
pub use endpoint::{BadEndpoint, Endpoint};
pub use failure::{Failure, Kind};
pub use listen::{ListenError, Listener};
pub use serve::serve;
pub use token::{BadToken, Token};
