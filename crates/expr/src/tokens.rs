//! Tokens of SQL text with their byte ranges: the tokenizer's dialect, early refusals, and limits.
//!
//! Tokens come from `sqlparser`'s tokenizer. Its places are lines and columns in characters; [`tokenize`] turns
//! them into byte ranges once, and [`Tokens`] keeps both.
//!
//! Limits, so that no text can exhaust the stack or the clock: [`MAX_TEXT`] bytes, [`MAX_OPERATORS`] tokens that
//! are neither literals nor commas (each can deepen the tree by one), [`MAX_DEPTH`] levels of nesting, and
//! [`MAX_REGEXPS`] regular expressions.

use std::ops::Range;

use sqlparser::ast;
use sqlparser::dialect::{Dialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer, Word};

use crate::SqlError;
use crate::function::Function;

/// Longest text that is parsed, in bytes.
pub const MAX_TEXT: usize = 256 * 1024;
/// Most tokens in a text that are neither literals nor commas.
pub const MAX_OPERATORS: usize = 2_000;
/// Most regular expressions in a text: each takes up to some 1 MiB where it is compiled.
const MAX_REGEXPS: usize = 16;
/// Most points in a path such as `stream.field.member`.
const MAX_PATH: usize = 8;
/// Deepest nesting of an expression.
pub const MAX_DEPTH: usize = 64;

/// One token and the bytes that it was parsed from.
#[derive(Clone, Debug)]
pub struct Spanned {
    pub token: Token,
    pub span: Range<usize>,
    /// Where the parser says it is, for its messages.
    location: Span,
}

impl Spanned {
    /// The unquoted word in upper case.
    pub fn keyword(&self) -> Option<String> {
        match &self.token {
            Token::Word(Word { value, quote_style: None, .. }) => Some(value.to_ascii_uppercase()),
            _ => None,
        }
    }

    pub fn is_keyword(&self, keyword: &str) -> bool {
        matches!(&self.token, Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case(keyword))
    }
}

/// The dialect: ANSI quoting, no vendor's extensions.
#[derive(Debug)]
pub(crate) struct ThalwegSql;

impl Dialect for ThalwegSql {
    fn is_identifier_start(&self, c: char) -> bool {
        c.is_alphabetic() || c == '_'
    }

    fn is_identifier_part(&self, c: char) -> bool {
        c.is_alphanumeric() || c == '_' || c == '$'
    }

    fn is_delimited_identifier_start(&self, c: char) -> bool {
        c == '"'
    }

    fn supports_comma_separated_trim(&self) -> bool {
        true
    }

    /// `a IS DISTINCT FROM b AND c`: the stock parser would take `b AND c` as the right side.
    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        left: &ast::Expr,
        _precedence: u8,
    ) -> Option<Result<ast::Expr, ParserError>> {
        let negated = match () {
            () if parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) => false,
            () if parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]) => {
                true
            }
            () => return None,
        };
        Some(parser.parse_subexpr(self.prec_value(Precedence::Is)).map(|right| {
            let (left, right) = (Box::new(left.clone()), Box::new(right));
            if negated {
                ast::Expr::IsNotDistinctFrom(left, right)
            } else {
                ast::Expr::IsDistinctFrom(left, right)
            }
        }))
    }

    /// Words that start special syntax are never tried again as names: two tries per level would take
    /// exponential time on nested nonsense.
    fn is_reserved_for_identifier(&self, _: Keyword) -> bool {
        true
    }
}

