//! The table of all routes of the HTTP server.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{Method, Uri, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::future::BoxFuture;
use percent_encoding::percent_decode_str;
use tower::ServiceExt as _;

use crate::auth::unauthorized;
use crate::slot::Slot;
use crate::{Ends, Identity, Problem, Refused};

/// All routes. A request belongs to a direct route, or else to axum's router.
#[derive(Debug, Clone)]
pub struct RouteTable(Arc<Routes>);

#[derive(Debug)]
struct Routes {
    direct: matchit::Router<DirectRoute>,
    others: Router,
}

/// A route without axum's router and extractors, which need two dozen allocations per request. It
/// is for the most frequent requests, and requires a token.
pub struct DirectRoute {
    path: &'static str,
    /// `None` if the handler accepts every method.
    method: Option<Method>,
    handler: Box<dyn Fn(DirectRequest) -> BoxFuture<'static, Response> + Send + Sync>,
}

#[derive(Debug)]
pub struct DirectRequest {
    pub identity: Identity,
    /// The variable segment of the path, decoded. Empty if the path has none.
    pub segment: String,
    pub request: Request,
}

/// The client of a request, after the checks of the auth middleware.
#[derive(Debug)]
pub struct Client {
    /// `None` for a route that needs no token in a header.
    pub identity: Option<Identity>,
    pub ends: Ends,
    pub slot: Option<Arc<Slot>>,
}

impl RouteTable {
    /// # Panics
    ///
    /// If two direct routes have the same path, or a path is malformed.
    pub fn new(direct: impl IntoIterator<Item = DirectRoute>, others: Router) -> Self {
        let mut table = matchit::Router::new();
        for route in direct {
            table.insert(route.path, route).expect("every direct route has a path of its own");
        }
        Self(Arc::new(Routes { direct: table, others }))
    }

    pub async fn answer(&self, client: Client, mut request: Request) -> Response {
        let Client { identity, ends, slot } = client;
        if let Ok(found) = self.0.direct.at(request.uri().path()) {
            let segment = found.params.iter().next().map_or("", |(_, segment)| segment);
            let Ok(segment) = percent_decode_str(segment).decode_utf8() else {
                return Problem::bad_request("the path is not valid UTF-8").into_response();
            };
            let (route, segment) = (found.value, segment.into_owned());
            return match (&route.method, identity) {
                (Some(method), _) if method != request.method() => {
                    let refused =
                        method_not_allowed(request.method().clone(), request.uri().clone());
                    ([(header::ALLOW, method.as_str())], refused.await).into_response()
                }
                (_, None) => unauthorized(Refused::Missing).into_response(),
                (_, Some(identity)) => {
                    (route.handler)(DirectRequest { identity, segment, request }).await
                }
            };
        }
        let extensions = request.extensions_mut();
        identity.map(|identity| extensions.insert(identity));
        slot.map(|slot| extensions.insert(slot));
        extensions.insert(ends);
        let Ok(response) = self.0.others.clone().oneshot(request).await;
        response
    }
}

impl DirectRoute {
    /// Creates a route for one method. The path has at most one variable segment.
    pub fn new<F>(
        method: Method,
        path: &'static str,
        handler: impl Fn(DirectRequest) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        Self { method: Some(method), ..Self::any(path, handler) }
    }

    /// Creates a route for all methods.
    pub fn any<F>(
        path: &'static str,
        handler: impl Fn(DirectRequest) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        let handler = move |request| -> BoxFuture<'static, Response> {
            let response = handler(request);
            Box::pin(async move { response.await.into_response() })
        };
        Self { path, method: None, handler: Box::new(handler) }
    }
}

impl std::fmt::Debug for DirectRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectRoute")
            .field("path", &self.path)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// Returns the error for a path with other methods.
pub async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let path = sa_text::printable(uri.path());
    Problem::new(
        405,
        "method_not_allowed",
        format!("the method {method} is not allowed for {path}"),
    )
    .hint("`GET /openapi.json` lists the routes")
}

#[cfg(test)]
mod tests;
