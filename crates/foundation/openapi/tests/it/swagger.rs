//! Every part of an operation that Swagger 2.0 writes differently from OpenAPI 3 is supported.

use sa_openapi::{Document, DocumentErrorKind, HttpRequest, ProblemKind, Settings};
use serde_json::{Value, json};

use crate::support::{header, parse, schema, url};

fn shop() -> Document {
    Document::parse(include_bytes!("documents/shop-2.0.yaml"), None).unwrap()
}

#[track_caller]
fn ask(document: &Document, operation: &str, arguments: Value, settings: Value) -> HttpRequest {
    document
        .operation(operation)
        .unwrap()
        .request(&arguments.into(), &document.settings(&settings))
        .unwrap()
}

#[test]
fn lists_are_joined_as_their_format_says() {
    let shop = shop();
    assert!(shop.problems().is_empty(), "{:?}", shop.problems());
    let list = json!(["a", "b c"]);
    let arguments = json!({
        "shelf": list, "tags": list, "ids": [1, 2], "words": list, "columns": list, "kinds": list, "X-Trace": list, "page": 2,
    });
    let request = ask(&shop, "listItems", arguments, json!({"key": "k"}));
    assert_eq!(
        request.url.as_str(),
        "https://shop.example.com/api/v2/items/a,b%20c?page=2&tags=a,b%20c&ids=1&ids=2&words=a%20b%20c&columns=a%09b%20c&kinds=a%7Cb%20c"
    );
    assert_eq!(
        (header(&request, "x-trace"), header(&request, "x-api-key")),
        (Some("a,b c"), Some("k"))
    );
    let properties = &schema(&shop, "listItems")["properties"];
    assert_eq!(properties["page"], json!({"type": "integer", "minimum": 1, "default": 1}));
    assert_eq!(
        properties["depth"],
        json!({"type": "integer", "exclusiveMinimum": 0, "enum": [1, 2]})
    );
}

#[test]
fn a_parameter_in_the_body_is_the_body() {
    let shop = shop();
    let order = schema(&shop, "order");
    assert_eq!(order["required"], json!(["_requestBody"]));
    assert_eq!(
        order["properties"]["_requestBody"],
        json!({"$ref": "#/$defs/Order", "description": "What to buy."})
    );
    let validator = jsonschema::validator_for(&order).unwrap();
    assert!(validator.is_valid(&json!({"_requestBody": {"item": null, "parts": [{"item": "x"}]}})));
    assert!(!validator.is_valid(&json!({"_requestBody": {"parts": []}})));
    assert!(order["$defs"]["Order"]["properties"].get("id").is_none(), "only the server sets it");

    let note =
        ask(&shop, "note", json!({"id": "7", "_requestBody": "hi"}), json!({"login": "me:pw"}));
    assert_eq!(
        note.url.as_str(),
        "http://shop.example.com/api/v2/orders/7/note",
        "it has a scheme of its own"
    );
    assert_eq!(
        (header(&note, "content-type"), note.body.as_deref()),
        (Some("text/plain"), Some(&b"hi"[..]))
    );
    assert_eq!(header(&note, "authorization"), Some("Basic bWU6cHc="));
}

