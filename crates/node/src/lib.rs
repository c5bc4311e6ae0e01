//! Reads job files, builds their graphs and runs them.