/// The tokens of `text` without blanks and comments.
///
/// # Errors
/// On text that is too long, that does not tokenize (an open quote), or that holds tokens with no meaning here.
pub fn tokenize(text: &str) -> Result<Vec<Spanned>, SqlError> {
    if text.len() > MAX_TEXT {
        return Err(SqlError::new(format!("the text has {} bytes", text.len()))
            .expected(format!("at most {MAX_TEXT} bytes")));
    }
    let lines = Lines::new(text);
    let tokens = Tokenizer::new(&ThalwegSql, text)
        .tokenize_with_location()
        .map_err(|error| SqlError::new(lower_first(&error.message)).at(lines.rest_at(error.location)))?;
    let (mut operators, mut regexps) = (0, 0);
    let mut kept = Vec::with_capacity(tokens.len());
    for TokenWithSpan { token, span: location } in tokens {
        let span = lines.range(location);
        match &token {
            Token::Whitespace(_) | Token::EOF => continue,
            Token::Comma | Token::SingleQuotedString(_) | Token::Number(..) => {}
            Token::Word(_)
            | Token::Eq
            | Token::Neq
            | Token::Lt
            | Token::Gt
            | Token::LtEq
            | Token::GtEq
            | Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::StringConcat
            | Token::LParen
            | Token::RParen
            | Token::Period
            | Token::DoubleColon
            | Token::SemiColon
            | Token::Tilde
            | Token::TildeAsterisk
            | Token::ExclamationMarkTilde
            | Token::ExclamationMarkTildeAsterisk => operators += 1,
            other => return Err(refuse(other, span)),
        }
        if operators > MAX_OPERATORS {
            return Err(SqlError::new("the text is too complex")
                .expected(format!("at most {MAX_OPERATORS} names and operators"))
                .at(span));
        }
        regexps += usize::from(may_be_regexp(&token));
        if regexps > MAX_REGEXPS {
            return Err(SqlError::new("the text has too many regular expressions")
                .expected(format!("at most {MAX_REGEXPS}"))
                .at(span));
        }
        kept.push(Spanned { token, span, location });
    }
    Ok(kept)
}

/// Whether a regular expression is next to a token: an operator that matches one, or the name of such a function.
fn may_be_regexp(token: &Token) -> bool {
    match token {
        Token::Tilde
        | Token::TildeAsterisk
        | Token::ExclamationMarkTilde
        | Token::ExclamationMarkTildeAsterisk => true,
        Token::Word(Word { value, quote_style: None, .. }) => {
            value.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("regexp_"))
        }
        _ => false,
    }
}

fn refuse(token: &Token, span: Range<usize>) -> SqlError {
    let error = SqlError::new(format!("{token} has no meaning here")).at(span);
    match token {
        Token::DoubleEq => error.hint("equality is written ="),
        Token::Spaceship => error.hint("null-safe equality is written IS NOT DISTINCT FROM"),
        Token::Overlap => error.hint("conjunction is written AND"),
        Token::ExclamationMark => error.hint("negation is written NOT, inequality <> or !="),
        Token::Pipe => error.hint("disjunction is written OR, concatenation ||"),
        Token::Caret => error.hint("powers are written POWER(x, y)"),
        Token::LBracket | Token::RBracket | Token::LBrace | Token::RBrace => {
            error.hint("members of an answer are reached with a point: card_1h.spent")
        }
        Token::Backslash | Token::Char('`') => error.hint("names are quoted with \"…\", strings with '…'"),
        _ => error,
    }
}

/// The tokens, with those in each span as one name; spans ascend.
pub(crate) fn joined(text: &str, tokens: &[Spanned], spans: &[Range<usize>]) -> Vec<Spanned> {
    let mut out: Vec<Spanned> = Vec::with_capacity(tokens.len());
    for token in tokens {
        let next = spans.get(spans.partition_point(|span| span.end <= token.span.start));
        match (next.filter(|span| span.contains(&token.span.start)), out.last_mut()) {
            (None, _) => out.push(token.clone()),
            (Some(span), Some(name)) if name.span == *span => name.location.end = token.location.end,
            (Some(span), _) => {
                let value = text.get(span.clone()).unwrap_or_default().to_owned();
                let word = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
                let location = token.location;
                out.push(Spanned { token: Token::Word(word), span: span.clone(), location });
            }
        }
    }
    out
}

