//! Requests are sent to the server nearest to the operation, and neither arguments nor variables
//! lead elsewhere.

use sa_openapi::{Document, Json, RequestErrorKind, Settings};
use serde_json::{Value, json};

use crate::support::url;

fn document(servers: Value, source: Option<&str>) -> Document {
    let written = json!({"openapi": "3.1.0", "servers": servers, "paths": {"/call": {"get": {"operationId": "call"}}}});
    Document::parse(written.to_string().as_bytes(), source.map(url).as_ref()).unwrap()
}

#[track_caller]
fn goes(servers: Value, source: Option<&str>, expected: &str) {
    let request = document(servers, source)
        .operation("call")
        .unwrap()
        .request(&Json::Null, &Settings::default());
    assert_eq!(request.unwrap().url.as_str(), expected);
}

#[track_caller]
fn nowhere(servers: Value, source: Option<&str>) {
    let request = document(servers, source)
        .operation("call")
        .unwrap()
        .request(&Json::Null, &Settings::default());
    assert_eq!(request.unwrap_err().kind, RequestErrorKind::Server);
}

#[test]
fn absolute_and_relative() {
    let source = Some("https://docs.example.com/specs/v1/openapi.json");
    goes(json!([{"url": "https://api.example.com"}]), None, "https://api.example.com/call");
    goes(
        json!([{"url": "https://api.example.com/v1/"}]),
        source,
        "https://api.example.com/v1/call",
    );
    goes(
        json!([{"url": "https://a.example.com"}, {"url": "https://b.example.com"}]),
        None,
        "https://a.example.com/call",
    );
    goes(json!([{"url": "/v2"}]), source, "https://docs.example.com/v2/call");
    goes(json!([{"url": "v2"}]), source, "https://docs.example.com/specs/v1/v2/call");
    goes(json!([{"url": "//api.example.com"}]), source, "https://api.example.com/call");
    goes(
        json!([{"url": "https://api.example.com/?v=1#x"}]),
        None,
        "https://api.example.com/call?v=1",
    );
    for none in [json!([]), Value::Null, json!([{"url": ""}])] {
        goes(none, Some("https://docs.example.com/"), "https://docs.example.com/call");
    }
}

#[test]
fn no_server() {
    nowhere(json!([]), None);
    nowhere(json!([{"url": "/v1"}]), None);
    nowhere(json!([{"url": "ftp://example.com"}]), None);
    nowhere(json!([{"url": "file:///etc"}]), Some("https://docs.example.com/"));
    nowhere(json!([{"url": "https://user:secret@example.com"}]), None);
    nowhere(json!([{"url": "https://"}]), None);
}

