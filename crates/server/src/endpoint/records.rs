//! `POST /v1/jobs/{job}/sources/{source}`: records in, answers out.
//!
//! The way of every record, so nothing on it blocks or changes threads: the body goes to the source's door as it came. A
//! reply that is small and all there is one buffer with its length; any other leaves as it comes, in chunks (`answers`).

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::json;
use thalweg_connect::{Begun, Replies};
use tokio::time::timeout;

use super::answers::{Answers, UNKNOWN_HINT, overdue, stopped};

use super::param;
use crate::app::{App, PathParams, json_response};
use crate::body::expect_text;
use crate::error::{ApiError, Code};
use crate::params::wants_reply;

/// The longest reply that is sent as one piece.
const ONE_PIECE: usize = 64 << 10;

pub(super) async fn post(
    app: &App,
    params: &PathParams,
    parts: &Parts,
    body: &mut Body,
) -> Result<Response, ApiError> {
    let (job, source) = (param(params, "job")?, param(params, "source")?);
    let wants_reply = wants_reply(parts.uri.query())?;
    expect_text(&parts.headers, "one JSON object (application/json) or one a line (application/x-ndjson)")?;
    let door = app.control.ingress(job, source)?;
    let held = app.bodies.read(&parts.headers, body, app.options.max_body_bytes).await?;
    let count = if wants_reply { 0 } else { count_records(&held.bytes) };
    let replies = door.submit(held.bytes.clone(), wants_reply)?;
    // The source's own queue holds the body from here on, within its own bound.
    drop(held);
    let Some(mut replies) = replies else { return accepted(count) };
    let begun = wait_for(app, job, &mut replies).await?;
    if wants_reply { answers(app, job, replies, begun).await } else { accepted(count) }
}

fn accepted(count: usize) -> Result<Response, ApiError> {
    json_response(StatusCode::ACCEPTED, &json!({ "accepted": count }))
}

async fn wait_for(app: &App, job: &str, replies: &mut Replies) -> Result<Begun, ApiError> {
    let limit = app.options.answer_timeout;
    let error = match timeout(limit, replies.begin()).await {
        Ok(Ok(begun)) => return Ok(begun),
        Ok(Err(_)) => {
            // A job says why it has failed before it lets go of its requests.
            let failure = app.control.job(job).ok().and_then(|job| job.failure);
            let why = failure.map(|failure| format!(" ({})", failure.message)).unwrap_or_default();
            ApiError::new(Code::JobStopped, stopped(&why))
        }
        Err(_) => ApiError::new(Code::Timeout, overdue(limit)),
    };
    Err(error.hint(UNKNOWN_HINT))
}

async fn answers(app: &App, job: &str, mut replies: Replies, begun: Begun) -> Result<Response, ApiError> {
    let body = match begun.whole {
        Some(length) if length <= ONE_PIECE => match replies.all().await {
            Ok(text) => Body::from(text),
            Err(_) => return Err(ApiError::new(Code::JobStopped, stopped("")).hint(UNKNOWN_HINT)),
        },
        _ => Body::new(Answers::new(replies, app.options.answer_timeout, job)),
    };
    let mut response = Response::new(body);
    if !begun.is_any_accepted {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// How many records a body holds: its objects where it is nothing but JSON objects, else its lines that are not blank.
/// Nothing is parsed, so records that will be rejected count too.
fn count_records(body: &[u8]) -> usize {
    let lines = || body.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
    count_objects(body).unwrap_or_else(lines)
}

/// `None` where something stands between objects, or one does not end.
fn count_objects(body: &[u8]) -> Option<usize> {
    let (mut count, mut depth, mut is_string, mut is_escaped) = (0, 0_u64, false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' if depth > 0 => is_string = !is_string,
            _ if is_string => {}
            b'{' => {
                count += usize::from(depth == 0);
                depth += 1;
            }
            b'}' => depth = depth.checked_sub(1)?,
            byte if depth == 0 && !byte.is_ascii_whitespace() => return None,
            _ => {}
        }
    }
    (depth == 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_without_parsing() {
        for (body, count) in [
            ("", 0),
            (" \n\r\n", 0),
            ("{\"a\":1}", 1),
            ("{\"a\":1}\n{\"a\":2}\r\n\n{\"a\":3}\n", 3),
            ("{\n  \"a\": 1\n}\n", 1),
            ("{\"a\": {}\n}", 1),
            ("{\"a\":\"}{\\\"{\"}\n{}", 2),
            ("{}{} {\n}", 3),
            ("nonsense\n{}", 2),
            ("{\"a\":1\n{\"a\":2}\n", 2),
            ("c1,2\nc2,3\n", 2),
        ] {
            assert_eq!(count_records(body.as_bytes()), count, "{body}");
        }
    }
}
