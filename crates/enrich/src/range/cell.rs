//! One value of a row, and how it is written as text.

use thalweg_types::DataType;

/// A value of a row while it is loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Null,
    Bool(bool),
    Int64(i64),
    UInt64(u64),
    Float64(f64),
    Text(&'a str),
}

impl<'a> Cell<'a> {
    /// Reads a text as a type; an empty one is null, of whichever type.
    ///
    /// `None` where it is no value of the type.
    pub(super) fn parse(text: &'a str, data_type: &DataType) -> Option<Self> {
        if text.is_empty() {
            return Some(Cell::Null);
        }
        let trimmed = text.trim_ascii();
        match data_type {
            DataType::Bool => match trimmed {
                "1" => Some(Cell::Bool(true)),
                "0" => Some(Cell::Bool(false)),
                _ if trimmed.eq_ignore_ascii_case("true") => Some(Cell::Bool(true)),
                _ if trimmed.eq_ignore_ascii_case("false") => Some(Cell::Bool(false)),
                _ => None,
            },
            DataType::Int64 => trimmed.parse().ok().map(Cell::Int64),
            DataType::UInt64 => trimmed.parse().ok().map(Cell::UInt64),
            DataType::Float64 => trimmed.parse().ok().map(Cell::Float64),
            _ => Some(Cell::Text(text)),
        }
    }

    /// What [`Cell::parse`] takes for a type, for messages.
    pub(super) fn expected(data_type: &DataType) -> &'static str {
        match data_type {
            DataType::Bool => "true, false, 1 or 0",
            DataType::Int64 => "a whole number that fits int64",
            DataType::UInt64 => "a whole number from 0 that fits uint64",
            DataType::Float64 => "a number",
            _ => "text",
        }
    }

    /// Appends bytes that are the same for equal values alone.
    pub(super) fn write_key(self, key: &mut Vec<u8>) {
        match self {
            Cell::Null => key.push(0),
            Cell::Bool(value) => key.extend([1, u8::from(value)]),
            Cell::Int64(value) => tagged(key, 2, value.to_le_bytes()),
            Cell::UInt64(value) => tagged(key, 3, value.to_le_bytes()),
            Cell::Float64(value) => tagged(key, 4, value.to_bits().to_le_bytes()),
            Cell::Text(text) => {
                tagged(key, 5, (text.len() as u64).to_le_bytes());
                key.extend_from_slice(text.as_bytes());
            }
        }
    }
}

fn tagged(key: &mut Vec<u8>, tag: u8, bytes: [u8; 8]) {
    key.push(tag);
    key.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_value_of_its_type_or_none() {
        for (data_type, text, expected) in [
            (DataType::String, " a ", Some(Cell::Text(" a "))),
            (DataType::String, "", Some(Cell::Null)),
            (DataType::UInt64, "", Some(Cell::Null)),
            (DataType::UInt64, "18446744073709551615", Some(Cell::UInt64(u64::MAX))),
            (DataType::UInt64, " 7 ", Some(Cell::UInt64(7))),
            (DataType::UInt64, "-1", None),
            (DataType::UInt64, "AS7", None),
            (DataType::Int64, "-9223372036854775808", Some(Cell::Int64(i64::MIN))),
            (DataType::Int64, "9223372036854775808", None),
            (DataType::Float64, "-1.5e3", Some(Cell::Float64(-1500.0))),
            (DataType::Float64, "1,5", None),
            (DataType::Bool, "TRUE", Some(Cell::Bool(true))),
            (DataType::Bool, "0", Some(Cell::Bool(false))),
            (DataType::Bool, "yes", None),
        ] {
            assert_eq!(Cell::parse(text, &data_type), expected, "{text:?} as {data_type}");
        }
    }
}
