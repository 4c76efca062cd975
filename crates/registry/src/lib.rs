//! The replicated registry: members with their addresses, *sessions* of processes, resources with their slots and
//! *generations*, and the voters.
//!
//! It is a Raft log on the disks of 1, 3 or 5 hosts. Starting a process, renewing a session and ending one involve it;
//! tokens move between peers without it. Design: `docs/design/registry.md`.
//!
//! ```text
//!   Member            one process's access to the registry: pure           member.rs
//!    ├─ SessionClient   until when this process may use tokens             client.rs
//!    └─ Registry        the voter, if this process has one                 registry.rs, registry/lead.rs
//!        ├─ State         the replicated state machine                     state.rs, command.rs
//!        ├─ EventKind     events for sessions, and when they are sent      event.rs, registry/delivery.rs
//!        ├─ View          queries                                          look.rs
//!        ├─ Leases        when a leader may end a session, and the proof   leases.rs
//!        ├─ plan          which hosts should vote                          voters.rs
//!        ├─ Engine        the Raft engine, behind an interface             engine.rs, form.rs, log.rs
//!        └─ Writer        the file format                                  file.rs
//!   recover           recovers a cluster from one voter's file             recover.rs
//!   Disk              the file's location, and the thread that writes it   disk.rs
//! ```
//!
//! Everything but `disk.rs` is pure: no clock, no random source, no waiting. It links std because the Raft engine does.

#![allow(missing_docs, reason = "internal: comments say only what the names do not")]

mod client;
mod command;
mod config;
pub mod disk;
mod engine;
mod event;
pub mod file;
mod form;
pub mod leases;
mod log;
mod look;
mod member;
mod mutation;
mod names;
mod recover;
mod registry;
mod state;
mod voters;
pub mod wire;

pub use client::{SessionClient, SessionRequest};
pub use command::{Command, Incarnation, Info, MOST_ATTEMPTS, MOST_TAKEN, Opening, Outcome, Refusal, RunEnd};
pub use config::Config;
pub use engine::election_time;
pub use event::Topic;
pub use look::{Found, GrantView, Look, MOST_HOSTS, MOST_ON_PAGE, Page, PartyView, ResourceView, View};
pub use member::{Identity, Member, Missing, Output, Predecessor};
#[cfg(feature = "mutation")]
pub use mutation::Mutation;
pub use names::{ClusterId, Label, SessionId, Ttl, Versions, VoterId};
pub use peerlock_types::EventKind;
pub use recover::{LEAST_QUARANTINE, Recovered, inspect, last_state, recover, recover_within};
pub use registry::{Effect, Registry};
pub use state::{Conf, DetachedRecord, Party, Resource, RunRecord, SessionRecord, State, Undecodable, VoterRecord};
pub use voters::target as voters_among;
