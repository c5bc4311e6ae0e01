//! Errors on their way from one process to another: class, retry, text, hint, and which limit it was.

use serde::{Deserialize, Serialize};
use thalweg_types::{Class, Error, Retry};

use crate::limits::Exceeded;

/// Longest text of an error; names and values of a query may be in it.
const LONGEST: usize = 8 << 10;

/// An error without its sources, whose texts are part of the message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    class: u8,
    retry: u8,
    message: String,
    hint: Option<String>,
    exceeded: Option<Exceeded>,
}

/// In the order of their numbers.
const CLASSES: [Class; 4] = [Class::User, Class::External, Class::Internal, Class::Corrupt];
const RETRIES: [Retry; 3] = [Retry::Never, Retry::WithBackoff, Retry::OutcomeUnknown];

impl Told {
    pub(crate) fn of(error: &Error) -> Self {
        let number = |found: Option<usize>| found.unwrap_or_default() as u8;
        let exceeded = Exceeded::of(error).cloned();
        // The text of a limit is that of the source, which goes along.
        let message = if exceeded.is_some() { error.message().to_owned() } else { error.chain() };
        Self {
            class: number(CLASSES.iter().position(|class| *class == error.class())),
            retry: number(RETRIES.iter().position(|retry| *retry == error.retry())),
            message: cut(message),
            hint: error.hint().map(|hint| cut(hint.to_owned())),
            exceeded,
        }
    }
}

impl From<Told> for Error {
    fn from(told: Told) -> Self {
        let class = CLASSES.get(usize::from(told.class)).copied().unwrap_or(Class::Internal);
        let retry = RETRIES.get(usize::from(told.retry)).copied().unwrap_or(Retry::Never);
        let mut error = Error::new(class, told.message).with_retry(retry);
        if let Some(hint) = told.hint {
            error = error.with_hint(hint);
        }
        if let Some(exceeded) = told.exceeded {
            error = error.with_source(exceeded);
        }
        error
    }
}

fn cut(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wire::{packed, unpacked};

    fn through(error: &Error) -> Error {
        let bytes = packed(&Told::of(error)).unwrap();
        unpacked::<Told>(&bytes[5..]).unwrap().into()
    }

    #[test]
    fn an_error_keeps_what_decides_about_it() {
        for class in CLASSES {
            for retry in RETRIES {
                let error = Error::new(class, "read \"x\"").with_retry(retry).with_hint("look");
                let came = through(&error.with_source(std::io::Error::other("gone")));
                assert_eq!((came.class(), came.retry(), came.hint()), (class, retry, Some("look")));
                assert_eq!(came.chain(), "read \"x\": gone");
            }
        }
        for exceeded in [
            Exceeded::Time { limit: Duration::from_secs(30) },
            Exceeded::Memory { limit: 1 << 20, what: "a sort".to_owned() },
        ] {
            let error = exceeded.clone().into_error();
            let came = through(&error);
            assert_eq!(Exceeded::of(&came), Some(&exceeded));
            assert_eq!((came.chain(), came.hint()), (error.chain(), error.hint()));
        }
    }

    #[test]
    fn a_text_has_an_end() {
        let came = through(&Error::user("ä".repeat(LONGEST)));
        assert!(came.message().ends_with('…') && came.message().len() < LONGEST + 8);
    }
}
