//! The distinct values of a key column, numbered.
//!
//! Only these are compared, as bytes that sort like the column (`arrow-row`); rows and groups have their numbers.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{DataType as ArrowType, Field as ArrowField};
use arrow_select::take::take;
use foldhash::fast::RandomState;
use thalweg_types::Error;

use super::{counts_of, rolling};

/// Values by number, as they come.
pub(super) struct Values {
    converter: RowConverter,
    /// Of each value, by its number: bytes that sort as the column does.
    sorting: Rows,
    null: Option<u32>,
    /// Numbers of values: of numbers and times, of texts and addresses, and of all else by `sorting`. Seeds of their own, as
    /// values come from outside; what is made of them is in the order of the values.
    words: HashMap<i64, u32, RandomState>,
    texts: HashMap<Box<[u8]>, u32, RandomState>,
}

impl Values {
    pub(super) fn new(field: &ArrowField) -> Result<Self, Error> {
        let sort = SortField::new(field.data_type().clone());
        let converter = RowConverter::new(vec![sort]).map_err(rolling)?;
        let sorting = converter.empty_rows(0, 0);
        Ok(Self { converter, sorting, null: None, words: HashMap::default(), texts: HashMap::default() })
    }

    /// The numbers of a column's values.
    pub(super) fn numbers(&mut self, column: &ArrayRef) -> Result<Vec<u32>, Error> {
        match column.data_type() {
            ArrowType::Int64 | ArrowType::UInt64 | ArrowType::Timestamp(..) => {
                let words = counts_of(column).map_err(rolling)?;
                let mut last: Option<(i64, u32)> = None;
                self.number(column, |values, row, next| {
                    let word = words[row];
                    match last {
                        Some((same, number)) if same == word => number,
                        _ => {
                            let number = *values.words.entry(word).or_insert(next);
                            last = Some((word, number));
                            number
                        }
                    }
                })
            }
            ArrowType::Utf8View => {
                let texts = column.as_string_view();
                self.number(column, |values, row, next| values.text(texts.value(row).as_bytes(), next))
            }
            ArrowType::BinaryView => {
                let texts = column.as_binary_view();
                self.number(column, |values, row, next| values.text(texts.value(row), next))
            }
            ArrowType::FixedSizeBinary(_) => {
                let texts = column.as_fixed_size_binary();
                self.number(column, |values, row, next| values.text(texts.value(row), next))
            }
            _ => {
                let texts = self.converter.convert_columns(&[Arc::clone(column)]).map_err(rolling)?;
                self.number(column, |values, row, next| values.text(texts.row(row).data(), next))
            }
        }
    }

    /// The number of a text, `next` for a new one.
    fn text(&mut self, text: &[u8], next: u32) -> u32 {
        match self.texts.get(text) {
            Some(number) => *number,
            None => {
                self.texts.insert(text.into(), next);
                next
            }
        }
    }

    /// `find` gives the number of a value that is there, and the next number to a new one.
    fn number(
        &mut self,
        column: &ArrayRef,
        mut find: impl FnMut(&mut Self, usize, u32) -> u32,
    ) -> Result<Vec<u32>, Error> {
        // A column has no more values than a file has rows, which are fewer than 2^32.
        let mut next = self.sorting.num_rows() as u32;
        let mut new: Vec<u32> = Vec::new();
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
        let numbers = (0..column.len()).map(|row| {
            let number = match nulls.is_some_and(|nulls| nulls.is_null(row)) {
                true => *self.null.get_or_insert(next),
                false => find(self, row, next),
            };
            if number == next {
                new.push(row as u32);
                next += 1;
            }
            number
        });
        let numbers = numbers.collect();
        let new = take(column, &UInt32Array::from(new), None).map_err(rolling)?;
        let new = self.converter.convert_columns(&[new]).map_err(rolling)?;
        new.iter().for_each(|row| self.sorting.push(row));
        Ok(numbers)
    }

    /// The values, in the order of their numbers.
    pub(super) fn column(&self) -> Result<ArrayRef, Error> {
        Ok(self.converter.convert_rows(self.sorting.iter()).map_err(rolling)?.swap_remove(0))
    }

    /// The values in their order, and the place in it that each number has.
    pub(super) fn ranked(&self) -> Result<(ArrayRef, Vec<u32>), Error> {
        let mut order: Vec<usize> = (0..self.sorting.num_rows()).collect();
        order.sort_unstable_by(|a, b| self.sorting.row(*a).cmp(&self.sorting.row(*b)));
        let mut ranks = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(number, rank)| ranks[*number] = rank);
        let rows = order.iter().map(|number| self.sorting.row(*number));
        let column = self.converter.convert_rows(rows).map_err(rolling)?.swap_remove(0);
        Ok((column, ranks))
    }
}
