//! `POST /v1/sql` of a build without SQL (feature `sql`): it says how to get one that has it.

use axum::body::Body;
use axum::http::request::Parts;
use axum::response::Response;
use thalweg_connect::absent;

use crate::app::App;
use crate::error::{ApiError, Code};

pub(super) async fn post(_: &App, _: &Parts, _: &mut Body) -> Result<Response, ApiError> {
    Err(ApiError::new(Code::NotFound, "this build answers no SQL").hint(absent::hint("sql")))
}
