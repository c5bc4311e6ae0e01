//! From `sqlparser`'s syntax tree to ours: what the language has, and a message for what it has not.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use sqlparser::ast::{
    self, BinaryOperator, CaseWhen, CastKind, DuplicateTreatment, ExactNumberInfo, FunctionArg,
    FunctionArgExpr, FunctionArguments, ObjectNamePart, TimezoneInfo, TrimWhereField, UnaryOperator, Value,
};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token};
use thalweg_types::{DataType, TimeUnit, parse_timestamp};

use crate::SqlError;
use crate::ast::{ArithmeticOp, CompareOp, Expr, Is, Node, Slot};
use crate::error::nearest;
use crate::function::{Function, PARTS_EXPECTED, Part};
use crate::mistakes::{Mistakes, SqlErrors};
use crate::tokens::{self, Lines, MAX_DEPTH, Spanned, lower_first};

/// Longest chain of operators that are not AND, OR or ||, which are flat.
const MAX_CHAIN: usize = 200;

impl Expr {
    /// Parses an expression.
    ///
    /// # Errors
    /// On text that is no expression of the language, with the places and hints where there are some.
    pub fn parse(text: &str) -> Result<Self, SqlErrors> {
        let mut mistakes = Mistakes::new();
        let expr = Self::read(text, &mut mistakes);
        mistakes.finish()?;
        Ok(expr.expect("without a mistake there is an expression"))
    }

    /// Parses an expression as far as it can be understood, so that the rest of it can be checked.
    ///
    /// Mistakes are added to `mistakes`; `None` if no more of the text can be understood.
    pub fn read(text: &str, mistakes: &mut Mistakes) -> Option<Self> {
        let read = tokens::tokenize(text)
            .and_then(|tokens| Self::from_tokens(text, &tokens, text.len()..text.len(), mistakes));
        match read {
            Ok(expr) => Some(expr),
            Err(error) => {
                mistakes.push(error);
                None
            }
        }
    }

    /// As [`Expr::read`], of an expression that is all of `tokens`, which are in `text`; `end` is where more was
    /// expected.
    ///
    /// # Errors
    /// If the syntax is wrong, so that nothing is known of the expression.
    pub fn from_tokens(
        text: &str,
        tokens: &[Spanned],
        end: Range<usize>,
        mistakes: &mut Mistakes,
    ) -> Result<Self, SqlError> {
        Self::convert(text, tokens, None, end, mistakes)
    }

    /// As [`Expr::from_tokens`], of an expression over aggregates, which are at `slots` of the text: it is bound to a schema
    /// whose fields are their values, in the order of `slots`. Fields of records have no value there.
    ///
    /// # Errors
    /// As [`Expr::from_tokens`].
    pub fn of_aggregates(
        text: &str,
        tokens: &[Spanned],
        slots: &[Slot],
        end: Range<usize>,
        mistakes: &mut Mistakes,
    ) -> Result<Self, SqlError> {
        let spans: Vec<Range<usize>> = slots.iter().map(|slot| slot.span.clone()).collect();
        Self::convert(text, &tokens::joined(text, tokens, &spans), Some(slots), end, mistakes)
    }

