//! Buffers that come back: an operator fills one, sends it on in a batch, and gets its memory again when the
//! last reader has dropped it.
//!
//! A pool belongs to one task. It keeps a share of every buffer that it lends; one that nobody else shares any
//! more is free. So nothing has to be sent back, and a reader may keep a buffer as long as it likes.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

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
    /// As many as are on their way at once after a full ring of small buffers; buffers lent beyond that are
    /// not waited for.
    const LENT: usize = 64;
    /// How many of the oldest are looked at when one is needed.
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

/// A vector that grows in memory of a pool of its own, for columns that are built, sent on, and built again.
#[derive(Debug)]
pub struct PooledVec<T> {
    values: Vec<T>,
    pool: BufferPool<T>,
}

impl<T> Default for PooledVec<T> {
    fn default() -> Self {
        Self { values: Vec::new(), pool: BufferPool::default() }
    }
}

impl<T: ArrowNativeType> PooledVec<T> {
    /// Bytes below which the allocator is as quick as the pool: batches of a few records do not go through it.
    const SMALL: usize = 4096;

    /// Room for `more` elements: for an empty vector in memory that has come back, where there is some.
    pub fn reserve(&mut self, more: usize) {
        if self.values.capacity() == 0 && more * size_of::<T>() >= Self::SMALL {
            self.values = self.pool.take(more);
        } else {
            self.values.reserve(more);
        }
    }

    /// The elements as a buffer; the vector is empty afterwards.
    pub fn lend(&mut self) -> Buffer {
        let values = std::mem::take(&mut self.values);
        if values.capacity() * size_of::<T>() < Self::SMALL {
            return Buffer::from_vec(values);
        }
        self.pool.lend(values)
    }
}

impl<T> Deref for PooledVec<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.values
    }
}

impl<T> DerefMut for PooledVec<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.values
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

    #[test]
    fn a_column_is_built_again_in_the_memory_of_one_that_was_read() {
        let mut column = PooledVec::<i64>::default();
        column.reserve(1000);
        column.extend(0..1000);
        let first = column.as_ptr();
        let sent = column.lend();
        assert!(column.is_empty());
        assert_eq!(sent.typed_data::<i64>()[999], 999);
        drop(sent);
        column.reserve(600);
        column.push(7);
        assert_eq!((column.as_ptr(), column.as_slice()), (first, [7].as_slice()));
    }

    #[test]
    fn a_column_of_few_values_keeps_nothing_back() {
        let mut column = PooledVec::<i64>::default();
        column.reserve(3);
        column.extend(0..3);
        let sent = column.lend();
        assert_eq!(sent.typed_data::<i64>(), [0, 1, 2]);
        assert!(sent.into_vec::<i64>().is_ok(), "nobody else shares it");
    }
}
