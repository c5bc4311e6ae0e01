//! The `thalweg` command: stdout is data, stderr is talk.

use std::process::ExitCode;

fn main() -> ExitCode {
    thalweg::main_with(thalweg::NodeOptions::default())
}
