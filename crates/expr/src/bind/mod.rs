//! Type checking: an expression meets a schema.
//!
//! Literals have no type of their own until they meet something that has: `1` with a decimal is a decimal, text
//! with a timestamp is read as one. A [`Draft`] carries that freedom up one level; [`Draft::settle`] ends it.
//! Whatever is constant is evaluated here, once.
//!
//! A mistake does not end the check. The node that it is about gets the type that nodes of its kind have in any case,
//! or [`Literal::Unknown`], and its parents go on with that.

pub(crate) mod call;
mod coerce;
mod resolve;
pub(crate) mod types;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::Array as _;
use arrow_array::cast::AsArray as _;
use thalweg_types::{DataType, Schema};

use crate::SqlError;
use crate::ast::{ArithmeticOp, CompareOp, Expr, Is, Node};
use crate::bound::{Bound, Op, Take, Typed};
use crate::eval::like::{MAX_PATTERN, Pattern};
use crate::eval::{self, in_list::Members};
use crate::mistakes::{Mistakes, SqlErrors, all};
use coerce::{Draft, Literal};

impl Expr {
    /// Checks the expression against a stream's fields.
    ///
    /// # Errors
    /// On fields that do not exist and on operands of the wrong type: all of them.
    pub fn bind(&self, schema: &Schema) -> Result<Bound, SqlErrors> {
        let mut mistakes = Mistakes::new();
        let checked = self.check(schema, Qualifier::None, &mut mistakes);
        mistakes.finish()?;
        Ok(checked.bound().expect("an expression without mistakes is bound"))
    }

    /// As [`Expr::bind`], for texts of which an expression is a part; mistakes are added to `mistakes`.
    pub fn check(&self, schema: &Schema, qualifier: Qualifier<'_>, mistakes: &mut Mistakes) -> Checked {
        let binder =
            Binder { schema, qualifier, mistakes: RefCell::new(mistakes), mistaken: Cell::default() };
        let draft = binder.bind(self);
        let data_type = (!draft.is_null()).then(|| draft.data_type().clone());
        let typed = binder.typed(draft.settle(), None);
        match (binder.mistaken.get(), data_type) {
            (0, _) => Checked::Bound(Bound::new(typed)),
            (_, Some(data_type)) => Checked::Typed(data_type),
            (_, None) => Checked::Unknown,
        }
    }
}

/// What may be before a field's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qualifier<'a> {
    None,
    /// `stream.field`
    Stream(&'a str),
    /// The stream was named by mistake, so it is not known which name may be there.
    Any,
}

/// What a check of an expression found.
#[derive(Clone, Debug)]
pub enum Checked {
    /// No mistake.
    Bound(Bound),
    /// Mistakes inside, but an expression of its kind has this type in any case.
    Typed(DataType),
    /// Mistakes, and with them the type is open.
    Unknown,
}

impl Checked {
    /// `None` where mistakes leave it open.
    pub fn data_type(&self) -> Option<&DataType> {
        match self {
            Checked::Bound(bound) => Some(bound.data_type()),
            Checked::Typed(data_type) => Some(data_type),
            Checked::Unknown => None,
        }
    }

    pub fn bound(self) -> Option<Bound> {
        match self {
            Checked::Bound(bound) => Some(bound),
            Checked::Typed(_) | Checked::Unknown => None,
        }
    }
}

struct Binder<'a, 'm> {
    schema: &'a Schema,
    qualifier: Qualifier<'a>,
    mistakes: RefCell<&'m mut Mistakes>,
    /// How many nodes had a mistake of their own so far.
    mistaken: Cell<usize>,
}

impl Binder<'_, '_> {
    /// The node; where it or a node below has a mistake, its replacement.
    fn bind(&self, expr: &Expr) -> Draft {
        let before = self.mistaken.get();
        let result = self.draft(expr);
        match result {
            Ok(draft) if self.mistaken.get() == before => draft,
            Ok(_) => Draft::mistaken(fixed_type(&expr.node), expr.span()),
            Err(errors) => {
                self.report(errors.at(&expr.span()));
                Draft::mistaken(fixed_type(&expr.node), expr.span())
            }
        }
    }

    fn report(&self, errors: SqlErrors) {
        self.mistaken.set(self.mistaken.get() + 1);
        self.mistakes.borrow_mut().extend(errors);
    }

    /// The node, or one of the type that it should have had.
    fn typed<E: Into<SqlErrors>>(&self, result: Result<Typed, E>, wanted: Option<DataType>) -> Typed {
        result.unwrap_or_else(|errors| {
            self.report(errors.into());
            Typed::placeholder(wanted.unwrap_or(DataType::Bool))
        })
    }

