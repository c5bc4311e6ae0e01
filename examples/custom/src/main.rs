//! The `thalweg` command with plug-ins of our own.

mod format;
mod operator;
mod partitioner;
mod sink;
mod source;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;

use thalweg_prelude::{Node, NodeOptions};

fn main() -> ExitCode {
    thalweg::main_with(plugins())
}

/// Everything that comes with the engine, and ours.
fn plugins() -> NodeOptions {
    Node::builder()
        .source(source::Sensor)
        .format(format::Pairs)
        .operator(operator::Deadband)
        .sink(sink::Summary)
        .partitioner("by_kind", Arc::new(partitioner::ByPrefix::of("device", '-')))
}
