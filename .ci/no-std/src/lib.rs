//! Links the inner crates into a library without std.
#![no_std]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;

use peerlock_types as _;
use peerlock_protocol as _;
use peerlock_overlay as _;
use peerlock_peer as _;
use peerlock_protocols as _;

#[cfg(feature = "with-std")]
extern crate std;

/// This library is only linked, never run.
struct NoMemory;

// SAFETY: an allocator may fail every request.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _layout: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _memory: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static NO_MEMORY: NoMemory = NoMemory;

#[panic_handler]
fn panic(_info: &PanicInfo<'_>) -> ! {
    loop {}
}