    fn convert(
        text: &str,
        tokens: &[Spanned],
        slots: Option<&[Slot]>,
        end: Range<usize>,
        mistakes: &mut Mistakes,
    ) -> Result<Self, SqlError> {
        if tokens.is_empty() {
            return Err(SqlError::new("an expression is missing").at(end));
        }
        let lines = Lines::new(text);
        let mut parser = Parser::new(&tokens::ThalwegSql)
            .with_recursion_limit(MAX_DEPTH)
            .with_tokens_with_locations(tokens::for_parser(tokens)?);
        let parsed = parser.parse_expr().map_err(|error| parser_error(error, &lines, tokens, &end))?;
        let next = parser.peek_token();
        if next.token != Token::EOF {
            let span = lines.range(next.span);
            let error = SqlError::new(format!("the expression ends before {}", next.token)).at(span.clone());
            let is_interval = |token: &Spanned| token.span.end <= span.start && token.is_keyword("INTERVAL");
            return Err(match next.token {
                Token::SingleQuotedString(_)
                    if tokens.iter().rfind(|token| token.span.end <= span.start).is_some_and(is_interval) =>
                {
                    error.hint("there are no intervals; compare EPOCH_MS(a) - EPOCH_MS(b) with a number")
                }
                Token::SingleQuotedString(_) => error.hint("names are written without quotes or in \"…\""),
                Token::Word(word) => error.hint(match word.value.to_ascii_uppercase().as_str() {
                    "SIMILAR" | "RLIKE" | "REGEXP" | "GLOB" => {
                        "patterns are matched by LIKE and ILIKE, regular expressions by ~"
                    }
                    "AT" => "timestamps are UTC",
                    "COLLATE" => "texts are compared by code points",
                    _ => "an operator is missing here",
                }),
                _ => error,
            });
        }
        Ok(Converter { slots, ..Converter::new(lines, mistakes) }.expr(&parsed, 0))
    }

    /// Converts a parsed expression; `text` is what it was parsed from, for the places in messages.
    ///
    /// # Errors
    /// On syntax that the language does not have.
    pub fn from_ast(parsed: &ast::Expr, text: &str) -> Result<Self, SqlErrors> {
        let mut mistakes = Mistakes::new();
        let expr = Converter::new(Lines::new(text), &mut mistakes).expr(parsed, 0);
        mistakes.finish().map(|()| expr)
    }
}

/// Splits `sqlparser`'s one line of text into message, expectation and place.
fn parser_error(error: ParserError, lines: &Lines<'_>, tokens: &[Spanned], end: &Range<usize>) -> SqlError {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        ParserError::RecursionLimitExceeded => {
            let start = tokens.first().map_or(end.start, |token| token.span.start);
            return SqlError::new("the expression is nested too deeply")
                .at(start..end.start)
                .expected(format!("at most {MAX_DEPTH} levels"));
        }
    };
    let (message, start) = match text.rsplit_once(" at Line: ") {
        Some((message, place)) => (message, parse_place(place).map(|place| lines.offset(place))),
        None => (text.as_str(), None),
    };
    let span = start.map_or_else(
        || end.clone(),
        |start| {
            let token = tokens.iter().find(|token| token.span.start == start);
            token.map_or(start..start + 1, |token| token.span.clone())
        },
    );
    let Some((expected, found)) =
        message.strip_prefix("Expected: ").and_then(|rest| rest.split_once(", found: "))
    else {
        return SqlError::new(lower_first(message)).at(span);
    };
    let expected = match expected {
        "date/time field" => PARTS_EXPECTED,
        _ if expected.ends_with("after IS") => "NULL, TRUE, FALSE or DISTINCT FROM, with or without NOT",
        expected => expected,
    };
    match found {
        "EOF" => SqlError::new("the expression is incomplete").at(end.clone()).expected(expected),
        found => SqlError::new(format!("{found} cannot be here")).at(span).expected(expected),
    }
}

/// `3, Column: 14`.
fn parse_place(place: &str) -> Option<Location> {
    let (line, column) = place.split_once(", Column: ")?;
    Some(Location::new(line.parse().ok()?, column.trim().parse().ok()?))
}

struct Converter<'a, 'm> {
    lines: Lines<'a>,
    /// Names are those of aggregates, where there are some.
    slots: Option<&'a [Slot]>,
    mistakes: RefCell<&'m mut Mistakes>,
    /// Told once, though all leaves of a tree may be too deep.
    is_too_deep: Cell<bool>,
}

impl<'a, 'm> Converter<'a, 'm> {
    fn new(lines: Lines<'a>, mistakes: &'m mut Mistakes) -> Self {
        Self { lines, slots: None, mistakes: RefCell::new(mistakes), is_too_deep: Cell::default() }
    }

