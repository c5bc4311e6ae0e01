//! Reading ahead of a loop, for the sake of the cache.

/// Reads, for the sake of the cache, what a loop is about to read.
///
/// The loads of the loop itself wait for each other where one tells the address of the next, and start anew after
/// each mispredicted branch; these don't.
#[inline(always)]
pub(crate) fn warm(reads: impl Iterator<Item = u64>) {
    std::hint::black_box(reads.fold(0, |mixed, read| mixed ^ read));
}
