//! Functions of texts. Positions and lengths count characters (code points), from 1.

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, Int64Array, StringViewArray};
use arrow_schema::DataType as Arrow;
use arrow_string::like;

use super::column::{Column, arc, from_options};
use super::internal;
use crate::SqlError;
use crate::function::Function;

/// What a null operand does to a concatenation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// `||`: the result is null.
    Propagate,
    /// `CONCAT`: it is left out.
    Skip,
}

/// Texts by row; a scalar has one for all.
struct Texts<'a> {
    array: &'a StringViewArray,
    is_scalar: bool,
}

impl<'a> Texts<'a> {
    fn of(column: &'a Column) -> Self {
        Self { array: column.array().as_string_view(), is_scalar: column.is_scalar() }
    }

    fn at(&self, row: usize) -> Option<&'a str> {
        let row = if self.is_scalar { 0 } else { row };
        self.array.is_valid(row).then(|| self.array.value(row))
    }
}

/// Rows to compute: one where everything is a scalar.
fn rows_for(args: &[Column], rows: usize) -> usize {
    if args.iter().all(Column::is_scalar) { 1 } else { rows }
}

fn shaped(args: &[Column], array: arrow_array::ArrayRef) -> Column {
    if args.iter().all(Column::is_scalar) { Column::Scalar(array) } else { Column::Array(array) }
}

pub(crate) fn concat(args: &[Column], nulls: Nulls, rows: usize) -> Result<Column, SqlError> {
    let texts: Vec<Texts<'_>> = args.iter().map(Texts::of).collect();
    let rows = rows_for(args, rows);
    let mut builder = StringViewBuilder::with_capacity(rows);
    let mut joined = String::new();
    'rows: for row in 0..rows {
        joined.clear();
        for text in &texts {
            match text.at(row) {
                Some(text) => joined.push_str(text),
                None if nulls == Nulls::Skip => {}
                None => {
                    builder.append_null();
                    continue 'rows;
                }
            }
        }
        builder.append_value(&joined);
    }
    Ok(shaped(args, arc(builder.finish())))
}

pub(crate) fn like(
    text: &Column,
    pattern: &Column,
    fold_case: bool,
    negated: bool,
) -> Result<Column, SqlError> {
    if text.is_null_scalar() || pattern.is_null_scalar() {
        return Ok(Column::null_scalar(&Arrow::Boolean));
    }
    let args = [text.clone(), pattern.clone()];
    // The kernels take a scalar on the right alone.
    let text = match (text, pattern) {
        (Column::Scalar(_), Column::Array(patterns)) => {
            Column::Array(text.clone().into_array(patterns.len())?)
        }
        (Column::Scalar(text), Column::Scalar(_)) => Column::Array(text.clone()),
        _ => text.clone(),
    };
    let matched = match (fold_case, negated) {
        (false, false) => like::like(&text, pattern),
        (false, true) => like::nlike(&text, pattern),
        (true, false) => like::ilike(&text, pattern),
        (true, true) => like::nilike(&text, pattern),
    };
    Ok(shaped(&args, arc(matched.map_err(internal)?)))
}

