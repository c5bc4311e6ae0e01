//! Fields that plain CSV does not have: more texts for null, and the decimal comma.

use thalweg_types::Error;

use super::super::column::{Column, Values};
use super::super::scan::float;
use super::super::text::Problem;
use crate::Options;

/// The forms that the options allow for a field. The default is plain CSV.
pub(super) struct Odd {
    /// Texts that mean null where the field is nullable.
    nulls: Vec<Vec<u8>>,
    /// First bytes of these, by byte.
    begins: Box<[bool; 256]>,
    /// The decimal sign is a comma, and nothing else is one.
    decimal_comma: bool,
    /// The decimal sign by which numbers are read where they are; `None` where a comma may end the field as well.
    point: Option<u8>,
}

impl Default for Odd {
    fn default() -> Self {
        Self { nulls: Vec::new(), begins: Box::new([false; 256]), decimal_comma: false, point: Some(b'.') }
    }
}

impl Odd {
    /// `None` where the options ask for nothing but plain CSV.
    ///
    /// # Errors
    /// Where a decimal comma would end its field.
    pub(super) fn of(options: &Options, delimiter: u8) -> Result<Option<Self>, Error> {
        let nulls: Vec<Vec<u8>> =
            options.list("null").unwrap_or_default().iter().map(|text| text.as_bytes().to_vec()).collect();
        let decimal_comma = options.flag("decimal_comma").unwrap_or(false);
        if decimal_comma && delimiter == b',' && options.text("delimiter").is_none() {
            return Err(Error::user(
                "decimal_comma: expected another delimiter than the comma, which would end the field of a number, got none",
            )
            .with_hint(
                "write delimiter: \";\"; where the fields are split by commas and the numbers are in quotes, write \
                 delimiter: \",\"",
            ));
        }
        if nulls.is_empty() && !decimal_comma {
            return Ok(None);
        }
        let mut begins = Box::new([false; 256]);
        for first in nulls.iter().filter_map(|text| text.first()) {
            begins[usize::from(*first)] = true;
        }
        let point = match (decimal_comma, delimiter) {
            (false, _) => Some(b'.'),
            (true, b',') => None,
            (true, _) => Some(b','),
        };
        Ok(Some(Self { nulls, begins, decimal_comma, point }))
    }

    /// Whether a text that begins with this byte may mean null.
    #[inline(always)]
    pub(super) fn may_be_null(&self, first: u8) -> bool {
        self.begins[usize::from(first)]
    }

    /// As [`float`], with the decimal sign that holds.
    #[inline(always)]
    pub(super) fn float(&self, data: &[u8], at: usize) -> Option<(f64, usize)> {
        float(data, at, self.point?)
    }

    /// Appends the value that `text`, which is not empty, represents. `at` is its place in the block, if it has one.
    pub(super) fn push(&self, column: &mut Column, text: &[u8], at: Option<usize>) -> Result<(), Problem> {
        if self.nulls.iter().any(|null| null == text) {
            if column.nullable {
                return column.push_null();
            }
            if !matches!(column.values, Values::String(_)) {
                return Err(Problem::Null);
            }
        }
        if self.decimal_comma && column.is_number() {
            return column.push_comma_number(text);
        }
        column.push_text(text, at)
    }
}
