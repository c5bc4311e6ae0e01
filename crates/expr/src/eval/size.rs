//! How long texts may become, by the lengths of their inputs: so that a reader can say how many rows it takes at
//! once, before any is evaluated.

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef};
use thalweg_types::{Batch, DataType, TextLengths};

use super::evaluation::MAX_MADE;
use super::like::MATCH_STEPS;
use super::regexp::MAX_MATCHED;
use super::tuple::MOST_OF_ONE;
use crate::bound::{Op, Typed};
use crate::function::Function;

/// Longest text of a number, a time or an address.
const SHORT: usize = 96;

/// Steps of a match that take as long as a byte that is made.
const STEPS_A_BYTE: usize = 8;

/// Bytes that are made while a regular expression goes over one, where it is a hard one.
const BYTES_A_BYTE_MATCHED: usize = 16;

/// Rows that are looked at to begin with.
const FIRST: usize = 256;

/// The longest text of each column among the first rows of a batch, found when it is asked for.
pub struct Longest<'a> {
    columns: Vec<&'a ArrayRef>,
    batch: &'a Batch,
    /// Rows that count.
    rows: usize,
    known: Vec<Known>,
}

struct Known {
    column: usize,
    path: Vec<usize>,
    longest: usize,
}

impl<'a> Longest<'a> {
    /// `columns` are those that expressions are bound to, with the physical rows of `batch`.
    pub fn new(columns: Vec<&'a ArrayRef>, batch: &'a Batch) -> Self {
        Self { columns, batch, rows: batch.len(), known: Vec::new() }
    }

    /// How many records of the batch, from its first, are within a bound of which `most` says how many rows it allows that
    /// are all as long as the longest; at least one.
    ///
    /// It looks at few rows to begin with, and at no more than twice as many as it gives beyond those: a reader that
    /// takes a batch in many pieces does not look through all of it for each.
    pub fn rows_within(&mut self, mut most: impl FnMut(&mut Self) -> usize) -> usize {
        let len = self.batch.len();
        let mut fit = 0;
        self.rows = 0;
        self.known.clear();
        loop {
            self.look_at((self.rows * 2).max(FIRST).min(len));
            let most = most(self);
            if most <= self.rows || self.rows == len {
                return most.min(self.rows).max(fit).max(1);
            }
            fit = self.rows;
        }
    }

    fn look_at(&mut self, rows: usize) {
        for known in &mut self.known {
            let lengths = lengths(&self.columns, known.column, &known.path);
            let more = (self.rows..rows).map(|index| self.batch.row(index));
            known.longest = lengths.map_or(0, |lengths| lengths.longest(more)).max(known.longest);
        }
        self.rows = rows;
    }

    fn of(&mut self, column: usize, path: &[usize]) -> usize {
        if let Some(known) = self.known.iter().find(|known| known.column == column && known.path == path) {
            return known.longest;
        }
        let rows = (0..self.rows).map(|index| self.batch.row(index));
        let longest = lengths(&self.columns, column, path).map_or(0, |lengths| lengths.longest(rows));
        self.known.push(Known { column, path: path.to_owned(), longest });
        longest
    }
}

/// Lengths of the texts of a column, or of a member in it.
fn lengths<'a>(columns: &[&'a ArrayRef], column: usize, path: &[usize]) -> Option<TextLengths<'a>> {
    let mut array = *columns.get(column)?;
    for member in path {
        array = array.as_struct_opt()?.columns().get(*member)?;
    }
    TextLengths::of(array)
}

/// What texts of a row take at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextSizes {
    /// Bytes of the value itself; 0 where it is no text or blob.
    pub made: usize,
    /// Bytes that all operators together read and make: what evaluation costs beyond a little for each of them.
    pub work: usize,
}

pub(crate) fn text_sizes(root: &Typed, longest: &mut Longest<'_>) -> TextSizes {
    let mut work = 0;
    let made = made(root, longest, &mut work);
    TextSizes { made, work }
}

/// Bytes of the text or blob that a node gives; adds what it and those below it read and make.
fn made(node: &Typed, longest: &mut Longest<'_>, work: &mut usize) -> usize {
    match &node.op {
        Op::Column { index, path, .. } => return longest.of(*index, path),
        Op::Constant(array) => return TextLengths::of(array).map_or(0, TextLengths::longest_of_all),
        _ => {}
    }
    let read: Vec<usize> = node.children().into_iter().map(|child| made(child, longest, work)).collect();
    let sum = read.iter().copied().fold(0, usize::saturating_add);
    let made = if matches!(node.data_type, DataType::String | DataType::Bytes) {
        from(&node.op, &read, sum)
    } else {
        0
    };
    *work = work.saturating_add(sum).saturating_add(made);
    if let Op::Like { pattern, .. } = &node.op
        && may_be_hard(pattern)
    {
        let steps = read[0].saturating_mul(read[1]).min(MATCH_STEPS);
        *work = work.saturating_add(steps / STEPS_A_BYTE);
    }
    if let Op::Match { .. } = &node.op {
        *work = work.saturating_add(read[0].min(MAX_MATCHED).saturating_mul(BYTES_A_BYTE_MATCHED));
    }
    made
}