    fn draft(&self, expr: &Expr) -> Result<Draft, SqlErrors> {
        let span = expr.span();
        let typed = match &expr.node {
            Node::Null => return Ok(Draft::literal(Literal::Null, span)),
            Node::Bool(value) => coerce::bool_constant(*value),
            Node::Number(text) => return Ok(Draft::literal(Literal::number(text), span)),
            Node::String(text) => return Ok(Draft::literal(Literal::String(text.clone()), span)),
            Node::Timestamp(nanos) => return Ok(Draft::literal(Literal::Timestamp(*nanos), span)),
            Node::Field(path) => match resolve::field(self.schema, self.qualifier, path, &span)? {
                Some(typed) => typed,
                None => {
                    self.mistaken.set(self.mistaken.get() + 1);
                    return Ok(Draft::mistaken(None, span));
                }
            },
            Node::Slot { place, text } => {
                let field = self.schema.fields().get(*place);
                let field = field
                    .ok_or_else(|| SqlError::new(format!("{text} has no value here")).at(span.clone()))?;
                Typed {
                    op: Op::Column { index: *place, path: Vec::new(), name: text.clone() },
                    data_type: field.data_type.clone(),
                    nullable: field.nullable,
                }
            }
            Node::Mistaken(parts) => {
                self.mistaken.set(self.mistaken.get() + 1);
                for part in parts {
                    self.bind(part);
                }
                return Ok(Draft::mistaken(None, span));
            }
            Node::Negate(inner) => return self.negate(inner, span),
            Node::Not(inner) => {
                let inner = self.condition(inner, "NOT");
                let nullable = inner.nullable;
                Typed { op: Op::Not(Box::new(inner)), data_type: DataType::Bool, nullable }
            }
            Node::And(items) => self.logic(items, "AND", Op::And),
            Node::Or(items) => self.logic(items, "OR", Op::Or),
            Node::Arithmetic(op, a, b) => self.arithmetic(*op, self.bind(a), self.bind(b), &span)?,
            Node::Concat(items) => self.concat(items, &span)?,
            Node::Compare(op, a, b) => compare(*op, self.bind(a), self.bind(b), &span)?,
            Node::Is { what, negated, expr } => self.is(*what, *negated, expr)?,
            Node::Between { expr, low, high, negated } => {
                let drafts = vec![self.bind(expr), self.bind(low), self.bind(high)];
                let typed = comparable(drafts, &span)?;
                let nullable = typed.iter().any(|typed| typed.nullable);
                let [expr, low, high] = boxes(typed);
                Typed {
                    op: Op::Between { expr, low, high, negated: *negated },
                    data_type: DataType::Bool,
                    nullable,
                }
            }
            Node::InList { expr, list, negated } => self.in_list(expr, list, *negated, &span)?,
            Node::Like { expr, pattern, escape, fold_case, negated } => {
                let pattern_span = pattern.span();
                let texts = [self.bind(expr), self.bind(pattern)].map(|side| side.expect_text("LIKE"));
                let [expr, mut pattern] = texts.map(|text| self.typed(text, Some(DataType::String)));
                if let Some(escape) = escape {
                    pattern = coerce::unescape_pattern(&pattern, *escape).ok_or_else(|| {
                        SqlError::new("ESCAPE needs a constant pattern").at(pattern_span.clone())
                    })?;
                }
                let constant = pattern.constant().filter(|pattern| pattern.is_valid(0));
                let read = match constant
                    .map(|pattern| Pattern::new(pattern.as_string_view().value(0), *fold_case))
                {
                    Some(None) => {
                        let error = SqlError::new("this pattern is too long").at(pattern_span);
                        return Err(error.expected(format!("at most {MAX_PATTERN} bytes")).into());
                    }
                    read => read.flatten().map(Arc::new),
                };
                let may_give_up = read.as_deref().is_none_or(Pattern::may_give_up);
                let nullable = expr.nullable || pattern.nullable || may_give_up;
                Typed {
                    op: Op::Like {
                        expr: Box::new(expr),
                        pattern: Box::new(pattern),
                        read,
                        fold_case: *fold_case,
                        negated: *negated,
                    },
                    data_type: DataType::Bool,
                    nullable,
                }
            }
            Node::Match { expr, pattern, fold_case, negated } => {
                let pattern_span = pattern.span();
                let texts = [self.bind(expr), self.bind(pattern)].map(|side| side.expect_text("~"));
                let [expr, pattern] = texts.map(|text| self.typed(text, Some(DataType::String)));
                let read = call::regexp(&pattern, *fold_case, pattern_span)?;
                let (expr, pattern) = (Box::new(expr), Box::new(pattern));
                let take = Take::Whether { fold_case: *fold_case, negated: *negated };
                // The text may be too long.
                Typed {
                    op: Op::Match { expr, pattern, read, take },
                    data_type: DataType::Bool,
                    nullable: true,
                }
            }
            Node::Case { operand, branches, otherwise } => {
                self.case(operand.as_deref(), branches, otherwise.as_deref(), &span)?
            }
            Node::Cast(inner, to) => coerce::explicit_cast(self.bind(inner), to)?,
            Node::Extract(part, inner) => {
                let inner = self.bind(inner).expect_timestamp("EXTRACT")?;
                let nullable = inner.nullable;
                Typed { op: Op::Extract(*part, Box::new(inner)), data_type: DataType::Int64, nullable }
            }
            Node::Tuple(items) => {
                let items = all(items.iter().map(|item| {
                    let typed = self.bind(item).settle()?;
                    match typed.data_type {
                        DataType::List(_) | DataType::Struct(_) => {
                            let error =
                                SqlError::new(format!("{} has no parts that are counted", typed.data_type));
                            Err(error.at(item.span()).hint("name a member: card_1h.spent"))
                        }
                        _ => Ok(typed),
                    }
                }))?;
                // It may be too long.
                Typed { op: Op::Tuple(items), data_type: DataType::Bytes, nullable: true }
            }
            Node::Call(function, args) => {
                let args = args.iter().map(|arg| self.bind(arg)).collect();
                call::bind(*function, args, &span)?
            }
        };
        Ok(Draft { typed: fold(typed)?, literal: None, span })
    }

