//! The cause of a worker's death, in words for the client.
//!
//! A stack that overflows and an allocation that fails both end in SIGABRT; the last words of the process distinguish
//! them.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use thalweg_types::Error;

use super::counts::Stopped;
use crate::limits::Exceeded;

/// The end of a process that was not killed here: `None` if its status is not known.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) status: Option<ExitStatus>,
    /// The line that says why it ends, or the end of its standard error.
    pub(super) said: String,
}

const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;

impl Ending {
    /// Why it was, and the error for its query. `memory`: the limit.
    pub(super) fn told(&self, memory: u64) -> (Stopped, Error) {
        let signal = self.status.and_then(|status| status.signal());
        if let Some(what) = self.refused_allocation() {
            return (Stopped::Memory, Exceeded::Memory { limit: memory, what }.into_error());
        }
        if self.said.contains("overflowed its stack") || signal == Some(SIGSEGV) {
            let error = Error::user("query stopped: it is nested too deep").with_hint(
                "a chain of operators nests as well: use IN (…) for a chain of OR, and shorter ones",
            );
            return (Stopped::Depth, error);
        }
        let hint = match signal {
            Some(SIGKILL) => {
                "the system ends processes when it is out of memory; ask for less, or send it again"
            }
            _ => "the log of the node has what it said last",
        };
        let how = self.status.map_or_else(|| "in an unknown way".to_owned(), |status| format!("by {status}"));
        tracing::warn!(how, said = self.said, "a worker for SQL has ended");
        let error = match signal {
            Some(SIGKILL) => Error::external("query stopped: its process was killed from outside"),
            _ => Error::internal(format!("query stopped: its process ended {how}")),
        };
        (Stopped::Other, error.with_hint(hint))
    }

    /// The allocation that failed.
    fn refused_allocation(&self) -> Option<String> {
        const BEFORE: &str = "memory allocation of ";
        const AFTER: &str = " bytes failed";
        let (_, rest) = self.said.rsplit_once(BEFORE)?;
        let (bytes, _) = rest.split_once(AFTER)?;
        Some(format!("{bytes} bytes at once"))
    }
}

#[cfg(test)]
mod tests {
    use thalweg_types::Class;

    use super::*;

    fn told(signal: i32, said: &str) -> (Stopped, Error) {
        Ending { status: Some(ExitStatus::from_raw(signal)), said: said.to_owned() }.told(256 << 20)
    }

    #[test]
    fn an_end_says_what_it_was() {
        let (why, error) = told(6, "x\nmemory allocation of 1600 bytes failed\n");
        assert_eq!((why, error.class()), (Stopped::Memory, Class::User));
        let text =
            "query stopped: queries may take 256MiB of memory, and it wanted more (1600 bytes at once)";
        assert_eq!(error.chain(), text);
        assert!(matches!(Exceeded::of(&error), Some(Exceeded::Memory { limit: 268_435_456, .. })));

        let overflow = "\nthread 'sql-0' has overflowed its stack\nfatal runtime error: stack overflow\n";
        for (signal, said) in [(6, overflow), (11, "")] {
            let (why, error) = told(signal, said);
            assert_eq!((why, error.class()), (Stopped::Depth, Class::User));
            assert!(error.chain().contains("too deep") && error.hint().is_some());
        }
        let (why, error) = told(9, "");
        assert_eq!((why, error.class()), (Stopped::Other, Class::External));
        let (why, error) = told(4, "");
        assert_eq!((why, error.class()), (Stopped::Other, Class::Internal));
        assert!(error.message().contains("signal: 4"), "{error}");
    }
}
