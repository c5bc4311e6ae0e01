//! Spans of time (`1 HOUR`, `1h`, `'1h'`) and the window after OVER.

use sqlparser::tokenizer::Token;
use thalweg_expr::SqlError;
use thalweg_types::{Micros, parse_duration};

use super::Window;
use super::clauses::Cursor;

/// The window after OVER.
pub(super) fn window(cursor: &mut Cursor<'_>) -> Result<Window, SqlError> {
    const WINDOWS: &str = "SLIDING 1 HOUR, TUMBLING 5 MINUTES, INFINITE or ROWS 100";
    let Some(token) = cursor.next() else {
        return Err(SqlError::new("the window is missing").at(cursor.end()).expected(WINDOWS));
    };
    let error = |message: String| SqlError::new(message).at(token.span.clone()).expected(WINDOWS);
    let Some(keyword) = token.keyword() else {
        let error = error(format!("a window cannot start with {}", token.token));
        return Err(match token.token {
            Token::LParen => error.hint("the window is written without parentheses"),
            Token::Number(..) => error.hint("say which kind: SLIDING 1 HOUR"),
            _ => error,
        });
    };
    match keyword.as_str() {
        "SLIDING" => positive(cursor, "SLIDING").map(Window::Sliding),
        "TUMBLING" => positive(cursor, "TUMBLING").map(Window::Tumbling),
        "INFINITE" => Ok(Window::Infinite),
        "ROWS" => rows(cursor),
        "HOPPING" | "HOP" => Err(error(format!("there is no {keyword} window"))
            .hint("a SLIDING window is exact at every record, with no hop; write SLIDING 1 HOUR")),
        "TUMBLE" => Err(error("there is no TUMBLE window".to_owned()).hint("write TUMBLING 5 MINUTES")),
        "SLIDE" => Err(error("there is no SLIDE window".to_owned()).hint("write SLIDING 1 HOUR")),
        "SESSION" => {
            Err(error("there is no SESSION window".to_owned()).hint("end groups after a pause with an element's ttl"))
        }
        "RANGE" | "GROUPS" => Err(error(format!("there is no {keyword} window"))
            .hint("RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW is close to SLIDING 1 HOUR, whose lower end is open")),
        "PARTITION" | "ORDER" => Err(error(format!("a window has no {keyword} BY"))
            .hint("groups are named by GROUP BY before OVER; records are in order of event time")),
        "UNBOUNDED" => Err(error("there is no UNBOUNDED window".to_owned()).hint("write INFINITE")),
        "LAST" => Err(error("there is no LAST window".to_owned()).hint("write ROWS 100 or SLIDING 1 HOUR")),
        _ => Err(error(format!("there is no {} window", cursor.text_of(&token.span)))),
    }
}

fn rows(cursor: &mut Cursor<'_>) -> Result<Window, SqlError> {
    let Some(token) = cursor.next() else {
        return Err(SqlError::new("the number of records is missing").at(cursor.end()).expected("ROWS 100"));
    };
    let error = SqlError::new("ROWS takes a number of records").at(token.span.clone()).expected("1 or more");
    match &token.token {
        Token::Number(text, _) => match text.parse::<u64>() {
            Ok(count) if count > 0 => Ok(Window::Rows(count)),
            _ => Err(error),
        },
        Token::Word(_) if token.is_keyword("BETWEEN") => {
            Err(error.hint("ROWS 100 is the last 100 records with this one, which is 99 PRECEDING"))
        }
        _ => Err(error),
    }
}

fn positive(cursor: &mut Cursor<'_>, keyword: &str) -> Result<Micros, SqlError> {
    let start = cursor.here();
    let width = span(cursor, keyword)?;
    if width == 0 {
        return Err(SqlError::new(format!("a {keyword} window of no width holds nothing"))
            .at(start.start..cursor.last().end)
            .expected("a span above 0"));
    }
    Ok(width)
}

/// A span of time, not negative.
pub(super) fn span(cursor: &mut Cursor<'_>, after: &str) -> Result<Micros, SqlError> {
    const SPANS: &str = "a number and a unit, such as 1 HOUR, 90 SECONDS or 1h";
    let Some(first) = cursor.next() else {
        return Err(SqlError::new(format!("the span after {after} is missing"))
            .at(cursor.end())
            .expected(SPANS));
    };
    let error = |message: String| SqlError::new(message).at(first.span.clone()).expected(SPANS);
    match &first.token {
        Token::SingleQuotedString(text) => {
            let micros = parse_duration(text).or_else(|_| spelled_out(text).ok_or(()));
            micros.map_err(|()| error(format!("{text:?} is no span of time")))
        }
        Token::Number(number, _) => {
            let Some(unit) = cursor.peek().filter(|token| matches!(token.token, Token::Word(_))) else {
                return Err(error(format!("the span {number} has no unit")));
            };
            let unit = unit.clone();
            cursor.next();
            let whole = first.span.start..unit.span.end;
            let name = cursor.text_of(&unit.span);
            let short = unit_of(name).ok_or_else(|| unit_error(name).at(unit.span.clone()))?;
            parse_duration(&format!("{number}{short}")).map_err(|_| {
                SqlError::new(format!("{number} {name} is no whole number of microseconds in 292,000 years"))
                    .at(whole)
            })
        }
        Token::Minus => Err(error("a span cannot be negative".to_owned())),
        Token::Word(_) if first.is_keyword("INTERVAL") => {
            Err(error("INTERVAL is not needed".to_owned()).hint(format!("write {after} 1 HOUR")))
        }
        other => Err(error(format!("{other} is no span of time"))),
    }
}

/// `1 hour` inside quotes.
fn spelled_out(text: &str) -> Option<Micros> {
    let (number, unit) = text.trim().split_once(char::is_whitespace)?;
    parse_duration(&format!("{number}{}", unit_of(unit.trim())?)).ok()
}

/// The short form of a unit.
fn unit_of(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_uppercase().as_str() {
        "US" | "MICROSECOND" | "MICROSECONDS" => "us",
        "MS" | "MILLISECOND" | "MILLISECONDS" => "ms",
        "S" | "SEC" | "SECS" | "SECOND" | "SECONDS" => "s",
        "M" | "MIN" | "MINS" | "MINUTE" | "MINUTES" => "m",
        "H" | "HR" | "HRS" | "HOUR" | "HOURS" => "h",
        "D" | "DAY" | "DAYS" => "d",
        "W" | "WEEK" | "WEEKS" => "w",
        _ => return None,
    })
}

fn unit_error(name: &str) -> SqlError {
    let error = SqlError::new(format!("{name} is no unit of time"))
        .expected("MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS or WEEKS");
    match name.to_ascii_uppercase().as_str() {
        "MONTH" | "MONTHS" => error.hint("months differ in length; write 30 DAYS"),
        "YEAR" | "YEARS" | "Y" => error.hint("years differ in length; write 365 DAYS"),
        "QUARTER" | "QUARTERS" => error.hint("quarters differ in length; write 91 DAYS"),
        "NANOSECOND" | "NANOSECONDS" | "NS" => error.hint("event time counts in microseconds"),
        upper => {
            let units = ["MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS", "WEEKS"];
            match thalweg_expr::nearest(upper, units) {
                Some(near) => error.hint(format!("did you mean {near}?")),
                None => error,
            }
        }
    }
}
