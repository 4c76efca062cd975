//! The agent's local HTTP API, its [client](client::Agent), and the live page. `docs/api.md` has every route.
//!
//! The library `peerlock` uses the client alone (`default-features = false`).

mod about;
#[cfg(feature = "server")]
mod admin;
mod body;
pub mod client;
mod endpoint;
mod failure;
mod tcp;
mod token;

#[cfg(feature = "server")]
mod app;
#[cfg(feature = "server")]
mod connection_limit;
#[cfg(feature = "server")]
mod connections;
#[cfg(feature = "server")]
mod demo;
#[cfg(feature = "server")]
mod document;
#[cfg(feature = "server")]
mod events;
#[cfg(feature = "server")]
mod guard;
#[cfg(feature = "server")]
mod health;
#[cfg(feature = "server")]
mod hold;
#[cfg(feature = "server")]
mod input;
#[cfg(feature = "server")]
mod listen;
#[cfg(feature = "server")]
mod metrics;
#[cfg(feature = "server")]
mod page;
#[cfg(feature = "server")]
mod presence;
#[cfg(feature = "server")]
mod resources;
#[cfg(feature = "server")]
mod serve;
#[cfg(feature = "server")]
mod view;
#[cfg(feature = "server")]
mod waits;
#[cfg(feature = "server")]
mod watch;

pub use about::{AgentView, Healthy, Program, SecretView};
pub use body::{Conclude, Concluded, Line, Released, Renewed, Which};
pub use endpoint::{BadEndpoint, Endpoint};
pub use failure::Failure;
pub use peerlock_service::verb::Done;
pub use token::{BadToken, Token};

#[cfg(feature = "server")]
pub use app::{App, Files, LONGEST_LEASE};
#[cfg(feature = "server")]
pub use connections::Site;
#[cfg(feature = "server")]
pub use demo::{Act, Demo, DemoCommand, DemoState};
#[cfg(feature = "server")]
pub use guard::TokenInForce;
#[cfg(feature = "server")]
pub use listen::{ListenError, Listener};
#[cfg(feature = "server")]
pub use serve::serve;
