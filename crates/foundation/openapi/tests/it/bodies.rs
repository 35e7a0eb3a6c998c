//! `_requestBody` is converted into the bytes that the document's media type requires.

use sa_openapi::{Document, RequestErrorKind};
use serde_json::{Value, json};

use crate::support::{call, header, one, schema};

fn taking(media: &str, about: Value) -> Document {
    one(json!({"requestBody": {"required": true, "content": {media: about}}}))
}

#[track_caller]
fn check(document: &Document, body: Value, media: &str, expected: &str) {
    let request = call(document, json!({"_requestBody": body})).unwrap();
    assert_eq!(header(&request, "content-type"), Some(media));
    assert_eq!(String::from_utf8(request.body.unwrap()).unwrap(), expected);
}

#[track_caller]
fn refused(document: &Document, body: Value) {
    let error = call(document, json!({"_requestBody": body})).unwrap_err();
    assert_eq!(error.kind, RequestErrorKind::InvalidArgument, "{error}");
}

#[test]
fn json() {
    let media = "application/json";
    check(&taking(media, json!({})), json!({"b": 1, "a": [null]}), media, r#"{"a":[null],"b":1}"#);
    let media = "application/vnd.api+json";
    check(&taking(media, json!({})), json!("x"), media, r#""x""#);
    let media = "application/json; charset=utf-8";
    check(&taking(media, json!({})), json!(1), media, "1");
    check(&taking("*/*", json!({})), json!(1), "application/json", "1");
}

#[test]
fn text_and_what_only_a_caller_can_write() {
    check(&taking("text/plain", json!({})), json!("a\nb"), "text/plain", "a\nb");
    check(&taking("text/csv", json!({})), json!("a,b"), "text/csv", "a,b");
    let xml = taking("application/xml", json!({"schema": {"type": "object"}}));
    check(&xml, json!("<a/>"), "application/xml", "<a/>");
    assert_eq!(schema(&xml, "call")["properties"]["_requestBody"]["type"], "string");
    refused(&xml, json!({"a": 1}));
}

#[test]
fn bytes() {
    let document = taking(
        "application/octet-stream",
        json!({"schema": {"type": "string", "format": "binary"}}),
    );
    for text in ["aGk/", "aGk_", "aG\nk/", "data:text/plain;base64,aGk/", "data:,hi%3F"] {
        check(&document, json!(text), "application/octet-stream", "hi?");
    }
    for text in ["not base64!", "data:nothing"] {
        refused(&document, json!(text));
    }
    refused(&document, json!(7));
}

#[test]
fn a_json_body_is_preferred() {
    let content = json!({"multipart/form-data": {}, "application/xml": {}, "application/json": {}, "text/plain": {}});
    let document = one(json!({"requestBody": {"content": content}}));
    check(&document, json!({"a": 1}), "application/json", r#"{"a":1}"#);
}

#[test]
fn a_body_is_missed_only_where_it_is_required() {
    let error = call(&taking("application/json", json!({})), json!({})).unwrap_err();
    assert_eq!(
        (error.kind, error.name.as_str()),
        (RequestErrorKind::MissingArgument, "_requestBody")
    );
    let optional = one(json!({"requestBody": {"content": {"application/json": {}}}}));
    let request = call(&optional, json!({})).unwrap();
    assert_eq!((request.body.as_deref(), header(&request, "content-type")), (None, None));
}

const FORM: &str = "application/x-www-form-urlencoded";

#[track_caller]
fn form(encoding: Value, body: Value, expected: &str) {
    check(&taking(FORM, json!({"encoding": encoding})), body, FORM, expected);
}

#[test]
fn forms() {
    form(json!({}), json!({"a": "x y&z", "b": 1, "c": null}), "a=x%20y%26z&b=1");
    form(json!({}), json!({"a": ["x", "y"]}), "a=x&a=y");
    form(json!({}), json!({"a": {"b": 1}}), "a=%7B%22b%22%3A1%7D");
    form(json!({"a": {"explode": false}}), json!({"a": ["x", "y"]}), "a=x,y");
    form(json!({"a": {"style": "pipeDelimited"}}), json!({"a": ["x", "y"]}), "a=x%7Cy");
    form(
        json!({"a": {"style": "deepObject", "explode": true}}),
        json!({"a": {"b": 1}}),
        "a%5Bb%5D=1",
    );
    form(json!({"a": {"allowReserved": true}}), json!({"a": "x/y&z"}), "a=x/y%26z");
    form(json!({"a": {"contentType": "application/json"}}), json!({"a": [1, 2]}), "a=%5B1%2C2%5D");
    refused(&taking(FORM, json!({})), json!("a=1"));
}

const BOUNDARY: &str = "switchboard-form-0000000000000000";

fn multipart(about: Value, body: Value) -> String {
    let request =
        call(&taking("multipart/form-data", about), json!({"_requestBody": body})).unwrap();
    let media = format!("multipart/form-data; boundary={BOUNDARY}");
    assert_eq!(header(&request, "content-type"), Some(media.as_str()));
    String::from_utf8(request.body.unwrap()).unwrap().replace("\r\n", "\n")
}

#[track_caller]
fn parts(about: Value, body: Value, expected: &[&str]) {
    let parts: String =
        expected.iter().map(|part| format!("--{BOUNDARY}\n{part}\n")).collect::<Vec<_>>().concat();
    assert_eq!(multipart(about, body), format!("{parts}--{BOUNDARY}--\n"));
}

#[test]
fn multipart_fields() {
    parts(
        json!({}),
        json!({"a": "x", "b": 1, "c": {"d": 1}, "e": ["y", "z"], "f": null}),
        &[
            "Content-Disposition: form-data; name=\"a\"\n\nx",
            "Content-Disposition: form-data; name=\"b\"\n\n1",
            "Content-Disposition: form-data; name=\"c\"\nContent-Type: application/json\n\n{\"d\":1}",
            "Content-Disposition: form-data; name=\"e\"\n\ny",
            "Content-Disposition: form-data; name=\"e\"\n\nz",
        ],
    );
}

#[test]
fn files_come_last_with_their_types() {
    let file = json!({"type": "string", "format": "binary"});
    let about = json!({
        "schema": {"properties": {"file": file, "more": {"type": "array", "items": file}, "note": {"type": "string"}}},
        "encoding": {"file": {"contentType": "image/png, image/jpeg"}},
    });
    parts(
        about,
        json!({"file": "aGk=", "more": ["data:text/plain;name=a%22.txt;base64,aGk", "aGk"], "note": "aGk="}),
        &[
            "Content-Disposition: form-data; name=\"note\"\n\naGk=",
            "Content-Disposition: form-data; name=\"file\"; filename=\"file\"\nContent-Type: image/png\n\nhi",
            "Content-Disposition: form-data; name=\"more\"; filename=\"a%22.txt\"\nContent-Type: text/plain\n\nhi",
            "Content-Disposition: form-data; name=\"more\"; filename=\"more\"\nContent-Type: application/octet-stream\n\nhi",
        ],
    );
}

#[test]
fn files_are_known_by_every_spelling() {
    for file in [
        json!({"type": "string", "format": "binary"}),
        json!({"type": "string", "contentMediaType": "application/octet-stream"}),
        json!({"contentMediaType": "image/png"}),
        json!({"type": "file"}),
    ] {
        let document = taking(
            "multipart/form-data",
            json!({"schema": {"allOf": [{"properties": {"f": file}}]}}),
        );
        let request = call(&document, json!({"_requestBody": {"f": "aGk="}})).unwrap();
        assert!(
            String::from_utf8(request.body.unwrap()).unwrap().contains("\r\n\r\nhi\r\n"),
            "{file}"
        );
        refused(&document, json!({"f": "no base64!"}));
        assert!(
            document
                .operation("call")
                .unwrap()
                .input_schema()
                .contains("as base64 or as a data: URL")
        );
    }
}

#[test]
fn base64_text_stays_text() {
    let about = json!({"schema": {"properties": {"f": {"type": "string", "format": "byte"}}}});
    parts(about, json!({"f": "aGk="}), &["Content-Disposition: form-data; name=\"f\"\n\naGk="]);
}

#[test]
fn no_field_can_break_out_of_its_part() {
    let evil = "x\"\r\nContent-Type: text/html\r\n\r\n";
    let body = multipart(json!({}), json!({evil: "a"}));
    assert!(
        body.contains("name=\"x%22%0D%0AContent-Type: text/html%0D%0A%0D%0A\"\n\na\n"),
        "{body}"
    );
    let evil =
        format!("a\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"admin\"\r\n\r\n1");
    let request =
        call(&taking("multipart/form-data", json!({})), json!({"_requestBody": {"a": evil}}))
            .unwrap();
    let boundary = header(&request, "content-type").unwrap().split('=').nth(1).unwrap().to_owned();
    assert_ne!(boundary, BOUNDARY);
    assert_eq!(String::from_utf8(request.body.unwrap()).unwrap().matches(&boundary).count(), 2);
    let file = json!({"schema": {"properties": {"f": {"format": "binary"}}}});
    refused(
        &taking("multipart/form-data", file),
        json!({"f": "data:text/html\r\nX: y;base64,aGk="}),
    );
}
