//! The HTTP layer: the routes, and the auth middleware that checks every request first.

mod audit;
mod body;
mod calls;
mod calls_ws;
mod channels;
mod chat;
mod console;
mod eligibility;
mod events;
mod functions;
mod health;
mod invoke;
mod mcp;
mod middleware;
mod nodes;
mod openapi;
mod paced;
mod plugin_gateway;
mod plugin_settings;
mod plugins;
mod problem;
mod query;
mod retention;
mod routes;
mod sessions;
mod skills;
mod sse;
mod status;
mod tokens;
mod tool_changes;
mod tools;
mod upstream;
mod upstream_login;

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::FutureExt as _;
use hyper::body::{Body as _, Incoming};
use sa_core::outcome::{Attachment, Block};
use sa_limits::offload::{self, Offloaded};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::assemble::Gateway;
use crate::serve::Ends;
use crate::slot::Slot;

pub use calls::MAX_PAGE;
pub use nodes::CONNECT_WITH;
#[cfg(test)]
pub(crate) use nodes::grant_of;
pub(crate) use nodes::{release_names, valid_grants};
pub use openapi::document as openapi_document;
pub use problem::Problem;
pub use status::mark_started;

/// The state that handlers share.
pub(crate) type App = Arc<Gateway>;

/// The entry point of every request: the checks in [`front`], then the routes.
#[derive(Debug, Clone)]
pub struct HttpService {
    gateway: App,
    routes: Router,
}

impl HttpService {
    pub fn new(gateway: App) -> Self {
        let routes = routes::routes(Arc::clone(&gateway));
        Self::with_routes(gateway, routes)
    }

    /// Creates an entry point with other routes than the gateway's own.
    pub fn with_routes(gateway: App, routes: Router) -> Self {
        Self { gateway, routes }
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
        let answer = middleware::door(&self.gateway, self.routes, (ends, slot.as_ref()), request);
        Ok(AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(middleware::panicked))
    }
}

/// The variable part of a route's path. Invalid UTF-8 is reported as a [`Problem`].
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(error) => Err(Problem::bad_request(error.body_text())),
        }
    }
}

/// The query of a request. An invalid query is reported as a [`Problem`].
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(error) => Err(Problem::bad_request(error.body_text())),
        }
    }
}

/// A content block in the JSON format of the APIs.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum WireBlock<'a> {
    Text {
        text: &'a str,
    },
    Image {
        /// Base64.
        data: &'a str,
        #[serde(rename = "mimeType")]
        mime_type: &'a str,
    },
    /// A block of any other kind, as the provider wrote it.
    #[serde(untagged)]
    #[schema(value_type = Object)]
    Other(&'a serde_json::value::RawValue),
}

impl<'a> From<&'a Block> for WireBlock<'a> {
    fn from(block: &'a Block) -> Self {
        match block {
            Block::Text(text) => Self::Text { text },
            Block::Image { data, mime_type } => Self::Image { data, mime_type },
            Block::Other(json) => {
                serde_json::from_str(json.as_str()).map_or(Self::Text { text: "" }, Self::Other)
            }
        }
    }
}

pub(crate) fn wire_attachment(attachment: &Attachment) -> sa_protocol::Attachment<'static> {
    sa_protocol::Attachment::from_bytes(
        attachment.mime_type.clone(),
        attachment.name.as_deref(),
        &attachment.data,
    )
}

pub(crate) fn wire_attachments(
    attachments: &[Attachment],
) -> Vec<sa_protocol::Attachment<'static>> {
    attachments.iter().map(wire_attachment).collect()
}
