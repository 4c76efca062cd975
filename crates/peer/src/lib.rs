//! A protocol on an overlay: what is routed becomes hops, every peer on the way is asked, the owner is told.
//!
//! [`fixed`] does that over routes that never change, for one resource, so that a protocol can be explored.
#![no_std]

extern crate alloc;

pub mod fixed;
