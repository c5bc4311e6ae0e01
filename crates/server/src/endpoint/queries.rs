//! `…/operators/{operator}/queries/{query}`: present values, adding and dropping.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;

use super::param;
use crate::app::{App, Effect, PathParams, json_response};
use crate::body::{expect_text, media_type};
use crate::control::{Control, Found, QueryPath};
use crate::elsewhere;
use crate::error::{ApiError, Code};
use crate::params;
use crate::wire;

pub(super) async fn read(app: &App, path: &PathParams, parts: &Parts) -> Result<Response, ApiError> {
    let path = query_path(path)?;
    let key = params::fields(parts.uri.query())?;
    let name = path.query.clone();
    let plan = elsewhere::plan_of(&parts.headers)?;
    let mut refused = None;
    // Units may move while one is asked for: once more by the newest plan.
    for _ in 0..2 {
        let (path, key) = (path.clone(), key.clone());
        let look = move |control: &dyn Control| control.present(&path, &key, plan);
        let found = app.call(Effect::Reads, app.options.control_timeout, look).await??;
        let (node, address, plan) = match found {
            Found::Here(present) => {
                return json_response(StatusCode::OK, &wire::Present::new(name, present));
            }
            Found::Elsewhere { node, address, plan } => (node, address, plan),
        };
        let asked = elsewhere::ask(&node, &address, &parts.uri, plan, app.options.control_timeout);
        match asked.await {
            Ok(answer) if answer.status() != StatusCode::SERVICE_UNAVAILABLE => return Ok(answer),
            other => refused = Some(other),
        }
    }
    refused.unwrap_or_else(|| Err(ApiError::new(Code::Internal, "nobody was asked")))
}

pub(super) async fn add(
    app: &App,
    path: &PathParams,
    parts: &Parts,
    body: &mut Body,
) -> Result<Response, ApiError> {
    let path = query_path(path)?;
    expect_text(&parts.headers, "the query as text/plain, or {\"query\": \"SELECT …\"}")?;
    let held = app.bodies.read(&parts.headers, body, app.options.max_text_bytes).await?;
    let text = super::jobs::text_of(&held.bytes, "query")?;
    let sql = match object_of(&media_type(&parts.headers), text) {
        Some(object) => {
            parsed::<QueryBody>(object, "send {\"query\": \"SELECT …\"}, or the query itself as text/plain")?
                .query
        }
        None => text.to_owned(),
    };
    drop(held);

    let reply = wire::AddedQuery {
        job: path.job.clone(),
        operator: path.operator.clone(),
        name: path.query.clone(),
        query: sql.clone(),
    };
    app.call(Effect::Changes, app.options.control_timeout, move |control| control.add_query(&path, &sql))
        .await??;
    let mut response = json_response(StatusCode::CREATED, &reply)?;
    // As the client wrote it, so percent-encoded where it has to be.
    if let Ok(location) = HeaderValue::from_str(parts.uri.path()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

pub(super) async fn drop_query(app: &App, path: &PathParams) -> Result<Response, ApiError> {
    let path = query_path(path)?;
    app.call(Effect::Changes, app.options.control_timeout, move |control| control.drop_query(&path))
        .await??;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

fn query_path(params: &PathParams) -> Result<QueryPath, ApiError> {
    Ok(QueryPath {
        job: param(params, "job")?.to_owned(),
        operator: param(params, "operator")?.to_owned(),
        query: param(params, "query")?.to_owned(),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QueryBody {
    query: String,
}

/// A JSON body; `hint` says its expected form.
pub(super) fn parsed<'a, T: Deserialize<'a>>(object: &'a str, hint: &str) -> Result<T, ApiError> {
    serde_json::from_str(object)
        .map_err(|error| ApiError::new(Code::InvalidRequest, format!("the body: {error}")).hint(hint))
}

/// The body where it is JSON with SQL in it, and not SQL itself. No query begins with a brace.
pub(super) fn object_of<'a>(media_type: &str, body: &'a str) -> Option<&'a str> {
    (media_type == "application/json" || body.trim_start().starts_with('{')).then_some(body)
}
