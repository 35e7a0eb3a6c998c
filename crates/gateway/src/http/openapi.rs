//! The OpenAPI document, generated from the code.

mod complete;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

use self::complete::Complete;

macro_rules! described {
    ($($method:ident $path:literal => $module:ident::$handler:ident,)*) => {
        #[derive(OpenApi)]
        #[openapi(
            info(title = "Switchboard", description = "One gateway between AI agents and the tools they call."),
            paths($(super::$module::$handler,)* super::mcp::describe, super::plugin_gateway::run),
            components(schemas(super::Problem, super::chat::ChatFailed)),
            security(("token" = [])),
            modifiers(&Tokens, &Complete),
        )]
        struct Api;
    };
}
super::routes::with_described!(described);

struct Tokens;

impl utoipa::Modify for Tokens {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme =
            SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        api.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// Returns the OpenAPI document as JSON.
pub fn document() -> String {
    Api::openapi().to_pretty_json().unwrap_or_default()
}

/// Returns this OpenAPI document.
#[utoipa::path(get, path = "/openapi.json", tag = "health",
    responses((status = 200, body = Object, description = "The OpenAPI document")))]
pub(crate) async fn serve() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document()).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_operation_has_an_id_of_its_own() {
        let api: serde_json::Value = serde_json::from_str(&document()).unwrap();
        let mut ids = HashSet::new();
        for item in api["paths"].as_object().unwrap().values() {
            for operation in item.as_object().unwrap().values() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{id}");
            }
        }
        assert!(ids.contains("upstream_add"), "{ids:?}");
    }
}
