//! The clauses of a query, in order.
//!
//! The text is cut at the keywords that are outside parentheses; the pieces between them are outputs, a
//! condition, names, and a window.

use std::ops::Range;

use sqlparser::tokenizer::Token;
use thalweg_expr::{Expr, Mistakes, Spanned, SqlError, tokenize};

use super::draft::Draft;
use super::{Window, output, span};

/// A place among the tokens of a query.
pub(super) struct Cursor<'a> {
    text: &'a str,
    tokens: &'a [Spanned],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn peek(&self) -> Option<&'a Spanned> {
        self.tokens.get(self.at)
    }

    pub(super) fn next(&mut self) -> Option<&'a Spanned> {
        let token = self.tokens.get(self.at)?;
        self.at += 1;
        Some(token)
    }

    /// Takes the keyword if it is next.
    pub(super) fn take(&mut self, keyword: &str) -> bool {
        let is_next = self.peek().is_some_and(|token| token.is_keyword(keyword));
        self.at += usize::from(is_next);
        is_next
    }

    /// Where the text ends.
    pub(super) fn end(&self) -> Range<usize> {
        let end = self.tokens.last().map_or(0, |token| token.span.end);
        end..end
    }

    /// Where the next token is.
    pub(super) fn here(&self) -> Range<usize> {
        self.peek().map_or_else(|| self.end(), |token| token.span.clone())
    }

    /// Where the token before is.
    pub(super) fn last(&self) -> Range<usize> {
        self.at.checked_sub(1).map_or(0..0, |at| self.tokens[at].span.clone())
    }

    pub(super) fn text_of(&self, span: &Range<usize>) -> &'a str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// The tokens up to the first one outside parentheses at which `stop` holds; the stop itself stays.
    fn until(&mut self, stop: impl Fn(&[Spanned]) -> bool) -> Result<&'a [Spanned], SqlError> {
        let start = self.at;
        let mut open: Vec<usize> = Vec::new();
        while let Some(token) = self.peek() {
            match token.token {
                Token::LParen => open.push(self.at),
                Token::RParen if open.pop().is_none() => {
                    return Err(SqlError::new("this parenthesis closes nothing").at(token.span.clone()));
                }
                _ if open.is_empty() && stop(&self.tokens[self.at..]) => break,
                _ => {}
            }
            self.at += 1;
        }
        match open.last() {
            Some(at) => {
                Err(SqlError::new("this parenthesis is never closed").at(self.tokens[*at].span.clone()))
            }
            None => Ok(&self.tokens[start..self.at]),
        }
    }
}

/// Splits at commas outside parentheses.
pub(super) fn split_at_commas(tokens: &[Spanned]) -> Vec<&[Spanned]> {
    let mut depth = 0_usize;
    tokens
        .split(|token| {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && token.token == Token::Comma
        })
        .collect()
}

