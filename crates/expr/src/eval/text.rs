//! Functions of texts. Positions and lengths count characters (code points), from 1.

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, BooleanArray, Int64Array, StringViewArray};
use arrow_schema::DataType as Arrow;
use memchr::memmem::Finder;

use super::Evaluation;
use super::column::{Column, arc, from_options};
use super::like::{Pattern, TooHard};
use super::regexp::{MAX_MATCHED, Regexp};
use crate::SqlError;
use crate::bound::Take;
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
    if is_scalar(args) { 1 } else { rows }
}

fn is_scalar(args: &[Column]) -> bool {
    args.iter().all(Column::is_scalar)
}

fn shaped(args: &[Column], array: arrow_array::ArrayRef) -> Column {
    if is_scalar(args) { Column::Scalar(array) } else { Column::Array(array) }
}

/// Makes texts row by row, each within the bounds of the evaluation.
struct Writer<'a, 'r> {
    within: &'a Evaluation<'r>,
    builder: StringViewBuilder,
    is_scalar: bool,
}

impl<'a, 'r> Writer<'a, 'r> {
    fn new(args: &[Column], within: &'a Evaluation<'r>) -> Self {
        let builder = StringViewBuilder::with_capacity(rows_for(args, within.rows()));
        Self { within, builder, is_scalar: is_scalar(args) }
    }

    /// A text that is part of another, or another case of one: it is not much longer than what it is made of.
    fn put(&mut self, text: &str) -> Result<(), SqlError> {
        self.within.take(text.len())?;
        self.builder.append_value(text);
        Ok(())
    }

    fn put_option(&mut self, text: Option<&str>) -> Result<(), SqlError> {
        match text {
            Some(text) => self.put(text),
            None => {
                self.builder.append_null();
                Ok(())
            }
        }
    }

    /// A text of `bytes` bytes that `write` makes of others, the longest of which has `of`; null where it is too long.
    fn make(
        &mut self,
        row: usize,
        bytes: usize,
        of: usize,
        write: impl FnOnce(&mut String),
    ) -> Result<(), SqlError> {
        if !self.within.may_make(bytes, of) {
            self.builder.append_null();
            return self.within.misfit(row, self.is_scalar);
        }
        self.within.take(bytes)?;
        let mut text = String::with_capacity(bytes);
        write(&mut text);
        debug_assert_eq!(text.len(), bytes, "as many bytes as were asked for");
        self.builder.append_value(&text);
        Ok(())
    }

    fn finish(mut self) -> StringViewArray {
        self.builder.finish()
    }
}

pub(crate) fn concat(args: &[Column], nulls: Nulls, within: &Evaluation<'_>) -> Result<Column, SqlError> {
    let texts: Vec<Texts<'_>> = args.iter().map(Texts::of).collect();
    let mut out = Writer::new(args, within);
    for row in 0..rows_for(args, within.rows()) {
        let (mut bytes, mut longest, mut is_null) = (0, 0, false);
        for text in &texts {
            match text.at(row) {
                Some(text) => {
                    bytes += text.len();
                    longest = longest.max(text.len());
                }
                None => is_null |= nulls == Nulls::Propagate,
            }
        }
        if is_null {
            out.put_option(None)?;
        } else {
            out.make(row, bytes, longest, |joined| {
                joined.extend(texts.iter().filter_map(|text| text.at(row)))
            })?;
        }
    }
    Ok(shaped(args, arc(out.finish())))
}

/// What texts are matched with.
pub(crate) enum Patterns<'a> {
    /// One, read when the expression was bound.
    Read(&'a Pattern),
    /// One per row, and whether case does not count.
    Each(Column, bool),
}

/// A match that takes too many steps, or a pattern that is too long, has no value.
pub(crate) fn like(
    text: &Column,
    patterns: &Patterns<'_>,
    negated: bool,
    within: &Evaluation<'_>,
) -> Result<Column, SqlError> {
    if text.is_null_scalar() {
        return Ok(Column::null_scalar(&Arrow::Boolean));
    }
    let texts = Texts::of(text);
    let mut scratch = String::new();
    let mut found = |pattern: &Pattern, row: usize, is_scalar: bool| {
        let Some(text) = texts.at(row) else { return Ok(None) };
        match pattern.matches(text, &mut scratch) {
            Ok(is_match) => Ok(Some(is_match != negated)),
            Err(TooHard) => within.misfit(row, is_scalar).map(|()| None),
        }
    };
    match patterns {
        Patterns::Read(pattern) => {
            let rows = if text.is_scalar() { 1 } else { within.rows() };
            let found = (0..rows).map(|row| found(pattern, row, text.is_scalar()));
            Ok(text.same_shape(arc(found.collect::<Result<BooleanArray, SqlError>>()?)))
        }
        Patterns::Each(patterns, _) if patterns.is_null_scalar() => Ok(Column::null_scalar(&Arrow::Boolean)),
        Patterns::Each(patterns, fold_case) => {
            let args = [text.clone(), patterns.clone()];
            let is_scalar = is_scalar(&args);
            let each = Texts::of(patterns);
            let mut last: Option<(&str, Option<Pattern>)> = None;
            let found = (0..rows_for(&args, within.rows())).map(|row| {
                let (Some(_), Some(pattern)) = (texts.at(row), each.at(row)) else { return Ok(None) };
                let read = match &last {
                    Some((text, read)) if *text == pattern => read,
                    _ => &last.insert((pattern, Pattern::new(pattern, *fold_case))).1,
                };
                match read {
                    Some(read) => found(read, row, is_scalar),
                    None => within.misfit(row, is_scalar).map(|()| None),
                }
            });
            Ok(shaped(&args, arc(found.collect::<Result<BooleanArray, SqlError>>()?)))
        }
    }
}