/// Whether a match may take more than its text is long: see `like`.
fn may_be_hard(pattern: &Typed) -> bool {
    let text = pattern.constant().and_then(|array| array.as_string_view_opt());
    text.is_none_or(|text| text.is_valid(0) && text.value(0).contains('_'))
}

/// Bytes of a text that an operator makes of texts that have the bytes `read`.
fn from(op: &Op, read: &[usize], sum: usize) -> usize {
    let longest = read.iter().copied().max().unwrap_or(0);
    match op {
        Op::Concat(_) | Op::Call(Function::Concat, _) => sum.min(longest.max(MAX_MADE)),
        Op::Call(Function::Replace, _) => {
            let (text, by) = (read[0], read[2]);
            text.saturating_mul(by.max(1)).min(text.max(MAX_MADE))
        }
        Op::Call(Function::Lower | Function::Upper, _) => longest.saturating_mul(3),
        Op::Match { .. } => read[0],
        Op::Tuple(items) => {
            sum.saturating_add(items.len().saturating_mul(MOST_OF_ONE)).min(longest.max(MAX_MADE))
        }
        Op::Call(..) | Op::Case { .. } => longest,
        Op::Cast(a) if matches!(a.data_type, DataType::String | DataType::Bytes) => longest,
        _ => SHORT,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{RecordBatch, StringViewArray};
    use thalweg_types::{Field, Schema, SeqRange, Seqs};

    use super::*;
    use crate::Expr;

    fn batch(lengths: impl Iterator<Item = usize>) -> (Schema, Batch) {
        let schema = Schema::new([Field::new("t", DataType::String)]);
        let texts = StringViewArray::from_iter_values(lengths.map(|length| "x".repeat(length)));
        let records = RecordBatch::try_new(Arc::clone(schema.arrow()), vec![Arc::new(texts)]).unwrap();
        let count = records.num_rows();
        let range = SeqRange::new(0, count as u64);
        (schema, Batch::new(range, records, vec![0; count].into(), Seqs::Dense(0)))
    }

    fn rows_within(batch: &Batch, bytes: usize) -> usize {
        let columns = batch.records().columns().iter().collect();
        Longest::new(columns, batch).rows_within(|longest| bytes / longest.of(0, &[]).max(1))
    }

    #[test]
    fn as_many_rows_go_at_once_as_are_short_before_a_long_one() {
        for (lengths, bytes, expected) in [
            (vec![10; 5_000], 1_000_000, 5_000..=5_000),
            (vec![10; 5_000], 1_000, 100..=100),
            (vec![10; 5_000], 1, 1..=1),
            // The long one is not in sight of the first rows.
            ([vec![10; 4_000], vec![100_000; 1_000]].concat(), 1_000_000, 2_000..=4_000),
            ([vec![100_000], vec![10; 4_000]].concat(), 1_000_000, 10..=10),
            (vec![], 10, 1..=1),
        ] {
            let (_, batch) = batch(lengths.iter().copied());
            let got = rows_within(&batch, bytes);
            assert!(expected.contains(&got), "{bytes} bytes: {got} rows, expected {expected:?}");
        }
    }

    #[test]
    fn a_batch_in_many_pieces_is_looked_through_about_once() {
        let (_, whole) = batch((0..20_000).map(|_| 1_000));
        let (mut rest, mut looked, mut pieces) = (whole, 0, 0);
        while !rest.is_empty() {
            let columns = rest.records().columns().iter().collect();
            let mut longest = Longest::new(columns, &rest);
            let rows = longest.rows_within(|longest| 100_000 / longest.of(0, &[]));
            (looked, pieces) = (looked + longest.rows, pieces + 1);
            rest = rest.split(rest.seq(rest.row(0)) + rows as u64).1;
        }
        assert_eq!(pieces, 200);
        assert!(looked <= pieces * FIRST, "{looked} rows for {pieces} pieces");
    }

    #[test]
    fn work_is_what_all_operators_read_and_make() {
        let (schema, batch) = batch([3, 100].into_iter());
        for (text, made, work) in [
            ("t", 100, 0),
            ("t || t", 200, 400),
            ("length(t || t)", 0, 600),
            ("replace(t, 'x', 'yy')", 200, 303),
            ("lower(replace(t, 'x', 'yy'))", 600, 1_103),
            ("CASE WHEN t LIKE 'a%' THEN t ELSE 'b' END", 100, 303),
            ("t LIKE '%a_b%'", 0, 105 + 100 * 5 / 8),
            ("t ~ 'a'", 0, 101 + 100 * 16),
            ("regexp_extract(t, 'a')", 100, 201 + 100 * 16),
            ("t LIKE t", 0, 200 + 100 * 100 / 8),
        ] {
            let bound = Expr::parse(text).unwrap().bind(&schema).unwrap();
            let columns = batch.records().columns().iter().collect();
            let sizes = bound.text_sizes(&mut Longest::new(columns, &batch));
            assert_eq!(sizes, TextSizes { made, work }, "{text}");
        }
    }
}