    fn condition(&self, expr: &Expr, place: &str) -> Typed {
        self.typed(self.bind(expr).expect_bool(place), Some(DataType::Bool))
    }

    fn logic(&self, items: &[Expr], name: &str, op: fn(Vec<Typed>) -> Op) -> Typed {
        let items: Vec<Typed> = items.iter().map(|item| self.condition(item, name)).collect();
        let nullable = items.iter().any(|item| item.nullable);
        Typed { op: op(items), data_type: DataType::Bool, nullable }
    }

    fn negate(&self, inner: &Expr, span: Range<usize>) -> Result<Draft, SqlErrors> {
        let inner = self.bind(inner);
        if let Some(literal) = inner.literal.as_ref().and_then(Literal::negated) {
            return Ok(Draft::literal(literal, span));
        }
        let data_type = inner.data_type().clone();
        let typed = match data_type {
            DataType::UInt64 => inner.coerce(&DataType::Int64)?,
            ref other if other.is_numeric() => inner.settle()?,
            other => {
                let error = SqlError::new(format!("{other} has no negative")).at(span);
                return Err(error.expected("a number").into());
            }
        };
        let data_type = typed.data_type.clone();
        let nullable = typed.nullable || data_type == DataType::Int64;
        let typed = fold(Typed { op: Op::Negate(Box::new(typed)), data_type, nullable })?;
        Ok(Draft { typed, literal: None, span })
    }

    fn arithmetic(
        &self,
        op: ArithmeticOp,
        a: Draft,
        b: Draft,
        span: &Range<usize>,
    ) -> Result<Typed, SqlError> {
        for side in [&a, &b] {
            let data_type = side.data_type();
            if side.is_null() || data_type.is_numeric() {
                continue;
            }
            let error = SqlError::new(format!("operator {} takes numbers, not {data_type}", op.symbol()))
                .at(side.span.clone())
                .expected("int64, uint64, float64 or decimal");
            return Err(match data_type {
                DataType::String if op == ArithmeticOp::Add => error.hint("texts are joined with ||"),
                DataType::Timestamp(_) => {
                    error.hint("take the difference of EPOCH_MS(…) or EPOCH_US(…), which are int64")
                }
                _ => error,
            });
        }
        if a.is_unknown() || b.is_unknown() {
            return Ok(Typed::placeholder(DataType::Int64));
        }
        let common = types::common(&[&a, &b], types::Mixed::Int64).unwrap_or(DataType::Int64);
        let (a, b, data_type) = if matches!(common, DataType::Decimal { .. }) {
            let (a, b) = (a.own_decimal()?, b.own_decimal()?);
            let data_type = types::decimal_result(op, &a.data_type, &b.data_type)
                .ok_or_else(|| types::too_wide(op, &a.data_type, &b.data_type).at(span.clone()))?;
            (a, b, data_type)
        } else {
            (a.coerce(&common)?, b.coerce(&common)?, common)
        };
        let nullable = a.nullable || b.nullable || data_type != DataType::Float64;
        Ok(Typed { op: Op::Arithmetic(op, Box::new(a), Box::new(b)), data_type, nullable })
    }

