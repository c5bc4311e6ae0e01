//! The path of every request: admission, its endpoint, and the counters.
//!
//! One function instead of a stack of layers: the cost of a request can be read off here, and the short way of records
//! (no lock, no other thread) stays visible.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter};
use serde_json::json;
use thalweg_types::Retry;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

use crate::access::Policy;
use crate::body::{Bodies, linger};
use crate::control::{Control, Readiness};
use crate::endpoint;
use crate::error::{ApiError, Code};
use crate::guard;
use crate::head;
use crate::host;
use crate::metrics::Telemetry;
use crate::options::Options;
use crate::places::Places;
use crate::rates::Rates;
use crate::route::{self, Needs, ROUTES, Route};
use crate::seated::Crowded;

/// State that all requests share.
pub(crate) struct App {
    pub(crate) control: Arc<dyn Control>,
    pub(crate) options: Options,
    access: Policy,
    pub(crate) bodies: Bodies,
    pub(crate) telemetry: Telemetry,
    pub(crate) rates: Rates,
    /// Connections.
    pub(crate) places: Arc<Places>,
    /// Requests that may be in work at once.
    requests: Semaphore,
    /// Calls of [`Control`] that run or wait for a thread. A call whose request was given up keeps its place, so a
    /// node that hangs does not collect calls without bound.
    calls: Arc<Semaphore>,
    /// Jobs that may be started at once, and stopped: these take long, some for ever, and have threads of their own.
    starts: Arc<Semaphore>,
    stops: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
}

/// Threads for calls that block.
pub(crate) const BLOCKING_THREADS: usize = 16;
const MAX_CALLS: usize = 256;
const MAX_STARTS: usize = 64;
const MAX_STOPS: usize = 64;

/// The meaning for a client of a call that takes too long.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    Changes,
    /// As `Changes`, and takes long: a job is started.
    Starts,
    /// The same: a job is stopped.
    Stops,
}

impl App {
    pub(crate) fn new(control: Arc<dyn Control>, options: Options, closing: watch::Receiver<bool>) -> Self {
        Self {
            bodies: Bodies::new(options.max_held_bytes, options.body_timeout),
            telemetry: Telemetry::new(),
            rates: Rates::default(),
            access: Policy { token: options.admin.clone() },
            places: Places::new(options.max_connections),
            requests: Semaphore::new(options.max_requests),
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            starts: Arc::new(Semaphore::new(MAX_STARTS)),
            stops: Arc::new(Semaphore::new(MAX_STOPS)),
            control,
            options,
            closing,
        }
    }

    /// The node's readiness; a server that is being shut down is draining whatever the node says.
    pub(crate) fn readiness(&self) -> Readiness {
        if *self.closing.borrow() { Readiness::Draining } else { self.control.readiness() }
    }

