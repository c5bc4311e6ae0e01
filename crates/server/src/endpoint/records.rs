//! `POST /v1/jobs/{job}/sources/{source}`: records in, answers out.
//!
//! Every record passes here, so nothing blocks or changes threads: the body goes to the source's door as it came. Only
//! a large one is cut into records on a thread that may block. A reply that is small and all
//! there is one buffer with its length; any other leaves as it comes, in chunks (`answers`).

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use thalweg_connect::{Begun, Replies, Submitted, Unanswered};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::answers::{Answers, UNKNOWN_HINT, overdue, stopped};

use super::param;
use crate::app::{App, PathParams, json_response};
use crate::body::expect_text;
use crate::error::{ApiError, Code};
use crate::params::wants_reply;
use crate::wire::Accepted;

/// The longest reply that is sent as one piece.
const ONE_PIECE: usize = 64 << 10;

/// The longest body that is cut into records where it arrived: the slowest of them takes a millisecond or two.
const CUT_HERE: usize = 64 << 10;

pub(super) async fn post(
    app: &App,
    params: &PathParams,
    parts: &Parts,
    body: &mut Body,
) -> Result<Response, ApiError> {
    let (job, source) = (param(params, "job")?, param(params, "source")?);
    let wants_reply = wants_reply(parts.uri.query())?;
    expect_text(
        &parts.headers,
        "JSON objects, or an array of them (application/json), or one object a line (application/x-ndjson)",
    )?;
    let door = app.control.ingress(job, source)?;
    let held = app.bodies.read(&parts.headers, body, app.options.max_body_bytes).await?;
    let bytes = held.bytes.clone();
    let submitted = if bytes.len() <= CUT_HERE {
        door.submit(bytes, wants_reply)
    } else {
        let cutting = spawn_blocking(move || door.submit(bytes, wants_reply)).await;
        cutting.map_err(|error| ApiError::new(Code::Internal, format!("cut a body into records: {error}")))?
    };
    let Submitted { records, replies } = submitted?;
    // The source's own queue holds the body from here on, within its own bound.
    drop(held);
    let Some(mut replies) = replies else { return accepted(records) };
    let begun = wait_for(app, job, &mut replies).await?;
    if wants_reply { answers(app, job, replies, begun).await } else { accepted(records) }
}

/// Records that turn out to be no good are among them: nobody waits for those.
fn accepted(count: u64) -> Result<Response, ApiError> {
    json_response(StatusCode::ACCEPTED, &Accepted { accepted: count })
}

async fn wait_for(app: &App, job: &str, replies: &mut Replies) -> Result<Begun, ApiError> {
    let limit = app.options.answer_timeout;
    let error = match timeout(limit, replies.begin()).await {
        Ok(Ok(begun)) => return Ok(begun),
        Ok(Err(Unanswered::Overdue(why))) => ApiError::new(Code::Timeout, &*why),
        Ok(Err(Unanswered::Unsent(why))) => {
            return Err(
                ApiError::new(Code::Unavailable, &*why).hint("send the request again: none of it counts")
            );
        }
        Ok(Err(Unanswered::CutOff | Unanswered::Stopped)) => {
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
            Err(Unanswered::Overdue(why)) => {
                return Err(ApiError::new(Code::Timeout, &*why).hint(UNKNOWN_HINT));
            }
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
