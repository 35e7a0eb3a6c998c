//! Credentials come from settings, are sent as the scheme specifies, and are named in the error if
//! they are missing.

use sa_openapi::{
    AccessToken, Document, HttpRequest, Json, ProblemKind, RequestError, RequestErrorKind, Settings,
};
use serde_json::{Value, json};

use crate::support::{header, parse, schema, target};

/// Returns a document with these schemes, `a` to `z`, and one operation with this security.
fn secured(schemes: Value, security: Value) -> Document {
    parse(&json!({
        "openapi": "3.0.3",
        "servers": [{"url": "https://api.example.com"}],
        "components": {"securitySchemes": schemes},
        "security": security,
        "paths": {"/call": {"get": {"operationId": "call"}}},
    }))
}

fn call(document: &Document, settings: Value) -> Result<HttpRequest, RequestError> {
    document.operation("call").unwrap().request(&Json::Null, &document.settings(&settings))
}

#[track_caller]
fn sends(scheme: Value, setting: Value, name: &str, value: &str) {
    let document = secured(json!({"s": scheme}), json!([{"s": []}]));
    let request = call(&document, json!({"s": setting})).unwrap();
    assert_eq!(header(&request, name), Some(value));
    let missing = call(&document, json!({})).unwrap_err();
    assert_eq!((missing.kind, missing.name.as_str()), (RequestErrorKind::MissingSetting, "s"));
    assert!(missing.to_string().contains("\"s\""), "{missing}");
}

#[test]
fn each_kind_has_its_header() {
    sends(json!({"type": "apiKey", "in": "header", "name": "X-Key"}), json!("k"), "x-key", "k");
    sends(
        json!({"type": "apiKey", "in": "header", "name": "Authorization"}),
        json!("Token k"),
        "authorization",
        "Token k",
    );
    sends(json!({"type": "apiKey", "in": "cookie", "name": "sid"}), json!("k"), "cookie", "sid=k");
    sends(
        json!({"type": "http", "scheme": "basic"}),
        json!("user:pass"),
        "authorization",
        "Basic dXNlcjpwYXNz",
    );
    let pair = json!({"username": "user", "password": "pass"});
    sends(json!({"type": "http", "scheme": "Basic"}), pair, "authorization", "Basic dXNlcjpwYXNz");
    sends(json!({"type": "http", "scheme": "bearer"}), json!("t"), "authorization", "Bearer t");
    sends(json!({"type": "http", "scheme": "ApiToken"}), json!("t"), "authorization", "ApiToken t");
    sends(
        json!({"type": "openIdConnect", "openIdConnectUrl": "https://a"}),
        json!("t"),
        "authorization",
        "Bearer t",
    );
    sends(
        json!({"type": "oauth2", "flows": {"implicit": {}}}),
        json!("t"),
        "authorization",
        "Bearer t",
    );
}

#[test]
fn a_key_in_the_query() {
    let document =
        secured(json!({"s": {"type": "apiKey", "in": "query", "name": "k e"}}), json!([{"s": []}]));
    assert_eq!(target(&call(&document, json!({"s": "a&b"})).unwrap()), "/call?k%20e=a%26b");
}

#[test]
fn a_setting_cannot_break_a_header() {
    for scheme in [
        json!({"type": "apiKey", "in": "header", "name": "X-Key"}),
        json!({"type": "apiKey", "in": "cookie", "name": "sid"}),
        json!({"type": "http", "scheme": "bearer"}),
    ] {
        let document = secured(json!({"s": scheme}), json!([{"s": []}]));
        let error = call(&document, json!({"s": "hunter2\r\nX-Evil: 1"})).unwrap_err();
        assert_eq!((error.kind, error.name.as_str()), (RequestErrorKind::InvalidSetting, "s"));
        assert!(!error.to_string().contains("hunter2"));
    }
    let document = secured(
        json!({"s": {"type": "apiKey", "in": "cookie", "name": "sid"}}),
        json!([{"s": []}]),
    );
    assert!(call(&document, json!({"s": "a; admin=1"})).is_err());
    let document = secured(json!({"s": {"type": "http", "scheme": "basic"}}), json!([{"s": []}]));
    assert_eq!(
        call(&document, json!({"s": "nocolon"})).unwrap_err().kind,
        RequestErrorKind::InvalidSetting
    );
}

fn two() -> Value {
    json!({
        "a": {"type": "apiKey", "in": "header", "name": "X-A"},
        "b": {"type": "apiKey", "in": "header", "name": "X-B"},
    })
}

