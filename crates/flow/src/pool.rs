//! Buffers that come back: an operator fills one, sends it on in a batch, and gets its memory again when the
//! last reader has dropped it.
//!
//! A pool belongs to one task. It keeps a share of every buffer that it lends; one that nobody else shares any
//! more is free. So nothing has to be sent back, and a reader may keep a buffer as long as it likes.

use std::collections::VecDeque;

use arrow_buffer::{ArrowNativeType, Buffer};

/// Memory for columns of `T`, used again and again.
#[derive(Debug)]
pub struct BufferPool<T> {
    /// In the order in which they were lent, which is mostly the order in which they come free.
    lent: VecDeque<Buffer>,
    free: Vec<Vec<T>>,
}

impl<T> Default for BufferPool<T> {
    fn default() -> Self {
        Self { lent: VecDeque::new(), free: Vec::new() }
    }
}

impl<T: ArrowNativeType> BufferPool<T> {
    /// As many as are on their way at once behind a full ring of small buffers; what is lent beyond that is
    /// not waited for.
    const LENT: usize = 64;
    /// How many of the oldest are looked at when one is wanted.
    const LOOK: usize = 4;

    /// An empty vector with room for `capacity` elements.
    pub fn take(&mut self, capacity: usize) -> Vec<T> {
        for _ in 0..Self::LOOK.min(self.lent.len()) {
            let Some(buffer) = self.lent.pop_front() else { break };
            match buffer.into_vec::<T>() {
                Ok(vec) => self.free.push(vec),
                Err(buffer) => self.lent.push_back(buffer),
            }
        }
        match self.free.pop() {
            Some(mut vec) => {
                vec.clear();
                vec.reserve(capacity);
                vec
            }
            None => Vec::with_capacity(capacity),
        }
    }

    /// Makes a buffer of a vector, to be had again when all other shares of it are dropped.
    pub fn lend(&mut self, vec: Vec<T>) -> Buffer {
        let buffer = Buffer::from_vec(vec);
        if self.lent.len() == Self::LENT {
            self.lent.pop_front();
        }
        self.lent.push_back(buffer.clone());
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_when_the_last_reader_is_done() {
        let mut pool = BufferPool::<u64>::default();
        let mut vec = pool.take(100);
        vec.extend(0..100);
        let first = vec.as_ptr();
        let lent = pool.lend(vec);
        let other = pool.take(100);
        assert_ne!(other.as_ptr(), first, "still read");
        assert_eq!(lent.typed_data::<u64>()[99], 99);
        drop(lent);
        let again = pool.take(100);
        assert_eq!((again.as_ptr(), again.len()), (first, 0));
    }
}
