//! All routes: the direct ones, the gateway's own, and those of the providers and surfaces.

use axum::routing::get;
use sa_http::{RouteTable, method_not_allowed};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::*;

/// Returns the table of all routes.
pub(super) fn all(gateway: &Arc<Gateway>) -> RouteTable {
    let others = others(gateway)
        .fallback(middleware::not_found)
        .method_not_allowed_fallback(method_not_allowed);
    table(gateway, others)
}

fn table(gateway: &Arc<Gateway>, others: Router<App>) -> RouteTable {
    let others = others.with_state(App(Arc::clone(gateway)));
    RouteTable::new(assemble::routes::direct(gateway), others)
}

/// Returns the routes that are not direct.
fn others(gateway: &Gateway) -> Router<App> {
    Router::from(described())
        .merge(undescribed())
        .merge(Router::from(assemble::routes::others(gateway)))
}

/// Returns the gateway's own routes that the OpenAPI document describes.
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
fn undescribed() -> Router<App> {
    Router::new()
        .route("/", get(console::root))
        .route("/console", get(console::redirect))
        .route("/console/", get(console::page))
        .route("/console/sandbox.html", get(console::sandbox))
        .route("/console/assets/{name}", get(console::asset))
}

#[cfg(test)]
mod tests;