#[track_caller]
fn choice(security: Value, settings: Value, expected: Result<(Option<&str>, Option<&str>), &str>) {
    let sent = call(&secured(two(), security), settings);
    match (&sent, expected) {
        (Ok(request), Ok(expected)) => {
            assert_eq!((header(request, "x-a"), header(request, "x-b")), expected);
        }
        (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
        _ => panic!("{sent:?}"),
    }
}

#[test]
fn alternatives_and_combinations() {
    let either = json!([{"a": []}, {"b": []}]);
    choice(either.clone(), json!({"a": "1", "b": "2"}), Ok((Some("1"), None)));
    choice(either.clone(), json!({"b": "2"}), Ok((None, Some("2"))));
    choice(either, json!({}), Err("one of these settings, and none is set: \"a\"; \"b\""));
    let both = json!([{"a": [], "b": []}]);
    choice(both.clone(), json!({"a": "1", "b": "2"}), Ok((Some("1"), Some("2"))));
    choice(both.clone(), json!({"a": "1"}), Err("the setting \"b\""));
    choice(both, json!({}), Err("\"a\" and \"b\""));
    let optional = json!([{}, {"a": []}]);
    choice(optional.clone(), json!({"a": "1"}), Ok((Some("1"), None)));
    choice(optional, json!({}), Ok((None, None)));
    choice(json!([]), json!({"a": "1"}), Ok((None, None)));
    choice(json!([{"a": []}]), json!({"a": ""}), Err("\"a\""));
}

#[test]
fn an_operation_has_its_own_security() {
    let mut written = json!({
        "openapi": "3.1.0",
        "servers": [{"url": "https://api.example.com"}],
        "components": {"securitySchemes": two()},
        "security": [{"a": []}],
        "paths": {"/call": {"get": {"operationId": "call", "security": []}}},
    });
    assert!(call(&parse(&written), json!({})).is_ok());
    written["paths"]["/call"]["get"]["security"] = json!([{"b": []}]);
    assert_eq!(call(&parse(&written), json!({"a": "1"})).unwrap_err().name, "b");
}

#[test]
fn a_model_is_not_asked_for_a_secret() {
    let document = parse(&json!({
        "openapi": "3.1.0",
        "servers": [{"url": "https://api.example.com"}],
        "components": {"securitySchemes": two()},
        "paths": {"/call": {"get": {
            "operationId": "call",
            "security": [{"a": []}],
            "parameters": [
                {"name": "x-a", "in": "header", "required": true},
                {"name": "X-A", "in": "query"},
                {"name": "X-B", "in": "header"},
            ],
        }}},
    }));
    let properties = schema(&document, "call")["properties"].clone();
    assert_eq!(properties.as_object().unwrap().keys().collect::<Vec<_>>(), ["X-A", "X-B"]);
    let request = call(&document, json!({"a": "1"})).unwrap();
    assert_eq!(header(&request, "x-a"), Some("1"));
}

#[test]
fn what_cannot_be_done_is_said() {
    let document = secured(json!({"s": {"type": "mutualTLS"}}), json!([{"s": []}]));
    assert_eq!(document.problems()[0].kind, ProblemKind::Unsupported);
    let error = call(&document, json!({})).unwrap_err();
    assert!(error.to_string().contains("\"s\" (mutualTLS), which is not supported"), "{error}");
    let document = secured(json!({}), json!([{"nobody": []}]));
    assert_eq!(document.problems()[0].kind, ProblemKind::BrokenReference);
    assert!(call(&document, json!({})).is_ok());
    let header = json!({"s": {"type": "apiKey", "in": "header", "name": "Host"}});
    assert_eq!(secured(header, json!([])).problems()[0].kind, ProblemKind::Malformed);
}

fn oauth(token_url: &str) -> Document {
    let flow = json!({"tokenUrl": token_url, "scopes": {"read": "", "write": ""}});
    let scheme = json!({"type": "oauth2", "flows": {"clientCredentials": flow}});
    secured(json!({"o": scheme}), json!([{"o": ["read", "write"]}]))
}

#[test]
fn a_client_fetches_its_token() {
    let document = oauth("/token");
    let operation = document.operation("call").unwrap();
    let settings = document.settings(&json!({"o_clientId": "me", "o_clientSecret": "hush:hush"}));
    let error = operation.request(&Json::Null, &settings).unwrap_err();
    assert_eq!((error.kind, error.name.as_str()), (RequestErrorKind::MissingToken, "o"));

    let tokens = operation.tokens(&settings).unwrap();
    let [token] = tokens.as_slice() else { panic!("{tokens:?}") };
    assert!(!format!("{token:?}").contains("hush"));
    let request = token.request();
    assert_eq!(
        (request.method.as_str(), request.url.as_str()),
        ("POST", "https://api.example.com/token")
    );
    assert_eq!(header(&request, "authorization"), Some("Basic bWU6aHVzaCUzQWh1c2g="));
    assert_eq!(
        request.body.as_deref(),
        Some(&b"grant_type=client_credentials&scope=read%20write"[..])
    );

    let answer =
        AccessToken::read(br#"{"access_token":"t0k3n","token_type":"bearer","expires_in":"60"}"#)
            .unwrap();
    assert_eq!(answer.expires_in, Some(60));
    let settings = settings.token("o", answer.value);
    assert!(operation.tokens(&settings).unwrap().is_empty());
    let request = operation.request(&Json::Null, &settings).unwrap();
    assert_eq!(header(&request, "authorization"), Some("Bearer t0k3n"));
}

#[test]
fn a_token_url_is_a_web_address() {
    let settings = Settings::default().client("o", "me", "hush");
    for bad in ["file:///etc/passwd", "javascript:1"] {
        assert!(oauth(bad).operation("call").unwrap().tokens(&settings).is_err(), "{bad}");
    }
}

#[test]
fn what_is_no_token_is_told() {
    for answer in [
        &b"<html>"[..],
        b"{}",
        br#"{"access_token":""}"#,
        br#"{"error":"invalid_client"}"#,
        br#"{"access_token":"x","token_type":"mac"}"#,
    ] {
        assert!(AccessToken::read(answer).is_err());
    }
}

#[test]
fn the_settings_that_a_document_needs() {
    let schemes = json!({
        "key": {"type": "apiKey", "in": "header", "name": "X-Key", "description": "From your profile."},
        "login": {"type": "http", "scheme": "basic"},
        "unused": {"type": "http", "scheme": "bearer"},
        "client": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "https://a/token"}}},
    });
    let security = json!([{"key": [], "login": []}, {"key": [], "client": []}]);
    let schema = secured(schemes, security).settings_schema();
    let properties = schema["properties"].as_object().unwrap();
    let names = ["client_accessToken", "client_clientId", "client_clientSecret", "key", "login"];
    assert_eq!(properties.keys().collect::<Vec<_>>(), names);
    assert_eq!(schema["required"], json!(["key"]));
    for secret in ["client_clientSecret", "key", "login"] {
        assert_eq!(properties[secret]["format"], "password");
    }
    assert_eq!(properties["client_clientId"].get("format"), None);
    assert!(properties["key"]["description"].as_str().unwrap().contains("From your profile."));
    jsonschema::validator_for(&schema).unwrap();
}

