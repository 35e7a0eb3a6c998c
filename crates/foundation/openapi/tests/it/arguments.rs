//! A tool's arguments are flat, have unique names, and cannot leave their part of the request.

use sa_openapi::RequestErrorKind::{self, InvalidArgument, MissingArgument, UnknownArgument};
use sa_openapi::{Document, ProblemKind};
use serde_json::{Value, json};

use crate::support::{call, document, header, one, schema, target};

fn in_path(template: &str) -> Document {
    document(json!({template: {"get": {"operationId": "call"}}}), json!({}))
}

#[track_caller]
fn refused(document: &Document, arguments: Value, kind: RequestErrorKind, name: &str) {
    let error = call(document, arguments).unwrap_err();
    assert_eq!((error.kind, error.name.as_str()), (kind, name), "{error}");
}

#[track_caller]
fn path(template: &str, value: &str, expected: &str) {
    assert_eq!(target(&call(&in_path(template), json!({"id": value})).unwrap()), expected);
}

#[test]
fn a_path_argument_stays_in_its_segment() {
    path("/a/{id}/b", "../../admin", "/a/..%2F..%2Fadmin/b");
    path("/a/{id}/b", "x/y", "/a/x%2Fy/b");
    path("/a/{id}/b", "x\\y", "/a/x%5Cy/b");
    path("/a/{id}/b", "%2e%2e", "/a/%252e%252e/b");
    path("/a/{id}", "?q=1#f", "/a/%3Fq%3D1%23f");
    path("/a/{id}.json", "..", "/a/...json");
    path("/a/x{id}", "..", "/a/x..");
    path("/a/{id}", "//evil.com", "/a/%2F%2Fevil.com");
    path("/{id}", "/evil.com/x", "/%2Fevil.com%2Fx");
    path("/{id}", "@evil.com", "/%40evil.com");
    path("/a/{id}", "a\r\nb", "/a/a%0D%0Ab");
}

#[test]
fn what_would_be_another_path_is_refused() {
    for value in ["..", "."] {
        refused(&in_path("/a/{id}/b"), json!({"id": value}), InvalidArgument, "id");
    }
    refused(&in_path("/a/.{id}/b"), json!({"id": "."}), InvalidArgument, "id");
    refused(&in_path("/a/%2e{id}/b"), json!({"id": "."}), InvalidArgument, "id");
    refused(&in_path("/a/{id}{id}"), json!({"id": "."}), InvalidArgument, "id");
    refused(&in_path("/users/{id}"), json!({"id": ""}), InvalidArgument, "id");
    refused(&in_path("/users/{id}"), json!({"id": []}), InvalidArgument, "id");
}

#[test]
fn an_undeclared_variable_of_the_path_is_a_required_text() {
    let document = in_path("/a/{id}");
    assert_eq!(
        schema(&document, "call"),
        json!({
            "type": "object",
            "properties": {"id": {"type": "string"}},
            "required": ["id"],
            "additionalProperties": false,
        })
    );
    refused(&document, json!({}), MissingArgument, "id");
    refused(&document, json!({"id": null}), MissingArgument, "id");
}

#[test]
fn unknown_arguments_are_told() {
    refused(&in_path("/a/{id}"), json!({"id": "1", "ID": 2}), UnknownArgument, "ID");
    refused(&in_path("/a"), json!([]), InvalidArgument, "");
    assert_eq!(target(&call(&in_path("/a"), Value::Null).unwrap()), "/a");
}

#[test]
fn one_name_in_several_places() {
    let parameter = |place: &str| json!({"name": "id", "in": place, "required": true, "schema": {"type": "string"}});
    let operation = json!({
        "operationId": "call",
        "parameters": [parameter("cookie"), parameter("query"), parameter("header"), parameter("path")],
    });
    let document = document(json!({"/a/{id}": {"get": operation}}), json!({}));
    assert_eq!(
        schema(&document, "call")["required"],
        json!(["id", "query_id", "header_id", "cookie_id"])
    );
    let arguments = json!({"id": "p", "query_id": "q", "header_id": "h", "cookie_id": "c"});
    let request = call(&document, arguments).unwrap();
    assert_eq!(target(&request), "/a/p?id=q");
    assert_eq!((header(&request, "id"), header(&request, "cookie")), (Some("h"), Some("id=c")));
}

#[test]
fn a_parameter_cannot_take_the_name_of_the_body() {
    let document = one(json!({
        "parameters": [{"name": "_requestBody", "in": "query"}],
        "requestBody": {"content": {"application/json": {}}},
    }));
    let request = call(&document, json!({"query__requestBody": "q", "_requestBody": [1]})).unwrap();
    assert_eq!(
        (target(&request).as_str(), request.body.as_deref()),
        ("/call?_requestBody=q", Some(&b"[1]"[..]))
    );
}

#[test]
fn names_that_no_model_could_use_are_cleaned_and_both_are_understood() {
    let document = one(json!({"parameters": [{"name": "filter[name]", "in": "query"}]}));
    assert!(schema(&document, "call")["properties"]["filter_name_"].is_object());
    for name in ["filter_name_", "filter[name]"] {
        assert_eq!(
            target(&call(&document, json!({name: "x"})).unwrap()),
            "/call?filter%5Bname%5D=x"
        );
    }
}

#[test]
fn the_operations_parameter_wins_over_the_paths() {
    let shared =
        json!([{"name": "a", "in": "query", "description": "path"}, {"name": "b", "in": "query"}]);
    let own = json!([{"name": "a", "in": "query", "description": "own", "required": true}]);
    let item = json!({"parameters": shared, "get": {"operationId": "call", "parameters": own}});
    let schema = schema(&document(json!({"/a": item}), json!({})), "call");
    assert_eq!(schema["properties"]["a"]["description"], "own");
    assert_eq!(schema["required"], json!(["a"]));
    assert!(schema["properties"]["b"].is_object());
}

#[test]
fn headers_of_the_connection_are_nobodys_argument() {
    let names = [
        "Host",
        "content-length",
        "Authorization",
        "Accept",
        "Content-Type",
        "Transfer-Encoding",
        "Cookie",
    ];
    let parameters: Vec<_> =
        names.iter().map(|name| json!({"name": name, "in": "header"})).collect();
    let document = one(json!({"parameters": parameters}));
    assert_eq!(schema(&document, "call")["properties"], json!({}));
    assert_eq!(document.problems().len(), names.len());
    assert!(document.problems().iter().all(|problem| problem.kind == ProblemKind::Ignored));
    refused(&document, json!({"Host": "evil.com"}), UnknownArgument, "Host");
}

#[test]
fn no_line_break_gets_into_a_header() {
    let document = one(json!({"parameters": [
        {"name": "X-A", "in": "header"},
        {"name": "c", "in": "cookie", "style": "cookie"},
        {"name": "d", "in": "cookie"},
    ]}));
    for bad in ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\u{7f}"] {
        refused(&document, json!({"X-A": bad}), InvalidArgument, "X-A");
        refused(&document, json!({"X-A": [bad]}), InvalidArgument, "X-A");
        refused(&document, json!({"c": bad}), InvalidArgument, "c");
        let request = call(&document, json!({"d": bad})).unwrap();
        assert!(!header(&request, "cookie").unwrap().contains(char::is_control));
    }
    refused(&document, json!({"c": "a; admin=1"}), InvalidArgument, "c");
}

#[test]
fn errors_do_not_repeat_values() {
    let document = one(json!({"parameters": [{"name": "X-A", "in": "header"}]}));
    let error = call(&document, json!({"X-A": "hunter2\n"})).unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
}
