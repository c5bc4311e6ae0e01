//! What monitors and tools ask.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use serde_json::json;

use crate::app::{App, Effect, json_response};
use crate::control::Readiness;
use crate::error::{ApiError, Code};
use crate::metrics;
use crate::openapi;

/// The process serves requests.
pub(super) fn health() -> Result<Response, ApiError> {
    json_response(StatusCode::OK, &json!({ "status": "ok" }))
}

/// The node takes records.
pub(super) fn ready(app: &App) -> Result<Response, ApiError> {
    match app.readiness() {
        Readiness::Ready => json_response(StatusCode::OK, &json!({ "status": "ready" })),
        Readiness::Starting => Err(ApiError::new(Code::Starting, "the node is starting")),
        Readiness::Draining => {
            Err(ApiError::new(Code::Draining, "the node is draining and takes nothing new"))
        }
    }
}

pub(super) async fn metrics(app: &App) -> Result<Response, ApiError> {
    let jobs = app.call(Effect::Reads, app.options.control_timeout, |control| control.jobs()).await?;
    let text = metrics::render(&app.telemetry, &jobs, app.options.sql.as_deref(), app.readiness());
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
