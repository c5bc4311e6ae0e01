//! Everything that is wrong with one text: checks report and go on, as far as one mistake does not cause the next.

use std::fmt;
use std::ops::Range;

use thalweg_types::Error;

use crate::SqlError;

/// More mistakes of one text are counted, not kept: each may print a long line.
const MOST: usize = 100;

/// Collects the mistakes of one text while its checks go on.
#[derive(Debug, Default)]
pub struct Mistakes {
    found: Vec<SqlError>,
    /// How many more there were than [`MOST`].
    dropped: usize,
}

impl Mistakes {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, error: SqlError) {
        if self.found.len() < MOST {
            self.found.push(error);
        } else {
            self.dropped += 1;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// # Errors
    /// If there are mistakes: all, in the order of the text.
    pub fn finish(self) -> Result<(), SqlErrors> {
        let Self { mut found, dropped } = self;
        if found.is_empty() {
            return Ok(());
        }
        found.sort_by_key(|error| error.span.as_ref().map(|span| (span.start, span.end)));
        found.dedup();
        if let (1.., Some(last)) = (dropped, found.last()) {
            let more =
                SqlError { span: last.span.clone(), ..SqlError::new(format!("{dropped} more mistakes")) };
            found.push(more.hint("mend those before, then the others are shown"));
        }
        Err(SqlErrors(found))
    }
}

impl Extend<SqlError> for Mistakes {
    fn extend<T: IntoIterator<Item = SqlError>>(&mut self, errors: T) {
        for error in errors {
            self.push(error);
        }
    }
}

/// The mistakes of one text in its order; at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SqlErrors(Vec<SqlError>);

impl SqlErrors {
    pub fn first(&self) -> &SqlError {
        &self.0[0]
    }

    pub fn iter(&self) -> std::slice::Iter<'_, SqlError> {
        self.0.iter()
    }

    pub(crate) fn append(&mut self, mut more: Self) {
        self.0.append(&mut more.0);
    }

    /// Gives those that have none this place.
    pub(crate) fn at(mut self, span: &Range<usize>) -> Self {
        self.0.iter_mut().for_each(|error| _ = error.span.get_or_insert_with(|| span.clone()));
        self
    }

    /// Each as [`SqlError::render`] shows it.
    pub fn render(&self, text: &str) -> String {
        self.0.iter().map(|error| error.render(text)).collect()
    }
}

impl IntoIterator for SqlErrors {
    type Item = SqlError;
    type IntoIter = std::vec::IntoIter<SqlError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl From<SqlError> for SqlErrors {
    fn from(error: SqlError) -> Self {
        Self(vec![error])
    }
}

impl From<SqlErrors> for SqlError {
    /// The first, for callers that have checked the text before.
    fn from(errors: SqlErrors) -> Self {
        errors.into_iter().next().expect("at least one")
    }
}

impl fmt::Display for SqlErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl From<SqlErrors> for Error {
    /// A user's error: all messages, and the first hint.
    fn from(errors: SqlErrors) -> Self {
        let message: Vec<String> = errors.iter().map(SqlError::with_expected).collect();
        let user = Error::user(message.join("; "));
        match errors.into_iter().find_map(|error| error.hint) {
            Some(hint) => user.with_hint(hint),
            None => user,
        }
    }
}

/// All values, or everything that is wrong with any of them.
pub(crate) fn all<T, E: Into<SqlErrors>>(
    results: impl IntoIterator<Item = Result<T, E>>,
) -> Result<Vec<T>, SqlErrors> {
    let mut values = Vec::new();
    let mut errors: Option<SqlErrors> = None;
    for result in results {
        match (result, &mut errors) {
            (Ok(value), _) => values.push(value),
            (Err(error), Some(errors)) => errors.append(error.into()),
            (Err(error), None) => errors = Some(error.into()),
        }
    }
    errors.map_or(Ok(values), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_stand_in_the_order_of_the_text_and_once() {
        let mut mistakes = Mistakes::new();
        assert!(mistakes.is_empty());
        mistakes.extend([SqlError::new("late").at(5..6), SqlError::new("early").at(1..2)]);
        mistakes.push(SqlError::new("late").at(5..6));
        assert_eq!(mistakes.finish().unwrap_err().to_string(), "early; late");
        assert_eq!(Mistakes::new().finish(), Ok(()));
    }

    #[test]
    fn endless_mistakes_are_counted() {
        let mut mistakes = Mistakes::new();
        mistakes.extend((0..1_000).map(|at| SqlError::new(format!("wrong {at}")).at(at..at + 1)));
        let errors = mistakes.finish().unwrap_err();
        assert_eq!(errors.iter().count(), MOST + 1);
        assert_eq!(errors.into_iter().next_back().unwrap().message, "900 more mistakes");
    }

    #[test]
    fn one_error_says_it_all() {
        let mut errors = SqlErrors::from(SqlError::new("a is wrong").expected("b"));
        errors.append(SqlError::new("c is wrong").hint("d").into());
        let error = Error::from(errors);
        assert_eq!(error.to_string(), "a is wrong: expected b; c is wrong");
        assert_eq!(error.hint(), Some("d"));
    }
}
