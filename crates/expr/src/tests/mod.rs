//! Tests of expressions: one `check` over small tables, families of cases in the modules.
//!
//! `check` evaluates a table of rows four ways that must agree: all rows at once, each row alone, each row with its
//! fields replaced by constants (folding), and with each single field replaced (scalars next to columns).

mod arithmetic;
mod binding;
mod bounds;
mod casts;
mod choices;
mod comparisons;
mod documented;
mod fingerprints;
mod hostile;
mod logic;
mod math;
mod random;
mod recovery;
mod rendering;
mod semantics;
mod texts;
mod times;

use std::sync::Arc;

#[global_allocator]
static COUNTING: thalweg_testing::allocation::Counting = thalweg_testing::allocation::Counting;

use arrow_array::builder::{FixedSizeBinaryBuilder, PrimitiveBuilder};
use arrow_array::types::{Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, RecordBatch, StringViewArray};
use arrow_buffer::i256;
use thalweg_types::{DataType, Field, Schema, TimeUnit, Value, format_timestamp, parse_timestamp};

use crate::ast::Node;
use crate::eval::time::as_timestamps;
use crate::{Bound, Checked, Expr, Mistakes, Qualifier};

/// Rows `a, b | a, b` of fields `name: type, …`, and what the expression is for each, with its type in front.
#[track_caller]
fn check(expr: &str, fields: &str, rows: &str, expected: &str) {
    let (schema, records) = table(fields, rows);
    let parsed = Expr::parse(expr).unwrap_or_else(|error| panic!("{}", error.render(expr)));
    let bound = parsed.bind(&schema).unwrap_or_else(|error| panic!("{}", error.render(expr)));
    let array = evaluate(&bound, &records);
    let got: Vec<String> = (0..array.len()).map(|row| show(&Value::at(&array, row))).collect();
    assert_eq!(format!("{}: {}", bound.data_type(), got.join(" | ")), expected, "{expr}");
    agree(&parsed, &schema, &records);
}

/// The four ways of evaluation agree, and canonical text keeps the meaning.
#[track_caller]
fn agree(parsed: &Expr, schema: &Schema, records: &RecordBatch) {
    let back = Expr::parse(&parsed.to_string()).expect("canonical text parses");
    assert_eq!(back, *parsed, "canonical text keeps the meaning: {parsed}");
    let bound = parsed.bind(schema).expect("bound before");
    assert_eq!(back.bind(schema).expect("binds as well").fingerprint(), bound.fingerprint());
    let array = evaluate(&bound, records);
    let all: Vec<String> = (0..array.len()).map(|row| show(&Value::at(&array, row))).collect();

    let names: Vec<&str> = schema.names().collect();
    for (row, expected) in all.iter().enumerate() {
        let alone = records.slice(row, 1);
        assert_eq!(show(&Value::at(&evaluate(&bound, &alone), 0)), *expected, "{parsed} on row {row} alone");
        let mut replacements: Vec<Vec<&str>> =
            bound.fields().iter().map(|index| vec![names[*index]]).collect();
        replacements.push(names.clone());
        for replaced in replacements {
            let mut constant = parsed.clone();
            replace(&mut constant, &replaced, schema, &alone);
            let bound = match constant.bind(schema) {
                Ok(bound) => bound,
                Err(error) => panic!("{parsed} with constants does not bind: {constant}: {error}"),
            };
            for rows in [&alone, records] {
                let array = evaluate(&bound, rows);
                let at = if rows.num_rows() == 1 { 0 } else { row };
                let got = show(&Value::at(&array, at));
                assert_eq!(got, *expected, "{parsed} on row {row} with {replaced:?} constant: {constant}");
            }
        }
    }
}

/// An expression without fields.
#[track_caller]
fn constant(expr: &str, expected: &str) {
    let parsed = Expr::parse(expr).unwrap_or_else(|error| panic!("{}", error.render(expr)));
    let bound = parsed.bind(&Schema::empty()).unwrap_or_else(|error| panic!("{}", error.render(expr)));
    let value = bound.as_constant().unwrap_or_else(|| panic!("{expr} is not folded"));
    assert_eq!(format!("{}: {}", bound.data_type(), show(&value)), expected, "{expr}");
}

/// The rendered errors of an expression that does not parse or bind.
#[track_caller]
fn refused(expr: &str, fields: &str) -> String {
    let (schema, _) = table(fields, "");
    let mut mistakes = Mistakes::new();
    let checked =
        Expr::read(expr, &mut mistakes).map(|read| read.check(&schema, Qualifier::None, &mut mistakes));
    match mistakes.finish() {
        Ok(()) => panic!("{expr} is a {:?}", checked.as_ref().and_then(Checked::data_type)),
        Err(errors) => {
            let is_bound = checked.is_some_and(|checked| checked.bound().is_some());
            assert!(!is_bound, "{expr} is wrong and bound");
            errors.render(expr)
        }
    }
}

