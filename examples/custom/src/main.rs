//! A node with plug-ins of our own: checks and runs the job file that it is given.

mod format;
mod operator;
mod partitioner;
mod sink;
mod source;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, Result, bail};
use thalweg_prelude::{JobFile, Node, NodeOptions, Summary};

fn main() -> Result<()> {
    let path = std::env::args_os().nth(1).context("usage: thalweg-example-custom JOB")?;
    eprintln!("{}", run(Path::new(&path), &[], plugins())?);
    Ok(())
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

fn run(path: &Path, overrides: &[String], options: NodeOptions) -> Result<Summary> {
    let job = JobFile::read(path, overrides).and_then(|file| file.check(&options.check_options()));
    let job = job.with_context(|| format!("check {path:?}"))?;
    let node = options.open()?;
    let end = node.start(job, &[])?.wait();
    end.failure().map_or(Ok(end.summary), |failure| bail!("{failure}"))
}