    /// A field, or the aggregate that is there.
    fn name(&self, path: Vec<String>, span: Range<usize>) -> Expr {
        let Some(slots) = self.slots else { return Expr::new(Node::Field(path), span) };
        match slots.iter().position(|slot| slot.span.start == span.start) {
            Some(place) => Expr::new(Node::Slot { place, text: slots[place].text.clone() }, span),
            None => {
                let name = path.join(".");
                let error = SqlError::new(format!("the field {name} is outside an aggregate")).at(span);
                self.mistaken(error.hint(format!("write last({name}) for its newest value")), Vec::new())
            }
        }
    }

    fn boxed(&self, expr: &ast::Expr, depth: usize) -> Box<Expr> {
        Box::new(self.expr(expr, depth))
    }

    /// The expression; a part without a meaning is reported and has a node of its own.
    fn expr(&self, expr: &ast::Expr, depth: usize) -> Expr {
        if depth > MAX_CHAIN {
            let error = SqlError::new("the expression is nested too deeply")
                .at(self.leaf(expr))
                .expected(format!("at most {MAX_CHAIN} operators in a chain"));
            return match self.is_too_deep.replace(true) {
                true => Expr::new(Node::Mistaken(Vec::new()), self.leaf(expr)),
                false => self.mistaken(error, Vec::new()),
            };
        }
        self.convert(expr, depth + 1).unwrap_or_else(|error| self.mistaken(error, Vec::new()))
    }

    /// Reports a mistake; the `parts` that it is about are understood all the same.
    fn mistaken(&self, error: SqlError, parts: Vec<Expr>) -> Expr {
        let place = error.span.clone().or_else(|| parts.first().map(Expr::span)).unwrap_or(0..0);
        let span = parts.iter().map(Expr::span).fold(place, join);
        self.mistakes.borrow_mut().push(error);
        Expr::new(Node::Mistaken(parts), span)
    }