fn evaluate(bound: &Bound, records: &RecordBatch) -> ArrayRef {
    let array = bound.evaluate(records).unwrap();
    assert_eq!(array.len(), records.num_rows());
    assert!(
        array.data_type().equals_datatype(&bound.data_type().to_arrow()),
        "{} is promised, {} is given",
        bound.data_type(),
        array.data_type()
    );
    let inputs_are_full = bound.fields().iter().all(|index| records.column(*index).null_count() == 0);
    if !bound.nullable() && inputs_are_full {
        assert_eq!(array.null_count(), 0, "{} is not nullable", bound.fingerprint());
    }
    if *bound.data_type() == DataType::Bool {
        let filter = bound.evaluate_filter(records).unwrap();
        for row in 0..array.len() {
            let is_true = matches!(Value::at(&array, row), Value::Bool(true));
            assert_eq!(filter.value(row), is_true, "filter of {}", bound.fingerprint());
        }
    }
    array
}

/// A schema and its records. Cells are split by commas, rows by bars, texts are in quotes.
fn table(fields: &str, rows: &str) -> (Schema, RecordBatch) {
    let fields: Vec<Field> = split(fields, ',')
        .map(|field| {
            let (name, data_type) = field.split_once(':').expect("name: type");
            let data_type = data_type.trim();
            let plain = data_type.trim_end_matches('?');
            let mut field = Field::new(name.trim(), DataType::parse(plain).expect("a type"));
            field.nullable = plain != data_type || rows.contains("null");
            field
        })
        .collect();
    let rows: Vec<Vec<String>> = split(rows, '|').map(|row| split(&row, ',').collect()).collect();
    let columns = fields.iter().enumerate().map(|(index, field)| {
        let cells: Vec<Option<&str>> = rows
            .iter()
            .map(|row| {
                Some(row[index].as_str()).filter(|cell| *cell != "null").map(|cell| cell.trim_matches('\''))
            })
            .collect();
        column(&field.data_type, &cells)
    });
    let schema = Schema::new(fields.clone());
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let records =
        RecordBatch::try_new_with_options(Arc::clone(schema.arrow()), columns.collect(), &options).unwrap();
    (schema, records)
}

/// Splits outside quotes and parentheses, without empty text.
fn split(text: &str, separator: char) -> impl Iterator<Item = String> {
    let (mut parts, mut quoted, mut depth) = (vec![String::new()], false, 0);
    for c in text.chars() {
        match c {
            '\'' => quoted = !quoted,
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if c == separator && !quoted && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().expect("never empty").push(c);
        }
    }
    let is_empty = text.trim().is_empty();
    parts.into_iter().filter(move |_| !is_empty).map(|part| part.trim().to_owned())
}

