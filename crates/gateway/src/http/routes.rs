//! The gateway's own routes. Each provider crate has its own list.

use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::*;

/// Returns the routes that the OpenAPI document describes.
pub(super) fn described() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(audit::list))
        .routes(routes!(tool_changes::list))
        .routes(routes!(tool_changes::accept))
        .routes(routes!(retention::show))
        .routes(routes!(retention::confirm))
        .routes(routes!(status::status))
        .routes(routes!(health::stats))
        .routes(routes!(console::sign_in))
        .routes(routes!(console::sign_out))
        .routes(routes!(console::link))
        .routes(routes!(openapi::serve))
        .routes(routes!(health::metrics))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
}

/// Returns the routes that the OpenAPI document leaves out: pages for browsers.
///
/// `/mcp` is in the document but not here, because [`middleware`] handles it before the router.
fn undescribed() -> Router<App> {
    Router::new()
        .route("/", get(console::root))
        .route("/console", get(console::redirect))
        .route("/console/", get(console::page))
        .route("/console/sandbox.html", get(console::sandbox))
        .route("/console/assets/{name}", get(console::asset))
}

/// Returns all routes.
pub(super) fn routes(gateway: &Arc<Gateway>) -> Router {
    Router::from(described())
        .merge(undescribed())
        .merge(Router::from(assemble::routes::all(gateway)))
        .fallback(middleware::not_found)
        .method_not_allowed_fallback(middleware::method_not_allowed)
        .with_state(App(Arc::clone(gateway)))
}