    fn concat(&self, items: &[Expr], span: &Range<usize>) -> Result<Typed, SqlErrors> {
        let drafts: Vec<Draft> = items.iter().map(|item| self.bind(item)).collect();
        let any_text = drafts.iter().any(|draft| draft.is_null() || *draft.data_type() == DataType::String);
        if !any_text {
            let error = SqlError::new(format!("|| joins texts, not {}", drafts[0].data_type()));
            let error = error.at(span.clone());
            return Err(error.hint("CAST(x AS string) makes one of its operands a text").into());
        }
        let items = all(drafts.into_iter().map(Draft::into_text))?;
        // It may be too long.
        Ok(Typed { op: Op::Concat(items), data_type: DataType::String, nullable: true })
    }

    fn is(&self, what: Is, negated: bool, expr: &Expr) -> Result<Typed, SqlError> {
        let draft = self.bind(expr);
        let expr = match what {
            Is::Null if draft.is_null() => draft.coerce(&DataType::Bool)?,
            Is::Null => draft.settle()?,
            Is::True | Is::False => draft.expect_bool(&format!("IS {}", what.name()))?,
        };
        Ok(Typed {
            op: Op::Is { what, negated, expr: Box::new(expr) },
            data_type: DataType::Bool,
            nullable: false,
        })
    }

    fn in_list(
        &self,
        expr: &Expr,
        list: &[Expr],
        negated: bool,
        span: &Range<usize>,
    ) -> Result<Typed, SqlErrors> {
        let drafts = std::iter::once(expr).chain(list).map(|item| self.bind(item)).collect();
        let mut typed = comparable(drafts, span)?;
        let expr = typed.remove(0);
        let nullable = expr.nullable || typed.iter().any(|item| item.nullable);
        let members = Members::of(&expr.data_type, &typed);
        Ok(Typed {
            op: Op::InList { expr: Box::new(expr), list: typed, members, negated },
            data_type: DataType::Bool,
            nullable,
        })
    }

    fn case(
        &self,
        operand: Option<&Expr>,
        branches: &[(Expr, Expr)],
        otherwise: Option<&Expr>,
        span: &Range<usize>,
    ) -> Result<Typed, SqlErrors> {
        let operand = operand.map(|operand| self.bind(operand));
        let mut conditions = Vec::with_capacity(branches.len());
        let mut results = Vec::with_capacity(branches.len() + 1);
        for (condition, result) in branches {
            conditions.push(match &operand {
                None => self.condition(condition, "WHEN"),
                Some(operand) => {
                    let condition = self.bind(condition);
                    let both = operand.span.start..condition.span.end.max(operand.span.start);
                    let equal = compare(CompareOp::Equal, operand.clone(), condition, &both);
                    self.typed(equal.and_then(|equal| Ok(fold(equal)?)), Some(DataType::Bool))
                }
            });
            results.push(self.bind(result));
        }
        results.push(match otherwise {
            Some(otherwise) => self.bind(otherwise),
            None => Draft::literal(Literal::Null, span.clone()),
        });
        let mut results = same_type(results, "CASE", span)?;
        let otherwise = results.pop().expect("the ELSE result was pushed last");
        let nullable = otherwise.nullable || results.iter().any(|result| result.nullable);
        let data_type = otherwise.data_type.clone();
        let branches = conditions.into_iter().zip(results).collect();
        Ok(Typed { op: Op::Case { branches, otherwise: Box::new(otherwise) }, data_type, nullable })
    }
}

/// The type that a node of the kind has, whatever its operands are.
fn fixed_type(node: &Node) -> Option<DataType> {
    Some(match node {
        Node::Not(_)
        | Node::And(_)
        | Node::Or(_)
        | Node::Compare(..)
        | Node::Is { .. }
        | Node::Between { .. }
        | Node::InList { .. }
        | Node::Like { .. }
        | Node::Match { .. } => DataType::Bool,
        Node::Concat(_) => DataType::String,
        Node::Tuple(_) => DataType::Bytes,
        Node::Extract(..) => DataType::Int64,
        Node::Cast(_, to) => to.clone(),
        Node::Call(function, _) => return call::fixed_type(*function),
        _ => return None,
    })
}

