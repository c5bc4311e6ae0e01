//! Places of fields with the types under which they are read and written.
//!
//! | field | read and written as |
//! |---|---|
//! | `bool`, `int64`, `uint64`, `float64` | `bool`, `i64`, `u64`, `f64` |
//! | `decimal(p,s)` | [`Decimal`] |
//! | `string` | `String`: `&str` out, `&str` in |
//! | `bytes` | `Vec<u8>`: `&[u8]` out, `&[u8]` in |
//! | `timestamp(unit)` | [`Timestamp`] |
//! | `ip` | `IpAddr` |
//! | any of them with `?` | `Option` of it |
//! | any | `Value`, also for lists and structs of answers, which can be read and copied but not written |

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv6Addr};

use arrow_buffer::i256;
use thalweg_types::{DataType, Error, Micros, Schema, TimeUnit, Value};

use super::build::Builder;
use super::column::{Column, Values};

/// A fixed-point number: `unscaled` divided by ten to the power of `scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    pub unscaled: i256,
    pub scale: i8,
}

/// A point in time as a count of the field's unit since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    pub count: i64,
    pub unit: TimeUnit,
}

impl Timestamp {
    pub fn from_micros(micros: Micros) -> Self {
        Self { count: micros, unit: TimeUnit::Micro }
    }

    /// In microseconds, nanoseconds rounded down; `None` where it does not fit.
    pub fn micros(self) -> Option<Micros> {
        self.unit.to_micros(self.count)
    }
}

/// Where a field is read, found once by name.
pub struct Get<T> {
    place: usize,
    read_as: PhantomData<fn() -> T>,
}

/// Where a field of an output is written, found once by name.
pub struct Set<T> {
    place: usize,
    written_as: PhantomData<fn(T)>,
}

impl<T: FieldType> Get<T> {
    /// Finds the field by its name.
    ///
    /// # Errors
    /// If there is no such field, it is of another type, or it may be null and `T` is no `Option`.
    pub fn of(schema: &Schema, name: &str) -> Result<Self, Error> {
        let place = place_of(schema, name, T::fits, T::expected())?;
        let field = &schema.fields()[place];
        if field.nullable && !T::NULLABLE {
            return Err(Error::user(format!("field {name:?} may be null"))
                .with_hint(format!("declare it as {}, without the ?", field.data_type)));
        }
        Ok(Self { place, read_as: PhantomData })
    }

    /// Number of the field in its schema.
    pub fn place(self) -> usize {
        self.place
    }
}

impl<T: FieldType> Set<T> {
    /// Finds the field by its name. Null in a field that may not be null is refused when the record is sent.
    ///
    /// # Errors
    /// If there is no such field, or it is of another type.
    pub fn of(schema: &Schema, name: &str) -> Result<Self, Error> {
        let writes = |data_type: &DataType| {
            T::fits(data_type) && !matches!(data_type, DataType::List(_) | DataType::Struct(_))
        };
        let place = place_of(schema, name, writes, T::expected())?;
        Ok(Self { place, written_as: PhantomData })
    }

    /// Number of the field in its schema.
    pub fn place(self) -> usize {
        self.place
    }
}

impl Set<Value> {
    /// The same place, where the value is at hand as a text.
    pub(crate) fn text(self) -> Set<String> {
        Set { place: self.place, written_as: PhantomData }
    }
}

fn place_of(
    schema: &Schema,
    name: &str,
    fits: impl Fn(&DataType) -> bool,
    expected: &str,
) -> Result<usize, Error> {
    let Some((place, field)) = schema.field(name) else {
        let names: Vec<&str> = schema.names().collect();
        return Err(Error::user(format!("there is no field {name:?}"))
            .with_hint(format!("the fields are {}", names.join(", "))));
    };
    if !fits(&field.data_type) {
        return Err(Error::user(format!("field {name:?} is of type {}", field.data_type))
            .with_hint(format!("name a field of type {expected}")));
    }
    Ok(place)
}

// Derived ones would ask the same of `T`.
impl<T> Clone for Get<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Get<T> {}

impl<T> fmt::Debug for Get<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Get({})", self.place)
    }
}

impl<T> Clone for Set<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Set<T> {}

impl<T> fmt::Debug for Set<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Set({})", self.place)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type under which fields are read and written. The table at the top of this file lists them; there are no others.
pub trait FieldType: sealed::Sealed + Sized + 'static {
    /// What [`super::Row::get`] gives and [`super::NewRecord::set`] takes.
    type Value<'a>;

    /// Whether it has a word for null.
    const NULLABLE: bool = false;

    /// The field types that fit, for messages.
    fn expected() -> &'static str;

    fn fits(data_type: &DataType) -> bool;

    #[doc(hidden)]
    fn read<'a>(column: &Column<'a>, row: usize) -> Self::Value<'a>;

    #[doc(hidden)]
    fn write(builder: &mut Builder, value: Self::Value<'_>) -> Result<(), Error>;
}