/// Reads the clauses into `draft`, with the mistakes in them.
///
/// # Errors
/// On a mistake after which nothing more can be said about the text.
pub(super) fn read(text: &str, draft: &mut Draft) -> Result<(), SqlError> {
    let mut tokens = tokenize(text)?;
    if tokens.last().is_some_and(|token| token.token == Token::SemiColon) {
        tokens.pop();
    }
    let mut cursor = Cursor { text, tokens: &tokens, at: 0 };
    if !cursor.take("SELECT") {
        return Err(SqlError::new("a query starts with SELECT").at(cursor.here()).hint(
            "SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR",
        ));
    }
    if let Some(token) = cursor.peek().filter(|token| token.is_keyword("DISTINCT")) {
        draft.mistakes.push(
            SqlError::new("SELECT DISTINCT is not part of queries")
                .at(token.span.clone())
                .hint("every record has one answer; count(DISTINCT x) counts different values"),
        );
        cursor.next();
    }

    let outputs = outputs(&mut cursor)?;
    if cursor.take("FROM") {
        draft.outputs = output::list(text, outputs, cursor.last(), &mut draft.mistakes);
        match stream(&mut cursor) {
            Ok(stream) => draft.stream = Some(stream),
            Err(error) => {
                draft.mistakes.push(error);
                cursor.until(|rest| is_clause(rest).is_some_and(|clause| clause != "FROM"))?;
            }
        }
    } else {
        let error = SqlError::new("FROM is missing after the outputs").at(cursor.here());
        draft.mistakes.push(error.expected("FROM and a stream"));
        // Where the outputs end is a guess, so only what it does not make wrong is looked at.
        let mut guessed = Mistakes::new();
        let outputs = output::list(text, outputs, cursor.last(), &mut guessed);
        if guessed.is_empty() {
            draft.outputs = outputs;
        }
        if cursor.peek().is_none() {
            return Ok(());
        }
    }

    let mut has_over = true;
    if cursor.take("WHERE") {
        has_over &= filter(&mut cursor, draft)?;
    }
    if cursor.take("GROUP") {
        if !cursor.take("BY") {
            let error = SqlError::new("GROUP takes BY").at(cursor.here());
            draft.mistakes.push(error.expected("GROUP BY and fields"));
        }
        has_over &= group_by(&mut cursor, draft)?;
    }
    if !cursor.take("OVER") {
        if has_over {
            let is_late_filter = cursor.peek().is_some_and(|token| token.is_keyword("WHERE"));
            draft.mistakes.push(no_over(&cursor));
            if is_late_filter && cursor.take("WHERE") && draft.filter.is_none() {
                filter(&mut cursor, draft)?;
            }
        }
        cursor.until(|rest| rest[0].is_keyword("OVER"))?;
        if !cursor.take("OVER") {
            return Ok(());
        }
    }
    over(&mut cursor, draft);
    Ok(())
}

/// The tokens of the outputs; the FROM of IS [NOT] DISTINCT FROM does not end them.
fn outputs<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [Spanned], SqlError> {
    let start = cursor.at;
    loop {
        cursor.until(|rest| is_clause(rest).is_some())?;
        let outputs = &cursor.tokens[start..cursor.at];
        match outputs {
            [.., is, distinct]
                if distinct.is_keyword("DISTINCT") && (is.is_keyword("IS") || is.is_keyword("NOT")) =>
            {
                cursor.next();
            }
            _ => return Ok(outputs),
        }
    }
}

/// The condition after WHERE. Whether OVER may be after it: false if its absence has been reported.
fn filter(cursor: &mut Cursor<'_>, draft: &mut Draft) -> Result<bool, SqlError> {
    let start = cursor.last();
    let condition = cursor.until(|rest| is_clause(rest).is_some_and(|clause| clause != "FROM"))?;
    let end = condition.last().map_or(start, |token| token.span.end..token.span.end);
    match Expr::from_tokens(cursor.text, condition, end, &mut draft.mistakes) {
        Ok(filter) => draft.filter = Some(filter),
        Err(error) => {
            let window = first_of_window(&error, condition);
            draft.mistakes.push(window.map_or(error, window_without_over));
            return Ok(window.is_none());
        }
    }
    Ok(true)
}

/// The fields and expressions after GROUP BY; returns the same as [`filter`].
fn group_by(cursor: &mut Cursor<'_>, draft: &mut Draft) -> Result<bool, SqlError> {
    let start = cursor.last();
    let keys = cursor.until(|rest| is_clause(rest).is_some())?;
    let stream = draft.stream.as_ref().map(|(stream, _)| stream.as_str());
    let mut has_over = true;
    for item in split_at_commas(keys) {
        match group_key(cursor.text, stream, item, &start, &mut draft.mistakes) {
            Ok(Some(key)) => {
                if draft.group_by.contains(&key) {
                    let text = cursor.text_of(&key.span());
                    draft.mistakes.push(SqlError::new(format!("{text} is grouped by twice")).at(key.span()));
                } else {
                    draft.group_by.push(key);
                }
            }
            Ok(None) => {}
            Err(error) => {
                let window = first_of_window(&error, item);
                has_over &= window.is_none();
                draft.mistakes.push(window.map_or(error, window_without_over));
            }
        }
    }
    Ok(has_over)
}

