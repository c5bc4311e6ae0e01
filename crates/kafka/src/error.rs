//! What goes wrong on the bus, by name.

use std::fmt;

use thalweg_types::{Class, Error, Retry};

/// The kinds of trouble that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No broker answers, or not in time. It may pass.
    Unreachable,
    /// TLS or SASL has refused this client.
    Unauthenticated,
    /// An access control list has.
    Unauthorized,
    /// The topic or partition does not exist.
    NoTopic,
    /// The offset is not there any more, or not yet.
    OutOfRange,
    /// A message is larger than the broker takes.
    TooLarge,
    /// Another producer with the same transactional id has taken over.
    Fenced,
    /// The transaction was aborted, by the broker or by this client: nothing of it counts.
    Aborted,
    /// Nobody knows whether the transaction was committed.
    OutcomeUnknown,
    /// A setting is wrong.
    Setting,
    /// A message was not written and will not be: the producer is of no more use.
    NotWritten,
    /// Anything else.
    Other,
}

/// An error of the bus: its kind, what was done, what was said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct BusError {
    pub problem: Problem,
    /// The action, such as `fetch from "payments" partition 3`.
    pub action: String,
    /// The client's or broker's words.
    pub said: String,
}

impl BusError {
    pub fn new(problem: Problem, action: impl Into<String>, said: impl Into<String>) -> Self {
        Self { problem, action: action.into(), said: said.into() }
    }

    /// Whether the same may work later.
    pub fn is_passing(&self) -> bool {
        matches!(self.problem, Problem::Unreachable)
    }

    fn hint(&self) -> Option<&'static str> {
        Some(match self.problem {
            Problem::Unreachable => {
                "look whether a broker listens at `brokers`, whether it advertises an address that this machine \
                 reaches, and whether it wants TLS (`tls: true`) or SASL (`sasl`)"
            }
            Problem::Unauthenticated => {
                "compare `sasl`, `user` and `password` (or `token`), `ca` and `certificate` with the broker's settings"
            }
            Problem::Unauthorized => {
                "have an access control list of the broker allow it: Read for sources (the topic, and the group \
                 thalweg.JOB.SOURCE), Write for sinks (with transactions: the transactional id thalweg.JOB.SINK and \
                 Read of the group of that name)"
            }
            Problem::NoTopic => "make the topic first; this program makes none by itself",
            Problem::TooLarge => {
                "raise the topic's `max.message.bytes`, or lower `max_message` of the sink so that such records go to rejects"
            }
            Problem::Fenced => {
                "only one process may run this job's sink: the other one goes on, this one has to stay down"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for BusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.action, self.said)
    }
}

impl From<BusError> for Error {
    fn from(error: BusError) -> Self {
        let class = match error.problem {
            Problem::Setting => Class::User,
            _ => Class::External,
        };
        let retry = match error.problem {
            Problem::Unreachable => Retry::WithBackoff,
            Problem::OutcomeUnknown => Retry::OutcomeUnknown,
            _ => Retry::Never,
        };
        let told = Error::new(class, format!("kafka: {error}")).with_retry(retry);
        match error.hint() {
            Some(hint) => told.with_hint(hint),
            None => told,
        }
    }
}
