//! The router as one connection sees it: requests are noted with its place, and a connection beyond the limit gets the
//! endpoints that monitors ask for, and nothing else.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::Request;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use crate::places::{Busy, Seat};

/// In the extensions of a request whose connection has no place.
#[derive(Clone, Copy)]
pub(crate) struct Crowded;

pub(crate) struct Seated {
    router: TowerToHyperService<Router>,
    seat: Arc<Seat>,
}

impl Seated {
    pub(crate) fn new(router: Router, seat: Arc<Seat>) -> Self {
        Self { router: TowerToHyperService::new(router), seat }
    }
}

impl<B> Service<Request<B>> for Seated
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let busy = self.seat.begin();
        let mut request = request.map(Body::new);
        let is_crowded = self.seat.is_in_reserve();
        if is_crowded && !self.seat.take_regular() {
            request.extensions_mut().insert(Crowded);
        }
        let response = self.router.call(request);
        Box::pin(async move {
            let mut response = response.await?;
            if is_crowded {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response.map(|body| Body::new(Noted { body, _busy: busy })))
        })
    }
}

/// The body of a reply, whose connection is busy until it has been sent.
struct Noted {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Noted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