/// The window after OVER, its delay, and the end of the text.
fn over(cursor: &mut Cursor<'_>, draft: &mut Draft) {
    let mut is_fine = true;
    match span::window(cursor) {
        Ok(window) => draft.window = Some(window),
        Err(error) => {
            draft.mistakes.push(error);
            is_fine = false;
            while cursor.peek().is_some_and(|token| !token.is_keyword("DELAYED")) {
                cursor.next();
            }
        }
    }
    if cursor.take("DELAYED") {
        if !cursor.take("BY") {
            let error = SqlError::new("DELAYED takes BY").at(cursor.here());
            draft.mistakes.push(error.expected("DELAYED BY 1 MINUTE"));
        }
        match span::span(cursor, "DELAYED BY") {
            Ok(delay) => draft.delay = delay,
            Err(error) => {
                draft.mistakes.push(error);
                return;
            }
        }
    }
    let width = match draft.window {
        Some(Window::Sliding(width) | Window::Tumbling(width)) => width,
        Some(Window::Infinite | Window::Rows(_)) | None => 0,
    };
    if width.checked_add(draft.delay).is_none() {
        let error = SqlError::new("window and delay together exceed 292,000 years").at(cursor.last());
        draft.mistakes.push(error);
    }
    if let Some(token) = cursor.peek().filter(|_| is_fine) {
        draft.mistakes.push(trailing(cursor, token));
    }
}

/// The keyword that starts a clause here, ours or another SQL's.
fn is_clause(rest: &[Spanned]) -> Option<&'static str> {
    let next_is = |keyword: &str| rest.get(1).is_some_and(|next| next.is_keyword(keyword));
    let keyword = rest.first()?.keyword()?;
    Some(match keyword.as_str() {
        "FROM" => "FROM",
        "WHERE" => "WHERE",
        "OVER" => "OVER",
        "GROUP" if next_is("BY") => "GROUP",
        "ORDER" if next_is("BY") => "ORDER",
        "HAVING" => "HAVING",
        "LIMIT" if rest.get(1).is_some_and(|next| matches!(next.token, Token::Number(..))) => "LIMIT",
        "UNION" => "UNION",
        _ => return None,
    })
}

fn stream(cursor: &mut Cursor<'_>) -> Result<(String, Range<usize>), SqlError> {
    let Some(token) = cursor.next() else {
        return Err(SqlError::new("the stream is missing").at(cursor.end()).expected("FROM and a stream"));
    };
    if is_clause(&cursor.tokens[cursor.at - 1..]).is_some() {
        cursor.at -= 1;
        return Err(SqlError::new("the stream is missing")
            .at(token.span.clone())
            .expected("FROM and a stream"));
    }
    let name = match &token.token {
        Token::Word(word) => (word.value.clone(), token.span.clone()),
        Token::LParen => {
            cursor.at -= 1;
            return Err(SqlError::new("a query reads a stream, not another query")
                .at(token.span.clone())
                .hint("chain operators: the output of one is the input of the next"));
        }
        Token::SingleQuotedString(name) => {
            return Err(SqlError::new("a stream is named without single quotes")
                .at(token.span.clone())
                .hint(format!("write {name} or \"{name}\"")));
        }
        other => return Err(SqlError::new(format!("{other} is no stream")).at(token.span.clone())),
    };
    let Some(next) = cursor.peek() else { return Ok(name) };
    let error = |message: &str| Err(SqlError::new(message).at(next.span.clone()));
    match next.keyword().as_deref() {
        Some("JOIN" | "INNER" | "LEFT" | "RIGHT" | "FULL" | "CROSS" | "NATURAL" | "OUTER") => {
            Err(SqlError::new("a query reads one stream")
                .at(next.span.clone())
                .hint("join in an operator before"))
        }
        Some("AS") => error("a stream has no alias here"),
        Some(_) if is_clause(&cursor.tokens[cursor.at..]).is_some() => Ok(name),
        Some(
            "GROUP" | "ORDER" | "LIMIT" | "DELAYED" | "WINDOW" | "SLIDING" | "TUMBLING" | "INFINITE" | "ROWS",
        ) => Ok(name),
        _ => match &next.token {
            Token::Comma => Err(SqlError::new("a query reads one stream")
                .at(next.span.clone())
                .hint("give the operator several inputs: input: [a, b]")),
            Token::Period => error("a stream has one name, without a point"),
            Token::Word(_) => error("a stream has no alias here"),
            _ => Ok(name),
        },
    }
}

