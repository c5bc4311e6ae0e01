//! The syntax of an expression, before it meets a schema.
//!
//! `Display` writes canonical SQL: equal text for equal meaning up to blanks, case of keywords and functions,
//! spare parentheses and synonyms. It parses back to the same expression.

use std::fmt;
use std::ops::Range;

use thalweg_types::{DataType, format_timestamp};

use crate::function::{Function, Part};

/// A parsed expression with the bytes of the text that it was parsed from.
#[derive(Clone, Debug)]
pub struct Expr {
    pub(crate) node: Node,
    pub(crate) span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    /// As written; its type depends on what it meets.
    Number(String),
    String(String),
    /// Nanoseconds since the epoch.
    Timestamp(i128),
    /// A name or a path: `amount`, `payments.amount`, `card_1h.spent`.
    Field(Vec<String>),
    /// An aggregate in an output of a query: the column of its place; `text` is its canonical text.
    Slot {
        place: usize,
        text: String,
    },
    Negate(Box<Expr>),
    Not(Box<Expr>),
    /// At least two operands; chains are flat.
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Arithmetic(ArithmeticOp, Box<Expr>, Box<Expr>),
    Concat(Vec<Expr>),
    Compare(CompareOp, Box<Expr>, Box<Expr>),
    Is {
        what: Is,
        negated: bool,
        expr: Box<Expr>,
    },
    Between {
        expr: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
        negated: bool,
    },
    InList {
        expr: Box<Expr>,
        list: Vec<Expr>,
        negated: bool,
    },
    Like {
        expr: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<char>,
        fold_case: bool,
        negated: bool,
    },
    /// A regular expression.
    Match {
        expr: Box<Expr>,
        pattern: Box<Expr>,
        fold_case: bool,
        negated: bool,
    },
    Case {
        operand: Option<Box<Expr>>,
        branches: Vec<(Expr, Expr)>,
        otherwise: Option<Box<Expr>>,
    },
    Cast(Box<Expr>, DataType),
    Extract(Part, Box<Expr>),
    Call(Function, Vec<Expr>),
    /// Several values as one, as the argument of `count(DISTINCT a, b)`.
    Tuple(Vec<Expr>),
    /// What a mistake left without a meaning, and what of it can be checked all the same. Has been reported; never
    /// in an expression of [`Expr::parse`].
    Mistaken(Vec<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArithmeticOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl ArithmeticOp {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            ArithmeticOp::Add => "+",
            ArithmeticOp::Subtract => "-",
            ArithmeticOp::Multiply => "*",
            ArithmeticOp::Divide => "/",
            ArithmeticOp::Remainder => "%",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompareOp {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Distinct,
    NotDistinct,
}

impl CompareOp {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            CompareOp::Equal => "=",
            CompareOp::NotEqual => "<>",
            CompareOp::Less => "<",
            CompareOp::LessOrEqual => "<=",
            CompareOp::Greater => ">",
            CompareOp::GreaterOrEqual => ">=",
            CompareOp::Distinct => "IS DISTINCT FROM",
            CompareOp::NotDistinct => "IS NOT DISTINCT FROM",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Is {
    Null,
    True,
    False,
}

impl Is {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Is::Null => "NULL",
            Is::True => "TRUE",
            Is::False => "FALSE",
        }
    }
}

/// An aggregate in an output of a query that is made of several, or of one and more.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Its bytes in the text.
    pub span: Range<usize>,
    /// Its canonical text.
    pub text: String,
}

impl Expr {
    pub(crate) fn new(node: Node, span: Range<usize>) -> Self {
        Self { node, span }
    }

    /// A reference to one field.
    pub fn field(name: impl Into<String>, span: Range<usize>) -> Self {
        Self { node: Node::Field(vec![name.into()]), span }
    }

    /// A reference to a field, or to a member of one.
    pub fn path(names: Vec<String>, span: Range<usize>) -> Self {
        Self { node: Node::Field(names), span }
    }

    /// `CASE WHEN condition THEN value END`, which is null where the condition is not true; without a value TRUE or null.
    #[must_use]
    pub fn when(condition: &Self, value: Option<&Self>) -> Self {
        let span = value.unwrap_or(condition).span();
        let value = value.cloned().unwrap_or_else(|| Self::new(Node::Bool(true), span.clone()));
        let branches = vec![(condition.clone(), value)];
        Self::new(Node::Case { operand: None, branches, otherwise: None }, span)
    }

    /// Several values as one, which is null where any of them is, and equal to another where all of them are.
    ///
    /// # Panics
    /// Without values.
    #[must_use]
    pub fn tuple(values: Vec<Self>) -> Self {
        let span = values[0].span.start..values[values.len() - 1].span.end.max(values[0].span.end);
        Self::new(Node::Tuple(values), span)
    }

    /// Bytes of the parsed text that this expression was parsed from.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The names of a plain field reference: `["card_1h", "spent"]` for `card_1h.spent`.
    pub fn as_field(&self) -> Option<&[String]> {
        match &self.node {
            Node::Field(path) => Some(path),
            _ => None,
        }
    }