/// What the parser needs: its own tokens, with words that would start syntax we do not have made plain names.
pub(crate) fn for_parser(tokens: &[Spanned]) -> Result<Vec<TokenWithSpan>, SqlError> {
    check_paths(tokens)?;
    let mut out = Vec::with_capacity(tokens.len() + 1);
    let mut index = 0;
    while index < tokens.len() {
        let spanned = &tokens[index];
        let next_is_paren = tokens.get(index + 1).is_some_and(|next| next.token == Token::LParen);
        if spanned.token == Token::SemiColon {
            return Err(SqlError::new("an expression ends before the semicolon").at(spanned.span.clone()));
        }
        if let Some((name, taken)) = timestamp_type(&tokens[index..]) {
            let word = Word { value: name.to_owned(), quote_style: None, keyword: Keyword::NoKeyword };
            out.push(TokenWithSpan { token: Token::Word(word), span: spanned.location });
            index += taken;
            continue;
        }
        let mut token = spanned.token.clone();
        if let Token::Word(word) = &mut token {
            if matches!(word.keyword, Keyword::SELECT | Keyword::WITH) && spanned.is_keyword(&word.value) {
                return Err(SqlError::new("an expression cannot hold a query")
                    .at(spanned.span.clone())
                    .hint("subqueries are not part of the language; join or enrich in an operator before"));
            }
            if word.keyword == Keyword::POSITION && next_is_paren {
                return Err(Function::parse(&word.value, spanned.span.clone())
                    .err()
                    .unwrap_or_else(|| SqlError::new("POSITION is not part of the language")));
            }
            if is_plain(word.keyword, next_is_paren) {
                word.keyword = Keyword::NoKeyword;
            }
        }
        out.push(TokenWithSpan { token, span: spanned.location });
        index += 1;
    }
    Ok(out)
}

/// Points are between names, at most [`MAX_PATH`] of them: the stock parser tries every way to read a longer path.
fn check_paths(tokens: &[Spanned]) -> Result<(), SqlError> {
    let is_word = |token: Option<&Spanned>| token.is_some_and(|token| matches!(token.token, Token::Word(_)));
    let mut points = 0;
    for (index, point) in tokens.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| tokens.get(before));
        if point.token != Token::Period {
            let goes_on = before.is_some_and(|before| before.token == Token::Period);
            points = if goes_on { points } else { 0 };
            continue;
        }
        points += 1;
        if !is_word(before) || !is_word(tokens.get(index + 1)) {
            return Err(SqlError::new("a point is between two names")
                .at(point.span.clone())
                .expected("stream.field or field.member"));
        }
        if points > MAX_PATH {
            return Err(SqlError::new(format!("a path has at most {MAX_PATH} points")).at(point.span.clone()));
        }
        if tokens.get(index + 2).is_some_and(|next| next.token == Token::LParen) {
            let name = &tokens[index + 1];
            return Err(SqlError::new("functions are called by their name alone").at(name.span.clone()));
        }
    }
    Ok(())
}

/// `timestamp ( s | ms | us | ns )`, our own spelling of the type, as one word.
fn timestamp_type(tokens: &[Spanned]) -> Option<(&'static str, usize)> {
    let [word, open, unit, close, ..] = tokens else { return None };
    if !word.is_keyword("timestamp") || open.token != Token::LParen || close.token != Token::RParen {
        return None;
    }
    let name = match unit.keyword()?.as_str() {
        "S" => "timestamp(s)",
        "MS" => "timestamp(ms)",
        "US" => "timestamp(us)",
        "NS" => "timestamp(ns)",
        _ => return None,
    };
    Some((name, 4))
}

