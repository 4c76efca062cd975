//! A model checker for the protocols: a few peers, their clients, and a network that delivers messages in any order.
//!
//! - [`World`] is one state and lists the [`Action`]s that may come next.
//! - [`explore`] tries all actions in every order: it proves a property or returns a shortest run that violates it.
//! - [`Scenario`] plays one order from a text file and compares its trace.
//!
//! All share the checks ([`Violation`]) and the format of traces:
//!
//! ```text
//! 4: request
//! 4 → 3  request(4)                         a message from 4 has arrived at 3
//! 3 → 1  child(4) of queue 0
//! 1: leave
//! 1 → 4  token 0
//! 4: enter slot 0, fencing 4
//! ```
#![allow(missing_docs, reason = "a comment that repeats a name is left out")]

mod check;
mod graph;
mod scenario;
mod search;
mod trace;
mod walk;
mod world;

pub use check::Violation;
pub use scenario::Scenario;
pub use search::{Counterexample, Explored, Outcome, explore, explore_with_hope, seek};
pub use trace::Trace;
pub use walk::walk;
pub use world::{
    Action, AdminCommand, Explorable, Fault, FaultLimits, Limits, Packet, RegistryMessage, RegistryMutation, World,
};
