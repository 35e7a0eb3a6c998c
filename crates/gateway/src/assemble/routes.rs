//! The routes of the providers and the surfaces.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use sa_http::{DirectRoute, ErrorFormat, ForeignRoutes, Problem, SocketRoute};
use sa_socket::{NoUpgrade, Upgrade};
use sa_upstream::http::PublicUrl;
use utoipa_axum::router::OpenApiRouter;

use super::{Gateway, liveness};
use crate::VERSION;

/// Returns the routes of the providers and the surfaces, except the direct ones.
pub(crate) fn others<S>(gateway: &Gateway) -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    let Gateway { config, http, upstreams, plugins, sessions, chat, closing, .. } = gateway;
    let public_url = config.settings.server.public_url.as_str();
    let upstream = sa_upstream::http::Routes {
        http: http.clone(),
        upstreams: Arc::clone(upstreams),
        public_url: PublicUrl((!public_url.is_empty()).then(|| public_url.into())),
    };
    let plugins = sa_plugins::http::Routes { http: http.clone(), plugins: Arc::clone(plugins) };
    let nodes = sa_nodes::http::Routes {
        http: http.clone(),
        nodes: Arc::clone(&gateway.nodes),
        access: Arc::clone(&gateway.node_access),
        skill_dirs: config.settings.skills.directories(&config.data_dir).into(),
    };
    let sessions = sa_relay::http::Routes {
        http: http.clone(),
        sessions: sessions.clone(),
        closing: closing.clone(),
    };
    let rest = sa_rest::http::Routes {
        http: http.clone(),
        log: Arc::clone(&gateway.log),
        feed: gateway.journal.feed().clone(),
        notices: gateway.notices.clone(),
        options: Arc::new(rest_options(gateway)),
        closing: closing.clone(),
    };
    let (chat, closing) = (Arc::clone(chat), closing.clone());
    let chat = sa_chat::http::Routes { http: http.clone(), chat, closing };
    OpenApiRouter::new()
        .merge(sa_upstream::http::router().with_state(upstream))
        .merge(sa_nodes::http::router().with_state(nodes))
        .merge(sa_relay::http::router().with_state(sessions))
        .merge(sa_channels::http::router().with_state(channels(gateway)))
        .merge(sa_plugins::http::router().with_state(plugins))
        .merge(sa_rest::http::router().with_state(rest))
        .merge(sa_chat::http::router().with_state(chat))
}

/// Returns the routes of the most frequent requests.
pub(crate) fn direct(gateway: &Gateway) -> [DirectRoute; 2] {
    [sa_rest::http::call_route(&gateway.http), sa_mcp::http::route(&gateway.mcp)]
}

/// Returns the OpenAPI descriptions of these routes.
pub(crate) fn described() -> Vec<utoipa::openapi::OpenApi> {
    vec![
        sa_upstream::http::router().into_openapi(),
        sa_nodes::http::router().into_openapi(),
        sa_relay::http::router().into_openapi(),
        sa_channels::http::router().into_openapi(),
        sa_plugins::http::router().into_openapi(),
        sa_rest::http::router().into_openapi(),
        sa_chat::http::router().into_openapi(),
        sa_mcp::http::described(),
    ]
}

/// The routes with other errors than problems.
pub(crate) const ERROR_FORMATS: [ErrorFormat; 2] =
    [sa_chat::http::ERRORS, sa_plugins::http::ERRORS];

/// Returns the routes of another protocol to which this path belongs.
pub(crate) fn foreign<'a>(gateway: &'a Gateway, path: &str) -> Option<ForeignRoutes<'a>> {
    let plugins = sa_plugins::http::gateway(&gateway.config.settings.plugins.allowed_origins);
    plugins.paths.contains(&path).then_some(plugins)
}

/// Returns whether a provider's route needs no token in a header.
pub(crate) fn is_open(path: &str) -> bool {
    sa_upstream::http::is_callback(path)
        || sa_nodes::http::is_open(path)
        || sa_channels::http::is_open(path)
}

/// Returns the routes for WebSockets of providers and surfaces.
pub(crate) fn sockets() -> [SocketRoute; 3] {
    [sa_nodes::http::SOCKET, sa_rest::http::SOCKET, sa_channels::http::SOCKET]
}

/// Opens a WebSocket at the gateway's root, which is for participants of channels.
pub(crate) async fn root_socket(
    gateway: &Gateway,
    upgrade: Result<Upgrade, NoUpgrade>,
    request: Request,
) -> Result<Response, Problem> {
    sa_channels::http::upgrade(State(channels(gateway)), upgrade, request).await
}

fn channels(gateway: &Gateway) -> sa_channels::http::Routes {
    let Gateway { http, channels, closing, .. } = gateway;
    let (channels, closing) = (Arc::clone(channels), closing.clone());
    sa_channels::http::Routes { http: http.clone(), channels, closing }
}

fn rest_options(gateway: &Gateway) -> sa_rest::http::Options {
    let Gateway { config, budgets, .. } = gateway;
    sa_rest::http::Options {
        version: VERSION,
        payload_bytes: config.settings.journal.payload_bytes,
        max_frame_bytes: config.settings.limits.max_frame_bytes,
        liveness: liveness(config),
        answers: Arc::clone(&budgets.answers),
    }
}
