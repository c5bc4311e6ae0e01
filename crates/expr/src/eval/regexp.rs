//! Regular expressions: compiled when an expression is bound, within bounds, and matched in time that is linear in the
//! text. They have no look-around and no back-references, which would take more.
//!
//! Not here: LIKE and ILIKE, whose patterns may come with records (`like`).

use regex::{Error, Regex, RegexBuilder};

use crate::SqlError;

/// Longest pattern in bytes.
const MAX_PATTERN: usize = 4 << 10;
/// Bytes of a compiled pattern, and of its cache while it is matched.
const MAX_COMPILED: usize = 256 << 10;
/// Deepest nesting of groups.
const MAX_NESTING: u32 = 50;
/// Longest text that is matched: each byte may cost as many steps as the pattern has places.
pub(crate) const MAX_MATCHED: usize = 64 << 10;

/// A regular expression that has been compiled.
#[derive(Clone, Debug)]
pub(crate) struct Regexp(Regex);

impl Regexp {
    /// # Errors
    /// On a text that is no regular expression, and on one that is too large.
    pub(crate) fn new(pattern: &str, fold_case: bool) -> Result<Self, SqlError> {
        if pattern.len() > MAX_PATTERN {
            let error = SqlError::new(format!("this regular expression has {} bytes", pattern.len()));
            return Err(error.expected(format!("at most {MAX_PATTERN} bytes")));
        }
        RegexBuilder::new(pattern)
            .case_insensitive(fold_case)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_COMPILED)
            .nest_limit(MAX_NESTING)
            .build()
            .map(Self)
            .map_err(|error| match error {
                Error::CompiledTooBig(_) => SqlError::new("this regular expression is too large when compiled")
                    .expected(format!("at most {} KiB", MAX_COMPILED >> 10))
                    .hint("repeat less: \\w and \\d are all letters and digits of Unicode, [a-z] and [0-9] are smaller"),
                other => {
                    // The last line of a drawing that marks the place.
                    let text = other.to_string();
                    let what = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
                    SqlError::new(format!("this is no regular expression: {what}"))
                }
            })
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// What a group has of the first match; `None` where there is no match, or the group has no part in it.
    pub(crate) fn extract<'t>(&self, text: &'t str, group: usize) -> Option<&'t str> {
        if group == 0 {
            return self.0.find(text).map(|found| found.as_str());
        }
        self.0.captures(text)?.get(group).map(|found| found.as_str())
    }

    /// How many groups there are, the whole match among them.
    pub(crate) fn groups(&self) -> usize {
        self.0.captures_len()
    }

    /// The numbers that a group may have, for messages.
    pub(crate) fn groups_expected(&self) -> String {
        match self.groups() {
            1 => String::new(),
            2 => ", or 1".to_owned(),
            groups => format!(", or 1 to {}", groups - 1),
        }
    }
}
