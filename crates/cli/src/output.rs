//! Standard output, standard error and exit codes.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;
use thalweg_node::Diagnostics;
use thalweg_types::{Class, Error};

/// Why the command ends without success.
pub(crate) enum Failure {
    /// Exit code 1.
    Run(String),
    /// Exit code 2: wrong usage or job file.
    Usage(String),
    /// Exit code 3: data on disk is damaged.
    Damaged(String),
    /// The reader of stdout has gone: nothing is wrong.
    Nobody,
}

impl Failure {
    /// An error before anything runs: the user's own ones are wrong usage.
    pub(crate) fn at_start(error: &Error) -> Self {
        let text = with_hint(&error.chain(), error.hint());
        match error.class() {
            Class::User => Failure::Usage(text),
            Class::Corrupt => Failure::Damaged(text),
            Class::External | Class::Internal => Failure::Run(text),
        }
    }

    /// With what another one has to say.
    pub(crate) fn and(self, other: Self) -> Self {
        let (Failure::Run(more) | Failure::Usage(more) | Failure::Damaged(more)) = other else { return self };
        let both = |text: String| format!("{text}\n{more}");
        match self {
            Failure::Run(text) => Failure::Run(both(text)),
            Failure::Usage(text) => Failure::Usage(both(text)),
            Failure::Damaged(text) => Failure::Damaged(both(text)),
            Failure::Nobody => Failure::Nobody,
        }
    }

    /// Prints what there is to say, and gives the exit code.
    pub(crate) fn tell(self) -> ExitCode {
        let (text, code) = match self {
            Failure::Run(text) => (text, 1),
            Failure::Usage(text) => (text, 2),
            Failure::Damaged(text) => (text, 3),
            Failure::Nobody => return ExitCode::SUCCESS,
        };
        if !text.is_empty() {
            talk(text.trim_end());
        }
        ExitCode::from(code)
    }
}

impl From<Diagnostics> for Failure {
    fn from(mistakes: Diagnostics) -> Self {
        let count = mistakes.0.len();
        let s = if count == 1 { "" } else { "s" };
        Failure::Usage(format!("{mistakes}\n{count} mistake{s}, nothing was run"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Failure::Nobody,
            _ => Failure::Run(format!("error: write to standard output: {error}")),
        }
    }
}

/// `error: …`, and the hint below it.
pub(crate) fn with_hint(message: &str, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("error: {message}\n = hint: {hint}"),
        None => format!("error: {message}"),
    }
}

/// Writes data to stdout.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// The live line, which has to make room for other lines. Held while a line is written.
static LIVE: Mutex<Option<ProgressBar>> = Mutex::new(None);

pub(crate) fn set_live(bar: Option<ProgressBar>) {
    *LIVE.lock().unwrap_or_else(PoisonError::into_inner) = bar;
}

/// Writes a line to stderr, above the live one where there is one. Nobody reading is no failure.
pub(crate) fn talk(line: &str) {
    let write = || {
        let _ = writeln!(io::stderr().lock(), "{line}");
    };
    match &*LIVE.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Where log lines go: whole events, so that they do not tear the live line.
pub(crate) fn log_writer() -> LogLine {
    LogLine(Vec::new())
}

pub(crate) struct LogLine(Vec<u8>);

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        talk(String::from_utf8_lossy(&self.0).trim_end());
    }
}
