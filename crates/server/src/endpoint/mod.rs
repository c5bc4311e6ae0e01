//! The function of each route.

mod answers;
mod cluster;
mod health;
mod jobs;
mod queries;
mod records;
#[cfg_attr(not(feature = "sql"), path = "no_sql.rs")]
mod sql;

use axum::body::Body;
use axum::http::request::Parts;
use axum::response::Response;

use crate::app::{App, PathParams};
use crate::error::{ApiError, Code};
use crate::route::Endpoint;

pub(crate) async fn answer(
    app: &App,
    endpoint: Endpoint,
    params: &PathParams,
    parts: &Parts,
    body: &mut Body,
) -> Result<Response, ApiError> {
    match endpoint {
        Endpoint::AddQuery
        | Endpoint::DropQuery
        | Endpoint::ListJobs
        | Endpoint::ShowJob
        | Endpoint::StartJob
        | Endpoint::DrainNode
        | Endpoint::FillNode
        | Endpoint::ReplaceJob => crate::params::none(parts.uri.query())?,
        // These look at their own.
        Endpoint::PostRecords
        | Endpoint::ReadQuery
        | Endpoint::StopJob
        | Endpoint::Sql
        | Endpoint::ShowCluster => {}
        // Monitors get an answer, whatever they add.
        Endpoint::Metrics | Endpoint::Health | Endpoint::Ready | Endpoint::OpenApi => {}
    }
    match endpoint {
        Endpoint::PostRecords => records::post(app, params, parts, body).await,
        Endpoint::ReadQuery => queries::read(app, params, parts).await,
        Endpoint::AddQuery => queries::add(app, params, parts, body).await,
        Endpoint::DropQuery => queries::drop_query(app, params).await,
        Endpoint::ListJobs => jobs::list(app).await,
        Endpoint::ShowJob => jobs::show(app, params).await,
        Endpoint::StartJob => jobs::start(app, params, parts, body).await,
        Endpoint::ReplaceJob => jobs::replace(app, params, parts, body).await,
        Endpoint::StopJob => jobs::stop(app, params, parts).await,
        Endpoint::Sql => sql::post(app, parts, body).await,
        Endpoint::ShowCluster => cluster::show(app, parts).await,
        Endpoint::DrainNode => cluster::drain(app, params, true).await,
        Endpoint::FillNode => cluster::drain(app, params, false).await,
        Endpoint::Metrics => health::metrics(app).await,
        Endpoint::Health => health::health(),
        Endpoint::Ready => health::ready(app),
        Endpoint::OpenApi => health::openapi(),
    }
}

/// A name in the path, percent-decoded.
fn param<'a>(params: &'a PathParams, name: &str) -> Result<&'a str, ApiError> {
    let params = params.as_ref().map_err(|error| {
        ApiError::new(Code::InvalidRequest, format!("the path is not percent-encoded UTF-8: {error}"))
    })?;
    params
        .iter()
        .find(|(other, _)| *other == name)
        .map(|(_, value)| value)
        .ok_or_else(|| ApiError::new(Code::Internal, format!("the route has no parameter {name:?}")))
}
