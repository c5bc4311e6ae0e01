//! `POST /v1/sql`: one statement over the tables of all jobs, its rows as they come.
//!
//! Errors before the first row are replies like all others. Later ones cut the connection: by then the status is said, and
//! an answer that just ended would look whole.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use serde::Deserialize;
use thalweg_sql::{Arrow, Exceeded, Format};
use thalweg_types::{Class, Error};

use super::queries::{object_of, parsed};
use crate::app::App;
use crate::body::{expect_text, media_type};
use crate::elsewhere;
use crate::error::{ApiError, Code};
use crate::params;

pub(super) async fn post(app: &App, parts: &Parts, body: &mut Body) -> Result<Response, ApiError> {
    let tables = app.options.sql.as_ref().ok_or_else(|| {
        ApiError::new(Code::NotFound, "this node answers no SQL")
            .hint("start it with tables: a job with a sink of type `table`")
    })?;
    let format = params::rows(parts.uri.query())?.format(|| accepted(&parts.headers))?;
    expect_text(&parts.headers, "the statement as text/plain, or {\"sql\": \"SELECT …\"}")?;
    let held = app.bodies.read(&parts.headers, body, app.options.max_text_bytes).await?;
    let text = super::jobs::text_of(&held.bytes, "statement")?;
    let sql = match object_of(&media_type(&parts.headers), text) {
        Some(object) => {
            parsed::<SqlBody>(object, "send {\"sql\": \"SELECT …\"}, or the statement itself as text/plain")?
                .sql
        }
        None => text.to_owned(),
    };
    drop(held);

    let answer = match elsewhere::part_of(&parts.headers)? {
        None => tables.ask(&sql, format).await,
        Some((plan, partitions)) => {
            let shares = app.options.shares.as_ref();
            let cluster = app.control.cluster();
            let (Some(shares), Some(cluster)) = (shares, cluster) else {
                return Err(ApiError::new(Code::NotFound, "this node is in no cluster")
                    .hint("nodes of a cluster ask each other so: clients ask without these headers"));
            };
            shares.ask_over(Some(cluster.tables_of(plan, &partitions)?), &sql, format).await
        }
    };
    let chunks = answer.map_err(failed)?;
    let mut response = Response::new(Body::from_stream(chunks));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    Ok(response)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SqlBody {
    sql: String,
}

fn failed(error: Error) -> ApiError {
    let code = match Exceeded::of(&error) {
        Some(Exceeded::Waiting { .. } | Exceeded::Place { .. }) => Code::TooManyQueries,
        Some(Exceeded::Time { .. }) => Code::QueryTimeout,
        _ if error.class() == Class::User => Code::InvalidQuery,
        _ => return error.into(),
    };
    let out = ApiError::new(code, error.chain());
    match error.hint() {
        Some(hint) => out.hint(hint),
        None => out,
    }
}

/// The format that a client likes best; JSON where it takes anything, or nothing that there is.
fn accepted(headers: &HeaderMap) -> Format {
    let all = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut best: Option<(f32, Format)> = None;
    for range in all.flat_map(|value| value.split(',')) {
        let mut pieces = range.split(';').map(str::trim);
        let Some(format) = pieces.next().and_then(|kind| named(&kind.to_ascii_lowercase())) else { continue };
        let weight = pieces.find_map(|piece| piece.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        // Of several that are liked alike, the first.
        if weight > 0.0 && best.is_none_or(|(other, _)| weight > other) {
            best = Some((weight, format));
        }
    }
    best.map_or(Format::Json, |(_, format)| format)
}

fn named(kind: &str) -> Option<Format> {
    Some(match kind {
        "application/json" | "application/*" | "*/*" => Format::Json,
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Format::Ndjson,
        "text/csv" => Format::Csv,
        "text/plain" | "text/*" => Format::Table,
        "application/vnd.apache.arrow.stream" => Format::Arrow(Arrow::default()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_what_is_liked_best() {
        for (accept, format) in [
            ("", Format::Json),
            ("*/*", Format::Json),
            ("text/csv", Format::Csv),
            ("Text/CSV; header=present", Format::Csv),
            ("text/html, text/plain;q=0.5, application/x-ndjson;q=0.8", Format::Ndjson),
            ("text/csv;q=0, text/plain;q=0.1", Format::Table),
            ("application/vnd.apache.arrow.stream, */*", Format::Arrow(Arrow::default())),
            ("image/png", Format::Json),
            ("text/csv;q=much", Format::Csv),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
            assert_eq!(accepted(&headers), format, "{accept}");
        }
        assert_eq!(accepted(&HeaderMap::new()), Format::Json);
    }
}