#[test]
fn the_nearest_server_wins() {
    let mut written = json!({
        "openapi": "3.0.0",
        "servers": [{"url": "https://root.example.com"}],
        "paths": {"/call": {
            "servers": [{"url": "https://path.example.com"}],
            "get": {"operationId": "call", "servers": [{"url": "https://operation.example.com"}]},
        }},
    });
    let host = |written: &Value| {
        let document = Document::parse(written.to_string().as_bytes(), None).unwrap();
        document
            .operation("call")
            .unwrap()
            .server(&Settings::default())
            .unwrap()
            .host_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(host(&written), "operation.example.com");
    written["paths"]["/call"]["get"]["servers"] = json!([]);
    assert_eq!(host(&written), "path.example.com");
    written["paths"]["/call"]["servers"] = Value::Null;
    assert_eq!(host(&written), "root.example.com");
}

#[track_caller]
fn variable(
    template: &str,
    definition: Value,
    set: Option<&str>,
    expected: Result<&str, RequestErrorKind>,
) {
    let servers = json!([{"url": template, "variables": {"v": definition}}]);
    let document = document(servers, Some("https://docs.example.com/"));
    let settings = document.settings(&json!({"server_v": set}));
    let request = document.operation("call").unwrap().request(&Json::Null, &settings);
    let request = request.map(|request| request.url.to_string());
    assert_eq!(
        request.as_ref().map(String::as_str).map_err(|error| error.kind),
        expected,
        "{template} {set:?}"
    );
}

#[test]
fn variables_have_defaults_and_values() {
    let template = "https://{v}.example.com/v1";
    let region = json!({"default": "eu", "enum": ["eu", "us"]});
    variable(template, region.clone(), None, Ok("https://eu.example.com/v1/call"));
    variable(template, region.clone(), Some("us"), Ok("https://us.example.com/v1/call"));
    variable(template, region, Some("cn"), Err(RequestErrorKind::InvalidSetting));
    variable(template, json!({"enum": ["eu"]}), None, Ok("https://eu.example.com/v1/call"));
    variable(template, json!({}), None, Err(RequestErrorKind::MissingSetting));
    variable(
        "https://example.com:{v}",
        json!({"default": 8443}),
        None,
        Ok("https://example.com:8443/call"),
    );
}

#[test]
fn a_free_variable_stays_in_its_place() {
    let free = json!({"default": "demo"});
    let bad = Err(RequestErrorKind::InvalidSetting);
    let tenant = "https://{v}.example.com";
    variable(tenant, free.clone(), Some("acme"), Ok("https://acme.example.com/call"));
    for set in [
        "evil.com/",
        "evil.com#",
        "evil.com?",
        "evil.com\\",
        "a@evil.com",
        "evil.com:80",
        "a.b",
        "ü",
        " ",
        "a%2f",
    ] {
        variable(tenant, free.clone(), Some(set), bad);
    }
    let base = "https://example.com/{v}/x";
    variable(base, free.clone(), Some("a/b c"), Ok("https://example.com/a/b%20c/x/call"));
    for set in ["..", "a/../../b", ".", "/evil.com", "a//b", "/"] {
        variable(base, free.clone(), Some(set), bad);
    }
    variable("/{v}/x", free.clone(), Some("/evil.com"), bad);
    variable("/{v}/x", free.clone(), Some("a"), Ok("https://docs.example.com/a/x/call"));
    variable("{v}", free.clone(), Some("//evil.com"), bad);
    variable("{v}", free.clone(), Some("https://evil.com"), bad);
    variable(
        "{v}://example.com",
        json!({"default": "https"}),
        Some("http"),
        Ok("http://example.com/call"),
    );
    variable("{v}://example.com", json!({"default": "https"}), Some("file"), bad);
    variable("https://example.com{v}", json!({"default": ""}), Some(".evil.com"), bad);
    variable("https://example.com{v}/x", json!({"default": ""}), Some("evil"), bad);
    variable("https://api.example.{v}", json!({"default": "com"}), Some("evil"), bad);
    variable("https://a.{v}.", json!({"default": "com"}), Some("evil"), bad);
    variable("https://example.com:{v}/", json!({"default": "443"}), Some("80@evil.com"), bad);
    variable(
        "https://example.com:{v}/",
        json!({"default": "443"}),
        Some("8443"),
        Ok("https://example.com:8443/call"),
    );
    variable(
        "https://{v}/",
        free.clone(),
        Some("my.host.example"),
        Ok("https://my.host.example/call"),
    );
    variable("https://{v}/", free, Some("my.host.example/@"), bad);
}

#[test]
fn variables_are_settings() {
    let servers = json!([{
        "url": "https://{tenant}.example.com/{version}",
        "variables": {"tenant": {"description": "Yours."}, "version": {"default": "v1", "enum": ["v1", "v2"]}},
    }]);
    let schema = document(servers, None).settings_schema();
    assert_eq!(schema["required"], json!(["server_tenant"]));
    let version =
        json!({"type": "string", "title": "version", "default": "v1", "enum": ["v1", "v2"]});
    assert_eq!(schema["properties"]["server_version"], version);
}