/// The document has a key for one operation and a server variable for another: a third is called
/// without either.
#[test]
fn a_setting_is_required_only_where_all_operations_need_it() {
    let document = |third: Value| {
        let key = json!({"key": {"type": "apiKey", "in": "header", "name": "X-Key"}});
        let servers = json!([{"url": "https://{region}.example.com", "variables": {"region": {}}}]);
        parse(&json!({
            "openapi": "3.0.3",
            "servers": [{"url": "https://api.example.com"}],
            "components": {"securitySchemes": key},
            "paths": {
                "/a": {"get": {"operationId": "secured", "security": [{"key": []}]}},
                "/b": {"get": {"operationId": "regional", "security": [{"key": []}], "servers": servers}},
                "/c": {"get": third},
            },
        }))
    };
    let some = document(json!({"operationId": "open"}));
    assert_eq!(some.settings_schema()["required"], json!([]));
    let none = some.settings(&json!({}));
    assert!(some.operation("open").unwrap().request(&Json::Null, &none).is_ok());
    for (operation, lacking) in [("secured", "key"), ("regional", "server_region")] {
        let error = some.operation(operation).unwrap().request(&Json::Null, &none).unwrap_err();
        assert_eq!((error.kind, error.name.as_str()), (RequestErrorKind::MissingSetting, lacking));
    }
    let all = document(json!({"operationId": "third", "security": [{"key": []}]}));
    assert_eq!(all.settings_schema()["required"], json!(["key"]));
}

#[test]
fn an_access_token_by_the_name_that_other_hosts_give_it() {
    for flow in [json!({"implicit": {}}), json!({"clientCredentials": {"tokenUrl": "/token"}})] {
        let document = secured(json!({"o": {"type": "oauth2", "flows": flow}}), json!([{"o": []}]));
        let settings = json!({"o_accessToken": "t"});
        let operation = document.operation("call").unwrap();
        assert!(operation.tokens(&document.settings(&settings)).unwrap().is_empty());
        let request = operation.request(&Json::Null, &document.settings(&settings)).unwrap();
        assert_eq!(header(&request, "authorization"), Some("Bearer t"));
        assert!(
            jsonschema::validator_for(&document.settings_schema()).unwrap().is_valid(&settings)
        );
        assert!(call(&document, json!({})).is_err());
    }
    let key = json!({"s": {"type": "apiKey", "in": "header", "name": "X-Key"}});
    assert!(call(&secured(key, json!([{"s": []}])), json!({"s_accessToken": "t"})).is_err());
}

#[test]
fn nothing_readable_in_debug() {
    let schemes = json!({"s": {"type": "apiKey", "in": "query", "name": "k"}, "t": {"type": "http", "scheme": "bearer"}});
    let document = secured(schemes, json!([{"s": [], "t": []}]));
    let settings = document.settings(&json!({"s": "hunter2", "t": "hunter3"}));
    let request = document.operation("call").unwrap().request(&Json::Null, &settings).unwrap();
    assert!(request.url.as_str().contains("hunter2"));
    assert!(!format!("{settings:?} {request:?}").contains("hunter"));
}
