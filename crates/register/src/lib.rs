//! The register.
mod client;
mod command;
mod config;
pub mod disk;
mod engine;
pub mod file;
mod form;
pub mod leases;
mod log;
mod member;
mod register;
mod state;
mod voters;
pub mod wire;
mod words;

pub use client::{SessionClient, Wish};
pub use command::{Command, Info, Opening, Outcome, Refusal};
pub use config::{Config, Sabotage};
pub use engine::election_time;
pub use member::{Doing, Identity, Member};
pub use register::{Effect, Register};
pub use state::{Conf, Detached, Resource, Seat, Session, State};
pub use words::{ClusterId, Label, SessionId, Ttl, Versions, VoterId};
