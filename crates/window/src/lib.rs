//! Exact sliding windows: queries, plans, reservoir, cursors, aggregates.
