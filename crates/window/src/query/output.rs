//! The outputs of a query: aggregates, their arguments, expressions over them, their aliases.

use std::ops::Range;

use sqlparser::tokenizer::Token;
use thalweg_expr::{Expr, Mistakes, Slot, Spanned, SqlError};

use super::aggregate::{self, Called};
use super::clauses::split_at_commas;
use super::draft::{DraftCall, DraftOutput};
use crate::agg::Function;

/// The outputs between SELECT and FROM, which is at `from`.
pub(super) fn list(
    text: &str,
    tokens: &[Spanned],
    from: Range<usize>,
    mistakes: &mut Mistakes,
) -> Vec<DraftOutput> {
    let mut outputs: Vec<DraftOutput> = Vec::new();
    let mut end = from;
    for item in split_at_commas(tokens) {
        let (Some(first), Some(last)) = (item.first(), item.last()) else {
            let error = SqlError::new("an output is missing").at(end.clone());
            mistakes.push(error.expected("an aggregate, such as sum(amount)"));
            continue;
        };
        end = last.span.clone();
        let output = one(text, item, first.span.start..last.span.end, mistakes);
        if let Some(alias) = &output.alias
            && outputs.iter().any(|known| known.alias.as_ref() == Some(alias))
        {
            mistakes.push(
                SqlError::new(format!("two outputs are named {alias:?}"))
                    .at(output.span.clone())
                    .hint("give one of them another name: AS …"),
            );
        }
        outputs.push(output);
    }
    outputs
}

fn one(text: &str, item: &[Spanned], span: Range<usize>, mistakes: &mut Mistakes) -> DraftOutput {
    let mut output = DraftOutput { alias: None, calls: Vec::new(), value: None, span };
    let places = aggregates(item);
    match places.as_slice() {
        [] => alone(text, item, &mut output, mistakes),
        [place] if place.start == 0 && ends_before(&item[place.end..]) => {
            alone(text, item, &mut output, mistakes);
        }
        _ => made_of(text, item, &places, &mut output, mistakes),
    }
    output
}

/// Where aggregates are among the tokens, from the name to the end of the arguments or of FILTER.
fn aggregates(item: &[Spanned]) -> Vec<Range<usize>> {
    let mut places = Vec::new();
    let mut at = 0;
    while let Some([name, open, ..]) = item.get(at..) {
        let is_call =
            open.token == Token::LParen && name.keyword().is_some_and(|name| aggregate::is_name(&name));
        // Looked for where there is an aggregate alone: for each token it would take quadratic time.
        let Some(close) = is_call.then(|| closing(&item[at + 2..])).flatten() else {
            at += 1;
            continue;
        };
        let mut end = at + close + 3;
        if let Some([filter, open, inside @ ..]) = item.get(end..)
            && filter.is_keyword("FILTER")
            && open.token == Token::LParen
            && let Some(close) = closing(inside)
        {
            end += close + 3;
        }
        places.push(at..end);
        at = end;
    }
    places
}

/// Whether an output that begins with an aggregate is nothing else, by the tokens after it: its name, or a mistake in it.
fn ends_before(rest: &[Spanned]) -> bool {
    const OPERATORS: [&str; 8] = ["AND", "BETWEEN", "ILIKE", "IN", "IS", "LIKE", "NOT", "OR"];
    match rest {
        [] => true,
        [first, more @ ..] => match first.token {
            Token::Word(_) => more.is_empty() || !OPERATORS.iter().any(|operator| first.is_keyword(operator)),
            Token::SingleQuotedString(_) | Token::Number(..) => true,
            _ => false,
        },
    }
}

/// One aggregate and its name.
fn alone(text: &str, item: &[Spanned], output: &mut DraftOutput, mistakes: &mut Mistakes) {
    let (name, args, rest) = match split_call(text, item, &output.span) {
        Ok(parts) => parts,
        Err(error) => return mistakes.push(error),
    };
    let end = item[item.len() - rest.len() - 1].span.end;
    let mut call = call(text, name, args, end, mistakes);
    let rest = filter(text, rest, mistakes).map(|(filter, rest)| {
        call.filter = filter;
        rest
    });
    output.alias = match rest.and_then(alias) {
        Ok(None) => call.function.map(|function| default_alias(function, args)),
        Ok(alias) => alias,
        Err(error) => {
            mistakes.push(error);
            None
        }
    };
    output.calls.push(call);
}

