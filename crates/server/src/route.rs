//! The table of routes. Router, `/openapi.json`, metric labels and the 404 are all made from it, so none can be
//! forgotten in one of them.

use axum::http::Method;

/// The function that answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    PostRecords,
    ReadQuery,
    AddQuery,
    DropQuery,
    ListJobs,
    ShowJob,
    StartJob,
    ReplaceJob,
    StopJob,
    Sql,
    ShowCluster,
    DrainNode,
    FillNode,
    Metrics,
    Health,
    Ready,
    OpenApi,
}

/// The state of the node without which an endpoint answers 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// Before, a job may not be there yet, and a 404 would be wrong.
    Started,
    Ready,
}

/// The role that may call it; `access` gives roles to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Read,
    Write,
    Admin,
}

#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) endpoint: Endpoint,
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) needs: Needs,
    pub(crate) role: Role,
    /// Takes one of the places that are limited; routes for monitors do not, so that they work under load.
    pub(crate) limited: bool,
}

const DRAIN: &str = "/v1/cluster/nodes/{node}/drain";
const QUERY: &str = "/v1/jobs/{job}/operators/{operator}/queries/{query}";

#[rustfmt::skip]
pub(crate) static ROUTES: [Route; 17] = {
    use Endpoint::*;
    const fn route(endpoint: Endpoint, method: Method, path: &'static str, needs: Needs, role: Role) -> Route {
        let limited = !matches!(endpoint, Metrics | Health | Ready);
        Route { endpoint, method, path, needs, role, limited }
    }
    [
        route(PostRecords, Method::POST,   "/v1/jobs/{job}/sources/{source}", Needs::Ready,   Role::Write),
        route(ReadQuery,   Method::GET,    QUERY,                             Needs::Started, Role::Read),
        route(AddQuery,    Method::POST,   QUERY,                             Needs::Ready,   Role::Admin),
        route(DropQuery,   Method::DELETE, QUERY,                             Needs::Ready,   Role::Admin),
        route(ListJobs,    Method::GET,    "/v1/jobs",                        Needs::Nothing, Role::Read),
        route(ShowJob,     Method::GET,    "/v1/jobs/{job}",                  Needs::Started, Role::Read),
        route(StartJob,    Method::POST,   "/v1/jobs/{job}",                  Needs::Ready,   Role::Admin),
        route(ReplaceJob,  Method::PUT,    "/v1/jobs/{job}",                  Needs::Ready,   Role::Admin),
        route(StopJob,     Method::DELETE, "/v1/jobs/{job}",                  Needs::Started, Role::Admin),
        route(Sql,         Method::POST,   "/v1/sql",                         Needs::Nothing, Role::Read),
        route(ShowCluster, Method::GET,    "/v1/cluster",                     Needs::Started, Role::Read),
        route(DrainNode,   Method::POST,   DRAIN,                             Needs::Started, Role::Admin),
        route(FillNode,    Method::DELETE, DRAIN,                             Needs::Started, Role::Admin),
        route(Metrics,     Method::GET,    "/metrics",                        Needs::Nothing, Role::Read),
        route(Health,      Method::GET,    "/healthz",                        Needs::Nothing, Role::Read),
        route(Ready,       Method::GET,    "/readyz",                         Needs::Nothing, Role::Read),
        route(OpenApi,     Method::GET,    "/openapi.json",                   Needs::Nothing, Role::Read),
    ]
};

/// Paths without repetition, in the order of the table.
pub(crate) fn paths() -> Vec<&'static str> {
    let mut paths = Vec::new();
    for route in &ROUTES {
        if !paths.contains(&route.path) {
            paths.push(route.path);
        }
    }
    paths
}

/// `GET, POST` for the routes at a path.
pub(crate) fn methods(path: &str) -> String {
    let at: Vec<&str> =
        ROUTES.iter().filter(|route| route.path == path).map(|route| route.method.as_str()).collect();
    at.join(", ")
}
