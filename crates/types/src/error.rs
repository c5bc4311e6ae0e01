//! The error that leaves the engine: whose fault it is, whether to try again, a hint.
//!
//! Messages are also read by others than the owners of the data: over HTTP by every user of the machine. Text found in
//! a file, a record or another system's answer is therefore no part of the message ([`Error::with_private`]): the log and the
//! command line show it, replies do not.
//!
//! Crates below define their own enums per promise boundary; at the boundary to the user each becomes an
//! [`Error`], from whose class the exit code and the HTTP status are derived in one table each.

use std::sync::Arc;
use std::{fmt, io};

use crate::is_disk_full;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A job file, a query, a request or a record is wrong: exit code 2 before the start, HTTP 400.
    User,
    /// Something outside failed (disk, network, another system): exit code 1, HTTP 503.
    External,
    /// A broken invariant of ours: exit code 1, HTTP 500.
    Internal,
    /// Bytes on disk have changed: exit code 3, HTTP 500.
    Corrupt,
}

/// Whether doing the same again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Never,
    WithBackoff,
    /// It may have happened or not; repeating is safe only where the work is idempotent.
    OutcomeUnknown,
}

/// An error with its class, a message (what, where, expected, got) and a hint (what to do).
#[derive(Debug)]
pub struct Error {
    class: Class,
    retry: Retry,
    message: String,
    /// Text after the message, for readers of the log.
    private: Option<String>,
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        let retry = if class == Class::External { Retry::WithBackoff } else { Retry::Never };
        Self { class, retry, message: message.into(), private: None, hint: None, source: None }
    }

    pub fn user(message: impl Into<String>) -> Self {
        Self::new(Class::User, message)
    }

    pub fn external(message: impl Into<String>) -> Self {
        Self::new(Class::External, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Class::Internal, message)
    }

    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(Class::Corrupt, message)
    }

    /// What the reader should do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds text that not every reader of the message may see: bytes of a file or a record, words of another system. It
    /// is put after the message as it is, such as `, got "x"`.
    #[must_use]
    pub fn with_private(mut self, text: impl Into<String>) -> Self {
        self.private.get_or_insert_default().push_str(&text.into());
        self
    }

    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Puts a present-tense action in front, so that a chain reads as a path: `open segment "x": …`.
    #[must_use]
    pub fn context(mut self, action: impl fmt::Display) -> Self {
        self.message = format!("{action}: {}", self.message);
        self
    }

    pub fn class(&self) -> Class {
        self.class
    }

    pub fn retry(&self) -> Retry {
        self.retry
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Whether it came of a disk, or a share of one, on which no room is left.
    pub fn is_disk_full(&self) -> bool {
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            let shared = cause.downcast_ref::<Arc<io::Error>>().map(AsRef::as_ref);
            if let Some(said) = shared.or_else(|| cause.downcast_ref()) {
                return is_disk_full(said);
            }
            next = cause.source();
        }
        false
    }

    /// The message and the messages of all its causes, joined by `: `, with private texts: for the log and the command
    /// line.
    pub fn chain(&self) -> String {
        self.joined(true)
    }

    /// The same without private texts: for everybody.
    pub fn public_chain(&self) -> String {
        self.joined(false)
    }

    /// Whether the two differ.
    pub fn has_private(&self) -> bool {
        self.links().any(|link| link.private.is_some())
    }

    /// This error, and those of this type among its causes.
    fn links(&self) -> impl Iterator<Item = &Error> {
        let causes = std::iter::successors(std::error::Error::source(self), |cause| cause.source());
        std::iter::once(self).chain(causes.filter_map(|cause| cause.downcast_ref()))
    }

    fn joined(&self, with_private: bool) -> String {
        let private = |error: &Error| error.private.clone().filter(|_| with_private).unwrap_or_default();
        let mut text = self.message.clone() + &private(self);
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            text.push_str(&cause.downcast_ref().map(private).unwrap_or_default());
            next = cause.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_is_in_the_log_alone() {
        let inner = Error::user("read line 3: expected int64").with_private(", got \"secret\"");
        let error = Error::external("open").with_private(" (secret)").with_source(inner).context("job \"a\"");
        assert_eq!(error.chain(), "job \"a\": open (secret): read line 3: expected int64, got \"secret\"");
        assert_eq!(error.public_chain(), "job \"a\": open: read line 3: expected int64");
        assert_eq!(error.to_string(), "job \"a\": open");
        assert!(error.has_private() && !Error::user("x").with_source(io::Error::other("y")).has_private());
        let below = Error::user("x").with_source(Error::user("y").with_private("z"));
        assert!(below.has_private());
    }

    #[test]
    fn a_full_disk_is_known_behind_every_cause() {
        let said = |kind: io::ErrorKind| io::Error::from(kind);
        let inner = Error::external("write").with_source(said(io::ErrorKind::QuotaExceeded));
        for full in [
            Error::external("write").with_source(said(io::ErrorKind::StorageFull)).context("commit"),
            Error::external("write").with_source(Arc::new(said(io::ErrorKind::StorageFull))),
            Error::external("commit").with_source(inner),
        ] {
            assert!(full.is_disk_full(), "{}", full.chain());
        }
        let other = Error::external("write").with_source(said(io::ErrorKind::ReadOnlyFilesystem));
        assert!(!other.is_disk_full() && !Error::external("disk full").is_disk_full());
    }
}
