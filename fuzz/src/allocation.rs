//! Watches the size of single allocations: what a forged length would blow up.

#![expect(unsafe_code, reason = "a global allocator is an unsafe trait; every call goes to the system's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Watching;

#[global_allocator]
static WATCHING: Watching = Watching;

// `Relaxed`: targets run on the thread that reads it.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// Forgets what was seen so far.
pub(crate) fn reset() {
    LARGEST.store(0, Ordering::Relaxed);
}

/// The largest allocation since [`reset`], in bytes.
pub(crate) fn largest() -> usize {
    LARGEST.load(Ordering::Relaxed)
}

// SAFETY: every method hands its arguments to the system allocator unchanged and returns what that returns, so
// its guarantees are the system allocator's; the counter neither allocates nor unwinds.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same here.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from the system allocator by one of the methods here, with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: `block` came from the system allocator by one of the methods here, with this layout.
        unsafe { System.realloc(block, layout, size) }
    }
}
