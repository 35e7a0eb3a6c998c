//! Completes each operation with details that its handler does not describe: shared failures, their
//! media types, and whether it needs a token.

use axum::http::StatusCode;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{AnyOfBuilder, Object, Schema, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{Content, OpenApi, PathItem, Ref, RefOr, Response};

use crate::assemble::routes::ERROR_FORMATS;
use crate::http::middleware;

/// The media type of a [`crate::http::Problem`].
const PROBLEM: &str = "application/problem+json";

/// Failures that every route can answer with: the checks in [`front`] run before each of them.
const SHARED: [(&str, &str); 5] = [
    ("400", "The request is malformed"),
    ("403", "The Host or Origin is not allowed, or the token's role is not sufficient"),
    ("429", "A limit or budget of the gateway is used up"),
    ("500", "The gateway failed to process this request"),
    ("503", "The store does not work, or there is no budget left for the response"),
];

pub(super) struct Complete;

impl utoipa::Modify for Complete {
    fn modify(&self, api: &mut OpenApi) {
        for (path, item) in &mut api.paths.paths {
            let PathItem { get, put, post, delete, .. } = item;
            for operation in [get, put, post, delete].into_iter().flatten() {
                complete(path, operation);
            }
        }
    }
}

fn complete(path: &str, operation: &mut Operation) {
    // The id is the name of a handler, and several modules have a handler `list`.
    if let (Some(id), Some([tag, ..])) = (&mut operation.operation_id, operation.tags.as_deref()) {
        *id = format!("{tag}_{id}");
    }
    let is_open = middleware::is_open(path);
    let mut shared = SHARED.to_vec();
    if !is_open {
        shared.push(("401", "The token is missing or invalid"));
    }
    if operation.request_body.is_some() {
        shared.push(("408", "The request body did not arrive in time"));
        shared.push(("413", "The request body is too large"));
    }
    let responses = &mut operation.responses.responses;
    for (status, description) in shared {
        responses.entry(status.to_owned()).or_insert_with(|| Response::new(description).into());
    }
    for (status, response) in responses {
        let RefOr::T(response) = response else { continue };
        if response.description.is_empty() {
            let code = status.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
            response
                .description
                .push_str(code.and_then(|code| code.canonical_reason()).unwrap_or("A failure"));
        }
        if !status.starts_with(['1', '2']) {
            describe_failure(path, response);
        }
    }
    if is_open {
        // Sockets and the console's sign-in also accept a token in the header.
        let takes_token = path.starts_with("/v1/") && !path.ends_with("/callback");
        let with_token =
            || [SecurityRequirement::default(), SecurityRequirement::new("token", [""; 0])];
        operation.security = Some(if takes_token { with_token().to_vec() } else { Vec::new() });
    }
}

/// Sets the media types and schemas of a failure. Most routes send a problem; some protocols have
/// their own format.
fn describe_failure(path: &str, response: &mut Response) {
    let own = ERROR_FORMATS.iter().find(|format| format.paths.contains(&path));
    let described = response.content.values().next().cloned();
    let content: Vec<(&str, RefOr<Content>)> = match path {
        // JSON-RPC errors and those of the MCP transport have no common schema.
        sa_mcp::http::PATH if described.is_none() => vec![],
        path if path.ends_with("/callback") => {
            vec![("text/html", Content::new(Some(text())).into())]
        }
        "/v1/tools/invoke" => {
            let either = AnyOfBuilder::new()
                .item(reference("InvokeFailed"))
                .item(reference("Problem"))
                .build();
            vec![(PROBLEM, Content::new(Some(Schema::AnyOf(either))).into())]
        }
        _ if let Some(format) = own => {
            format.schemas.iter().map(|(media_type, name)| (*media_type, schema(name))).collect()
        }
        _ => vec![(PROBLEM, described.unwrap_or_else(|| schema("Problem")))],
    };
    response.content =
        content.into_iter().map(|(media_type, content)| (media_type.to_owned(), content)).collect();
}

fn schema(name: &str) -> RefOr<Content> {
    Content::new(Some(reference(name))).into()
}

fn reference(name: &str) -> Ref {
    Ref::from_schema_name(name)
}

fn text() -> Schema {
    Schema::Object(Object::with_type(Type::String))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn operations() -> Vec<(String, Value)> {
        let document: Value = serde_json::from_str(&super::super::document()).unwrap();
        let paths = document["paths"].as_object().unwrap().clone();
        let operations = paths.into_iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().clone();
            methods
                .into_iter()
                .map(move |(method, operation)| (format!("{method} {path}"), operation))
        });
        operations.collect()
    }

    #[test]
    fn problems_have_their_own_media_type() {
        for (name, operation) in operations() {
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.contains_key("400") && responses.contains_key("403"), "{name}");
            for (status, response) in responses {
                for (media_type, content) in response["content"].as_object().into_iter().flatten() {
                    let is_problem = content["schema"]["$ref"] == "#/components/schemas/Problem";
                    assert!(!is_problem || media_type == PROBLEM, "{name} {status}: {response}");
                }
            }
        }
    }

    #[test]
    fn only_public_routes_work_without_a_token() {
        let (open, other): (Vec<_>, Vec<_>) = operations()
            .into_iter()
            .partition(|(_, operation)| operation.get("security").is_some());
        let open: Vec<String> = open.into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            open,
            [
                "get /healthz",
                "get /readyz",
                "get /v1/channels/ws",
                "post /v1/console/sign-in",
                "get /v1/nodes/ws",
                "get /v1/upstream/{name}/callback",
            ]
        );
        for (name, operation) in other {
            assert!(operation["responses"]["401"].is_object(), "{name}");
        }
    }
}