/// A field or an expression after GROUP BY; a field has no stream's name in front. `None` if its mistakes have been
/// reported.
fn group_key(
    text: &str,
    stream: Option<&str>,
    item: &[Spanned],
    after: &Range<usize>,
    mistakes: &mut Mistakes,
) -> Result<Option<Expr>, SqlError> {
    let (Some(first), Some(last)) = (item.first(), item.last()) else {
        return Err(SqlError::new("a field is missing in GROUP BY").at(after.clone()));
    };
    let span = first.span.start..last.span.end;
    let mut inside = Mistakes::new();
    let expr = Expr::from_tokens(text, item, span.end..span.end, &mut inside)?;
    if let Err(errors) = inside.finish() {
        mistakes.extend(errors);
        return Ok(None);
    }
    Ok(Some(match expr.as_field() {
        Some([first, rest @ ..]) if Some(first.as_str()) == stream && !rest.is_empty() => {
            Expr::path(rest.to_vec(), span)
        }
        _ => expr,
    }))
}

/// The first word of a window, where the error is about it: OVER is missing then.
fn first_of_window<'a>(error: &SqlError, tokens: &'a [Spanned]) -> Option<&'a Spanned> {
    let at = error.span.as_ref().map(|span| span.start);
    let token = tokens.iter().skip(1).find(|token| Some(token.span.start) == at)?;
    WINDOWS.iter().any(|window| token.is_keyword(window)).then_some(token)
}

const WINDOWS: [&str; 4] = ["SLIDING", "TUMBLING", "INFINITE", "ROWS"];

fn window_without_over(token: &Spanned) -> SqlError {
    SqlError::new("OVER is missing before the window")
        .at(token.span.clone())
        .hint("write OVER SLIDING 1 HOUR")
}

fn no_over(cursor: &Cursor<'_>) -> SqlError {
    let Some(token) = cursor.peek() else {
        return SqlError::new("the window is missing").at(cursor.end()).hint("add OVER SLIDING 1 HOUR");
    };
    match token.keyword().as_deref() {
        Some("WHERE") => SqlError::new("WHERE comes before GROUP BY, once").at(token.span.clone()),
        Some("SLIDING" | "TUMBLING" | "INFINITE" | "ROWS" | "DELAYED") => window_without_over(token),
        _ => {
            let error = trailing(cursor, token);
            if error.hint.is_some() { error } else { error.hint("the window is next: OVER SLIDING 1 HOUR") }
        }
    }
}

/// Something follows where the query could have ended, or where another clause had to come.
fn trailing(cursor: &Cursor<'_>, token: &Spanned) -> SqlError {
    let error = |message: String| SqlError::new(message).at(token.span.clone());
    let keyword = token.keyword().unwrap_or_default();
    match keyword.as_str() {
        "HAVING" => error("HAVING is not part of queries".to_owned())
            .hint("every record has its answer; filter answers in an operator after"),
        "ORDER" => error("ORDER BY is not part of queries".to_owned())
            .hint("answers leave in the order of their records"),
        "LIMIT" => error("LIMIT is not part of queries".to_owned()).hint("a stream has no end to count to"),
        "UNION" | "INTERSECT" | "EXCEPT" => error(format!("{keyword} is not part of queries"))
            .hint("give the operator several inputs: input: [a, b]"),
        "WHERE" => error("WHERE comes after FROM and before GROUP BY".to_owned()),
        "GROUP" => error("GROUP BY comes before OVER".to_owned()),
        "FROM" => error("FROM comes after the outputs, once".to_owned()),
        "OVER" => error("a query has one window".to_owned()),
        "DELAYED" => error("DELAYED BY comes after the window, once".to_owned()),
        _ => error(format!("the query ends before {}", cursor.text_of(&token.span))),
    }
}
