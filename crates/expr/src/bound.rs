//! An expression that has met its schema: types are known, constants are folded, fields are column numbers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, RecordBatch, new_null_array};
use arrow_buffer::BooleanBuffer;
use thalweg_types::{DataType, Value};

use crate::SqlError;
use crate::ast::{ArithmeticOp, CompareOp, Is, quote_name, quote_string};
use crate::eval::in_list::Members;
use crate::eval::like::Pattern;
use crate::eval::pieces::{Failures, evaluate_all};
use crate::eval::regexp::Regexp;
use crate::eval::size::{Longest, TextSizes, text_sizes};
use crate::eval::true_rows;
use crate::function::{Function, Part};

/// A type-checked expression, ready to be evaluated over batches of its schema. Cheap to share, not to clone.
#[derive(Clone, Debug)]
pub struct Bound {
    root: Typed,
    fields: Vec<usize>,
    fingerprint: String,
    /// An operator in it reads texts.
    has_texts: bool,
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::String | DataType::Bytes)
}

/// A node with its type.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) op: Op,
    pub(crate) data_type: DataType,
    pub(crate) nullable: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A column, or by `path` a member of a struct column.
    Column {
        index: usize,
        path: Vec<usize>,
        name: String,
    },
    /// One row.
    Constant(ArrayRef),
    Negate(Box<Typed>),
    Not(Box<Typed>),
    And(Vec<Typed>),
    Or(Vec<Typed>),
    /// Both sides have the result's type, but for decimals, which keep their own.
    Arithmetic(ArithmeticOp, Box<Typed>, Box<Typed>),
    /// Both sides have one type.
    Compare(CompareOp, Box<Typed>, Box<Typed>),
    Is {
        what: Is,
        negated: bool,
        expr: Box<Typed>,
    },
    /// All three have one type.
    Between {
        expr: Box<Typed>,
        low: Box<Typed>,
        high: Box<Typed>,
        negated: bool,
    },
    /// All have one type; `members` where the whole list is constant.
    InList {
        expr: Box<Typed>,
        list: Vec<Typed>,
        members: Option<Members>,
        negated: bool,
    },
    /// The pattern escapes with a backslash; `read` where it is constant.
    Like {
        expr: Box<Typed>,
        pattern: Box<Typed>,
        read: Option<Arc<Pattern>>,
        fold_case: bool,
        negated: bool,
    },
    /// A regular expression; `read` but for null.
    Match {
        expr: Box<Typed>,
        pattern: Box<Typed>,
        read: Option<Arc<Regexp>>,
        take: Take,
    },
    Case {
        branches: Vec<(Typed, Typed)>,
        otherwise: Box<Typed>,
    },
    Cast(Box<Typed>),
    Concat(Vec<Typed>),
    Extract(Part, Box<Typed>),
    Truncate(Part, Box<Typed>),
    Call(Function, Vec<Typed>),
    Tuple(Vec<Typed>),
}

/// The part of a match that is returned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Take {
    /// Whether there is one.
    Whether { fold_case: bool, negated: bool },
    /// The part that a group has.
    Group(usize),
}

impl Bound {
    pub(crate) fn new(root: Typed) -> Self {
        let mut fields = BTreeSet::new();
        root.visit(&mut |node| {
            if let Op::Column { index, .. } = &node.op {
                fields.insert(*index);
            }
        });
        let mut has_texts = false;
        root.visit(&mut |node| {
            has_texts |= node.children().iter().any(|child| is_text(&child.data_type));
        });
        let mut fingerprint = String::new();
        root.write_fingerprint(&mut fingerprint);
        Self { root, fields: fields.into_iter().collect(), fingerprint, has_texts }
    }

    pub fn data_type(&self) -> &DataType {
        &self.root.data_type
    }

    /// Whether a row can be null though no field that is not nullable is.
    pub fn nullable(&self) -> bool {
        self.root.nullable
    }

    /// Numbers of the columns that are read, ascending.
    pub fn fields(&self) -> &[usize] {
        &self.fields
    }

    /// The column's number where the expression is nothing but a top-level field.
    pub fn as_column(&self) -> Option<usize> {
        match &self.root.op {
            Op::Column { index, path, .. } if path.is_empty() => Some(*index),
            _ => None,
        }
    }

    /// The value where the expression is constant.
    pub fn as_constant(&self) -> Option<Value> {
        match &self.root.op {
            Op::Constant(array) => Some(Value::at(array, 0)),
            _ => None,
        }
    }

    /// Canonical text with the names and types of fields: expressions of equal text have equal values.
    ///
    /// The operands of AND and OR are sorted, `a > b` is `b < a`.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The value of every physical row, of Arrow type `data_type().to_arrow()`. A plain field is not copied.
    ///
    /// # Errors
    /// If `records` does not have the columns of the schema that the expression was bound to.
    pub fn evaluate(&self, records: &RecordBatch) -> Result<ArrayRef, SqlError> {
        Ok(self.values(records)?.array)
    }

