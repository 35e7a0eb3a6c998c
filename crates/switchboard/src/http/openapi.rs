//! The description of the API, made from the code.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

#[derive(OpenApi)]
#[openapi(
    info(title = "Switchboard", description = "One gateway between AI agents and the tools they call."),
    paths(
        super::tools::list, super::tools::call, super::invoke::invoke,
        super::calls::list, super::calls::show, super::calls::cancel, super::calls_ws::upgrade, super::events::follow,
        super::nodes::list, super::nodes::upgrade, super::eligibility::probe, super::eligibility::answer, super::skills::list,
        super::upstream::list, super::upstream::add, super::upstream::remove, super::upstream::restart,
        super::upstream_login::begin, super::upstream_login::progress, super::upstream_login::log_out, super::upstream_login::callback,
        super::plugins::list, super::plugins::add, super::plugins::show, super::plugins::remove, super::plugins::check,
        super::plugins::enable, super::plugins::disable, super::plugins::refresh, super::plugins::accept, super::plugins::refuse,
        super::plugin_settings::settings, super::plugin_settings::store_settings, super::plugin_settings::delete_settings, super::plugin_gateway::run,
        super::sessions::list, super::sessions::show, super::sessions::message, super::sessions::respond,
        super::sessions::end, super::sessions::events,
        super::channels::upgrade, super::channels::list, super::channels::show, super::channels::delete, super::channels::history,
        super::channels::publish, super::channels::follow, super::channels::attachment,
        super::chat::completions, super::chat::models, super::chat::model, super::functions::list, super::functions::execute,
        super::tokens::list, super::tokens::create, super::tokens::revoke,
        super::audit::list, super::mcp::describe,
        super::console::sign_in, super::console::sign_out, super::console::link,
        super::status::status, super::health::stats, super::health::metrics, super::health::healthz, super::health::readyz,
        serve,
    ),
    security(("token" = [])),
    modifiers(&Tokens),
)]
struct Api;

struct Tokens;

impl utoipa::Modify for Tokens {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        api.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// The OpenAPI document as JSON.
pub fn document() -> String {
    Api::openapi().to_pretty_json().unwrap_or_default()
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "health", responses((status = 200, description = "The OpenAPI document")))]
pub(crate) async fn serve() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document()).into_response()
}
