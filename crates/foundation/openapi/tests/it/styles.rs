//! Every style, with each type and with `explode` on and off, is written as in the table of the
//! OpenAPI specification (3.1.1, "Style Examples").

use sa_openapi::{Json, Settings};
use serde_json::{Value, json};

use crate::support::{call, document, header, one, target};

const EMPTY: &str = r#""""#;
const TEXT: &str = r#""blue""#;
const LIST: &str = r#"["blue","black","brown"]"#;
const OBJECT: &str = r#"{"R":100,"G":200,"B":150}"#;

/// Returns an argument `color` that preserves the order of object fields.
fn color(value: &str) -> Json {
    serde_json::from_str(&format!(r#"{{"color":{value}}}"#)).unwrap()
}

#[track_caller]
fn path(style: &str, explode: bool, value: &str, expected: &str) {
    let parameter = json!({"name": "color", "in": "path", "required": true, "style": style, "explode": explode});
    let operation = json!({"operationId": "call", "parameters": [parameter]});
    let document = document(json!({"/a{color}/b": {"get": operation}}), json!({}));
    let request = call(&document, color(value)).unwrap();
    assert_eq!(target(&request), format!("/a{expected}/b"), "{style} explode={explode} {value}");
}

#[track_caller]
fn query(style: &str, explode: bool, value: &str, expected: &str) {
    query_with(json!({"style": style, "explode": explode}), value, expected);
}

#[track_caller]
fn query_with(mut parameter: Value, value: &str, expected: &str) {
    parameter["name"] = json!("color");
    parameter["in"] = json!("query");
    let request = call(&one(json!({"parameters": [parameter]})), color(value)).unwrap();
    let expected =
        if expected.is_empty() { "/call".to_owned() } else { format!("/call?{expected}") };
    assert_eq!(target(&request), expected, "{parameter} {value}");
}

#[track_caller]
fn in_header(explode: bool, value: &str, expected: &str) {
    let parameter = json!({"name": "X-Color", "in": "header", "explode": explode});
    let request = call(
        &one(json!({"parameters": [parameter]})),
        serde_json::from_str::<Json>(&format!(r#"{{"X-Color":{value}}}"#)).unwrap(),
    )
    .unwrap();
    assert_eq!(header(&request, "x-color"), Some(expected));
}

#[track_caller]
fn cookie(style: &str, explode: bool, value: &str, expected: &str) {
    let parameter = json!({"name": "color", "in": "cookie", "style": style, "explode": explode});
    let request = call(&one(json!({"parameters": [parameter]})), color(value)).unwrap();
    assert_eq!(header(&request, "cookie"), Some(expected));
}

#[test]
fn matrix() {
    path("matrix", false, EMPTY, ";color");
    path("matrix", false, TEXT, ";color=blue");
    path("matrix", false, LIST, ";color=blue,black,brown");
    path("matrix", false, OBJECT, ";color=R,100,G,200,B,150");
    path("matrix", true, EMPTY, ";color");
    path("matrix", true, TEXT, ";color=blue");
    path("matrix", true, LIST, ";color=blue;color=black;color=brown");
    path("matrix", true, OBJECT, ";R=100;G=200;B=150");
}

#[test]
fn label() {
    path("label", false, EMPTY, ".");
    path("label", false, TEXT, ".blue");
    path("label", false, LIST, ".blue,black,brown");
    path("label", false, OBJECT, ".R,100,G,200,B,150");
    path("label", true, EMPTY, ".");
    path("label", true, TEXT, ".blue");
    path("label", true, LIST, ".blue.black.brown");
    path("label", true, OBJECT, ".R=100.G=200.B=150");
}

#[test]
fn simple() {
    path("simple", false, TEXT, "blue");
    path("simple", false, LIST, "blue,black,brown");
    path("simple", false, OBJECT, "R,100,G,200,B,150");
    path("simple", true, TEXT, "blue");
    path("simple", true, LIST, "blue,black,brown");
    path("simple", true, OBJECT, "R=100,G=200,B=150");
    path("nonsense", false, LIST, "blue,black,brown");
    path("simple", false, "7", "7");
    path("simple", false, "true", "true");
    path("simple", false, "1.5", "1.5");
}

#[test]
fn form() {
    query("form", false, EMPTY, "color=");
    query("form", false, TEXT, "color=blue");
    query("form", false, LIST, "color=blue,black,brown");
    query("form", false, OBJECT, "color=R,100,G,200,B,150");
    query("form", true, EMPTY, "color=");
    query("form", true, TEXT, "color=blue");
    query("form", true, LIST, "color=blue&color=black&color=brown");
    query("form", true, OBJECT, "R=100&G=200&B=150");
}

#[test]
fn space_delimited() {
    query("spaceDelimited", false, LIST, "color=blue%20black%20brown");
    query("spaceDelimited", false, OBJECT, "color=R%20100%20G%20200%20B%20150");
    query("spaceDelimited", false, TEXT, "color=blue");
    query("spaceDelimited", true, LIST, "color=blue&color=black&color=brown");
}

#[test]
fn pipe_delimited() {
    query("pipeDelimited", false, LIST, "color=blue%7Cblack%7Cbrown");
    query("pipeDelimited", false, OBJECT, "color=R%7C100%7CG%7C200%7CB%7C150");
    query("pipeDelimited", false, TEXT, "color=blue");
    query("pipeDelimited", true, LIST, "color=blue&color=black&color=brown");
}

#[test]
fn deep_object() {
    query("deepObject", true, OBJECT, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150");
    query("deepObject", true, TEXT, "color=blue");
    query("deepObject", true, r#"{"a":{"b":1}}"#, "color%5Ba%5D%5Bb%5D=1");
    query("deepObject", true, r#"{"a":["x","y"]}"#, "color%5Ba%5D%5B0%5D=x&color%5Ba%5D%5B1%5D=y");
}

#[test]
fn what_a_query_does_without_a_style() {
    query_with(json!({}), LIST, "color=blue&color=black&color=brown");
    query_with(json!({"explode": false}), LIST, "color=blue,black,brown");
    query_with(json!({"style": "matrix"}), LIST, "color=blue&color=black&color=brown");
}

#[test]
fn headers() {
    in_header(false, TEXT, "blue");
    in_header(false, LIST, "blue,black,brown");
    in_header(false, OBJECT, "R,100,G,200,B,150");
    in_header(true, LIST, "blue,black,brown");
    in_header(true, OBJECT, "R=100,G=200,B=150");
    in_header(false, r#""a b/c ü""#, "a b/c ü");
}

#[test]
fn cookies() {
    cookie("form", false, TEXT, "color=blue");
    cookie("form", false, LIST, "color=blue,black,brown");
    cookie("form", false, OBJECT, "color=R,100,G,200,B,150");
    cookie("form", true, LIST, "color=blue; color=black; color=brown");
    cookie("form", true, OBJECT, "R=100; G=200; B=150");
    cookie("form", true, r#""a;b c""#, "color=a%3Bb%20c");
    cookie("cookie", true, r#""a/b""#, "color=a/b");
}

#[test]
fn nothing_is_sent_for_nothing() {
    query("form", true, "null", "");
    query("form", true, "[]", "");
    query("form", false, "{}", "");
    query("form", false, r#"["a",null]"#, "color=a");
}

#[test]
fn what_a_style_has_no_room_for_is_json() {
    query("form", true, r#"[{"a":1}]"#, "color=%7B%22a%22%3A1%7D");
    query("form", false, r#"{"a":[1,2]}"#, "color=a,%5B1%2C2%5D");
}

#[test]
fn reserved_characters_are_encoded() {
    query("form", true, r#""a/b?c&d=e#f+g%20""#, "color=a%2Fb%3Fc%26d%3De%23f%2Bg%2520");
    path("simple", false, r#""a/b?c#d%2F""#, "a%2Fb%3Fc%23d%252F");
    path("matrix", true, r#""a;b=c""#, ";color=a%3Bb%3Dc");
}

#[test]
fn allow_reserved_keeps_them_but_for_those_that_would_end_the_value() {
    query_with(json!({"allowReserved": true}), r#""a/b?c:d@e=f;g,h""#, "color=a/b?c:d@e=f;g,h");
    query_with(json!({"allowReserved": true}), r#""%2F%zz""#, "color=%2F%25zz");
    query_with(
        json!({"allowReserved": true}),
        r#""a&admin=1#x+[]""#,
        "color=a%26admin=1%23x%2B%5B%5D",
    );
}

#[test]
fn content_is_json() {
    query_with(
        json!({"content": {"application/json": {}}}),
        r#"{"a":[1]}"#,
        "color=%7B%22a%22%3A%5B1%5D%7D",
    );
    query_with(json!({"content": {"text/plain": {}}}), TEXT, "color=blue");
    let parameter =
        json!({"name": "X-Filter", "in": "header", "content": {"application/json": {}}});
    let request =
        call(&one(json!({"parameters": [parameter]})), json!({"X-Filter": {"a": "b"}})).unwrap();
    assert_eq!(header(&request, "x-filter"), Some(r#"{"a":"b"}"#));
}

/// Some servers require the order, such as those that sign the query.
#[test]
fn an_object_keeps_the_order_of_its_keys() {
    let parameter = |name: &str, style: &str, explode: bool| json!({"name": name, "in": "query", "style": style, "explode": explode, "schema": {"type": "object"}});
    let parameters = json!([
        parameter("a", "form", true),
        parameter("b", "form", false),
        parameter("c", "deepObject", true)
    ]);
    let body = json!({"content": {"application/json": {}}});
    let document = one(json!({"parameters": parameters, "requestBody": body}));
    let value = r#"{"z":1,"m":{"y":2,"b":3},"a":4}"#;
    let arguments = format!(
        r#"{{"c":{{"R":1,"G":2,"B":3}},"b":{{"R":1,"G":2}},"a":{{"z":1,"a":2}},"_requestBody":{value}}}"#
    );
    let arguments = serde_json::from_str(&arguments).unwrap();
    let request =
        document.operation("call").unwrap().request(&arguments, &Settings::default()).unwrap();
    assert_eq!(target(&request), "/call?z=1&a=2&b=R,1,G,2&c%5BR%5D=1&c%5BG%5D=2&c%5BB%5D=3");
    assert_eq!(request.body.unwrap(), value.as_bytes());
}
