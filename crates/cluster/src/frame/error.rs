//! What can be wrong with a frame, or with rows that are to be one.

use std::fmt;

use arrow_schema::DataType;
use thalweg_types::{Class, Error};

/// An error of encoding or decoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    #[error("damaged frame: {what} at byte {pos} of the {part}: expected {expected}, got {got}")]
    Damaged { part: Part, pos: u64, what: &'static str, expected: String, got: String },
    /// Whole, and written by a newer build.
    #[error("frame has format version {found}, expected at most {newest}")]
    NewerVersion { found: u8, newest: u8 },
    #[error("frame of spec {spec} has rows of input {input}, which that spec does not have")]
    UnknownInput { spec: u64, input: u32 },
    #[error("row has {bytes} bytes, expected at most {most}")]
    RowTooLarge { bytes: usize, most: usize },
    #[error("lists of the row have {items} items, expected at most {most}")]
    TooManyItems { items: usize, most: usize },
    #[error("text of the job has {bytes} bytes, expected at most {most}")]
    JobTooLarge { bytes: usize, most: usize },
    #[error("Arrow type {data_type} has no form in a frame")]
    Unsupported { data_type: DataType },
}

/// In which bytes a place is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Frame,
    /// The body, after LZ4 was undone.
    Body,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Frame => "frame",
            Part::Body => "body",
        })
    }
}

impl FrameError {
    /// Whose turn it is.
    pub fn class(&self) -> Class {
        match self {
            FrameError::Damaged { .. }
            | FrameError::NewerVersion { .. }
            | FrameError::UnknownInput { .. } => Class::Corrupt,
            FrameError::RowTooLarge { .. }
            | FrameError::TooManyItems { .. }
            | FrameError::JobTooLarge { .. } => Class::User,
            FrameError::Unsupported { .. } => Class::Internal,
        }
    }

    /// A remedy, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            FrameError::Damaged { .. } => {
                Some("the bytes are not those that a node wrote: see who else writes to this topic")
            }
            FrameError::NewerVersion { .. } => Some("run the build that wrote it, or a newer one"),
            FrameError::RowTooLarge { .. } | FrameError::TooManyItems { .. } => {
                Some("leave out large fields, or split the record before the first key")
            }
            _ => None,
        }
    }
}

impl From<FrameError> for Error {
    fn from(error: FrameError) -> Self {
        let converted = Error::new(error.class(), error.to_string());
        match error.hint() {
            Some(hint) => converted.with_hint(hint),
            None => converted,
        }
    }
}
