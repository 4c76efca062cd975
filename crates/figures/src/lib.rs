//! The bench's catalogue: the one place beside the network service that names concrete protocols.

mod catalogue;

pub use catalogue::{Form, Protocol, UnknownForm, UnknownProtocol};