pub(crate) fn call(function: Function, args: &[Column], rows: usize) -> Result<Column, SqlError> {
    let rows = rows_for(args, rows);
    if function == Function::Length && args[0].data_type() == &Arrow::BinaryView {
        let bytes = args[0].array().as_binary_view();
        let lengths = bytes.iter().map(|bytes| bytes.map(|bytes| bytes.len() as i64));
        return Ok(shaped(args, arc(from_options::<Int64Type>(lengths))));
    }
    if args.iter().any(Column::is_null_scalar) {
        return Ok(Column::null_scalar(match function {
            Function::StartsWith | Function::EndsWith | Function::Contains => &Arrow::Boolean,
            Function::Length | Function::StrPos => &Arrow::Int64,
            _ => &Arrow::Utf8View,
        }));
    }
    let text = Texts::of(&args[0]);
    let array = match function {
        Function::StartsWith | Function::EndsWith | Function::Contains => {
            let wanted = Texts::of(&args[1]);
            let test: fn(&str, &str) -> bool = match function {
                Function::StartsWith => |text, wanted| text.starts_with(wanted),
                Function::EndsWith => |text, wanted| text.ends_with(wanted),
                _ => |text, wanted| text.contains(wanted),
            };
            let found = (0..rows).map(|row| Some(test(text.at(row)?, wanted.at(row)?)));
            arc(found.collect::<arrow_array::BooleanArray>())
        }
        Function::Length => arc(integers(rows, |row| Some(text.at(row)?.chars().count()))),
        Function::StrPos => {
            let wanted = Texts::of(&args[1]);
            arc(integers(rows, |row| {
                let (text, wanted) = (text.at(row)?, wanted.at(row)?);
                Some(text.find(wanted).map_or(0, |at| text[..at].chars().count() + 1))
            }))
        }
        Function::Substring => {
            let number = |arg: &Column, row: usize| {
                let row = if arg.is_scalar() { 0 } else { row };
                let array = arg.array().as_primitive::<Int64Type>();
                array.is_valid(row).then(|| array.value(row))
            };
            arc(texts(rows, |row, out| {
                let text = text.at(row)?;
                let from = number(&args[1], row)?;
                let count = match args.get(2) {
                    Some(count) => Some(number(count, row)?),
                    None => None,
                };
                out.push_str(substring(text, from, count));
                Some(())
            }))
        }
        Function::Lower => arc(texts(rows, |row, out| {
            out.push_str(&text.at(row)?.to_lowercase());
            Some(())
        })),
        Function::Upper => arc(texts(rows, |row, out| {
            out.push_str(&text.at(row)?.to_uppercase());
            Some(())
        })),
        Function::Replace => {
            let (from, to) = (Texts::of(&args[1]), Texts::of(&args[2]));
            arc(texts(rows, |row, out| {
                let (text, from, to) = (text.at(row)?, from.at(row)?, to.at(row)?);
                // An empty text is found nowhere, as in PostgreSQL.
                if from.is_empty() {
                    out.push_str(text)
                } else {
                    out.push_str(&text.replace(from, to))
                }
                Some(())
            }))
        }
        Function::Trim | Function::LeftTrim | Function::RightTrim => {
            let set = args.get(1).map(Texts::of);
            arc(texts(rows, |row, out| {
                let mut text = text.at(row)?;
                let set = match &set {
                    Some(set) => set.at(row)?,
                    None => " ",
                };
                if function != Function::RightTrim {
                    text = text.trim_start_matches(|c| set.contains(c));
                }
                if function != Function::LeftTrim {
                    text = text.trim_end_matches(|c| set.contains(c));
                }
                out.push_str(text);
                Some(())
            }))
        }
        other => unreachable!("{} is no function of texts", other.name()),
    };
    Ok(shaped(args, array))
}

fn integers(rows: usize, f: impl Fn(usize) -> Option<usize>) -> Int64Array {
    from_options::<Int64Type>((0..rows).map(|row| f(row).and_then(|value| i64::try_from(value).ok())))
}

/// Texts written row by row; `None` is null.
fn texts(rows: usize, f: impl Fn(usize, &mut String) -> Option<()>) -> StringViewArray {
    let mut builder = StringViewBuilder::with_capacity(rows);
    let mut text = String::new();
    for row in 0..rows {
        text.clear();
        match f(row, &mut text) {
            Some(()) => builder.append_value(&text),
            None => builder.append_null(),
        }
    }
    builder.finish()
}

/// Characters `from` to `from + count`, counted from 1; what lies before the text counts too, as in PostgreSQL.
/// A negative count takes nothing.
fn substring(text: &str, from: i64, count: Option<i64>) -> &str {
    let end = match count {
        Some(count) if count < 0 => return "",
        Some(count) => from.saturating_add(count).max(1),
        None => i64::MAX,
    };
    let start = from.max(1);
    let byte_of = |character: i64| {
        let skip = usize::try_from(character - 1).unwrap_or(usize::MAX);
        text.char_indices().nth(skip).map_or(text.len(), |(at, _)| at)
    };
    if end <= start { "" } else { &text[byte_of(start)..byte_of(end)] }
}
