//! The HTTP layer: the routes, and the auth middleware that checks every request first.

mod audit;
mod console;
mod health;
mod middleware;
mod openapi;
mod paced;
mod retention;
mod routes;
mod status;
mod tokens;
mod tool_changes;

use std::convert::Infallible;
use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::FromRef;
use axum::response::Response;
use futures_util::FutureExt as _;
use hyper::body::{Body as _, Incoming};
use sa_http::Http;
use sa_limits::offload::{self, Offloaded};

use crate::assemble::{self, Gateway};
use sa_http::Ends;
use sa_http::slot::Slot;

pub use openapi::document as openapi_document;
pub use sa_http::history::MAX_PAGE;
pub use sa_http::{Problem, RouteTable};
pub use status::mark_started;

/// The state of the gateway's own handlers.
#[derive(Debug, Clone)]
pub(crate) struct App(Arc<Gateway>);

impl Deref for App {
    type Target = Arc<Gateway>;

    fn deref(&self) -> &Arc<Gateway> {
        &self.0
    }
}

impl FromRef<App> for Http {
    fn from_ref(app: &App) -> Self {
        app.http.clone()
    }
}

/// The entry point of every request: the checks in [`middleware`], then the route table.
#[derive(Debug, Clone)]
pub struct HttpService {
    gateway: App,
    table: RouteTable,
}

impl HttpService {
    pub fn new(gateway: Arc<Gateway>) -> Self {
        let table = routes::all(&gateway);
        Self::with_table(gateway, table)
    }

    /// Creates an entry point with other routes than the gateway's own.
    pub fn with_table(gateway: Arc<Gateway>, table: RouteTable) -> Self {
        Self { gateway: App(gateway), table }
    }

    /// Answers one request on a connection between these addresses.
    pub(crate) async fn answer(
        self,
        ends: Ends,
        slot: Option<Arc<Slot>>,
        request: axum::http::Request<Incoming>,
    ) -> Result<Response, Infallible> {
        // A body of unknown length may be long.
        let bytes = request.body().size_hint().upper().map_or(usize::MAX, |bytes| bytes as usize);
        if bytes < offload::LARGE {
            return self.answer_here(ends, slot, request).await;
        }
        Offloaded::new(bytes, self.answer_here(ends, slot, request)).await
    }

    async fn answer_here(
        self,
        ends: Ends,
        slot: Option<Arc<Slot>>,
        request: axum::http::Request<Incoming>,
    ) -> Result<Response, Infallible> {
        let request = request.map(Body::new);
        let answer = middleware::answer(&self.gateway, &self.table, (ends, slot), request);
        Ok(AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(middleware::panicked))
    }
}
