//! `/v1/cluster`: the cluster as this node sees it, and which of its nodes are to have no units.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use thalweg_node::cluster_view::ClusterView;

use super::param;
use crate::app::{App, Effect, PathParams, json_response};
use crate::control::{Control, ControlError};
use crate::error::{ApiError, Code};
use crate::params;
use crate::wire::cluster as wire;

pub(super) async fn show(app: &App, parts: &Parts) -> Result<Response, ApiError> {
    let job = params::job(parts.uri.query())?;
    let look = move |control: &dyn Control| {
        let snapshot = of(control)?.snapshot(job.as_deref()).map_err(ControlError::from)?;
        Ok::<_, ApiError>(wire::Cluster::from(snapshot))
    };
    let cluster = app.call(Effect::Reads, app.options.control_timeout, look).await??;
    json_response(StatusCode::OK, &cluster)
}

pub(super) async fn drain(app: &App, path: &PathParams, on: bool) -> Result<Response, ApiError> {
    let node = param(path, "node")?.to_owned();
    let drain = move |control: &dyn Control| {
        let member = of(control)?.drain(&node, on).map_err(ControlError::from)?;
        Ok::<_, ApiError>(wire::Member::from(member))
    };
    let member = app.call(Effect::Changes, app.options.control_timeout, drain).await??;
    json_response(StatusCode::OK, &member)
}

fn of(control: &dyn Control) -> Result<Arc<dyn ClusterView>, ApiError> {
    control.cluster().ok_or_else(|| {
        ApiError::new(Code::NotFound, "this node is in no cluster")
            .hint("ask a node that was started with `thalweg run --cluster URL`")
    })
}