fn boxes(typed: Vec<Typed>) -> [Box<Typed>; 3] {
    let three: [Typed; 3] = typed.try_into().expect("as many as were put in");
    three.map(Box::new)
}

/// A comparison of two drafts, in the type where it is exact.
fn compare(op: CompareOp, a: Draft, b: Draft, span: &Range<usize>) -> Result<Typed, SqlErrors> {
    let mut both = comparable(vec![a, b], span)?;
    let (b, a) = (both.pop().expect("two"), both.pop().expect("two"));
    let never_null = matches!(op, CompareOp::Distinct | CompareOp::NotDistinct);
    let nullable = !never_null && (a.nullable || b.nullable);
    Ok(Typed { op: Op::Compare(op, Box::new(a), Box::new(b)), data_type: DataType::Bool, nullable })
}

/// The drafts in one type that compares them exactly.
fn comparable(drafts: Vec<Draft>, span: &Range<usize>) -> Result<Vec<Typed>, SqlErrors> {
    let refs: Vec<&Draft> = drafts.iter().collect();
    if refs.iter().all(|draft| draft.is_null()) {
        return all(drafts.into_iter().map(|draft| draft.coerce(&DataType::Bool)));
    }
    let Some(common) = types::common(&refs, types::Mixed::Exact) else {
        return Err(mismatch("compared", &drafts, span).into());
    };
    if matches!(common, DataType::List(_) | DataType::Struct(_)) {
        let error = SqlError::new(format!("values of type {common} cannot be compared")).at(span.clone());
        return Err(error.hint("compare a member: card_1h.spent > 10").into());
    }
    all(drafts.into_iter().map(|draft| draft.coerce(&common)))
}

/// The drafts in one type, for results that replace each other.
fn same_type(drafts: Vec<Draft>, place: &str, span: &Range<usize>) -> Result<Vec<Typed>, SqlErrors> {
    let refs: Vec<&Draft> = drafts.iter().collect();
    if refs.iter().all(|draft| draft.is_null()) {
        if !refs.iter().any(|draft| draft.is_unknown()) {
            return Err(coerce::untyped_null(span.clone()).into());
        }
        return all(drafts.into_iter().map(|draft| draft.coerce(&DataType::Bool)));
    }
    match types::common(&refs, types::Mixed::Int64) {
        Some(common) => all(drafts.into_iter().map(|draft| draft.coerce(&common))),
        None => Err(mismatch(&format!("mixed in {place}"), &drafts, span).into()),
    }
}

/// Names the first two drafts whose types do not go together.
fn mismatch(verb: &str, drafts: &[Draft], span: &Range<usize>) -> SqlError {
    for (index, a) in drafts.iter().enumerate() {
        for b in &drafts[index + 1..] {
            if a.is_null() || b.is_null() || types::common(&[a, b], types::Mixed::Exact).is_some() {
                continue;
            }
            let (first, second) = (a.data_type(), b.data_type());
            let error = SqlError::new(format!("{first} and {second} cannot be {verb}")).at(a
                .span
                .start
                .min(b.span.start)
                ..a.span.end.max(b.span.end));
            return match (first, second) {
                (DataType::String, other) | (other, DataType::String) if other.is_numeric() => {
                    let text = if *first == DataType::String { a } else { b };
                    match &text.literal {
                        Some(Literal::String(_)) => error.hint("numbers are written without quotes"),
                        _ => error.hint(format!("CAST(… AS {other}) reads a number from a text")),
                    }
                }
                (DataType::String, DataType::Timestamp(_) | DataType::Ip)
                | (DataType::Timestamp(_) | DataType::Ip, DataType::String) => {
                    error.hint("CAST(… AS timestamp(us)) or CAST(… AS ip) reads a text")
                }
                (DataType::Timestamp(_), other) | (other, DataType::Timestamp(_)) if other.is_numeric() => {
                    error.hint("EPOCH_MS(ts) is a number; TIMESTAMP '2024-02-29 13:45' is a timestamp")
                }
                _ => error,
            };
        }
    }
    SqlError::new(format!("these values cannot be {verb}")).at(span.clone())
}

/// Evaluates a constant node.
fn fold(typed: Typed) -> Result<Typed, SqlError> {
    if matches!(typed.op, Op::Column { .. } | Op::Constant(_)) || !typed.all_constant() {
        return Ok(typed);
    }
    let array = eval::evaluate_constant(&typed)?;
    Ok(Typed { nullable: array.is_null(0), data_type: typed.data_type, op: Op::Constant(array) })
}
