//! The bus against real brokers. Ignored unless `cargo xtask test --only services` has started one.

mod kafka;
