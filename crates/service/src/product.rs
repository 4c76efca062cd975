//! Which protocol the product runs, and on which overlay. No other place says so.

use peerlock_mutex::FairKLate;
use peerlock_overlay::Unrouted;

/// The state machine of one peer. Fair-K with late binding never routes, and everybody is linked with everybody, so
/// there is no overlay.
pub type Node = peerlock_node::Node<FairKLate, Unrouted>;