    /// Calls the node on a thread that may block.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        effect: Effect,
        limit: Duration,
        work: impl FnOnce(&dyn Control) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let places = match effect {
            Effect::Reads | Effect::Changes => &self.calls,
            Effect::Starts => &self.starts,
            Effect::Stops => &self.stops,
        };
        let place = Arc::clone(places).try_acquire_owned().map_err(|_| {
            ApiError::new(Code::Overloaded, "too many calls of this kind are running")
                .hint("send it again later")
        })?;
        let control = Arc::clone(&self.control);
        let work = move || {
            let outcome = work(&*control);
            drop(place);
            outcome
        };
        let call = async {
            match effect {
                Effect::Reads | Effect::Changes => tokio::task::spawn_blocking(work).await.ok(),
                Effect::Starts | Effect::Stops => on_own_thread(work).await,
            }
        };
        match timeout(limit, call).await {
            Ok(Some(outcome)) => Ok(outcome),
            Ok(None) => {
                tracing::error!("call of the node panicked");
                Err(ApiError::new(Code::Internal, "the node panicked over this request")
                    .hint("the log of the node has the message"))
            }
            Err(_) if effect == Effect::Reads => {
                Err(ApiError::new(Code::Unavailable, format!("the node did not answer within {limit:?}")))
            }
            Err(_) => Err(ApiError::new(
                Code::Timeout,
                format!("not done within {limit:?}; it goes on, and whether it succeeds is not known"),
            )
            .hint("GET /v1/jobs shows the outcome")),
        }
    }

    /// Whether the request may be worked on now.
    fn admit(&self, route: &Route, parts: &Parts) -> Result<Option<SemaphorePermit<'_>>, ApiError> {
        guard::check(&parts.uri, &parts.headers, &self.options.allowed_hosts)?;
        self.access.admit(self.access.access(&parts.headers), route.role)?;
        if route.limited && parts.extensions.get::<Crowded>().is_some() {
            let limit = self.options.max_connections;
            return Err(ApiError::new(
                Code::Overloaded,
                format!("{limit} connections are in use, the most there may be"),
            )
            .hint("send it again later, and several requests over one connection")
            .closing());
        }
        let place = match route.limited {
            true => Some(self.requests.try_acquire().map_err(|_| {
                let limit = self.options.max_requests;
                ApiError::new(
                    Code::Overloaded,
                    format!("{limit} requests are in work, the most there may be"),
                )
                .hint("send it again later")
            })?),
            false => None,
        };
        match (route.needs, self.readiness()) {
            (Needs::Started | Needs::Ready, Readiness::Starting) => {
                Err(ApiError::new(Code::Starting, "the node is starting")
                    .hint("GET /readyz says when it is ready"))
            }
            (Needs::Ready, Readiness::Draining) => {
                Err(ApiError::new(Code::Draining, "the node is draining and takes nothing new"))
            }
            _ => Ok(place),
        }
    }

    /// Counts a request from here on, also one whose client goes away, and has it worked on unless its head is too
    /// large.
    async fn serve<W: Future<Output = Response>>(
        &self,
        index: usize,
        request: Request,
        work: impl FnOnce(Parts, Body) -> W,
    ) -> Response {
        let counted = self.telemetry.begin(index, Instant::now());
        let (parts, mut body) = request.into_parts();
        let checked = head::check(&parts, self.options.max_header_bytes).and_then(|()| host::check(&parts));
        let response = match checked {
            Ok(()) => work(parts, body).await,
            Err(error) => {
                linger(&parts.headers, &mut body).await;
                error.into_response()
            }
        };
        counted.end(response.status());
        response
    }

    async fn route(
        &self,
        route: &'static Route,
        params: &PathParams,
        parts: Parts,
        mut body: Body,
    ) -> Response {
        let outcome = match self.admit(route, &parts) {
            Ok(_place) => endpoint::answer(self, route.endpoint, params, &parts, &mut body).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(response) => response,
            Err(error) => {
                linger(&parts.headers, &mut body).await;
                error.into_response()
            }
        }
    }
}

/// The result of work on a thread of its own; `None` if it panicked, or no thread could be started.
async fn on_own_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("http:job".to_owned());
    // The client may have gone.
    thread.spawn(move || drop(tell.send(work()))).ok()?;
    told.await.ok()
}

pub(crate) type PathParams = Result<RawPathParams, RawPathParamsRejection>;

pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for path in route::paths() {
        let mut methods: MethodRouter<Arc<App>> = MethodRouter::new();
        for (index, route) in ROUTES.iter().enumerate().filter(|(_, route)| route.path == path) {
            let filter =
                MethodFilter::try_from(route.method.clone()).expect("the table has usual methods only");
            let handler = move |State(app): State<Arc<App>>, params: PathParams, request: Request| async move {
                app.serve(index, request, |parts, body| app.route(route, &params, parts, body)).await
            };
            methods = methods.on(filter, handler);
        }
        methods = methods.fallback(move |State(app): State<Arc<App>>, request: Request| async move {
            app.serve(ROUTES.len(), request, |parts, body| method_not_allowed(parts, body, path)).await
        });
        router = router.route(path, methods);
    }
    let not_found = move |State(app): State<Arc<App>>, request: Request| async move {
        app.serve(ROUTES.len(), request, no_route).await
    };
    router.fallback(not_found).with_state(app)
}

async fn method_not_allowed(parts: Parts, mut body: Body, path: &'static str) -> Response {
    linger(&parts.headers, &mut body).await;
    let allowed = route::methods(path);
    let mut error =
        ApiError::new(Code::MethodNotAllowed, format!("method {} on {path}", short(parts.method.as_str())))
            .hint(format!("{path} takes {allowed}"));
    if let Ok(value) = HeaderValue::from_str(&allowed) {
        error = error.header(header::ALLOW, value);
    }
    error.into_response()
}

async fn no_route(parts: Parts, mut body: Body) -> Response {
    linger(&parts.headers, &mut body).await;
    let routes: Vec<String> = ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    ApiError::new(
        Code::NotFound,
        format!("no route {} {}", short(parts.method.as_str()), short(parts.uri.path())),
    )
    .detail(json!({ "routes": routes }))
    .hint("the routes are listed in `detail`; /openapi.json describes them")
    .into_response()
}

/// At most 200 characters of something that a client chose.
fn short(text: &str) -> String {
    text.chars().take(200).collect()
}

/// A reply in JSON.
pub(crate) fn json_response(
    status: axum::http::StatusCode,
    value: &impl serde::Serialize,
) -> Result<Response, ApiError> {
    let text = serde_json::to_vec(value).map_err(|error| {
        ApiError::new(Code::Internal, format!("print the reply: {error}")).retry(Retry::Never)
    })?;
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
