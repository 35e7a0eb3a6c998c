//! The HTTP routes of plugins.

mod gateway;
mod registry;
mod settings;

use std::sync::Arc;

use axum::extract::FromRef;
use axum::routing::any;
use sa_http::{ErrorFormat, ForeignRoutes, Http, Problem};
use sa_protocol::plugin::GATEWAY_PATHS;
use sa_text::printable;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::settings::SettingsError;
use crate::{ChangeError, Plugins};

/// The state of the handlers.
#[derive(Debug, Clone, FromRef)]
pub struct Routes {
    pub http: Http,
    pub plugins: Arc<Plugins>,
}

/// The errors of the plugin gateway.
pub const ERRORS: ErrorFormat =
    ErrorFormat { paths: &GATEWAY_PATHS, schemas: &[("application/json", "PluginFailure")] };

/// The OpenAPI document describes one of the plugin gateway's paths.
#[derive(utoipa::OpenApi)]
#[openapi(paths(gateway::run))]
struct Gateway;

pub fn router() -> OpenApiRouter<Routes> {
    let routes = OpenApiRouter::with_openapi(Gateway::openapi())
        .routes(routes!(registry::list, registry::add))
        .routes(routes!(registry::check))
        .routes(routes!(registry::show, registry::remove))
        .routes(routes!(registry::enable))
        .routes(routes!(registry::disable))
        .routes(routes!(registry::refresh))
        .routes(routes!(registry::accept))
        .routes(routes!(registry::refuse))
        .routes(routes!(settings::settings, settings::store_settings, settings::delete_settings));
    // The handler has its own error for a wrong method.
    GATEWAY_PATHS.into_iter().fold(routes, |routes, path| routes.route(path, any(gateway::run)))
}

/// Returns the plugin gateway. The pages with these origins may use it.
pub fn gateway(origins: &[String]) -> ForeignRoutes<'_> {
    ForeignRoutes {
        paths: &GATEWAY_PATHS,
        render: gateway::refusal,
        origins,
        origins_key: "plugins.allowed_origins",
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let detail = printable(&error.to_string()).into_owned();
        match error {
            ChangeError::Invalid(_) => {
                Self::bad_request(detail).hint("run `switchboard plugin check` to see the problems")
            }
            ChangeError::Index(_) => Self::bad_request(detail)
                .hint("add one of them by the URL of its manifest; --replace replaces an installed plugin"),
            ChangeError::NoSource(_) | ChangeError::Full | ChangeError::Private(_) => Self::bad_request(detail),
            ChangeError::Taken(_) => Self::new(409, "conflict", detail)
                .hint("change the identifier in the manifest, or remove the other one first"),
            ChangeError::Exists(_) => Self::new(409, "conflict", detail).hint("remove it first, or add --replace"),
            ChangeError::NothingHeldBack(_) | ChangeError::Moved(_) => Self::new(409, "conflict", detail),
            ChangeError::Unknown(_) => Self::new(404, "not_found", detail).hint("run `switchboard plugin list`"),
            ChangeError::Fetch(error) if error.is_forbidden() => Self::new(502, "failed", detail)
                .hint("if the server is your own, allow this plugin to reach it with: --allow-private HOST:PORT"),
            ChangeError::Fetch(_) => {
                Self::new(502, "failed", detail).hint("check the address, and that its server is running")
            }
            ChangeError::Store(error) => error.into(),
        }
    }
}

impl From<SettingsError> for Problem {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Invalid(why) => {
                Self::new(422, "invalid_args", printable(&why).into_owned())
                    .hint("see the plugin's \"settings\" in `GET /v1/plugins`")
            }
            SettingsError::Vault(error) => {
                Self::new(503, "store", printable(&error.to_string()).into_owned())
            }
            SettingsError::Store(error) => error.into(),
        }
    }
}
