//! Endpoints for monitors and tools.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use serde_json::json;

use crate::app::{App, Effect, json_response};
use crate::control::{Control, FailedJob, Readiness};
use crate::error::{ApiError, Code};
use crate::metrics;
use crate::openapi;
use crate::wire::Status;

/// The process serves requests.
pub(super) fn health() -> Result<Response, ApiError> {
    json_response(StatusCode::OK, &Status { status: "ok" })
}

/// The node takes records, and so does each of its jobs.
pub(super) fn ready(app: &App) -> Result<Response, ApiError> {
    match app.readiness() {
        Readiness::Ready => {
            let failed = app.control.failed();
            if !failed.is_empty() {
                return Err(not_ready(&failed));
            }
            let unopened = app.control.unopened();
            if !unopened.is_empty() {
                return Err(not_opened(&unopened));
            }
            json_response(StatusCode::OK, &Status { status: "ready" })
        }
        Readiness::Starting => Err(ApiError::new(Code::Starting, "the node is starting")),
        Readiness::Draining => {
            Err(ApiError::new(Code::Draining, "the node is draining and takes nothing new"))
        }
    }
}

/// Jobs that are named in a message; all are in the detail.
const NAMED: usize = 5;

fn not_ready(failed: &[FailedJob]) -> ApiError {
    let state = |job: &FailedJob| if job.is_read_only { "read_only" } else { "failed" };
    let named = failed.iter().take(NAMED).map(|job| {
        let how = if job.is_read_only { "is only read" } else { "has failed" };
        format!("job {:?} {how}: {}", job.name, job.why)
    });
    let more = if failed.len() > NAMED { "; and others" } else { "" };
    let jobs = failed.iter().map(|job| json!({ "job": job.name, "state": state(job), "why": job.why }));
    ApiError::new(Code::NotReady, named.collect::<Vec<_>>().join("; ") + more)
        .detail(json!({ "jobs": jobs.collect::<Vec<_>>() }))
        .hint("see to the cause, then start the job again with POST /v1/jobs/{job}; DELETE takes it off the list")
}

fn not_opened(unopened: &[String]) -> ApiError {
    let named =
        unopened.iter().take(NAMED).map(|job| format!("job {job:?} takes no records on this node yet"));
    let more = if unopened.len() > NAMED { "; and others" } else { "" };
    let jobs = unopened.iter().map(|job| json!({ "job": job, "state": "opening" }));
    ApiError::new(Code::NotReady, named.collect::<Vec<_>>().join("; ") + more)
        .detail(json!({ "jobs": jobs.collect::<Vec<_>>() }))
        .hint("it takes about a second; where it takes longer, the log of the node says why, and it is tried again")
}

pub(super) async fn metrics(app: &App) -> Result<Response, ApiError> {
    let look = |control: &dyn Control| (control.jobs(), control.cluster().map(|cluster| cluster.figures()));
    let (jobs, cluster) = app.call(Effect::Reads, app.options.control_timeout, look).await?;
    let is_ready = app.readiness() == Readiness::Ready
        && app.control.failed().is_empty()
        && app.control.unopened().is_empty();
    let text = metrics::render(
        &app.telemetry,
        app.places.evicted(),
        &jobs,
        cluster.as_ref(),
        app.options.sql.as_deref(),
        is_ready,
    );
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

pub(super) fn openapi() -> Result<Response, ApiError> {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(format!("{:#}\n", openapi::document())));
    let mut response = Response::new(Body::from(TEXT.clone()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