#[test]
fn parameters_in_a_form_are_its_fields() {
    let shop = shop();
    let upload = schema(&shop, "upload");
    let body = &upload["properties"]["_requestBody"];
    assert_eq!(
        (&body["required"], &upload["required"]),
        (&json!(["file"]), &json!(["id", "_requestBody"]))
    );
    assert_eq!(
        body["properties"]["title"]["type"], "string",
        "the operation's own comes before the one of the path"
    );
    assert_eq!(
        body["properties"]["file"]["description"],
        "A scan. A file, as base64 or as a data: URL."
    );
    let fields = json!({"file": "data:image/png;base64,aGk=", "title": "t", "labels": ["a", "b"]});
    let request = ask(&shop, "upload", json!({"id": "7", "_requestBody": fields}), json!({}));
    assert!(header(&request, "content-type").unwrap().starts_with("multipart/form-data"));
    let text = String::from_utf8(request.body.unwrap()).unwrap();
    assert!(text.contains("Content-Type: image/png\r\n\r\nhi\r\n"), "{text}");
    assert!(text.contains("name=\"labels\"\r\n\r\na,b\r\n"), "{text}");

    let fields = json!({"name": "a&b", "roles": ["x", "y"], "groups": ["g", "h"]});
    let request =
        ask(&shop, "login", json!({"_requestBody": fields}), json!({"user_accessToken": "t"}));
    assert_eq!(header(&request, "content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(request.body.as_deref(), Some(&b"groups=g&groups=h&name=a%26b&roles=x%7Cy"[..]));
    assert_eq!(header(&request, "authorization"), Some("Bearer t"));
}

#[test]
fn security_definitions_are_settings() {
    let shop = shop();
    let settings = shop.settings_schema();
    let names: Vec<_> = settings["properties"].as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        ["client_accessToken", "client_clientId", "client_clientSecret", "key", "login", "user"]
    );
    let client = shop.settings(&json!({"client_clientId": "me", "client_clientSecret": "pw"}));
    let tokens = shop.operation("order").unwrap().tokens(&client).unwrap();
    assert_eq!(
        (tokens[0].token_url.as_str(), &tokens[0].scopes[..]),
        ("https://auth.example.com/token", &["write".to_owned()][..])
    );
}

#[track_caller]
fn check_server(mut document: Value, source: Option<&str>, expected: &str) {
    document["swagger"] = json!("2.0");
    document["paths"] = json!({"/a": {"get": {"operationId": "call"}}});
    let document =
        Document::parse(document.to_string().as_bytes(), source.map(url).as_ref()).unwrap();
    let server = document
        .operation("call")
        .unwrap()
        .server(&document.settings(&json!({"server_account": "me"})));
    assert_eq!(server.map_or_else(|error| error.to_string(), |url| url.to_string()), expected);
}

#[test]
fn the_server_is_put_together() {
    let source = Some("http://docs.example.com/v1/swagger.json");
    check_server(json!({"host": "api.example.com"}), None, "https://api.example.com/");
    check_server(
        json!({"host": "api.example.com:81", "basePath": "v1", "schemes": ["http"]}),
        None,
        "http://api.example.com:81/v1",
    );
    check_server(
        json!({"host": "https://api.example.com/", "schemes": ["wss", "https"]}),
        None,
        "https://api.example.com/",
    );
    check_server(json!({"host": "api.example.com"}), source, "http://api.example.com/");
    check_server(json!({"basePath": "/api"}), source, "http://docs.example.com/api");
    let missing = "the document's server \"/\" is relative, but the document's own address is unknown; use an \
                   absolute address";
    check_server(json!({}), None, missing);
    let account = json!({"name": "account", "in": "path", "type": "string"});
    let host = json!({"hostTemplate": "{account}.example.com", "parameters": [account]});
    check_server(json!({"x-ms-parameterized-host": host}), source, "http://me.example.com/");
    let host = json!({"hostTemplate": "https://{account}.example.com", "useSchemePrefix": false, "parameters": [account]});
    check_server(json!({"x-ms-parameterized-host": host}), None, "https://me.example.com/");
}

#[test]
fn mistakes_are_reported_and_other_versions_refused() {
    let parameters = json!([
        {"name": "b", "in": "body", "schema": {"type": "object"}}, {"name": "f", "in": "formData", "type": "string"},
    ]);
    let operation =
        json!({"operationId": "call", "consumes": ["*/*", "ill\n"], "parameters": parameters});
    let both =
        parse(&json!({"swagger": 2.0, "host": "a.example", "paths": {"/a": {"post": operation}}}));
    assert_eq!(both.problems()[0].kind, ProblemKind::Malformed);
    assert_eq!(both.problems()[0].pointer, "/paths/~1a/post/parameters/0");
    let arguments = json!({"_requestBody": {"x": 1}}).into();
    let request =
        both.operation("call").unwrap().request(&arguments, &Settings::default()).unwrap();
    assert_eq!(header(&request, "content-type"), Some("application/json"));
    let error = Document::parse(br#"{"swaggerVersion":"1.2","swagger":"1.2","paths":{}}"#, None)
        .unwrap_err();
    assert_eq!((error.kind, error.pointer.as_str()), (DocumentErrorKind::Version, "/swagger"));
    assert!(error.message.contains("Swagger 1.2 is not supported"), "{error}");
}
