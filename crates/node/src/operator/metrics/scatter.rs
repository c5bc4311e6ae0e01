//! Puts the parts of a column back in order: each part's values go to its own rows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, StructArray, new_null_array};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use arrow_schema::{DataType, Fields};
use arrow_select::interleave::interleave;

/// Values of some rows: `array[i]` belongs to row `rows[i]`.
pub(super) struct Part<'a> {
    pub(super) array: &'a ArrayRef,
    pub(super) rows: &'a [u32],
}

/// One column of `count` rows. The parts' rows are disjoint and together all rows. A part that lacks the last fields of a
/// struct has nulls there: tasks that had no records when a query came say no `since`.
///
/// # Panics
/// If they are not, or the parts' types differ in something else.
pub(super) fn scatter(parts: &[Part<'_>], count: usize) -> ArrayRef {
    assert_eq!(parts.iter().map(|part| part.rows.len()).sum::<usize>(), count, "every row has one value");
    if let [part] = parts {
        // Parts keep the order of the records, so the only part there is has every row in its place.
        return Arc::clone(part.array);
    }
    match parts[0].array.data_type() {
        DataType::Int64 => primitive::<Int64Type>(parts, count),
        DataType::UInt64 => primitive::<UInt64Type>(parts, count),
        DataType::Float64 => primitive::<Float64Type>(parts, count),
        DataType::Struct(_) => {
            let structs: Vec<&StructArray> = parts.iter().map(|part| part.array.as_struct()).collect();
            let fields = widest(structs.iter().map(|part| part.fields()));
            let columns = fields
                .iter()
                .enumerate()
                .map(|(index, field)| {
                    let arrays: Vec<ArrayRef> = structs
                        .iter()
                        .map(|part| match part.columns().get(index) {
                            Some(column) => Arc::clone(column),
                            None => new_null_array(field.data_type(), part.len()),
                        })
                        .collect();
                    let children: Vec<Part<'_>> = arrays
                        .iter()
                        .zip(parts)
                        .map(|(array, part)| Part { array, rows: part.rows })
                        .collect();
                    scatter(&children, count)
                })
                .collect();
            let array = StructArray::try_new_with_length(fields.clone(), columns, None, count)
                .expect("children have the struct's types");
            Arc::new(array)
        }
        _ => {
            let mut places = vec![(0, 0); count];
            for (number, part) in parts.iter().enumerate() {
                for (index, row) in part.rows.iter().enumerate() {
                    places[*row as usize] = (number, index);
                }
            }
            let arrays: Vec<&dyn Array> = parts.iter().map(|part| part.array.as_ref()).collect();
            interleave(&arrays, &places).expect("parts have one type")
        }
    }
}

/// The fields of the part that has most: others begin with the same.
pub(super) fn widest<'a>(parts: impl Iterator<Item = &'a Fields>) -> &'a Fields {
    parts.max_by_key(|fields| fields.len()).expect("there is a part")
}

fn primitive<T: ArrowPrimitiveType>(parts: &[Part<'_>], count: usize) -> ArrayRef {
    let mut values = vec![T::Native::default(); count];
    for part in parts {
        let array: &PrimitiveArray<T> = part.array.as_primitive();
        for (row, value) in part.rows.iter().zip(array.values()) {
            values[*row as usize] = *value;
        }
    }
    let nulls = parts.iter().any(|part| part.array.null_count() > 0).then(|| {
        let mut valid = BooleanBufferBuilder::new(count);
        valid.append_n(count, true);
        for part in parts {
            for (index, row) in part.rows.iter().enumerate() {
                if part.array.is_null(index) {
                    valid.set_bit(*row as usize, false);
                }
            }
        }
        NullBuffer::new(valid.finish())
    });
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float64Array, Int64Array, StringViewArray};
    use arrow_schema::Field;
    use thalweg_types::Value;

    use super::*;

    fn check(first: ArrayRef, second: ArrayRef, expected: &[Value]) {
        let parts = [Part { array: &first, rows: &[0, 3] }, Part { array: &second, rows: &[1, 2, 4] }];
        let merged = scatter(&parts, 5);
        let values: Vec<Value> = (0..merged.len()).map(|row| Value::at(&merged, row)).collect();
        assert_eq!(values, expected);
    }

    #[test]
    fn values_go_back_to_their_rows_with_their_nulls() {
        check(
            Arc::new(Float64Array::from(vec![Some(0.5), None])),
            Arc::new(Float64Array::from(vec![1.5, 2.5, 4.5])),
            &[
                Value::Float64(0.5),
                Value::Float64(1.5),
                Value::Float64(2.5),
                Value::Null,
                Value::Float64(4.5),
            ],
        );
        let parts = |names: &[&str], values: Vec<i64>| -> ArrayRef {
            let fields = names.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect();
            let columns =
                names.iter().map(|_| Arc::new(Int64Array::from(values.clone())) as ArrayRef).collect();
            Arc::new(StructArray::new(fields, columns, None))
        };
        for is_first_wide in [true, false] {
            let names = |is_wide| if is_wide { ["n", "since"].as_slice() } else { &["n"] };
            let merged = [(0, 0), (1, 1), (1, 2), (0, 3), (1, 4)].map(|(place, n)| {
                let is_wide = is_first_wide == (place == 0);
                let since = if is_wide { Value::Int64(n) } else { Value::Null };
                Value::Struct(vec![("n".to_owned(), Value::Int64(n)), ("since".to_owned(), since)])
            });
            check(
                parts(names(is_first_wide), vec![0, 3]),
                parts(names(!is_first_wide), vec![1, 2, 4]),
                &merged,
            );
        }
        let text = |text: &str| Value::String(text.to_owned());
        check(
            Arc::new(StringViewArray::from(vec!["a", "d"])),
            Arc::new(StringViewArray::from(vec!["b", "c", "e"])),
            &[text("a"), text("b"), text("c"), text("d"), text("e")],
        );
    }
}