    fn convert(&self, expr: &ast::Expr, depth: usize) -> Result<Expr, SqlError> {
        match expr {
            ast::Expr::Nested(inner) => Ok(self.expr(inner, depth)),
            ast::Expr::Identifier(name) => {
                Ok(self.name(vec![name.value.clone()], self.lines.range(name.span)))
            }
            ast::Expr::CompoundIdentifier(names) => {
                let span = names.iter().map(|name| self.lines.range(name.span)).reduce(join).unwrap_or(0..0);
                Ok(self.name(names.iter().map(|name| name.value.clone()).collect(), span))
            }
            ast::Expr::Value(value) => self.literal(&value.value, self.lines.range(value.span)),
            ast::Expr::TypedString(typed) => self.typed_string(typed),
            ast::Expr::UnaryOp { op, expr } => self.unary(*op, expr, depth),
            ast::Expr::BinaryOp { left, op, right } => self.binary(expr, left, op, right, depth),
            ast::Expr::IsNull(inner) | ast::Expr::IsUnknown(inner) => self.is(inner, Is::Null, false, depth),
            ast::Expr::IsNotNull(inner) | ast::Expr::IsNotUnknown(inner) => {
                self.is(inner, Is::Null, true, depth)
            }
            ast::Expr::IsTrue(inner) => self.is(inner, Is::True, false, depth),
            ast::Expr::IsNotTrue(inner) => self.is(inner, Is::True, true, depth),
            ast::Expr::IsFalse(inner) => self.is(inner, Is::False, false, depth),
            ast::Expr::IsNotFalse(inner) => self.is(inner, Is::False, true, depth),
            ast::Expr::IsDistinctFrom(a, b) => self.compare(CompareOp::Distinct, a, b, depth),
            ast::Expr::IsNotDistinctFrom(a, b) => self.compare(CompareOp::NotDistinct, a, b, depth),
            ast::Expr::Between { expr, negated, low, high } => {
                let (expr, low, high) =
                    (self.boxed(expr, depth), self.boxed(low, depth), self.boxed(high, depth));
                let span = join(expr.span(), high.span());
                Ok(Expr::new(Node::Between { expr, low, high, negated: *negated }, span))
            }
            ast::Expr::InList { expr, list, negated } => {
                let expr = self.boxed(expr, depth);
                let list = list.iter().map(|item| self.expr(item, depth)).collect::<Vec<_>>();
                let span = list.iter().map(Expr::span).fold(expr.span(), join);
                let span = self.close(span);
                Ok(Expr::new(Node::InList { expr, list, negated: *negated }, span))
            }
            ast::Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(expr, pattern, escape_char.as_ref(), (false, *negated), depth)
            }
            ast::Expr::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like(expr, pattern, escape_char.as_ref(), (true, *negated), depth)
            }
            ast::Expr::Case { case_token, end_token, operand, conditions, else_result } => {
                let operand = operand.as_ref().map(|operand| self.boxed(operand, depth));
                let branches = conditions
                    .iter()
                    .map(|CaseWhen { condition, result }| {
                        (self.expr(condition, depth), self.expr(result, depth))
                    })
                    .collect();
                let otherwise = else_result.as_ref().map(|result| self.boxed(result, depth));
                let span = join(self.lines.range(case_token.0.span), self.lines.range(end_token.0.span));
                Ok(Expr::new(Node::Case { operand, branches, otherwise }, span))
            }
            ast::Expr::Cast { kind, expr, data_type, array: false, format: None } => {
                let expr = self.boxed(expr, depth);
                let span = expr.span();
                let to = match cast_type(data_type) {
                    Ok(to) => to,
                    Err(error) => {
                        let error = error.at(self.lines.type_after(span));
                        return Ok(self.mistaken(error, vec![*expr]));
                    }
                };
                // Both spellings give null where the value has no counterpart: the engine goes on.
                match kind {
                    CastKind::Cast | CastKind::TryCast | CastKind::SafeCast | CastKind::DoubleColon => {
                        Ok(Expr::new(Node::Cast(expr, to), span))
                    }
                }
            }
            ast::Expr::Extract { field, expr, .. } => {
                let expr = self.boxed(expr, depth);
                let name = field.to_string();
                let from = self.lines.before(expr.span().start, "FROM");
                let start = self.lines.before(from, &name);
                let span = self.close(expr.span());
                Ok(match Part::parse(&name, start..start + name.len()) {
                    Ok(part) => Expr::new(Node::Extract(part, expr), span),
                    Err(error) => self.mistaken(error, vec![*expr]),
                })
            }
            ast::Expr::Substring { expr, substring_from, substring_for, .. } => {
                let text = self.expr(expr, depth);
                let from = match substring_from {
                    Some(from) => self.expr(from, depth),
                    None => Expr::new(Node::Number("1".to_owned()), text.span()),
                };
                let mut args = vec![text, from];
                if let Some(count) = substring_for {
                    args.push(self.expr(count, depth));
                }
                Ok(self.call(Function::Substring, args, None))
            }
            ast::Expr::Trim { trim_where, trim_what, expr, trim_characters } => {
                let function = match trim_where {
                    None | Some(TrimWhereField::Both) => Function::Trim,
                    Some(TrimWhereField::Leading) => Function::LeftTrim,
                    Some(TrimWhereField::Trailing) => Function::RightTrim,
                };
                let mut args = vec![self.expr(expr, depth)];
                if let Some(what) = trim_what {
                    args.push(self.expr(what, depth));
                }
                for what in trim_characters.iter().flatten() {
                    args.push(self.expr(what, depth));
                }
                Ok(self.call(function, args, None))
            }
            ast::Expr::Function(function) => self.function(function, depth),
            other => Err(unsupported(other).at(self.leaf(other))),
        }
    }

    fn literal(&self, value: &Value, span: Range<usize>) -> Result<Expr, SqlError> {
        let node = match value {
            Value::Null => Node::Null,
            Value::Boolean(value) => Node::Bool(*value),
            Value::Number(text, _) => {
                if text.parse::<f64>().is_err() {
                    return Err(SqlError::new(format!("{text} is no number")).at(span));
                }
                Node::Number(text.to_ascii_lowercase())
            }
            Value::SingleQuotedString(text) => Node::String(text.clone()),
            _ => {
                return Err(SqlError::new("this kind of literal is not part of the language")
                    .at(span)
                    .expected("a number, 'text', TRUE, FALSE, NULL or TIMESTAMP '…'"));
            }
        };
        Ok(Expr::new(node, span))
    }

    fn typed_string(&self, typed: &ast::TypedString) -> Result<Expr, SqlError> {
        let span = self.lines.range(typed.value.span);
        let text = match &typed.value.value {
            Value::SingleQuotedString(text) => text,
            _ => return Err(SqlError::new("a text in single quotes is missing").at(span)),
        };
        let is_timestamp = matches!(
            typed.data_type,
            ast::DataType::Timestamp(..)
                | ast::DataType::TimestampNtz(_)
                | ast::DataType::Date
                | ast::DataType::Datetime(_)
        );
        if !is_timestamp {
            let error =
                SqlError::new(format!("{} literals are not part of the language", typed.data_type)).at(span);
            return Err(match cast_type(&typed.data_type) {
                Ok(ours) => error.hint(format!("write CAST('{text}' AS {ours})")),
                Err(_) => error,
            });
        }
        match parse_timestamp(text) {
            Some(nanos) => Ok(Expr::new(Node::Timestamp(nanos), span)),
            None => Err(timestamp_error(text).at(span)),
        }
    }

    fn unary(&self, op: UnaryOperator, operand: &ast::Expr, depth: usize) -> Result<Expr, SqlError> {
        let operand = self.boxed(operand, depth);
        let span = operand.span();
        match op {
            UnaryOperator::Plus => Ok(*operand),
            UnaryOperator::Minus => {
                let start = self.lines.before(span.start, "-");
                Ok(Expr::new(Node::Negate(operand), start..span.end))
            }
            UnaryOperator::Not => {
                let start = self.lines.before(span.start, "NOT");
                Ok(Expr::new(Node::Not(operand), start..span.end))
            }
            other => {
                let error = SqlError::new(format!("operator {other} is not part of the language")).at(span);
                Ok(self.mistaken(error, vec![*operand]))
            }
        }
    }

    fn binary(
        &self,
        whole: &ast::Expr,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        depth: usize,
    ) -> Result<Expr, SqlError> {
        let arithmetic = |op| {
            let (left, right) = (self.boxed(left, depth), self.boxed(right, depth));
            let span = join(left.span(), right.span());
            Ok(Expr::new(Node::Arithmetic(op, left, right), span))
        };
        let matches = |fold_case, negated| {
            let (expr, pattern) = (self.boxed(left, depth), self.boxed(right, depth));
            let span = join(expr.span(), pattern.span());
            Ok(Expr::new(Node::Match { expr, pattern, fold_case, negated }, span))
        };
        match op {
            BinaryOperator::PGRegexMatch => matches(false, false),
            BinaryOperator::PGRegexIMatch => matches(true, false),
            BinaryOperator::PGRegexNotMatch => matches(false, true),
            BinaryOperator::PGRegexNotIMatch => matches(true, true),
            BinaryOperator::And | BinaryOperator::Or | BinaryOperator::StringConcat => {
                let items = self.chain(whole, op, depth);
                let span = items.iter().map(Expr::span).reduce(join).unwrap_or(0..0);
                let node = match op {
                    BinaryOperator::And => Node::And(items),
                    BinaryOperator::Or => Node::Or(items),
                    _ => Node::Concat(items),
                };
                Ok(Expr::new(node, span))
            }
            BinaryOperator::Plus => arithmetic(ArithmeticOp::Add),
            BinaryOperator::Minus => arithmetic(ArithmeticOp::Subtract),
            BinaryOperator::Multiply => arithmetic(ArithmeticOp::Multiply),
            BinaryOperator::Divide => arithmetic(ArithmeticOp::Divide),
            BinaryOperator::Modulo => arithmetic(ArithmeticOp::Remainder),
            BinaryOperator::Eq => self.compare(CompareOp::Equal, left, right, depth),
            BinaryOperator::NotEq => self.compare(CompareOp::NotEqual, left, right, depth),
            BinaryOperator::Lt => self.compare(CompareOp::Less, left, right, depth),
            BinaryOperator::LtEq => self.compare(CompareOp::LessOrEqual, left, right, depth),
            BinaryOperator::Gt => self.compare(CompareOp::Greater, left, right, depth),
            BinaryOperator::GtEq => self.compare(CompareOp::GreaterOrEqual, left, right, depth),
            other => {
                let parts = vec![self.expr(left, depth), self.expr(right, depth)];
                let error = SqlError::new(format!("operator {other} is not part of the language"));
                Ok(self.mistaken(error.at(parts[0].span()), parts))
            }
        }
    }

    /// The operands of a chain of one operator. The left spine is walked, not recursed into: it may be long.
    fn chain(&self, whole: &ast::Expr, wanted: &BinaryOperator, depth: usize) -> Vec<Expr> {
        let mut items = Vec::new();
        let mut rest = whole;
        loop {
            match rest {
                ast::Expr::BinaryOp { left, op, right } if op == wanted => {
                    items.push(self.expr(right, depth));
                    rest = left;
                }
                first => {
                    items.push(self.expr(first, depth));
                    break;
                }
            }
        }
        items.reverse();
        // `a AND (b AND c)` is the same chain.
        let mut flat = Vec::with_capacity(items.len());
        for item in items {
            match (item.node, wanted) {
                (Node::And(inner), BinaryOperator::And)
                | (Node::Or(inner), BinaryOperator::Or)
                | (Node::Concat(inner), BinaryOperator::StringConcat) => flat.extend(inner),
                (node, _) => flat.push(Expr::new(node, item.span)),
            }
        }
        flat
    }

    fn compare(&self, op: CompareOp, a: &ast::Expr, b: &ast::Expr, depth: usize) -> Result<Expr, SqlError> {
        let (a, b) = (self.boxed(a, depth), self.boxed(b, depth));
        let span = join(a.span(), b.span());
        Ok(Expr::new(Node::Compare(op, a, b), span))
    }

    fn is(&self, inner: &ast::Expr, what: Is, negated: bool, depth: usize) -> Result<Expr, SqlError> {
        let expr = self.boxed(inner, depth);
        let span = expr.span();
        Ok(Expr::new(Node::Is { what, negated, expr }, span))
    }

    fn like(
        &self,
        expr: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::ValueWithSpan>,
        (fold_case, negated): (bool, bool),
        depth: usize,
    ) -> Result<Expr, SqlError> {
        let (expr, pattern) = (self.boxed(expr, depth), self.boxed(pattern, depth));
        let escape = match escape {
            None => None,
            Some(literal) => {
                let one = match &literal.value {
                    Value::SingleQuotedString(text) => {
                        Some(text.chars()).filter(|text| text.clone().count() == 1)
                    }
                    _ => None,
                };
                let Some(one) = one.and_then(|mut text| text.next()) else {
                    let error = SqlError::new("ESCAPE takes one character")
                        .at(self.lines.range(literal.span))
                        .expected("a text of one character, such as '!'");
                    return Ok(self.mistaken(error, vec![*expr, *pattern]));
                };
                Some(one)
            }
        };
        let span = join(expr.span(), pattern.span());
        Ok(Expr::new(Node::Like { expr, pattern, escape, fold_case, negated }, span))
    }

    fn function(&self, function: &ast::Function, depth: usize) -> Result<Expr, SqlError> {
        let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
            let error = SqlError::new(format!("there is no function {}", function.name));
            let span = match function.name.0.first() {
                Some(ObjectNamePart::Identifier(name)) => self.lines.range(name.span),
                _ => 0..0,
            };
            return Ok(self.mistaken(error.at(span), self.arguments(&function.args, depth)));
        };
        let span = self.lines.range(name.span);
        let kind = match Function::parse(&name.value, span.clone()) {
            Ok(kind) => kind,
            Err(error) => return Ok(self.mistaken(error, self.arguments(&function.args, depth))),
        };
        if function.over.is_some() || function.filter.is_some() || !function.within_group.is_empty() {
            return Err(SqlError::new(format!("{} is a function of one record", kind.name()))
                .at(span)
                .hint("OVER, FILTER and WITHIN GROUP belong to queries"));
        }
        let FunctionArguments::List(list) = &function.args else {
            return Err(SqlError::new(format!("{} takes arguments in parentheses", kind.name())).at(span));
        };
        if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) || !list.clauses.is_empty() {
            return Err(SqlError::new(format!("{} takes plain arguments", kind.name())).at(span));
        }
        let mut args = Vec::with_capacity(list.args.len());
        for arg in &list.args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => args.push(self.expr(expr, depth)),
                other => {
                    return Err(SqlError::new(format!("{} takes no argument {other}", kind.name()))
                        .at(span)
                        .expected("expressions, split by commas"));
                }
            }
        }
        Ok(self.call(kind, args, Some(span)))
    }

    /// What can be understood of the arguments of a function that there is not.
    fn arguments(&self, args: &FunctionArguments, depth: usize) -> Vec<Expr> {
        let FunctionArguments::List(list) = args else { return Vec::new() };
        let exprs = list.args.iter().filter_map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(self.expr(expr, depth)),
            _ => None,
        });
        exprs.collect()
    }

    fn call(&self, function: Function, mut args: Vec<Expr>, name: Option<Range<usize>>) -> Expr {
        let span = args.iter().map(Expr::span).chain(name).reduce(join).unwrap_or(0..0);
        let span = self.close(span);
        if function == Function::Remainder && args.len() == 2 {
            let right = args.pop().map(Box::new).expect("two arguments");
            let left = args.pop().map(Box::new).expect("two arguments");
            return Expr::new(Node::Arithmetic(ArithmeticOp::Remainder, left, right), span);
        }
        if function == Function::RegexpLike && args.len() == 2 {
            let pattern = args.pop().map(Box::new).expect("two arguments");
            let expr = args.pop().map(Box::new).expect("two arguments");
            return Expr::new(Node::Match { expr, pattern, fold_case: false, negated: false }, span);
        }
        Expr::new(Node::Call(function, args), span)
    }

    /// Where the first name or literal of an expression that has no meaning is.
    fn leaf(&self, expr: &ast::Expr) -> Range<usize> {
        let mut rest = expr;
        loop {
            rest = match rest {
                ast::Expr::Identifier(name) => return self.lines.range(name.span),
                ast::Expr::CompoundIdentifier(names) => {
                    return names.first().map_or(0..0, |name| self.lines.range(name.span));
                }
                ast::Expr::Value(value) => return self.lines.range(value.span),
                ast::Expr::Function(function) => match function.name.0.first() {
                    Some(ObjectNamePart::Identifier(name)) => return self.lines.range(name.span),
                    _ => return 0..0,
                },
                ast::Expr::BinaryOp { left: inner, .. }
                | ast::Expr::Nested(inner)
                | ast::Expr::UnaryOp { expr: inner, .. }
                | ast::Expr::Cast { expr: inner, .. }
                | ast::Expr::IsNull(inner)
                | ast::Expr::IsNotNull(inner)
                | ast::Expr::IsDistinctFrom(inner, _)
                | ast::Expr::Between { expr: inner, .. }
                | ast::Expr::InList { expr: inner, .. }
                | ast::Expr::InSubquery { expr: inner, .. }
                | ast::Expr::Like { expr: inner, .. }
                | ast::Expr::ILike { expr: inner, .. } => inner,
                ast::Expr::Tuple(items) if !items.is_empty() => &items[0],
                _ => return 0..0,
            };
        }
    }

    /// The span with the closing parenthesis that follows it.
    fn close(&self, span: Range<usize>) -> Range<usize> {
        self.lines.with_closing_paren(span)
    }
}