    /// As [`Bound::evaluate`], and which rows have no value because it went beyond a bound.
    ///
    /// # Errors
    /// As [`Bound::evaluate`].
    pub fn values(&self, records: &RecordBatch) -> Result<Values, SqlError> {
        evaluate_all(&self.root, records, Failures::End)
    }

    /// As [`Bound::values`]; a row at which the evaluation fails or panics is null and a misfit, and the first such
    /// failure is reported.
    pub fn values_or_nulls(&self, records: &RecordBatch) -> Values {
        evaluate_all(&self.root, records, Failures::AreNull).unwrap_or_else(|error| Values {
            array: new_null_array(&self.root.data_type.to_arrow(), records.num_rows()),
            misfits: (0..records.num_rows() as u32).collect(),
            failure: Some(error),
        })
    }

    /// Which physical rows are true; null counts as false.
    ///
    /// # Errors
    /// As [`Bound::evaluate`], and if the expression is not boolean.
    pub fn evaluate_filter(&self, records: &RecordBatch) -> Result<BooleanBuffer, SqlError> {
        self.values(records)?.conditions()
    }

    /// Whether it is a text that may be much longer than those that it is made of.
    pub fn makes_texts(&self) -> bool {
        let mut makes = false;
        self.root.visit(&mut |node| {
            makes |= matches!(&node.op, Op::Concat(_))
                || matches!(
                    &node.op,
                    Op::Call(Function::Concat | Function::Replace | Function::Lower | Function::Upper, _)
                );
        });
        makes && is_text(&self.root.data_type)
    }

    /// Whether an operator in it makes texts, or does more with them than compare.
    pub fn works_on_texts(&self) -> bool {
        let mut works = false;
        self.root.visit(&mut |node| {
            let is_read = node.children().iter().any(|child| is_text(&child.data_type));
            works |= match node.op {
                Op::Column { .. } | Op::Constant(_) => false,
                Op::Compare(..) | Op::Between { .. } | Op::InList { .. } | Op::Is { .. } => false,
                _ => is_read || is_text(&node.data_type),
            };
        });
        works
    }

    /// The most bytes of texts for a row, as far as the lengths of their inputs give a bound.
    pub fn text_sizes(&self, longest: &mut Longest<'_>) -> TextSizes {
        let has_texts = self.has_texts || is_text(&self.root.data_type);
        if has_texts { text_sizes(&self.root, longest) } else { TextSizes::default() }
    }

    /// Whether an operator in it reads texts.
    pub fn has_texts(&self) -> bool {
        self.has_texts
    }
}

/// What an expression gave for a batch.
#[derive(Clone, Debug)]
pub struct Values {
    /// One per physical row.
    pub array: ArrayRef,
    /// Rows that have no value because it, or something that it needed, went beyond a bound; ascending.
    pub misfits: Vec<u32>,
    /// The first failure, where they are null.
    pub failure: Option<SqlError>,
}

impl Values {
    /// Which rows are true; null counts as false.
    ///
    /// # Errors
    /// If they are no conditions.
    pub fn conditions(&self) -> Result<BooleanBuffer, SqlError> {
        match self.array.as_boolean_opt() {
            Some(array) => Ok(true_rows(array)),
            None => {
                let got = self.array.data_type();
                Err(SqlError::new(format!("a filter is a condition, not {got}")).expected("bool"))
            }
        }
    }
}

impl Typed {
    /// Something of the type, where a mistake left nothing better.
    pub(crate) fn placeholder(data_type: DataType) -> Self {
        Self { op: Op::Constant(new_null_array(&data_type.to_arrow(), 1)), data_type, nullable: true }
    }

    pub(crate) fn constant(&self) -> Option<&ArrayRef> {
        match &self.op {
            Op::Constant(array) => Some(array),
            _ => None,
        }
    }

    pub(crate) fn children(&self) -> Vec<&Typed> {
        match &self.op {
            Op::Column { .. } | Op::Constant(_) => Vec::new(),
            Op::Negate(a) | Op::Not(a) | Op::Cast(a) | Op::Extract(_, a) | Op::Truncate(_, a) => vec![a],
            Op::Is { expr, .. } => vec![expr],
            Op::Arithmetic(_, a, b) | Op::Compare(_, a, b) => vec![a, b],
            Op::Like { expr, pattern, .. } | Op::Match { expr, pattern, .. } => vec![expr, pattern],
            Op::Between { expr, low, high, .. } => vec![expr, low, high],
            Op::InList { expr, list, .. } => std::iter::once(&**expr).chain(list).collect(),
            Op::Case { branches, otherwise } => branches
                .iter()
                .flat_map(|(condition, result)| [condition, result])
                .chain(std::iter::once(&**otherwise))
                .collect(),
            Op::And(items) | Op::Or(items) | Op::Concat(items) | Op::Call(_, items) | Op::Tuple(items) => {
                items.iter().collect()
            }
        }
    }