/// Whether a keyword of some SQL is a plain name here.
fn is_plain(keyword: Keyword, next_is_paren: bool) -> bool {
    match keyword {
        Keyword::CAST | Keyword::TRY_CAST | Keyword::EXTRACT | Keyword::SUBSTRING | Keyword::TRIM => {
            !next_is_paren
        }
        Keyword::ALL
        | Keyword::ANY
        | Keyword::ARRAY
        | Keyword::AT
        | Keyword::CEIL
        | Keyword::COLLATE
        | Keyword::CONVERT
        | Keyword::CURRENT_CATALOG
        | Keyword::CURRENT_DATE
        | Keyword::CURRENT_TIME
        | Keyword::CURRENT_TIMESTAMP
        | Keyword::CURRENT_USER
        | Keyword::DIV
        | Keyword::EXISTS
        | Keyword::FLOOR
        | Keyword::INTERVAL
        | Keyword::LAMBDA
        | Keyword::LEFT
        | Keyword::LOCALTIME
        | Keyword::LOCALTIMESTAMP
        | Keyword::MAP
        | Keyword::MATCH
        | Keyword::MEMBER
        | Keyword::NOTNULL
        | Keyword::OPERATOR
        | Keyword::OVERLAPS
        | Keyword::OVERLAY
        | Keyword::POSITION
        | Keyword::PRIOR
        | Keyword::REGEXP
        | Keyword::RIGHT
        | Keyword::RLIKE
        | Keyword::SAFE_CAST
        | Keyword::SESSION_USER
        | Keyword::SIMILAR
        | Keyword::SOME
        | Keyword::STRUCT
        | Keyword::SUBSTR
        | Keyword::TRY_CONVERT
        | Keyword::UNNEST
        | Keyword::USER
        | Keyword::XOR => true,
        _ => false,
    }
}

/// First letter in lower case, as our messages start.
pub(crate) fn lower_first(message: &str) -> String {
    let mut chars = message.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// Turns the parser's places (line, column in characters) into bytes.
pub(crate) struct Lines<'a> {
    text: &'a str,
    /// Byte and number of the first character of each line.
    starts: Vec<(usize, usize)>,
    /// Byte of each character, where characters are not bytes: places are looked up once per token, and counting
    /// along a long line each time would take quadratic time.
    characters: Option<Vec<usize>>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut starts = vec![(0, 0)];
        let breaks = text.char_indices().enumerate().filter(|(_, (_, c))| *c == '\n');
        starts.extend(breaks.map(|(number, (at, _))| (at + 1, number + 1)));
        let characters = (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect());
        Self { text, starts, characters }
    }

    pub(crate) fn offset(&self, location: Location) -> usize {
        let count = |number: u64| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        let Some((byte, character)) = self.starts.get(count(location.line)) else { return self.text.len() };
        let column = count(location.column);
        match &self.characters {
            None => byte.saturating_add(column).min(self.text.len()),
            Some(bytes) => bytes.get(character.saturating_add(column)).copied().unwrap_or(self.text.len()),
        }
    }

    pub(crate) fn range(&self, span: Span) -> Range<usize> {
        let start = self.offset(span.start);
        start..self.offset(span.end).max(start)
    }

    /// Where `word` starts if it is right before `at` but for blanks and open parentheses; else `at`.
    pub(crate) fn before(&self, at: usize, word: &str) -> usize {
        let before = self.text[..at].trim_end_matches(|c: char| c == '(' || c.is_whitespace());
        match before.get(before.len().saturating_sub(word.len())..) {
            Some(tail) if tail.eq_ignore_ascii_case(word) => before.len() - word.len(),
            _ => at,
        }
    }

    /// The type in `AS type` or `::type` that follows an expression; the expression if there is no type.
    pub(crate) fn type_after(&self, span: Range<usize>) -> Range<usize> {
        let is_between = |c: char| c == ')' || c.is_whitespace();
        let rest = self.text.get(span.end..).unwrap_or_default().trim_start_matches(is_between);
        let written = match (rest.get(..2), rest.get(2..)) {
            (Some(mark), Some(written)) if mark == "::" || mark.eq_ignore_ascii_case("as") => {
                written.trim_start()
            }
            _ => return span,
        };
        let start = self.text.len() - written.len();
        let end = written.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(written.len());
        start..start + end
    }

    /// The span with a closing parenthesis that follows it, where there is one.
    pub(crate) fn with_closing_paren(&self, span: Range<usize>) -> Range<usize> {
        let rest = self.text.get(span.end..).unwrap_or_default();
        let blanks = rest.len() - rest.trim_start().len();
        if rest[blanks..].starts_with(')') { span.start..span.end + blanks + 1 } else { span }
    }

    /// From a place to the end of its line.
    fn rest_at(&self, location: Location) -> Range<usize> {
        let start = self.offset(location);
        start..self.text[start..].find('\n').map_or(self.text.len(), |at| start + at)
    }
}
