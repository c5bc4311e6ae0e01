//! The real binary from outside: its output, and how it ends.

mod access;
mod asking;
mod checking;
mod documented;
mod ending;
#[cfg(unix)]
mod every_example;
mod examples;
mod faults;
mod formats;
mod generating;
mod helping;
#[cfg(target_os = "linux")]
mod hostile_sql;
mod inspecting;
mod joining;
mod late;
mod order;
mod real_service;
mod reference;
mod running;
mod samples;
mod tables;
#[cfg(unix)]
mod terminal;
mod tshark;
mod windows;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A folder to work in, with files to begin with.
struct Place(TempDir);

impl Place {
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("a file in it");
        }
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, args: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_thalweg")), args)
    }

    /// The same for another program.
    fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.path())
            .env_remove("RUST_LOG")
            .env_remove("THALWEG_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn thalweg(&self, args: &[&str]) -> Ended {
        Ended::of(self.command(args).output().expect("the binary runs"))
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path().join(name), bytes).expect("a file in it");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

impl Drop for Place {
    /// What a test that fails has left is there to be looked at.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.disable_cleanup(true);
            eprintln!("the folder of the test is kept: {}", self.0.path().display());
        }
    }
}

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        }
    }

    #[track_caller]
    fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// The counts in the last line of stderr, which everything that is run ends with.
    #[track_caller]
    fn counts(&self) -> (u64, u64, u64) {
        let last = self.stderr.lines().last().unwrap_or_default();
        let last = last.split_once(" error=").map_or(last, |(counts, _)| counts);
        let last = last.split_once(" left_out=").map_or(last, |(counts, _)| counts);
        let fields: Vec<(&str, &str)> = last.split(' ').filter_map(|field| field.split_once('=')).collect();
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["records", "answers", "rejects", "seconds", "rate"], "{}", self.stderr);
        let count = |at: usize| fields[at].1.parse().expect("a number");
        (count(0), count(1), count(2))
    }
}

const PAYMENTS: &str = "\
ts,card,merchant,amount
1000,c1,m1,10
2000,c2,m1,0.5
3000,c1,m2,2.25
4000,c3,m9,100
";

const SOURCE: &str = "\
name: demo
sources:
  payments:
    type: file
    path: payments.csv
    format: csv
    schema: { ts: timestamp(ms), card: string, merchant: string, amount: float64 }
    time: ts
";

/// A job that reads the payments.
fn job(rest: &str) -> String {
    format!("{SOURCE}{rest}")
}

fn place(rest: &str) -> Place {
    Place::with(&[("payments.csv", PAYMENTS), ("job.yaml", &job(rest))])
}