/// The contents of a column that must have a value.
#[inline]
fn value_of<'a, V>(
    column: &Column<'a>,
    row: usize,
    read: impl FnOnce(&Values<'a>) -> Option<V>,
    expected: &str,
) -> V {
    assert!(!column.is_null(row), "null stands in a field that is read as {expected}, not nullable");
    match read(&column.values) {
        Some(value) => value,
        None => panic!("a field of Arrow type {} is read as {expected}", column.array.data_type()),
    }
}

macro_rules! field_type {
    ($type:ty, $value:ty, $expected:literal, $fits:pat, $row:ident, $($values:pat => $read:expr),+; $push:ident) => {
        impl sealed::Sealed for $type {}

        impl FieldType for $type {
            type Value<'a> = $value;

            fn expected() -> &'static str {
                $expected
            }

            fn fits(data_type: &DataType) -> bool {
                matches!(data_type, $fits)
            }

            #[inline]
            fn read<'a>(column: &Column<'a>, $row: usize) -> Self::Value<'a> {
                let read = |values: &Values<'a>| match *values {
                    $($values => Some($read),)+
                    _ => None,
                };
                value_of(column, $row, read, $expected)
            }

            #[inline]
            fn write(builder: &mut Builder, value: Self::Value<'_>) -> Result<(), Error> {
                builder.$push(value)
            }
        }
    };
}

field_type!(bool, bool, "bool", DataType::Bool, row, Values::Bool(v) => v.value(row); push_bool);
field_type!(i64, i64, "int64", DataType::Int64, row, Values::Int64(v) => v[row]; push_i64);
field_type!(u64, u64, "uint64", DataType::UInt64, row, Values::UInt64(v) => v[row]; push_u64);
field_type!(f64, f64, "float64", DataType::Float64, row, Values::Float64(v) => v[row]; push_f64);
field_type!(
    Decimal, Decimal, "decimal", DataType::Decimal { .. }, row,
    Values::Decimal128(v, scale) => Decimal { unscaled: i256::from_i128(v[row]), scale },
    Values::Decimal256(v, scale) => Decimal { unscaled: v[row], scale};
    push_decimal
);
field_type!(String, &'a str, "string", DataType::String, row, Values::String(v) => v.value(row); push_str);
field_type!(Vec<u8>, &'a [u8], "bytes", DataType::Bytes, row, Values::Bytes(v) => v.value(row); push_bytes);
field_type!(
    Timestamp, Timestamp, "timestamp(s|ms|us|ns)", DataType::Timestamp(_), row,
    Values::Time(v, unit) => Timestamp { count: v[row], unit };
    push_timestamp
);
field_type!(IpAddr, IpAddr, "ip", DataType::Ip, row, Values::Ip(v) => ip_of(v.value(row)); push_ip);

fn ip_of(octets: &[u8]) -> IpAddr {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(octets);
    Ipv6Addr::from(bytes).to_canonical()
}

impl<T: sealed::Sealed> sealed::Sealed for Option<T> {}

impl<T: FieldType> FieldType for Option<T> {
    type Value<'a> = Option<T::Value<'a>>;

    const NULLABLE: bool = true;

    fn expected() -> &'static str {
        T::expected()
    }

    fn fits(data_type: &DataType) -> bool {
        T::fits(data_type)
    }

    #[inline]
    fn read<'a>(column: &Column<'a>, row: usize) -> Self::Value<'a> {
        (!column.is_null(row)).then(|| T::read(column, row))
    }

    #[inline]
    fn write(builder: &mut Builder, value: Self::Value<'_>) -> Result<(), Error> {
        match value {
            Some(value) => T::write(builder, value),
            None => builder.push_null(),
        }
    }
}

impl sealed::Sealed for Value {}

impl FieldType for Value {
    type Value<'a> = Value;

    const NULLABLE: bool = true;

    fn expected() -> &'static str {
        "any"
    }

    fn fits(_: &DataType) -> bool {
        true
    }

    fn read<'a>(column: &Column<'a>, row: usize) -> Value {
        Value::at(column.array, row)
    }

    fn write(builder: &mut Builder, value: Value) -> Result<(), Error> {
        match value {
            Value::Null => builder.push_null(),
            Value::Bool(value) => builder.push_bool(value),
            Value::Int64(value) => builder.push_i64(value),
            Value::UInt64(value) => builder.push_u64(value),
            Value::Float64(value) => builder.push_f64(value),
            Value::Decimal(unscaled, scale) => builder.push_decimal(Decimal { unscaled, scale }),
            Value::String(text) => builder.push_str(&text),
            Value::Bytes(bytes) => builder.push_bytes(&bytes),
            Value::Timestamp(count, unit) => builder.push_timestamp(Timestamp { count, unit }),
            Value::Ip(octets) => builder.push_ip(ip_of(&octets)),
            Value::List(_) | Value::Struct(_) => builder.refuse("a list or a struct"),
        }
    }
}
