//! A model checker for the protocols: a few peers, their clients, and a network that delivers messages in any order.
//!
//! - [`World`] is one state, with the list of [`Action`]s that may come next.
//! - [`explore`] tries all actions in every order. It proves that no order violates a property, or returns the shortest
//!   run that does.
//! - [`Scenario`] plays one chosen order from a text file and compares its trace.
//!
//! All three share one set of checks ([`Violation`]) and one trace format:
//!
//! ```text
//! 4: request
//! 4 → 3  request(4)                         a message from 4 has arrived at 3
//! 3 → 1  child(4) of queue 0
//! 3 → 4  token_locations([4, 2, 3], 1)
//! 1: leave
//! 1 → 4  token 0
//! 4: enter slot 0, fencing 4
//! ```

mod check;
mod graph;
mod scenario;
mod search;
mod trace;
mod walk;
mod world;

pub use check::Violation;
pub use scenario::Scenario;
pub use search::{Counterexample, Explored, explore, explore_with_hope, seek};
pub use trace::Trace;
pub use walk::walk;
pub use world::{Action, Explorable, Fault, FaultLimits, Limits, Order, Packet, Post, Slip, World};
