//! File-system seam, frames and the chunk store of Thalweg.
