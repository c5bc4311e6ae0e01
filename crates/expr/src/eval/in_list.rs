//! `IN (…)`: a lookup where the list is constant, otherwise one comparison per member.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt64Type,
};
use arrow_array::{Array as _, ArrayRef, BooleanArray};
use arrow_buffer::BooleanBuffer;
use thalweg_types::DataType;

use super::column::{Column, arc};
use super::{compare, logic};
use crate::SqlError;
use crate::ast::CompareOp;
use crate::bound::Typed;

/// The constant members of a list, sorted.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    keys: Keys,
    /// A value that is not among the members may be the one that is null: the answer is null, not false.
    has_null: bool,
}

#[derive(Clone, Debug)]
enum Keys {
    Int64(Vec<i64>),
    UInt64(Vec<u64>),
    Text(Vec<Box<str>>),
}

impl Members {
    /// The lookup for a list of constants of `data_type`; `None` where comparing one by one has to do.
    pub(crate) fn of(data_type: &DataType, list: &[Typed]) -> Option<Self> {
        let arrays: Vec<&ArrayRef> = list.iter().map(Typed::constant).collect::<Option<_>>()?;
        let has_null = arrays.iter().any(|array| array.is_null(0));
        let present = arrays.into_iter().filter(|array| array.is_valid(0));
        let keys = match data_type {
            DataType::Int64 | DataType::Timestamp(_) => {
                let mut keys: Vec<i64> = present.map(|array| integers_of(array)[0]).collect();
                keys.sort_unstable();
                Keys::Int64(keys)
            }
            DataType::UInt64 => {
                let mut keys: Vec<u64> =
                    present.map(|array| array.as_primitive::<UInt64Type>().value(0)).collect();
                keys.sort_unstable();
                Keys::UInt64(keys)
            }
            DataType::String => {
                let mut keys: Vec<Box<str>> =
                    present.map(|array| array.as_string_view().value(0).into()).collect();
                keys.sort_unstable();
                Keys::Text(keys)
            }
            _ => return None,
        };
        Some(Self { keys, has_null })
    }

    pub(crate) fn contains(&self, column: &Column, negated: bool) -> Result<Column, SqlError> {
        let array = column.array();
        let rows = array.len();
        let found = match &self.keys {
            Keys::Int64(keys) => {
                let values = integers_of(array);
                BooleanBuffer::collect_bool(rows, |row| keys.binary_search(&values[row]).is_ok())
            }
            Keys::UInt64(keys) => {
                let values = array.as_primitive::<UInt64Type>().values();
                BooleanBuffer::collect_bool(rows, |row| keys.binary_search(&values[row]).is_ok())
            }
            Keys::Text(keys) => {
                let values = array.as_string_view();
                BooleanBuffer::collect_bool(rows, |row| {
                    keys.binary_search_by(|key| key.as_ref().cmp(values.value(row))).is_ok()
                })
            }
        };
        let mut nulls = array.nulls().cloned();
        if self.has_null {
            let known = arrow_buffer::NullBuffer::new(found.clone());
            nulls = arrow_buffer::NullBuffer::union(nulls.as_ref(), Some(&known));
        }
        Ok(column.same_shape(arc(BooleanArray::new(if negated { !&found } else { found }, nulls))))
    }
}

/// The counts of an int64 or timestamp column of any unit.
pub(crate) fn integers_of(array: &ArrayRef) -> &[i64] {
    use arrow_schema::{DataType as Arrow, TimeUnit as Unit};
    match array.data_type() {
        Arrow::Timestamp(Unit::Second, _) => array.as_primitive::<TimestampSecondType>().values(),
        Arrow::Timestamp(Unit::Millisecond, _) => array.as_primitive::<TimestampMillisecondType>().values(),
        Arrow::Timestamp(Unit::Microsecond, _) => array.as_primitive::<TimestampMicrosecondType>().values(),
        Arrow::Timestamp(Unit::Nanosecond, _) => array.as_primitive::<TimestampNanosecondType>().values(),
        _ => array.as_primitive::<Int64Type>().values(),
    }
}

/// `x = a OR x = b OR …`, three-valued.
pub(crate) fn any_equal(x: &Column, list: &[Column], negated: bool) -> Result<Column, SqlError> {
    let mut found: Option<Column> = None;
    for member in list {
        let equal = compare::compare(CompareOp::Equal, x, member)?;
        found = Some(match found {
            None => equal,
            Some(found) => logic::either(&found, &equal)?,
        });
    }
    let found = found.expect("the parser takes no empty list");
    if negated { logic::not(&found) } else { Ok(found) }
}
