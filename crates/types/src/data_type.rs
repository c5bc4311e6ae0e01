//! The field types of a job file and the Arrow types that carry them.
//!
//! | written | Arrow | notes |
//! |---|---|---|
//! | `bool` | Boolean | |
//! | `int64`, `uint64`, `float64` | Int64, UInt64, Float64 | |
//! | `decimal(p,s)` | Decimal128, from p = 39 Decimal256 | p up to 76 |
//! | `string`, `bytes` | Utf8View, BinaryView | views: short keys are compared as one 16-byte word |
//! | `timestamp(s\|ms\|us\|ns)` | Timestamp without zone | UTC |
//! | `ip` | FixedSizeBinary(16) | IPv4 as `::ffff:a.b.c.d` |
//!
//! A schema may also say `ipv4_int`: an `ip` that is read from a number (see [`crate::Reading`]).

use std::fmt;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray,
};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema as arrow;

use crate::Field;

/// Unit of a `timestamp` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    Second,
    Milli,
    Micro,
    Nano,
}

impl TimeUnit {
    pub fn name(self) -> &'static str {
        match self {
            TimeUnit::Second => "s",
            TimeUnit::Milli => "ms",
            TimeUnit::Micro => "us",
            TimeUnit::Nano => "ns",
        }
    }

    /// A count of this unit as microseconds; nanoseconds round down. `None` where it does not fit.
    pub fn to_micros(self, count: i64) -> Option<i64> {
        match self {
            TimeUnit::Second => count.checked_mul(1_000_000),
            TimeUnit::Milli => count.checked_mul(1_000),
            TimeUnit::Micro => Some(count),
            TimeUnit::Nano => Some(count.div_euclid(1_000)),
        }
    }

    /// Microseconds as a count of this unit; coarser units round down. `None` where it does not fit.
    pub fn from_micros(self, micros: i64) -> Option<i64> {
        match self {
            TimeUnit::Second => Some(micros.div_euclid(1_000_000)),
            TimeUnit::Milli => Some(micros.div_euclid(1_000)),
            TimeUnit::Micro => Some(micros),
            TimeUnit::Nano => micros.checked_mul(1_000),
        }
    }

    /// A `timestamp` column of counts of this unit.
    ///
    /// # Panics
    /// If `nulls` has another length than `values`.
    pub fn column(self, values: ScalarBuffer<i64>, nulls: Option<NullBuffer>) -> ArrayRef {
        match self {
            TimeUnit::Second => Arc::new(TimestampSecondArray::new(values, nulls)),
            TimeUnit::Milli => Arc::new(TimestampMillisecondArray::new(values, nulls)),
            TimeUnit::Micro => Arc::new(TimestampMicrosecondArray::new(values, nulls)),
            TimeUnit::Nano => Arc::new(TimestampNanosecondArray::new(values, nulls)),
        }
    }

    pub fn of_arrow(unit: arrow::TimeUnit) -> Self {
        match unit {
            arrow::TimeUnit::Second => TimeUnit::Second,
            arrow::TimeUnit::Millisecond => TimeUnit::Milli,
            arrow::TimeUnit::Microsecond => TimeUnit::Micro,
            arrow::TimeUnit::Nanosecond => TimeUnit::Nano,
        }
    }

    fn arrow(self) -> arrow::TimeUnit {
        match self {
            TimeUnit::Second => arrow::TimeUnit::Second,
            TimeUnit::Milli => arrow::TimeUnit::Millisecond,
            TimeUnit::Micro => arrow::TimeUnit::Microsecond,
            TimeUnit::Nano => arrow::TimeUnit::Nanosecond,
        }
    }
}

/// Type of a field. `List` and `Struct` appear in answers only; job files cannot declare them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    Bool,
    Int64,
    UInt64,
    Float64,
    Decimal {
        precision: u8,
        scale: i8,
    },
    String,
    Bytes,
    Timestamp(TimeUnit),
    Ip,
    List(Box<DataType>),
    /// One query's values in an answer.
    Struct(Vec<Field>),
}

/// A type in a job file that is not one of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a type (bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns), ip), got {got:?}"
)]
pub struct ParseTypeError {
    pub got: String,
}

impl DataType {
    /// Names that [`DataType::parse`] accepts, for hints.
    pub const NAMES: [&'static str; 13] = [
        "bool",
        "int64",
        "uint64",
        "float64",
        "decimal(18,2)",
        "string",
        "bytes",
        "timestamp(s)",
        "timestamp(ms)",
        "timestamp(us)",
        "timestamp(ns)",
        "ip",
        "decimal(38,9)",
    ];

