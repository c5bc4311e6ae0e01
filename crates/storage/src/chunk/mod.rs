//! Chunk codec.
