//! OpenAPI documents of plugins: their operations become functions.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use sa_core::{CallError, CallErrorKind};
use sa_egress::header::{HeaderMap, HeaderName, HeaderValue};
use sa_egress::{Allowed, Method, Request, origin};
use sa_openapi::{Document, HttpRequest, Json, Limits, Operation, RequestError, RequestErrorKind};
use sa_protocol::plugin::PluginErrorType;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use url::Url;

use crate::call_extensions::Fault;
use crate::secrets;
use crate::tokens::TokenFetcher;

/// The maximum size of a document.
pub(crate) const MAX_DOCUMENT: usize = Limits::DEFAULT.bytes;

/// The error for a document that names no usable server.
pub(crate) const NO_SERVER: &str = "none of its \"servers\" has an absolute URL, and the address of the document is unknown: use absolute URLs, or add the document by its URL";

pub(crate) fn read(text: &str, source: Option<&Url>) -> Result<Document, String> {
    Document::parse(text.as_bytes(), source).map_err(|error| error.to_string())
}

/// Returns whether a JSON text has a manifest's identifier.
pub(crate) fn is_manifest(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Named {
        identifier: Option<IgnoredAny>,
    }
    serde_json::from_str::<Named>(text).is_ok_and(|named| named.identifier.is_some())
}

/// Returns a manifest for a document that has none.
pub(crate) fn manifest_for(document: &Document) -> Value {
    let slug: String = document
        .title()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let words: Vec<&str> = slug.split('-').filter(|word| !word.is_empty()).collect();
    let identifier: String = words.join("-").chars().take(48).collect();
    let identifier = if identifier.is_empty() { "openapi".to_owned() } else { identifier };
    json!({ "identifier": identifier, "meta": { "title": document.title(), "description": document.description() }, "api": [] })
}

/// Merges the settings schema of a manifest with that of its document.
pub(crate) fn settings_schema(own: Option<&Value>, document: &Document) -> Option<Value> {
    let from_document = document.settings_schema();
    let mut schema = own.cloned().unwrap_or_else(|| json!({ "type": "object" }));
    let of = |schema: &Value, key: &str| schema.get(key).cloned().unwrap_or_default();
    let mut properties = of(&from_document, "properties").as_object().cloned().unwrap_or_default();
    properties.extend(of(&schema, "properties").as_object().cloned().unwrap_or_default());
    if properties.is_empty() && own.is_none() {
        return None;
    }
    let mut required: BTreeSet<String> = BTreeSet::new();
    for schema in [&from_document, &schema] {
        let names = of(schema, "required").as_array().cloned().unwrap_or_default();
        required.extend(names.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    schema["properties"] = Value::Object(properties);
    schema["required"] = json!(required);
    Some(schema)
}

/// Returns the origins that receive data in a call of an operation, or in the token request for
/// it.
pub(crate) fn origins(document: &Document, operation: &Operation) -> Vec<String> {
    // Example values are sufficient: the settings only select the server.
    let schema = document.settings_schema();
    let example = |field: &Value| match (field.get("default"), field.pointer("/enum/0")) {
        (Some(value), _) | (None, Some(value)) => value.clone(),
        (None, None) => json!("x"),
    };
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let examples: Map<String, Value> =
        fields.map(|(name, field)| (name.clone(), example(field))).collect();
    let settings = document.settings(&Value::Object(examples));
    let server = operation.server(&settings).ok();
    server.iter().chain(&operation.token_urls(&settings)).map(origin).collect()
}

/// Returns the parts of a document that matter to models and to users with stored secrets, for a
/// comparison.
pub(crate) fn summary(text: &str, source: Option<&Url>) -> Value {
    let Ok(document) = read(text, source) else { return json!("the document is invalid") };
    let operations = document.operations().iter().map(|operation| {
        let schema: Value = serde_json::from_str(operation.input_schema()).unwrap_or_default();
        let shown = json!({
            "description": operation.description(), "method": operation.method(), "path": operation.path(),
            "servers": origins(&document, operation), "parameters": schema,
        });
        (operation.name().to_owned(), shown)
    });
    json!({ "functions": operations.collect::<Map<_, _>>(), "settings": document.settings_schema() })
}

/// A call of an operation.
pub(crate) struct OperationCall<'a> {
    pub(crate) document: &'a Document,
    pub(crate) operation: &'a str,
    pub(crate) arguments: &'a Json,
    pub(crate) settings: &'a Value,
}

impl OperationCall<'_> {
    /// Returns its HTTP request with the required tokens. A token is fetched if none is cached,
    /// or if the cached one is not newer than `newer_than`.
    pub(crate) async fn request(
        &self,
        fetcher: &TokenFetcher<'_>,
        time: Duration,
        newer_than: Option<Instant>,
        secrets: &mut Vec<String>,
    ) -> Result<HttpRequest, Fault> {
        let operation = self.document.operation(self.operation).ok_or_else(|| {
            let error = CallError::new(
                CallErrorKind::NotFound,
                "the OpenAPI document has no such operation",
            );
            Fault::new(PluginErrorType::PluginApiNotFound, error)
        })?;
        let mut settings = self.document.settings(self.settings);
        for token in operation.tokens(&settings).map_err(fault)? {
            secrets.extend(secrets::credentials(&token.request().headers));
            let value = fetcher.token(&token, time, newer_than, secrets).await?;
            settings = settings.token(token.scheme.clone(), value);
        }
        operation.request(self.arguments, &settings).map_err(fault)
    }

    /// Returns whether the call uses a fetched token.
    pub(crate) fn uses_tokens(&self) -> bool {
        let operation = self.document.operation(self.operation);
        let tokens = operation
            .and_then(|operation| operation.tokens(&self.document.settings(self.settings)).ok());
        tokens.is_some_and(|tokens| !tokens.is_empty())
    }
}