/// What a regular expression finds in texts; one that is too long has no value.
pub(crate) fn matches(
    text: &Column,
    regexp: &Regexp,
    take: Take,
    within: &Evaluation<'_>,
) -> Result<Column, SqlError> {
    let args = std::slice::from_ref(text);
    let texts = Texts::of(text);
    let rows = rows_for(args, within.rows());
    let short = |row: usize| match texts.at(row) {
        Some(text) if text.len() > MAX_MATCHED => within.misfit(row, is_scalar(args)).map(|()| None),
        text => Ok(text),
    };
    match take {
        Take::Whether { negated, .. } => {
            let found = (0..rows).map(|row| Ok(short(row)?.map(|text| regexp.is_match(text) != negated)));
            Ok(shaped(args, arc(found.collect::<Result<BooleanArray, SqlError>>()?)))
        }
        Take::Group(group) => {
            let mut out = Writer::new(args, within);
            for row in 0..rows {
                out.put_option(short(row)?.and_then(|text| regexp.extract(text, group)))?;
            }
            Ok(shaped(args, arc(out.finish())))
        }
    }
}

pub(crate) fn call(function: Function, args: &[Column], within: &Evaluation<'_>) -> Result<Column, SqlError> {
    let rows = rows_for(args, within.rows());
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
    let mut out = Writer::new(args, within);
    match function {
        Function::StartsWith | Function::EndsWith | Function::Contains => {
            let wanted = Texts::of(&args[1]);
            let test: fn(&str, &str) -> bool = match function {
                Function::StartsWith => |text, wanted| text.starts_with(wanted),
                Function::EndsWith => |text, wanted| text.ends_with(wanted),
                _ => |text, wanted| text.contains(wanted),
            };
            let found = (0..rows).map(|row| Some(test(text.at(row)?, wanted.at(row)?)));
            return Ok(shaped(args, arc(found.collect::<BooleanArray>())));
        }
        Function::Length => {
            let length = |row| {
                let text = text.at(row)?;
                #[cfg(any(test, feature = "testing"))]
                crate::testing::trip(text);
                Some(text.chars().count())
            };
            return Ok(shaped(args, arc(integers(rows, length))));
        }
        Function::StrPos => {
            let wanted = Texts::of(&args[1]);
            let places = integers(rows, |row| {
                let (text, wanted) = (text.at(row)?, wanted.at(row)?);
                Some(text.find(wanted).map_or(0, |at| text[..at].chars().count() + 1))
            });
            return Ok(shaped(args, arc(places)));
        }
        Function::Left | Function::Right => {
            let part = if function == Function::Left { left } else { right };
            for row in 0..rows {
                let part = || Some(part(text.at(row)?, number(&args[1], row)?));
                out.put_option(part())?;
            }
        }
        Function::SplitPart => {
            let delimiter = Texts::of(&args[1]);
            for row in 0..rows {
                let part = || split_part(text.at(row)?, delimiter.at(row)?, number(&args[2], row)?);
                out.put_option(part())?;
            }
        }
        Function::Substring => {
            for row in 0..rows {
                let part = || {
                    let from = number(&args[1], row)?;
                    let count = match args.get(2) {
                        Some(count) => Some(number(count, row)?),
                        None => None,
                    };
                    Some(substring(text.at(row)?, from, count))
                };
                out.put_option(part())?;
            }
        }
        Function::Lower | Function::Upper => {
            let change: fn(&str) -> String =
                if function == Function::Lower { str::to_lowercase } else { str::to_uppercase };
            for row in 0..rows {
                match text.at(row) {
                    None => out.put_option(None)?,
                    Some(text) => {
                        // Some characters become three of their length.
                        let most = if text.is_ascii() { text.len() } else { text.len().saturating_mul(3) };
                        within.take(most)?;
                        out.builder.append_value(change(text));
                    }
                }
            }
        }
        Function::Replace => {
            let (from, to) = (Texts::of(&args[1]), Texts::of(&args[2]));
            let constant = if from.is_scalar { from.at(0).map(Finder::new) } else { None };
            for row in 0..rows {
                let (Some(text), Some(from), Some(to)) = (text.at(row), from.at(row), to.at(row)) else {
                    out.put_option(None)?;
                    continue;
                };
                // An empty text is found nowhere, as in PostgreSQL.
                if from.is_empty() {
                    out.put(text)?;
                    continue;
                }
                let own = if constant.is_none() { Some(Finder::new(from)) } else { None };
                let Some(wanted) = constant.as_ref().or(own.as_ref()) else { continue };
                let places = || wanted.find_iter(text.as_bytes());
                let count = places().count();
                let bytes = count.saturating_mul(to.len()).saturating_add(text.len() - count * from.len());
                out.make(row, bytes, text.len(), |made| {
                    let mut done = 0;
                    for at in places() {
                        made.push_str(&text[done..at]);
                        made.push_str(to);
                        done = at + from.len();
                    }
                    made.push_str(&text[done..]);
                })?;
            }
        }
        Function::Trim | Function::LeftTrim | Function::RightTrim => {
            let sets = args.get(1).map(Texts::of);
            let constant = match &sets {
                None => Some(CharacterSet::of(" ")),
                Some(sets) if sets.is_scalar => sets.at(0).map(CharacterSet::of),
                Some(_) => None,
            };
            for row in 0..rows {
                let own = match (&constant, &sets) {
                    (None, Some(sets)) => sets.at(row).map(CharacterSet::of),
                    _ => None,
                };
                let (Some(mut text), Some(set)) = (text.at(row), constant.as_ref().or(own.as_ref())) else {
                    out.put_option(None)?;
                    continue;
                };
                if function != Function::RightTrim {
                    text = text.trim_start_matches(|c| set.contains(c));
                }
                if function != Function::LeftTrim {
                    text = text.trim_end_matches(|c| set.contains(c));
                }
                out.put(text)?;
            }
        }
        other => unreachable!("{} is no function of texts", other.name()),
    }
    Ok(shaped(args, arc(out.finish())))
}

