//! Formats, sources and sinks.
