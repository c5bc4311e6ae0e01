//! `/v1/jobs` and `/v1/jobs/{job}`: running jobs, starting and stopping.

use std::time::Instant;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use super::param;
use crate::app::{App, Effect, PathParams, json_response};
use crate::body::{expect_text, media_type};
use crate::control::{Control, FileFormat};
use crate::error::{ApiError, Code};
use crate::params::how_to_stop;
use crate::snapshot::JobSnapshot;
use crate::wire;

pub(super) async fn list(app: &App) -> Result<Response, ApiError> {
    let jobs = app.call(Effect::Reads, app.options.control_timeout, |control| control.jobs()).await?;
    let jobs = jobs.iter().map(|job| shown(app, job)).collect();
    json_response(StatusCode::OK, &wire::Jobs { jobs })
}

pub(super) async fn show(app: &App, params: &PathParams) -> Result<Response, ApiError> {
    let name = param(params, "job")?.to_owned();
    let job =
        app.call(Effect::Reads, app.options.control_timeout, move |control| control.job(&name)).await??;
    json_response(StatusCode::OK, &shown(app, &job))
}

pub(super) async fn start(
    app: &App,
    params: &PathParams,
    parts: &Parts,
    body: &mut Body,
) -> Result<Response, ApiError> {
    let name = param(params, "job")?.to_owned();
    let (file, format) = job_file(app, parts, body).await?;
    let job = app
        .call(Effect::Starts, app.options.stop_timeout, move |control| control.start(&name, &file, format))
        .await??;
    created(app, parts, &job)
}

pub(super) async fn replace(
    app: &App,
    params: &PathParams,
    parts: &Parts,
    body: &mut Body,
) -> Result<Response, ApiError> {
    let name = param(params, "job")?.to_owned();
    let (file, format) = job_file(app, parts, body).await?;
    let replacing = move |control: &dyn Control| control.replace(&name, &file, format);
    let (job, was_there) = app.call(Effect::Starts, app.options.stop_timeout, replacing).await??;
    if was_there { json_response(StatusCode::OK, &shown(app, &job)) } else { created(app, parts, &job) }
}

async fn job_file(app: &App, parts: &Parts, body: &mut Body) -> Result<(String, FileFormat), ApiError> {
    expect_text(&parts.headers, "the job file as YAML or JSON")?;
    let held = app.bodies.read(&parts.headers, body, app.options.max_text_bytes).await?;
    let file = text_of(&held.bytes, "job file")?.to_owned();
    let is_json = media_type(&parts.headers) == "application/json" || file.trim_start().starts_with('{');
    Ok((file, if is_json { FileFormat::Json } else { FileFormat::Yaml }))
}

fn created(app: &App, parts: &Parts, job: &JobSnapshot) -> Result<Response, ApiError> {
    let mut response = json_response(StatusCode::CREATED, &shown(app, job))?;
    if let Ok(location) = HeaderValue::from_str(parts.uri.path()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

pub(super) async fn stop(app: &App, params: &PathParams, parts: &Parts) -> Result<Response, ApiError> {
    let name = param(params, "job")?.to_owned();
    let how = how_to_stop(parts.uri.query())?;
    let job = name.clone();
    let summary =
        app.call(Effect::Stops, app.options.stop_timeout, move |control| control.stop(&name, how)).await??;
    json_response(StatusCode::OK, &wire::Summary::new(job, &summary))
}

fn shown(app: &App, job: &JobSnapshot) -> wire::Job {
    app.rates.with_base(&job.name, Instant::now(), |base| wire::Job::new(job, base))
}

/// A body as text.
pub(super) fn text_of<'a>(body: &'a [u8], what: &str) -> Result<&'a str, ApiError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        ApiError::new(
            Code::InvalidRequest,
            format!("the {what} is not UTF-8 from byte {}", error.valid_up_to()),
        )
    })?;
    if text.trim().is_empty() {
        return Err(ApiError::new(
            Code::InvalidRequest,
            format!("the body is empty: it has to be the {what}"),
        ));
    }
    Ok(text)
}