    /// Parses a type name without the nullable mark.
    ///
    /// # Errors
    /// [`ParseTypeError`] with the text if it is not a type of ours or a decimal's figures are out of range
    /// (precision 1 to 76, scale 0 to precision).
    pub fn parse(text: &str) -> Result<Self, ParseTypeError> {
        let error = || ParseTypeError { got: text.to_owned() };
        let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        Ok(match compact.as_str() {
            "bool" => DataType::Bool,
            "int64" => DataType::Int64,
            "uint64" => DataType::UInt64,
            "float64" => DataType::Float64,
            "string" => DataType::String,
            "bytes" => DataType::Bytes,
            "timestamp(s)" => DataType::Timestamp(TimeUnit::Second),
            "timestamp(ms)" => DataType::Timestamp(TimeUnit::Milli),
            "timestamp(us)" => DataType::Timestamp(TimeUnit::Micro),
            "timestamp(ns)" => DataType::Timestamp(TimeUnit::Nano),
            "ip" => DataType::Ip,
            other => {
                let inner = other
                    .strip_prefix("decimal(")
                    .and_then(|rest| rest.strip_suffix(')'))
                    .ok_or_else(error)?;
                let (precision, scale) = inner.split_once(',').unwrap_or((inner, "0"));
                let precision: u8 = precision.parse().map_err(|_| error())?;
                let scale: i8 = scale.parse().map_err(|_| error())?;
                if !(1..=76).contains(&precision) || scale < 0 || scale as u8 > precision {
                    return Err(error());
                }
                DataType::Decimal { precision, scale }
            }
        })
    }

    /// The Arrow type that carries this type in a [`crate::Batch`].
    pub fn to_arrow(&self) -> arrow::DataType {
        match self {
            DataType::Bool => arrow::DataType::Boolean,
            DataType::Int64 => arrow::DataType::Int64,
            DataType::UInt64 => arrow::DataType::UInt64,
            DataType::Float64 => arrow::DataType::Float64,
            DataType::Decimal { precision, scale } if *precision <= 38 => {
                arrow::DataType::Decimal128(*precision, *scale)
            }
            DataType::Decimal { precision, scale } => arrow::DataType::Decimal256(*precision, *scale),
            DataType::String => arrow::DataType::Utf8View,
            DataType::Bytes => arrow::DataType::BinaryView,
            DataType::Timestamp(unit) => arrow::DataType::Timestamp(unit.arrow(), None),
            DataType::Ip => arrow::DataType::FixedSizeBinary(16),
            DataType::List(item) => {
                arrow::DataType::List(std::sync::Arc::new(arrow::Field::new("item", item.to_arrow(), true)))
            }
            DataType::Struct(fields) => arrow::DataType::Struct(fields.iter().map(Field::to_arrow).collect()),
        }
    }

    /// Whether `+ - * /`, `sum` and `avg` are defined for it.
    pub fn is_numeric(&self) -> bool {
        matches!(self, DataType::Int64 | DataType::UInt64 | DataType::Float64 | DataType::Decimal { .. })
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Bool => f.write_str("bool"),
            DataType::Int64 => f.write_str("int64"),
            DataType::UInt64 => f.write_str("uint64"),
            DataType::Float64 => f.write_str("float64"),
            DataType::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            DataType::String => f.write_str("string"),
            DataType::Bytes => f.write_str("bytes"),
            DataType::Timestamp(unit) => write!(f, "timestamp({})", unit.name()),
            DataType::Ip => f.write_str("ip"),
            DataType::List(item) => write!(f, "list({item})"),
            DataType::Struct(fields) => {
                f.write_str("{")?;
                for (index, field) in fields.iter().enumerate() {
                    write!(f, "{}{}: {}", if index == 0 { "" } else { ", " }, field.name, field.data_type)?;
                }
                f.write_str("}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_prints_as_it_is_written() {
        for text in [
            "bool",
            "int64",
            "uint64",
            "float64",
            "decimal(10,2)",
            "decimal(76,0)",
            "string",
            "bytes",
            "timestamp(s)",
            "timestamp(ms)",
            "timestamp(us)",
            "timestamp(ns)",
            "ip",
        ] {
            assert_eq!(DataType::parse(text).map(|t| t.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(
            DataType::parse("decimal( 5 , 1 )"),
            Ok(DataType::Decimal { precision: 5, scale: 1 }),
            "blanks are free"
        );
    }

    #[test]
    fn what_is_no_type_is_refused_with_the_text() {
        for text in
            ["", "int", "Int64", "decimal", "decimal(0,0)", "decimal(77,0)", "decimal(5,6)", "timestamp(m)"]
        {
            assert_eq!(DataType::parse(text), Err(ParseTypeError { got: text.to_owned() }));
        }
    }
}
