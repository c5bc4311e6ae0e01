//! What can be wrong with a record of the control log.

use thalweg_types::{Class, Error};

/// An error of reading or writing a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    #[error("control record has {bytes} bytes, expected at most {most}")]
    TooLarge { bytes: usize, most: usize },
    /// Not a record of its version; `problem` says what was expected and what was found, and quotes the record.
    #[error("damaged control record of kind {kind:?}{}: {problem}", at(*.column))]
    Damaged { kind: String, column: Option<usize>, problem: String },
}

fn at(column: Option<usize>) -> String {
    column.map(|column| format!(" at column {column}")).unwrap_or_default()
}

impl ControlError {
    pub(super) fn damaged(kind: &str, column: Option<usize>, problem: String) -> Self {
        // A kind may come from outside, with any length.
        let kind = kind.chars().take(32).collect();
        ControlError::Damaged { kind, column, problem }
    }

    pub(super) fn syntax(kind: &str, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        // Records have one line: its number says nothing.
        let problem = text.rsplit_once(" at line ").map_or(text.as_str(), |(problem, _)| problem);
        // A quoted value may be as long as the record.
        let problem = problem.chars().take(512).collect();
        Self::damaged(kind, Some(error.column()), problem)
    }

    /// Whose turn it is.
    pub fn class(&self) -> Class {
        match self {
            ControlError::TooLarge { .. } => Class::User,
            ControlError::Damaged { .. } => Class::Corrupt,
        }
    }

    /// A remedy, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            ControlError::TooLarge { .. } => "make the text of the job smaller, or run fewer jobs",
            ControlError::Damaged { .. } => "no node wrote these bytes: see who else writes to this topic",
        })
    }
}

/// Text of the record is for the log alone.
impl From<ControlError> for Error {
    fn from(error: ControlError) -> Self {
        let (class, hint) = (error.class(), error.hint());
        let converted = match error {
            ControlError::Damaged { kind, column, problem } => {
                Error::new(class, format!("damaged control record{}", at(column)))
                    .with_private(format!(" of kind {kind:?}: {problem}"))
            }
            other @ ControlError::TooLarge { .. } => Error::new(class, other.to_string()),
        };
        match hint {
            Some(hint) => converted.with_hint(hint),
            None => converted,
        }
    }
}
