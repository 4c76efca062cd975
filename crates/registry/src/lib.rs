//! The register: what a cluster must not forget, whoever crashes, on the disks of 1, 3 or 5 of its hosts.
//!
//! Members with their addresses, *sessions* (which process may use tokens, and until when), resources with their slots
//! and *generations*, and who votes on all this. It is the cold half of peerlock: tokens go from peer to peer without
//! it; it is asked when a process begins, now and then whether its session stands, and when somebody has died.
//!
//! ```text
//!   Member            one process's part: pure. Bytes, time and finished writes go in; letters and writes come out
//!    ├─ SessionClient   until when this process may use tokens            client.rs
//!    └─ Register        the voter, if it is one                           register.rs, lead.rs, tell.rs
//!        ├─ State         everything that was decided                     state.rs, command.rs
//!        ├─ Fact          what sessions must know without having asked    fact.rs: when it is told
//!        ├─ View          what can be seen of it                          look.rs
//!        ├─ Leases        when a leader may end a session                 leases.rs: why this is safe
//!        ├─ plan          who should vote                                 voters.rs
//!        ├─ Engine        an existing consensus engine, behind a door     engine.rs, form.rs, log.rs
//!        └─ Writer        the file's format                               file.rs
//!   recover           a voter's file as the only one that is left         recover.rs
//!   Disk              where the file lies, and the thread that writes it  disk.rs
//! ```
//!
//! Nothing here reads a clock, draws a random number of the machine's or waits; only `disk.rs` does I/O. (The engine
//! links std, so the crate does, too.) `docs/design/registry.md` has the design.

mod client;
mod command;
mod config;
pub mod disk;
mod engine;
pub mod file;
mod form;
mod kind;
pub mod leases;
mod log;
mod look;
mod member;
mod mutation;
mod recover;
mod registry;
mod state;
mod voters;
pub mod wire;
mod words;

pub use client::{SessionClient, SessionRequest};
pub use command::{Command, Incarnation, Info, MOST_TAKEN, Opening, Outcome, Refusal};
pub use config::Config;
pub use engine::election_time;
pub use kind::{EventKind, Topic};
pub use look::{Found, GrantView, Look, MOST_HOSTS, MOST_ON_PAGE, Page, PartyView, ResourceView, View};
pub use member::{Identity, Member, Missing, Output, Predecessor};
#[cfg(feature = "mutation")]
pub use mutation::Mutation;
pub use recover::{LEAST_QUARANTINE, Recovered, inspect, last_state, recover, recover_within};
pub use registry::{Effect, Registry};
pub use state::{Conf, Detached, Party, Resource, Session, State, Undecodable, VoterRecord};
pub use voters::target as voters_among;
pub use words::{ClusterId, Label, SessionId, Ttl, Versions, VoterId};