/// Characters of a text, found without a look at all of them.
struct CharacterSet {
    ascii: u128,
    /// Sorted.
    others: Vec<char>,
}

impl CharacterSet {
    fn of(text: &str) -> Self {
        let mut set = Self { ascii: 0, others: Vec::new() };
        for c in text.chars() {
            match c.is_ascii() {
                true => set.ascii |= 1 << u32::from(c),
                false => set.others.push(c),
            }
        }
        set.others.sort_unstable();
        set.others.dedup();
        set
    }

    fn contains(&self, c: char) -> bool {
        match c.is_ascii() {
            true => self.ascii >> u32::from(c) & 1 == 1,
            false => self.others.binary_search(&c).is_ok(),
        }
    }
}

fn integers(rows: usize, f: impl Fn(usize) -> Option<usize>) -> Int64Array {
    from_options::<Int64Type>((0..rows).map(|row| f(row).and_then(|value| i64::try_from(value).ok())))
}

fn number(arg: &Column, row: usize) -> Option<i64> {
    let row = if arg.is_scalar() { 0 } else { row };
    let array = arg.array().as_primitive::<Int64Type>();
    array.is_valid(row).then(|| array.value(row))
}

/// The first characters; all but the last ones where `count` is negative, as in PostgreSQL.
fn left(text: &str, count: i64) -> &str {
    &text[..boundary(text, count)]
}

/// The last characters; all but the first ones where `count` is negative, as in PostgreSQL.
fn right(text: &str, count: i64) -> &str {
    if count == 0 { "" } else { &text[boundary(text, count.saturating_neg())..] }
}

/// Byte at which `count` characters end; where it is negative, at which as many from the end begin.
fn boundary(text: &str, count: i64) -> usize {
    let skip = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    match count {
        0 => 0,
        1.. => text.char_indices().nth(skip).map_or(text.len(), |(at, _)| at),
        _ => text.char_indices().rev().nth(skip - 1).map_or(0, |(at, _)| at),
    }
}

/// The part of this number, from the end where it is negative; none is 0. Empty beyond the last one, as in PostgreSQL.
fn split_part<'a>(text: &'a str, delimiter: &str, number: i64) -> Option<&'a str> {
    let place = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX).checked_sub(1)?;
    if delimiter.is_empty() {
        return Some(if place == 0 { text } else { "" });
    }
    let place = match number {
        1.. => Some(place),
        _ => text.split(delimiter).count().checked_sub(place + 1),
    };
    Some(place.and_then(|place| text.split(delimiter).nth(place)).unwrap_or_default())
}

/// Characters `from` to `from + count`, counted from 1; places before the text count too, as in PostgreSQL.
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