    pub(crate) fn visit(&self, each: &mut impl FnMut(&Typed)) {
        each(self);
        for child in self.children() {
            child.visit(each);
        }
    }

    pub(crate) fn all_constant(&self) -> bool {
        self.children().iter().all(|child| child.constant().is_some())
    }

    fn write_fingerprint(&self, out: &mut String) {
        let text = |node: &Typed| {
            let mut text = String::new();
            node.write_fingerprint(&mut text);
            text
        };
        let list = |items: &[Typed]| items.iter().map(text).collect::<Vec<_>>().join(",");
        let written = match &self.op {
            Op::Column { name, path, .. } => {
                let path: String = path.iter().map(|member| format!(".{member}")).collect();
                write!(out, "{}{path}:{}", quote_name(name), self.data_type)
            }
            Op::Constant(array) => {
                out.push_str(&constant_text(&Value::at(array, 0)));
                write!(out, ":{}", self.data_type)
            }
            Op::Negate(a) => write!(out, "-({})", text(a)),
            Op::Not(a) => write!(out, "not({})", text(a)),
            Op::And(items) | Op::Or(items) => {
                let mut items: Vec<String> = items.iter().map(text).collect();
                items.sort();
                items.dedup();
                let name = if matches!(self.op, Op::And(_)) { "and" } else { "or" };
                write!(out, "{name}({})", items.join(","))
            }
            Op::Arithmetic(op, a, b) => {
                write!(out, "({}{}{}):{}", text(a), op.symbol(), text(b), self.data_type)
            }
            Op::Compare(op, a, b) => {
                let (mut left, mut right) = (text(a), text(b));
                let op = match op {
                    CompareOp::Greater => {
                        std::mem::swap(&mut left, &mut right);
                        CompareOp::Less
                    }
                    CompareOp::GreaterOrEqual => {
                        std::mem::swap(&mut left, &mut right);
                        CompareOp::LessOrEqual
                    }
                    CompareOp::Less | CompareOp::LessOrEqual => *op,
                    _ if left > right => {
                        std::mem::swap(&mut left, &mut right);
                        *op
                    }
                    _ => *op,
                };
                write!(out, "({left} {} {right})", op.symbol())
            }
            Op::Is { what, negated, expr } => {
                write!(out, "is{}{}({})", if *negated { "not" } else { "" }, what.name(), text(expr))
            }
            Op::Between { expr, low, high, negated } => {
                write!(out, "{}between({},{},{})", mark(*negated), text(expr), text(low), text(high))
            }
            Op::InList { expr, list: items, negated, .. } => {
                let mut items: Vec<String> = items.iter().map(text).collect();
                items.sort();
                items.dedup();
                write!(out, "{}in({};{})", mark(*negated), text(expr), items.join(","))
            }
            Op::Like { expr, pattern, fold_case, negated, .. } => {
                let name = if *fold_case { "ilike" } else { "like" };
                write!(out, "{}{name}({},{})", mark(*negated), text(expr), text(pattern))
            }
            Op::Match { expr, pattern, take, .. } => {
                let (expr, pattern) = (text(expr), text(pattern));
                match take {
                    Take::Whether { fold_case, negated } => {
                        let name = if *fold_case { "imatch" } else { "match" };
                        write!(out, "{}{name}({expr},{pattern})", mark(*negated))
                    }
                    Take::Group(group) => write!(out, "extract_match({expr},{pattern},{group})"),
                }
            }
            Op::Case { branches, otherwise } => {
                out.push_str("case(");
                for (condition, result) in branches {
                    out.push_str(&format!("{}->{};", text(condition), text(result)));
                }
                write!(out, "{})", text(otherwise))
            }
            Op::Cast(a) => write!(out, "cast({}:{})", text(a), self.data_type),
            Op::Concat(items) => write!(out, "concat({})", list(items)),
            Op::Tuple(items) => write!(out, "tuple({})", list(items)),
            Op::Extract(part, a) => write!(out, "extract({},{})", part.name(), text(a)),
            Op::Truncate(part, a) => write!(out, "truncate({},{})", part.name(), text(a)),
            Op::Call(function, args) => write!(out, "{}({}):{}", function.name(), list(args), self.data_type),
        };
        written.expect("writing to a string cannot fail");
    }
}

fn mark(negated: bool) -> &'static str {
    if negated { "not" } else { "" }
}

/// A constant's value without ambiguity; floats by their bits, so that −0 and 0 differ.
fn constant_text(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int64(value) => value.to_string(),
        Value::UInt64(value) => value.to_string(),
        Value::Float64(value) => format!("{value:?}"),
        Value::Decimal(digits, scale) => format!("{digits}e-{scale}"),
        Value::String(text) => quote_string(text),
        Value::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Value::Timestamp(count, unit) => format!("{count}{}", unit.name()),
        Value::Ip(ip) => std::net::Ipv6Addr::from(*ip).to_string(),
        Value::List(_) | Value::Struct(_) => unreachable!("no literal is a list or a struct"),
    }
}
