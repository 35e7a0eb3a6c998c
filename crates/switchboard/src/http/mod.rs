//! The front door: routes, and what every request passes before its handler.

mod audit;
mod body;
mod calls;
mod calls_ws;
mod channels;
mod chat;
mod console;
mod eligibility;
mod events;
mod front;
mod functions;
mod health;
mod invoke;
mod mcp;
mod nodes;
mod openapi;
mod plugin_gateway;
mod plugin_settings;
mod plugins;
mod problem;
mod sessions;
mod skills;
mod sse;
mod status;
mod tokens;
mod tools;
mod upstream;
mod upstream_login;

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::{any, delete, get, post};
use futures_util::FutureExt as _;
use hyper::body::{Body as _, Incoming};
use sa_core::aside::{self, Aside};
use sa_core::outcome::{Attachment, Block};
use serde::Serialize;

use crate::assemble::Gateway;
use crate::serve::Ends;

pub(crate) use calls::MAX_PAGE;
pub use openapi::document as openapi_document;
pub use problem::Problem;
pub(crate) use status::mark_started;

/// What handlers share.
pub(crate) type App = Arc<Gateway>;

/// Where every request comes in: the checks in [`front`], then the routes.
#[derive(Debug, Clone)]
pub struct FrontDoor {
    gateway: App,
    routes: Router,
}

impl FrontDoor {
    pub fn new(gateway: App) -> Self {
        let routes = routes(Arc::clone(&gateway));
        Self::with_routes(gateway, routes)
    }

    /// The same door in front of other routes than the gateway's own.
    pub fn with_routes(gateway: App, routes: Router) -> Self {
        Self { gateway, routes }
    }

    /// Answers one request of a connection between these ends.
    pub async fn answer(self, ends: Ends, request: axum::http::Request<Incoming>) -> Result<Response, Infallible> {
        // One that does not say how long it is may be long.
        let bytes = request.body().size_hint().upper().map_or(usize::MAX, |bytes| bytes as usize);
        if bytes < aside::LARGE {
            return self.answer_here(ends, request).await;
        }
        Aside::new(bytes, self.answer_here(ends, request)).await
    }

    async fn answer_here(self, ends: Ends, request: axum::http::Request<Incoming>) -> Result<Response, Infallible> {
        let answer = front::door(&self.gateway, self.routes, ends, request);
        Ok(AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(front::panicked))
    }
}

fn routes(gateway: App) -> Router {
    plugin_gateway::routes()
        .route("/v1/tools", get(tools::list))
        .route("/v1/tools/{name}/call", post(tools::call))
        .route("/v1/tools/invoke", post(invoke::invoke))
        .route("/v1/calls", get(calls::list))
        .route("/v1/calls/{id}", get(calls::show).delete(calls::cancel))
        .route("/v1/calls/ws", any(calls_ws::upgrade))
        .route("/v1/nodes", get(nodes::list))
        .route("/v1/nodes/{id}/probe", post(eligibility::probe))
        .route("/v1/nodes/ws", any(nodes::upgrade))
        .route("/v1/eligibility", post(eligibility::answer))
        .route("/v1/upstream", get(upstream::list).post(upstream::add))
        .route("/v1/upstream/{name}", delete(upstream::remove))
        .route("/v1/upstream/{name}/restart", post(upstream::restart))
        .route("/v1/upstream/{name}/login", post(upstream_login::begin))
        .route("/v1/upstream/{name}/login/{id}", get(upstream_login::progress))
        .route("/v1/upstream/{name}/logout", post(upstream_login::log_out))
        .route(upstream_login::CALLBACK, get(upstream_login::callback))
        .route("/v1/plugins", get(plugins::list).post(plugins::add))
        .route("/v1/plugins/check", post(plugins::check))
        .route("/v1/plugins/{id}", get(plugins::show).delete(plugins::remove))
        .route("/v1/plugins/{id}/enable", post(plugins::enable))
        .route("/v1/plugins/{id}/disable", post(plugins::disable))
        .route("/v1/plugins/{id}/refresh", post(plugins::refresh))
        .route("/v1/plugins/{id}/accept", post(plugins::accept))
        .route("/v1/plugins/{id}/refuse", post(plugins::refuse))
        .route(
            "/v1/plugins/{id}/settings",
            get(plugin_settings::settings)
                .put(plugin_settings::store_settings)
                .delete(plugin_settings::delete_settings),
        )
        .route("/v1/sessions", get(sessions::list).post(sessions::message))
        .route("/v1/sessions/{id}", get(sessions::show).delete(sessions::end))
        .route("/v1/sessions/{id}/events", get(sessions::events))
        .route("/v1/sessions/{id}/responses", post(sessions::respond))
        .route("/v1/skills", get(skills::list))
        .route("/v1/chat/completions", post(chat::completions))
        .route("/v1/models", get(chat::models))
        .route("/v1/models/{name}", get(chat::model))
        .route("/v1/functions", get(functions::list))
        .route("/v1/functions/execute", post(functions::execute))
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{id}", delete(tokens::revoke))
        .route("/v1/audit", get(audit::list))
        .route("/v1/events", get(events::follow))
        .route("/v1/status", get(status::status))
        .route("/v1/stats", get(health::stats))
        .route("/v1/channels", get(channels::list))
        .route("/v1/channels/ws", any(channels::upgrade))
        .route("/v1/channels/{name}", get(channels::show).delete(channels::delete))
        .route("/v1/channels/{name}/events", get(channels::follow))
        .route("/v1/channels/{name}/messages", get(channels::history).post(channels::publish))
        .route("/v1/channels/{name}/messages/{id}/attachments/{attachment}", get(channels::attachment))
        .route("/", get(channels::root))
        .route("/console", get(console::redirect))
        .route("/console/", get(console::page))
        .route("/console/sandbox.html", get(console::sandbox))
        .route("/console/assets/{name}", get(console::asset))
        .route("/v1/console/sign-in", post(console::sign_in))
        .route("/v1/console/sign-out", post(console::sign_out))
        .route("/v1/console/links", post(console::link))
        .route("/openapi.json", get(openapi::serve))
        .route("/metrics", get(health::metrics))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .fallback(front::not_found)
        .method_not_allowed_fallback(front::method_not_allowed)
        .with_state(gateway)
}

/// The variable part of a route's path. One that is no UTF-8 is a problem like any other.
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

/// A block as JSON surfaces write it.
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
            Block::Other(json) => serde_json::from_str(json.as_str()).map_or(Self::Text { text: "" }, Self::Other),
        }
    }
}

pub(crate) fn wire_attachment(attachment: &Attachment) -> sa_protocol::Attachment<'static> {
    sa_protocol::Attachment::from_bytes(attachment.mime_type.clone(), attachment.name.as_deref(), &attachment.data)
}

pub(crate) fn wire_attachments(attachments: &[Attachment]) -> Vec<sa_protocol::Attachment<'static>> {
    attachments.iter().map(wire_attachment).collect()
}
