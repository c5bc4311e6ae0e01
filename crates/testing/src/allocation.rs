//! An allocator that counts, by thread: the largest single allocation, and the most bytes at once.
//!
//! A test's binary makes it the global one:
//!
//! ```ignore
//! #[global_allocator]
//! static COUNTING: Counting = Counting;
//! ```
//!
//! Counts are those of the thread that asks, so tests may run in parallel. Memory that one thread frees for another
//! is taken from its own count, which stops at zero.

#![expect(unsafe_code, reason = "a global allocator is an unsafe trait; every call goes to the system's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with counters.
pub struct Counting;

/// What a thread has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes of the largest single allocation.
    pub largest: usize,
    /// Most bytes at once, beyond those that there were before.
    pub peak: usize,
}

thread_local! {
    // Constants without a destructor: an allocator must not allocate for its own counters.
    static LARGEST: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Runs `work` and counts the memory that its thread requests meanwhile.
pub fn count<T>(work: impl FnOnce() -> T) -> (T, Counts) {
    let before = LIVE.get();
    LARGEST.set(0);
    PEAK.set(before);
    let done = work();
    (done, Counts { largest: LARGEST.get(), peak: PEAK.get() - before })
}

fn took(bytes: usize) {
    // A thread that ends may free without its counters.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
    let _ = LIVE.try_with(|live| {
        live.set(live.get().saturating_add(bytes));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

fn gave_back(bytes: usize) {
    let _ = LIVE.try_with(|live| live.set(live.get().saturating_sub(bytes)));
}

// SAFETY: every method hands its arguments to the system allocator unchanged and returns what that returns, so
// its guarantees are the system allocator's; the counters neither allocate nor unwind.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same here.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        gave_back(layout.size());
        // SAFETY: `block` came from the system allocator by one of the methods here, with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        gave_back(layout.size());
        took(size);
        // SAFETY: `block` came from the system allocator by one of the methods here, with this layout.
        unsafe { System.realloc(block, layout, size) }
    }
}
