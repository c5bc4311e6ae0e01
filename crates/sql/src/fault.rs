//! What DataFusion says, as an error with a class and a place.

use std::path::PathBuf;

use arrow_schema::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};
use thalweg_types::Error;

use crate::limits::Exceeded;

/// An error of a query, and whether a new snapshot may help.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: Error,
    /// A file that a snapshot names, and that is not there any more.
    pub(crate) vanished: Option<PathBuf>,
}

/// An error of ours on its way through DataFusion. `Error` is not cloned; a shared one is read.
pub(crate) fn ours(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The error for a user, of a query under a limit on memory.
pub(crate) fn of(error: &DataFusionError, memory: u64) -> Error {
    let root = error.find_root();
    let out = match root {
        DataFusionError::External(source) => match source.downcast_ref::<Error>() {
            Some(error) => again(error),
            None => Error::internal(format!("run the query: {source}")),
        },
        DataFusionError::ResourcesExhausted(what) => {
            // After that are all that have memory, with numbers that mean nothing to the client.
            let what = first_line(what).split(" with top memory").next().unwrap_or_default();
            return Exceeded::Memory { limit: memory, what: lowered(what) }.into_error();
        }
        DataFusionError::ParquetError(_) => unreadable(&plain(root)),
        DataFusionError::ArrowError(error, _) if matches!(**error, ArrowError::ParquetError(_)) => {
            unreadable(&plain(root))
        }
        DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) => {
            Error::external(format!("read a file of a table: {}", plain(root)))
        }
        DataFusionError::Internal(_) | DataFusionError::ExecutionJoin(_) | DataFusionError::Ffi(_) => {
            let text = plain(root);
            wants_too_much(&text, memory).unwrap_or_else(|| Error::internal(format!("run the query: {text}")))
        }
        DataFusionError::SchemaError(schema, _) => no_field(schema),
        _ => {
            let text = plain(root);
            wants_too_much(&text, memory).unwrap_or_else(|| Error::user(text))
        }
    };
    let Some(place) = place(error) else { return out };
    let placed = Error::new(out.class(), format!("{} at {place}", out.message())).with_retry(out.retry());
    match out.hint() {
        Some(hint) => placed.with_hint(hint),
        None => placed,
    }
}

/// The error for a panic over a size that no machine has, or over memory that the system refused; by its message.
pub(crate) fn wants_too_much(message: &str, memory: u64) -> Option<Error> {
    const MESSAGES: [&str; 6] = [
        "capacity overflow",
        "memory allocation",
        "failed to allocate",
        "offset overflow",
        "spawn worker thread",
        "failed to round",
    ];
    let lower = message.to_lowercase();
    let found = MESSAGES.iter().find(|text| lower.contains(*text))?;
    Some(Exceeded::Memory { limit: memory, what: (*found).to_owned() }.into_error())
}

/// `Error` has no copy, as its source may have none; its text represents that.
fn again(error: &Error) -> Error {
    let mut out = Error::new(error.class(), error.chain()).with_retry(error.retry());
    if let Some(hint) = error.hint() {
        out = out.with_hint(hint);
    }
    out
}

fn unreadable(what: &str) -> Error {
    Error::corrupt(format!("read a file of a table: {what}")).with_hint("`thalweg verify` names the file")
}

fn no_field(error: &SchemaError) -> Error {
    let SchemaError::FieldNotFound { field, valid_fields } = error else {
        return Error::user(lowered(&error.to_string()));
    };
    let known: Vec<&str> = valid_fields.iter().map(|field| field.name.as_str()).collect();
    let out = Error::user(format!("no column {:?}", field.name));
    match nearest(&field.name, &known) {
        Some(near) => out.with_hint(format!("did you mean {near:?}?")),
        None if known.is_empty() => out,
        None => out.with_hint(format!("there are {}", listed(&known))),
    }
}

/// The name that was meant, if one is near.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let score = |other: &str| strsim::jaro_winkler(&name.to_lowercase(), &other.to_lowercase());
    known
        .iter()
        .map(|other| (score(other), *other))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, other)| other)
}

/// Names in a sentence: the first forty.
pub(crate) fn listed(names: &[&str]) -> String {
    const MOST: usize = 40;
    let mut text = names[..names.len().min(MOST)].join(", ");
    if names.len() > MOST {
        text.push_str(&format!(" and {} more", names.len() - MOST));
    }
    text
}

/// Line and column that the planner noted.
fn place(error: &DataFusionError) -> Option<String> {
    let span = error.diagnostic()?.span?;
    Some(format!("line {}, column {}", span.start.line, span.start.column))
}

/// The text as ours are: without the kinds that DataFusion and Arrow put in front, on one line, of a length that is read.
fn plain(error: &DataFusionError) -> String {
    const KINDS: [&str; 8] = [
        "sql parser error: ",
        "Error during planning: ",
        "Execution error: ",
        "Internal error: ",
        "Parser error: ",
        "Compute error: ",
        "Cast error: ",
        "Invalid argument error: ",
    ];
    const LONGEST: usize = 600;
    let mut text = match error {
        DataFusionError::SQL(error, _) => error.to_string(),
        _ => error.message().into_owned(),
    };
    for kind in KINDS {
        text = text.replace(kind, "");
    }
    lowered(&first_line(&text).chars().take(LONGEST).collect::<String>())
}

/// The text with a small letter in front. Names in capitals stay as they are.
fn lowered(text: &str) -> String {
    let mut letters = text.chars();
    let Some(first) = letters.next() else { return "no text".to_owned() };
    let rest = letters.as_str();
    let is_word = rest.starts_with(|next: char| next.is_lowercase() || next == ' ');
    let first = if is_word { first.to_lowercase().to_string() } else { first.to_string() };
    first + rest
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end_matches('.')
}
