//! The OpenAPI document, generated from the code.

mod complete;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify as _, OpenApi as _};

use self::complete::Complete;
use super::routes;
use crate::assemble;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Switchboard",
        description = "One gateway between AI agents and the tools they call."
    ),
    components(schemas(super::Problem)),
    security(("token" = [])),
)]
struct Api;

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
    let own = std::iter::once(routes::described().into_openapi());
    let mut api = own
        .chain(assemble::routes::described())
        .fold(Api::openapi(), utoipa::openapi::OpenApi::merge_from);
    Tokens.modify(&mut api);
    Complete.modify(&mut api);
    api.to_pretty_json().unwrap_or_default()
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