fn join(a: Range<usize>, b: Range<usize>) -> Range<usize> {
    a.start.min(b.start)..a.end.max(b.end)
}

pub(crate) fn timestamp_error(text: &str) -> SqlError {
    SqlError::new(format!("{text:?} is no timestamp"))
        .expected("such as '2024-02-29', '2024-02-29 13:45:00' or '2024-02-29T13:45:00.25Z'")
}

fn unsupported(expr: &ast::Expr) -> SqlError {
    let (what, hint) = match expr {
        ast::Expr::Subquery(_) | ast::Expr::InSubquery { .. } | ast::Expr::Exists { .. } => {
            ("a subquery", "join or enrich in an operator before")
        }
        ast::Expr::Tuple(_) => ("a list in parentheses", "lists come after IN: x IN (1, 2)"),
        ast::Expr::Wildcard(_) | ast::Expr::QualifiedWildcard(..) => ("*", "name the field"),
        ast::Expr::Interval(_) => ("INTERVAL", "compare EPOCH_MS(a) - EPOCH_MS(b) with a number"),
        _ => ("this syntax", "see the list of operators and functions in the manual"),
    };
    SqlError::new(format!("{what} is not part of the language of expressions")).hint(hint)
}

/// The type that is meant by SQL's and our own names.
fn cast_type(sql: &ast::DataType) -> Result<DataType, SqlError> {
    use ast::DataType as Sql;
    let decimal = |info: &ExactNumberInfo| {
        let (precision, scale) = match info {
            ExactNumberInfo::None => (38, 9),
            ExactNumberInfo::Precision(precision) => (*precision, 0),
            ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
        };
        DataType::parse(&format!("decimal({precision},{scale})")).map_err(|_| {
            SqlError::new(format!("there is no type decimal({precision},{scale})"))
                .expected("a precision of 1 to 76 and a scale of 0 to the precision")
        })
    };
    Ok(match sql {
        Sql::Bool | Sql::Boolean => DataType::Bool,
        Sql::Int(None) | Sql::Integer(None) | Sql::BigInt(None) | Sql::Int8(None) | Sql::Int64 => {
            DataType::Int64
        }
        Sql::UInt64 | Sql::BigIntUnsigned(None) | Sql::UBigInt => DataType::UInt64,
        Sql::Float(ExactNumberInfo::None)
        | Sql::Double(ExactNumberInfo::None)
        | Sql::DoublePrecision
        | Sql::Float8
        | Sql::Float64 => DataType::Float64,
        Sql::Decimal(info) | Sql::Numeric(info) | Sql::Dec(info) => decimal(info)?,
        Sql::Text
        | Sql::String(None)
        | Sql::Varchar(None)
        | Sql::CharacterVarying(None)
        | Sql::CharVarying(None) => DataType::String,
        Sql::Bytes(None) | Sql::Bytea | Sql::Varbinary(None) => DataType::Bytes,
        Sql::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
        | Sql::TimestampNtz(digits) => DataType::Timestamp(match digits {
            Some(0) => TimeUnit::Second,
            Some(3) => TimeUnit::Milli,
            None | Some(6) => TimeUnit::Micro,
            Some(9) => TimeUnit::Nano,
            Some(other) => {
                return Err(SqlError::new(format!("there is no type timestamp({other})")).expected(
                    "timestamp(s), timestamp(ms), timestamp(us), timestamp(ns), or 0, 3, 6, 9 digits",
                ));
            }
        }),
        other => {
            let text = other.to_string();
            let name = text.trim_matches('"').to_ascii_lowercase();
            DataType::parse(&name).map_err(|_| {
                let error = SqlError::new(format!("there is no type {text}")).expected(
                    "bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns) or ip",
                );
                let near = nearest(&name, DataType::NAMES);
                match near {
                    _ if name.starts_with("varchar") || name.starts_with("char") => {
                        error.hint("write string")
                    }
                    _ if name.contains("int") => error.hint("integers are int64 or uint64"),
                    _ if name.contains("real") || name.contains("float") => error.hint("write float64"),
                    Some(near) => error.hint(format!("did you mean {near}?")),
                    None => error,
                }
            })?
        }
    })
}