/// An expression over aggregates and its name.
fn made_of(
    text: &str,
    item: &[Spanned],
    places: &[Range<usize>],
    output: &mut DraftOutput,
    mistakes: &mut Mistakes,
) {
    let (tokens, rest) = item.split_at(end_of_value(item));
    let mut slots = Vec::new();
    for place in places.iter().filter(|place| place.end <= tokens.len()) {
        let [name, _, inside @ ..] = &tokens[place.clone()] else { continue };
        let Some(close) = closing(inside) else { continue };
        let (args, rest) = (&inside[..close], &inside[close + 1..]);
        let mut call = call(text, name, args, inside[close].span.end, mistakes);
        match filter(text, rest, mistakes) {
            Ok((filter, _)) => call.filter = filter,
            Err(error) => {
                mistakes.push(error);
                call.function = None;
            }
        }
        let span = name.span.start..tokens[place.end - 1].span.end;
        let known = call.function().map(|function| aggregate::call(function, call.arg().as_ref()));
        slots.push(Slot { text: known.unwrap_or_else(|| name.token.to_string()), span });
        output.calls.push(call);
    }
    let end = tokens.last().map_or(output.span.end, |token| token.span.end);
    match Expr::of_aggregates(text, tokens, &slots, end..end, mistakes) {
        // Parentheses around one.
        Ok(value) if value.as_slot().is_some() => {}
        Ok(value) => output.value = Some(value),
        Err(error) => mistakes.push(error),
    }
    match alias(rest) {
        Ok(None) => output.alias = Some(words(tokens).trim_start_matches('_').to_owned()),
        Ok(alias) => output.alias = alias,
        Err(error) => mistakes.push(error),
    }
}

/// Where the name of an expression begins: at AS, or at a word after the end of an expression.
fn end_of_value(item: &[Spanned]) -> usize {
    let mut depth = 0_usize;
    let named = item.iter().rposition(|token| {
        match token.token {
            Token::RParen => depth += 1,
            Token::LParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && token.is_keyword("AS")
    });
    let bare = || match item {
        [.., before, name] if matches!(before.token, Token::RParen | Token::Number(..)) => {
            let is_name = matches!(name.token, Token::Word(_)) && !name.is_keyword("END");
            is_name.then(|| item.len() - 1)
        }
        _ => None,
    };
    named.or_else(bare).unwrap_or(item.len())
}

/// An aggregate of its name and arguments, which `end` at a parenthesis.
fn call(text: &str, name: &Spanned, args: &[Spanned], end: usize, mistakes: &mut Mistakes) -> DraftCall {
    let mut call = DraftCall { function: None, args: Vec::new(), filter: None };
    let whole = text.get(name.span.start..end).unwrap_or_default();
    let function = match Called::parse(&written(name, text), name.span.clone(), whole) {
        Ok(called) => arguments(text, called, args, end.saturating_sub(1)..end, &mut call.args, mistakes),
        Err(error) => {
            call.args = readable(text, args, mistakes);
            Err(error)
        }
    };
    match function {
        Ok(function) => call.function = Some(function),
        Err(error) => mistakes.push(error),
    }
    call
}

/// The arguments of an aggregate that there is not, as far as they are expressions.
fn readable(text: &str, args: &[Spanned], mistakes: &mut Mistakes) -> Vec<Expr> {
    let args = match args {
        [first, rest @ ..] if first.is_keyword("DISTINCT") => rest,
        args => args,
    };
    let parts = split_at_commas(args).into_iter();
    parts.filter_map(|part| Expr::from_tokens(text, part, 0..0, mistakes).ok()).collect()
}

/// Function name, tokens of the arguments, tokens after the closing parenthesis.
fn split_call<'a>(
    text: &str,
    item: &'a [Spanned],
    span: &Range<usize>,
) -> Result<(&'a Spanned, &'a [Spanned], &'a [Spanned]), SqlError> {
    if let [name, open, rest @ ..] = item
        && matches!(name.token, Token::Word(_))
        && open.token == Token::LParen
        && let Some(close) = closing(rest)
    {
        return Ok((name, &rest[..close], &rest[close + 1..]));
    }
    let error = SqlError::new("an output is an aggregate").at(span.clone());
    Err(match item {
        [star] if star.token == Token::Mul => error
            .hint("the record's own fields are in its answer already; select aggregates such as count(*)"),
        [name, ..] if name.is_keyword("CASE") || matches!(name.token, Token::LParen | Token::Number(..)) => {
            error.hint("expressions belong inside an aggregate: sum(amount * 2)")
        }
        _ => {
            let name = text.get(span.clone()).unwrap_or_default();
            let name = name.split_whitespace().next().unwrap_or_default();
            error.hint(format!(
                "the record's own fields are in its answer already; select aggregates such as last({name})"
            ))
        }
    })
}

