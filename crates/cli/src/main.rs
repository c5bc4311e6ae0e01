//! The `thalweg` command: stdout is data, stderr is talk.

use std::process::ExitCode;

/// musl's own allocator has one lock for all threads; with it a job takes 1.5 times as long.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    thalweg::main_with(thalweg::NodeOptions::default())
}