fn column(data_type: &DataType, cells: &[Option<&str>]) -> ArrayRef {
    fn parsed<P: arrow_array::ArrowPrimitiveType>(
        cells: &[Option<&str>],
        parse: impl Fn(&str) -> P::Native,
    ) -> PrimitiveBuilder<P> {
        let mut builder = PrimitiveBuilder::new();
        cells.iter().for_each(|cell| builder.append_option(cell.map(&parse)));
        builder
    }
    match data_type {
        DataType::Bool => Arc::new(
            cells.iter().map(|cell| cell.map(|cell| cell.parse().expect("a bool"))).collect::<BooleanArray>(),
        ),
        DataType::Int64 => {
            Arc::new(parsed::<Int64Type>(cells, |cell| cell.parse().expect("an int64")).finish())
        }
        DataType::UInt64 => {
            Arc::new(parsed::<UInt64Type>(cells, |cell| cell.parse().expect("a uint64")).finish())
        }
        DataType::Float64 => {
            Arc::new(parsed::<Float64Type>(cells, |cell| cell.parse().expect("a float")).finish())
        }
        DataType::Decimal { precision, scale } => {
            let digits = |cell: &str| {
                let (whole, fraction) = cell.split_once('.').unwrap_or((cell, ""));
                assert!(fraction.len() <= *scale as usize, "{cell}");
                i256::from_string(&format!("{whole}{fraction:0<width$}", width = *scale as usize))
                    .expect("digits")
            };
            if *precision <= 38 {
                let array =
                    parsed::<Decimal128Type>(cells, |cell| digits(cell).to_i128().expect("fits")).finish();
                Arc::new(array.with_precision_and_scale(*precision, *scale).unwrap())
            } else {
                let array = parsed::<Decimal256Type>(cells, digits).finish();
                Arc::new(array.with_precision_and_scale(*precision, *scale).unwrap())
            }
        }
        DataType::String => Arc::new(cells.iter().copied().collect::<StringViewArray>()),
        DataType::Bytes => {
            Arc::new(cells.iter().map(|cell| cell.map(str::as_bytes)).collect::<BinaryViewArray>())
        }
        DataType::Timestamp(_) => {
            let per_second = crate::eval::time::per_second(&as_timestamps(
                parsed::<Int64Type>(&[], |_| 0).finish(),
                &data_type.to_arrow(),
            ));
            let counts = parsed::<Int64Type>(cells, |cell| {
                if let Ok(count) = cell.parse() {
                    return count;
                }
                let nanos = parse_timestamp(cell).expect("a timestamp");
                i64::try_from(nanos / i128::from(1_000_000_000 / per_second)).expect("fits")
            });
            as_timestamps({ counts }.finish(), &data_type.to_arrow())
        }
        DataType::Ip => {
            let mut builder = FixedSizeBinaryBuilder::new(16);
            for cell in cells {
                match cell {
                    Some(cell) => {
                        builder.append_value(thalweg_types::parse_ip(cell).expect("an ip")).unwrap()
                    }
                    None => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        DataType::List(_) | DataType::Struct(_) => unreachable!("not in tables"),
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int64(value) => value.to_string(),
        Value::UInt64(value) => value.to_string(),
        Value::Float64(value) if value.is_nan() => "NaN".to_owned(),
        Value::Float64(value) => format!("{value:?}"),
        Value::Decimal(digits, scale) => {
            let (sign, digits) = match digits.to_string().strip_prefix('-') {
                Some(digits) => ("-", digits.to_owned()),
                None => ("", digits.to_string()),
            };
            let scale = *scale as usize;
            let digits = format!("{digits:0>width$}", width = scale + 1);
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            let point = if scale == 0 { "" } else { "." };
            format!("{sign}{whole}{point}{fraction}")
        }
        Value::String(text) => format!("'{text}'"),
        Value::Bytes(bytes) => format!("{bytes:?}"),
        Value::Timestamp(count, TimeUnit::Nano) => format!("{count}ns"),
        Value::Timestamp(count, unit) => match unit.to_micros(*count) {
            Some(micros) => format_timestamp(micros),
            None => format!("{count}{}", unit.name()),
        },
        Value::Ip(ip) => std::net::Ipv6Addr::from(*ip).to_canonical().to_string(),
        Value::List(_) | Value::Struct(_) => format!("{value:?}"),
    }
}

/// Puts `CAST('value' AS type)` in place of one of the fields.
fn replace(expr: &mut Expr, names: &[&str], schema: &Schema, row: &RecordBatch) {
    let field = expr.as_field().map(|path| path.join(".")).filter(|name| names.contains(&name.as_str()));
    if let Some((index, field)) = field.and_then(|name| schema.field(&name)) {
        let value = Value::at(row.column(index), 0);
        let literal = match value {
            Value::Null => Node::Null,
            Value::String(text) => Node::String(text),
            Value::Bytes(bytes) => Node::String(String::from_utf8(bytes).unwrap()),
            Value::Timestamp(count, _) => {
                Node::Cast(Box::new(Expr::new(Node::String(count.to_string()), 0..0)), DataType::Int64)
            }
            other => Node::String(show(&other)),
        };
        expr.node = Node::Cast(Box::new(Expr::new(literal, 0..0)), field.data_type.clone());
        return;
    }
    each_child(expr, &mut |inner| replace(inner, names, schema, row));
}

/// The expression and everything in it.
fn each_node(expr: &mut Expr, each: &mut dyn FnMut(&mut Expr)) {
    each(expr);
    each_child(expr, &mut |inner| each_node(inner, each));
}

fn each_child(expr: &mut Expr, each: &mut dyn FnMut(&mut Expr)) {
    match &mut expr.node {
        Node::Null
        | Node::Bool(_)
        | Node::Number(_)
        | Node::String(_)
        | Node::Timestamp(_)
        | Node::Field(_)
        | Node::Slot { .. } => {}
        Node::Negate(a)
        | Node::Not(a)
        | Node::Cast(a, _)
        | Node::Extract(_, a)
        | Node::Is { expr: a, .. } => each(a),
        Node::Arithmetic(_, a, b)
        | Node::Compare(_, a, b)
        | Node::Like { expr: a, pattern: b, .. }
        | Node::Match { expr: a, pattern: b, .. } => {
            each(a);
            each(b);
        }
        Node::Between { expr, low, high, .. } => [expr, low, high].into_iter().for_each(|inner| each(inner)),
        Node::InList { expr, list, .. } => {
            each(expr);
            list.iter_mut().for_each(each);
        }
        Node::Case { operand, branches, otherwise } => {
            operand.iter_mut().chain(otherwise).for_each(|inner| each(inner));
            for (condition, result) in branches {
                each(condition);
                each(result);
            }
        }
        Node::And(items)
        | Node::Or(items)
        | Node::Concat(items)
        | Node::Call(_, items)
        | Node::Tuple(items)
        | Node::Mistaken(items) => {
            items.iter_mut().for_each(each);
        }
    }
}