/// Place of the parenthesis that closes one before the tokens.
fn closing(tokens: &[Spanned]) -> Option<usize> {
    let mut depth = 1_usize;
    tokens.iter().position(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

fn written(token: &Spanned, text: &str) -> String {
    match &token.token {
        Token::Word(word) => word.value.clone(),
        _ => text.get(token.span.clone()).unwrap_or_default().to_owned(),
    }
}

/// What is called; its arguments, as far as they can be read, go to `exprs`.
fn arguments(
    text: &str,
    called: Called,
    args: &[Spanned],
    close: Range<usize>,
    exprs: &mut Vec<Expr>,
    mistakes: &mut Mistakes,
) -> Result<Function, SqlError> {
    let name = match called {
        Called::Count => "count",
        Called::Quantile => "quantile",
        Called::Of(function) => function.name(),
    };
    if let [star] = args
        && star.token == Token::Mul
    {
        return match called {
            Called::Count => Ok(Function::CountAll),
            _ => Err(SqlError::new(format!("{name} takes one expression"))
                .at(star.span.clone())
                .hint("only count takes *")),
        };
    }
    let Some(first) = args.first() else {
        let error = SqlError::new(format!("{name} takes an argument")).at(close);
        return Err(if called == Called::Count { error.hint("count(*) counts records") } else { error });
    };
    let distinct = first.is_keyword("DISTINCT") && args.len() > 1;
    if distinct && !matches!(called, Called::Count | Called::Of(Function::CountDistinct)) {
        *exprs = readable(text, args, mistakes);
        let error =
            SqlError::new(format!("{name}(DISTINCT …) is not part of queries")).at(first.span.clone());
        return Err(error.hint("count(DISTINCT x) is; min and max do not need it"));
    }
    let args = if distinct { &args[1..] } else { args };
    let parts = split_at_commas(args);
    let mut expr = |part: &[Spanned]| {
        let end = part.last().map_or_else(|| close.clone(), |token| token.span.end..token.span.end);
        Expr::from_tokens(text, part, end, mistakes)
    };
    match (called, parts.as_slice()) {
        (Called::Quantile, [value, rank]) => {
            let rank_span =
                rank.first().map_or(close.clone(), |token| token.span.start..rank[rank.len() - 1].span.end);
            let value = expr(value).map(|value| exprs.push(value));
            let number = expr(rank).map(|rank| rank.as_number().filter(|rank| (0.0..=1.0).contains(rank)));
            let rank = match number {
                // −0.0 and 0.0 are one rank.
                Ok(Some(number)) => Ok(Function::Quantile(number + 0.0)),
                Ok(None) => Err(SqlError::new("the rank of a quantile is a constant")
                    .at(rank_span)
                    .expected("a number from 0 to 1, such as 0.99")),
                Err(error) => Err(error),
            };
            match (value, rank) {
                (Err(value), Err(rank)) => {
                    mistakes.push(value);
                    Err(rank)
                }
                (value, rank) => value.and(rank),
            }
        }
        (Called::Quantile, _) => {
            *exprs = readable(text, args, mistakes);
            Err(SqlError::new("quantile takes two arguments").at(close).expected("quantile(amount, 0.99)"))
        }
        (_, [value]) => {
            let function = match called {
                Called::Count if distinct => Function::CountDistinct,
                Called::Count => Function::Count,
                Called::Of(function) => function,
                Called::Quantile => unreachable!("handled above"),
            };
            exprs.push(expr(value)?);
            Ok(function)
        }
        (called, [_, _, ..]) if distinct || called == Called::Of(Function::CountDistinct) => {
            let values: Vec<Result<Expr, SqlError>> = parts.iter().map(|part| expr(part)).collect();
            for value in values {
                exprs.push(value?);
            }
            Ok(Function::CountDistinct)
        }
        (_, [_, second, ..]) => {
            let span = second.first().map_or(close, |token| token.span.clone());
            *exprs = readable(text, args, mistakes);
            let error = SqlError::new(format!("{name} takes one argument")).at(span);
            Err(if called == Called::Count { error.hint("count(DISTINCT a, b) counts pairs") } else { error })
        }
        (_, []) => unreachable!("splitting gives at least one part"),
    }
}

/// `[FILTER (WHERE condition)]`, and the tokens after it.
fn filter<'a>(
    text: &str,
    rest: &'a [Spanned],
    mistakes: &mut Mistakes,
) -> Result<(Option<Expr>, &'a [Spanned]), SqlError> {
    let [first, open, inside @ ..] = rest else { return Ok((None, rest)) };
    if !first.is_keyword("FILTER") || open.token != Token::LParen {
        return Ok((None, rest));
    }
    let close = closing(inside).unwrap_or(inside.len());
    let end = inside.get(close).map_or(open.span.clone(), |token| token.span.clone());
    let Some((keyword, condition)) =
        inside[..close].split_first().filter(|(first, _)| first.is_keyword("WHERE"))
    else {
        let at = inside.first().map_or(end, |token| token.span.clone());
        return Err(SqlError::new("FILTER takes a condition").at(at).expected("FILTER (WHERE amount > 100)"));
    };
    let end = condition.last().map_or(keyword.span.end, |token| token.span.end);
    let condition = Expr::from_tokens(text, condition, end..end, mistakes)?;
    Ok((Some(condition), inside.get(close + 1..).unwrap_or_default()))
}

/// `[AS] name`.
fn alias(rest: &[Spanned]) -> Result<Option<String>, SqlError> {
    let Some((first, more)) = rest.split_first() else { return Ok(None) };
    let (name, more) = if first.is_keyword("AS") {
        let Some((name, more)) = more.split_first() else {
            return Err(SqlError::new("the alias is missing after AS").at(first.span.clone()));
        };
        (name, more)
    } else {
        (first, more)
    };
    let Token::Word(word) = &name.token else {
        let error = SqlError::new("an alias is a name").at(name.span.clone());
        return Err(match &name.token {
            Token::SingleQuotedString(text) => error.hint(format!("write \"{text}\"")),
            _ => error,
        });
    };
    if let Some(extra) = more.first() {
        return Err(SqlError::new("an output ends with its alias")
            .at(extra.span.clone())
            .expected("a comma or FROM"));
    }
    if word.value.is_empty() {
        return Err(SqlError::new("an alias is not empty").at(name.span.clone()));
    }
    Ok(Some(word.value.clone()))
}

/// The function and the words of its argument: `sum_amount`, `count`, `count_distinct_merchant`.
fn default_alias(function: Function, args: &[Spanned]) -> String {
    let first = match function {
        Function::Quantile(_) => split_at_commas(args).first().copied().unwrap_or_default(),
        _ => args,
    };
    function.name().to_owned() + &words(first)
}

/// Names and numbers, each after a `_`.
fn words(tokens: &[Spanned]) -> String {
    const UNNAMED: [&str; 3] = ["DISTINCT", "FILTER", "WHERE"];
    let mut words = String::new();
    for token in tokens {
        match &token.token {
            Token::Word(word) if !UNNAMED.iter().any(|unnamed| token.is_keyword(unnamed)) => {
                words.push('_');
                words.push_str(&word.value);
            }
            Token::Number(number, _) => {
                words.push('_');
                words.push_str(&number.replace('.', "_"));
            }
            _ => {}
        }
    }
    words
}