    /// The place of the aggregate that this is and nothing else.
    pub fn as_slot(&self) -> Option<usize> {
        match self.node {
            Node::Slot { place, .. } => Some(place),
            _ => None,
        }
    }

    /// The number, where this is a number literal with or without a sign.
    pub fn as_number(&self) -> Option<f64> {
        match &self.node {
            Node::Number(text) => text.parse().ok(),
            Node::Negate(inner) => inner.as_number().map(|number| -number),
            _ => None,
        }
    }
}

/// Equal meaning as far as syntax shows it; places in the text do not count.
impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

/// A name as SQL text: quoted unless it is a plain word.
pub(crate) fn quote_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(crate) fn quote_string(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Node::Null => f.write_str("NULL"),
            Node::Bool(true) => f.write_str("TRUE"),
            Node::Bool(false) => f.write_str("FALSE"),
            Node::Number(text) => f.write_str(text),
            Node::String(text) => f.write_str(&quote_string(text)),
            Node::Timestamp(nanos) => write_timestamp(f, *nanos),
            Node::Field(path) => {
                let names: Vec<String> = path.iter().map(|name| quote_name(name)).collect();
                f.write_str(&names.join("."))
            }
            Node::Slot { text, .. } => f.write_str(text),
            Node::Negate(expr) => write!(f, "(- {expr})"),
            Node::Not(expr) => write!(f, "(NOT {expr})"),
            Node::And(items) => write_joined(f, items, " AND "),
            Node::Or(items) => write_joined(f, items, " OR "),
            Node::Concat(items) => write_joined(f, items, " || "),
            Node::Arithmetic(op, a, b) => write!(f, "({a} {} {b})", op.symbol()),
            Node::Compare(op, a, b) => write!(f, "({a} {} {b})", op.symbol()),
            Node::Is { what, negated, expr } => {
                write!(f, "({expr} IS {}{})", if *negated { "NOT " } else { "" }, what.name())
            }
            Node::Between { expr, low, high, negated } => {
                write!(f, "({expr} {}BETWEEN {low} AND {high})", not(*negated))
            }
            Node::InList { expr, list, negated } => {
                write!(f, "({expr} {}IN ", not(*negated))?;
                write_list(f, list)?;
                f.write_str(")")
            }
            Node::Like { expr, pattern, escape, fold_case, negated } => {
                let operator = if *fold_case { "ILIKE" } else { "LIKE" };
                write!(f, "({expr} {}{operator} {pattern}", not(*negated))?;
                if let Some(escape) = escape {
                    write!(f, " ESCAPE {}", quote_string(&escape.to_string()))?;
                }
                f.write_str(")")
            }
            Node::Match { expr, pattern, fold_case, negated } => {
                let (not, fold) = (if *negated { "!" } else { "" }, if *fold_case { "*" } else { "" });
                write!(f, "({expr} {not}~{fold} {pattern})")
            }
            Node::Case { operand, branches, otherwise } => {
                f.write_str("CASE")?;
                if let Some(operand) = operand {
                    write!(f, " {operand}")?;
                }
                for (condition, result) in branches {
                    write!(f, " WHEN {condition} THEN {result}")?;
                }
                if let Some(otherwise) = otherwise {
                    write!(f, " ELSE {otherwise}")?;
                }
                f.write_str(" END")
            }
            Node::Cast(expr, to) => write!(f, "CAST({expr} AS {to})"),
            Node::Extract(part, expr) => write!(f, "EXTRACT({} FROM {expr})", part.name()),
            Node::Call(function, args) => {
                f.write_str(function.name())?;
                write_list(f, args)
            }
            Node::Tuple(items) => items
                .iter()
                .enumerate()
                .try_for_each(|(index, item)| write!(f, "{}{item}", if index == 0 { "" } else { ", " })),
            Node::Mistaken(parts) => {
                f.write_str("…")?;
                write_list(f, parts)
            }
        }
    }
}

fn not(negated: bool) -> &'static str {
    if negated { "NOT " } else { "" }
}

fn write_joined(f: &mut fmt::Formatter<'_>, items: &[Expr], separator: &str) -> fmt::Result {
    f.write_str("(")?;
    for (index, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { separator })?;
    }
    f.write_str(")")
}

fn write_list(f: &mut fmt::Formatter<'_>, items: &[Expr]) -> fmt::Result {
    write_joined(f, items, ", ")
}

/// `TIMESTAMP '…'`; years outside 0 to 9999 cannot be written and cannot be parsed either.
fn write_timestamp(f: &mut fmt::Formatter<'_>, nanos: i128) -> fmt::Result {
    let micros = i64::try_from(nanos.div_euclid(1_000)).expect("parsed timestamps have four-digit years");
    let below = nanos.rem_euclid(1_000);
    let text = format_timestamp(micros);
    if below == 0 {
        return write!(f, "TIMESTAMP '{text}'");
    }
    let seconds = text.trim_end_matches('Z').split('.').next().unwrap_or_default();
    write!(f, "TIMESTAMP '{seconds}.{:09}Z'", nanos.rem_euclid(1_000_000_000))
}
