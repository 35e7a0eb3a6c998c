//! The HTTP routes of tools and calls.

mod call;
mod calls;
mod events;
mod invoke;
mod news;
mod socket;
mod stream;
mod tools;

use std::sync::Arc;

use axum::extract::FromRef;
use sa_core::Notices;
use sa_core::store::Log;
use sa_http::feed::Feed;
use sa_http::{Http, SocketRoute};
use sa_limits::budget::SharedBudget;
use sa_socket::Liveness;
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::call::route as call_route;

/// The route for callers with many concurrent calls.
pub const SOCKET: SocketRoute =
    SocketRoute { path: "/v1/calls/ws", clients: "callers", allows_pages: true };

/// The state of the handlers.
#[derive(Clone, FromRef)]
pub struct Routes {
    pub http: Http,
    /// Contains the history of ended calls.
    pub log: Arc<dyn Log>,
    pub feed: Feed,
    pub notices: Notices,
    pub options: Arc<Options>,
    /// Cancelled when the gateway shuts down.
    pub closing: CancellationToken,
}

#[derive(Debug)]
pub struct Options {
    /// The version that the gateway reports.
    pub version: &'static str,
    /// The maximum size of shown arguments.
    pub payload_bytes: usize,
    pub max_frame_bytes: usize,
    pub liveness: Liveness,
    /// The budget of answers that callers have not read yet.
    pub answers: Arc<SharedBudget>,
}

/// Returns the routes, and describes the [direct one](call_route), too.
pub fn router() -> OpenApiRouter<Routes> {
    OpenApiRouter::with_openapi(call::Described::openapi())
        .routes(routes!(tools::list))
        .routes(routes!(invoke::invoke))
        .routes(routes!(calls::list))
        .routes(routes!(calls::show, calls::cancel))
        .routes(routes!(socket::upgrade))
        .routes(routes!(events::follow))
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes").field("options", &self.options).finish_non_exhaustive()
    }
}