/// Converts a request for the egress client.
pub(crate) fn outgoing(
    request: HttpRequest,
    secret: bool,
    allowed: Allowed,
    time: Duration,
    max_bytes: usize,
) -> Result<Request, Fault> {
    let HttpRequest { method, url, headers: pairs, body } = request;
    let unusable = || {
        let error = CallError::new(
            CallErrorKind::Failed,
            "the OpenAPI document describes a request that cannot be sent",
        );
        Fault::new(PluginErrorType::PluginOpenApiInitError, error)
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| unusable())?;
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::try_from(name).map_err(|_| unusable())?;
        let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| unusable())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let body = body.map(Bytes::from).unwrap_or_default();
    Ok(Request { method, headers, body, secret, allowed, ..Request::get(url, time, max_bytes) })
}

pub(crate) fn fault(error: RequestError) -> Fault {
    use RequestErrorKind as Kind;
    let (error_type, kind) = match error.kind {
        Kind::MissingArgument | Kind::UnknownArgument | Kind::InvalidArgument => {
            (PluginErrorType::PluginApiParamsError, CallErrorKind::InvalidArgs)
        }
        Kind::MissingSetting | Kind::InvalidSetting | Kind::MissingToken => {
            (PluginErrorType::PluginSettingsInvalid, CallErrorKind::Failed)
        }
        Kind::Server => (PluginErrorType::PluginOpenApiInitError, CallErrorKind::Failed),
    };
    Fault::new(error_type, CallError::new(kind, error.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"openapi":"3.1.0","info":{"title":"Pet Store!","description":"Pets."},
        "servers":[{"url":"https://api.example/v1"}],"security":[{"client":[]}],
        "components":{"securitySchemes":{"client":{"type":"oauth2","flows":{"clientCredentials":{"tokenUrl":"https://auth.example/token","scopes":{}}}}}},
        "paths":{"/pets":{"get":{"operationId":"listPets","description":"All pets."}}}}"#;

    #[test]
    fn a_document_says_what_it_is_called_and_where_it_leads() {
        let document = read(DOCUMENT, None).unwrap();
        assert_eq!(manifest_for(&document)["identifier"], "pet-store");
        let origins = origins(&document, &document.operations()[0]);
        assert_eq!(origins, ["https://api.example", "https://auth.example"]);
        // The same result if another authentication method comes first.
        let alternative =
            DOCUMENT.replace("[{\"client\":[]}]", "[{\"key\":[]},{\"client\":[]}]").replace(
                "\"securitySchemes\":{",
                "\"securitySchemes\":{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"},",
            );
        let alternative = read(&alternative, None).unwrap();
        assert_eq!(super::origins(&alternative, &alternative.operations()[0]), origins);
        let own = json!({ "type": "object", "properties": { "units": { "type": "string" } }, "required": ["units"] });
        let schema = settings_schema(Some(&own), &document).unwrap();
        assert_eq!(schema["required"], json!(["units"]));
        assert_eq!(schema["properties"]["client_clientSecret"]["format"], "password");
    }

    #[test]
    fn a_change_of_what_matters_is_seen() {
        let same = DOCUMENT.replace("3.1.0", "3.1.1");
        assert_eq!(summary(DOCUMENT, None), summary(&same, None));
        for change in [
            ("All pets.", "Send secrets."),
            ("api.example", "evil.example"),
            ("auth.example", "evil.example"),
            ("\"get\"", "\"delete\""),
        ] {
            assert_ne!(
                summary(DOCUMENT, None),
                summary(&DOCUMENT.replace(change.0, change.1), None),
                "{change:?}"
            );
        }
    }
}
