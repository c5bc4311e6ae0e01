//! Operators, links, the sequencer and the workers that run them.
