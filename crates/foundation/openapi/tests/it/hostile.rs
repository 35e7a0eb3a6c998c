//! Every document takes bounded time and memory, and none makes the parser panic.

use std::fmt::Write as _;

use proptest::prelude::*;
use sa_openapi::{Document, DocumentErrorKind, Limits, ProblemKind, Settings};
use serde_json::{Value, json};

use crate::support::{document, one, parse, with};

#[track_caller]
fn refused(text: &str, kind: DocumentErrorKind) {
    let error = Document::parse(text.as_bytes(), None).unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
}

#[test]
fn deep_nesting() {
    refused(&format!("{{\"openapi\":{}", "[".repeat(100_000)), DocumentErrorKind::TooLarge);
    refused(&format!("{{\"openapi\":{}", "{\"a\":".repeat(100_000)), DocumentErrorKind::TooLarge);
    refused(&format!("openapi: {}", "[".repeat(100_000)), DocumentErrorKind::TooLarge);
    let mut block = "openapi: 3.1.0\n".to_owned();
    (0..2_000).for_each(|depth| writeln!(block, "{}a:", " ".repeat(depth)).unwrap());
    refused(&block, DocumentErrorKind::TooLarge);
    refused(&format!("openapi: {}", "{a: ".repeat(100_000)), DocumentErrorKind::TooLarge);
    refused(&format!("openapi:\n{}x\n", "- ".repeat(100_000)), DocumentErrorKind::TooLarge);
}

/// The deepest allowed document is parsed on the small stack of a thread that serves requests.
#[test]
fn what_is_just_shallow_enough_is_read() {
    let depth = 42;
    let (before, after) = ("{properties: {a: ".repeat(depth), "}}".repeat(depth));
    let text = format!(
        "openapi: 3.1.0\npaths: {{/a: {{post: {{requestBody: {{content: {{a/json: {{schema: {before}{{}}{after}}}}}}}}}}}}}"
    );
    let text = text.replace("a/json", "application/json");
    let reading =
        move || Document::parse(text.as_bytes(), None).map(|document| document.operations().len());
    let reader = std::thread::Builder::new().stack_size(1 << 20).spawn(reading).unwrap();
    assert_eq!(reader.join().unwrap(), Ok(1));
}

#[test]
fn aliases_that_multiply() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        writeln!(bomb, "a{level}: &a{level} [{}]", vec![alias; 10].join(", ")).unwrap();
    }
    refused(&bomb, DocumentErrorKind::TooLarge);
    let merge = "a: &a {b: 1}\n".to_owned() + &"c: {<<: *a}\n".repeat(20_000);
    refused(&merge, DocumentErrorKind::TooLarge);
}

#[test]
fn too_many_values() {
    let limits = Limits { values: 10_000, ..Limits::default() };
    for many in [
        format!("{{\"openapi\":[{}1]}}", "{},".repeat(2_000)),
        format!("openapi: [{}1]", "{},".repeat(2_000)),
    ] {
        let error = Document::parse_within(many.as_bytes(), None, &limits).unwrap_err();
        assert_eq!(error.kind, DocumentErrorKind::TooLarge, "{error}");
    }
    refused(&" ".repeat(17 << 20), DocumentErrorKind::TooLarge);
}

#[test]
fn too_many_operations() {
    let paths = |count: usize| -> Value {
        (0..count)
            .map(|number| (format!("/p{number}"), json!({"get": {}})))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let limits = Limits { operations: 10, ..Limits::default() };
    let read = |count| {
        let written = json!({"openapi": "3.1.0", "paths": paths(count)});
        Document::parse_within(written.to_string().as_bytes(), None, &limits)
    };
    assert_eq!(read(10).unwrap().operations().len(), 10);
    assert_eq!(read(11).unwrap_err().kind, DocumentErrorKind::TooLarge);
}

/// Each schema refers to the next one ten times: expanded in place, there would be 10^60 of them.
#[test]
fn references_that_multiply() {
    let mut schemas = serde_json::Map::new();
    for level in 0..60 {
        let next = json!({"$ref": format!("#/components/schemas/S{}", level + 1)});
        schemas.insert(format!("S{level}"), json!({"allOf": vec![next; 10]}));
    }
    schemas.insert("S60".to_owned(), json!({"type": "string"}));
    for media in ["application/json", "multipart/form-data"] {
        let content = json!({media: {"schema": {"$ref": "#/components/schemas/S0"}}});
        let document =
            with(json!({"requestBody": {"content": content}}), json!({"schemas": schemas}));
        assert!(document.operation("call").unwrap().input_schema().len() < 40_000);
    }
}

/// A large schema that many operations share.
#[test]
fn operations_that_share_something_huge() {
    let properties: serde_json::Map<_, _> =
        (0..1_500).map(|number| (format!("p{number}"), json!({"type": "string"}))).collect();
    let body =
        json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Huge"}}}});
    let paths: serde_json::Map<_, _> = (0..200)
        .map(|number| (format!("/p{number}"), json!({"post": {"requestBody": body}})))
        .collect();
    let written = json!({
        "openapi": "3.1.0",
        "paths": paths,
        "components": {"schemas": {"Huge": {"type": "object", "properties": properties}}},
    });
    let limits = Limits { total_schema_bytes: 1 << 20, ..Limits::default() };
    let error = Document::parse_within(written.to_string().as_bytes(), None, &limits).unwrap_err();
    assert_eq!((error.kind, error.pointer.as_str()), (DocumentErrorKind::TooLarge, "/paths"));
}

/// One path item that two thousand paths refer to, with large content in each part.
#[test]
fn one_large_path_item_for_many_paths() {
    let long = "x".repeat(100_000);
    let values: Vec<_> = (0..20_000).map(|number| number.to_string()).collect();
    let fields: serde_json::Map<_, _> =
        (0..20_000).map(|number| (format!("f{number}"), json!({}))).collect();
    let parameter = json!({"name": "q", "in": "query", "description": long});
    let shared = json!({
        "servers": [{"url": "https://{v}.example.com", "variables": {"v": {"default": "1", "enum": values}}}],
        "parameters": vec![parameter; 100],
        "post": {
            "operationId": long,
            "summary": long,
            "tags": vec![&long; 10],
            "requestBody": {"content": {"multipart/form-data": {"schema": {"properties": fields}}}},
        },
        "get": {"security": vec![json!({"a": vec![&long; 10]}); 10]},
    });
    let paths: serde_json::Map<_, _> = (0..1_000)
        .map(|number| (format!("/p{number}"), json!({"$ref": "#/components/pathItems/shared"})))
        .collect();
    let written = json!({"openapi": "3.1.0", "paths": paths, "components": {"pathItems": {"shared": shared}}});
    let limits = Limits { total_schema_bytes: 2 << 20, ..Limits::default() };
    let error = Document::parse_within(written.to_string().as_bytes(), None, &limits).unwrap_err();
    assert_eq!(error.kind, DocumentErrorKind::TooLarge, "{error}");
}

#[test]
fn a_path_full_of_variables() {
    let variables: String =
        (0..200_000).map(|number| format!("{{v{number}}}")).collect::<Vec<_>>().concat();
    let document =
        document(json!({format!("/{variables}"): {"get": {}}, "/fine": {"get": {}}}), json!({}));
    assert_eq!(document.operations().len(), 1);
    assert_eq!(document.problems()[0].kind, ProblemKind::Malformed);
}

#[test]
fn a_huge_schema_loses_its_prose_or_its_operation() {
    let long = "x".repeat(200_000);
    let document =
        one(json!({"parameters": [{"name": "a", "in": "query", "schema": {"description": long}}]}));
    assert_eq!(crate::support::schema(&document, "call")["properties"]["a"], json!({}));
    let huge: Vec<_> = (0..50_000).collect();
    let operation = json!({"operationId": "x", "parameters": [{"name": "a", "in": "query", "schema": {"enum": huge}}]});
    let document =
        crate::support::document(json!({"/a": {"get": operation, "put": {}}}), json!({}));
    assert_eq!(document.operations().len(), 1);
    assert_eq!(document.problems()[0].kind, ProblemKind::TooLarge);
}

#[test]
fn patterns_are_data() {
    let pattern = "^(a+)+$";
    let document =
        one(json!({"parameters": [{"name": "a", "in": "query", "schema": {"pattern": pattern}}]}));
    assert_eq!(crate::support::schema(&document, "call")["properties"]["a"]["pattern"], pattern);
    let arguments = json!({"a": "a".repeat(50_000) + "!"});
    assert!(crate::support::call(&document, arguments).is_ok());
}

#[test]
fn many_names_of_one_beginning() {
    let paths: serde_json::Map<_, _> = (0..1_000)
        .map(|number| (format!("/{}", "~".repeat(number)), json!({"get": {"operationId": "same"}})))
        .collect();
    let document = document(paths.into(), json!({}));
    let names: std::collections::HashSet<_> =
        document.operations().iter().map(sa_openapi::Operation::name).collect();
    assert_eq!(names.len(), 1_000);
}

/// The content contains every boundary that the form would choose first.
#[test]
fn a_form_full_of_boundaries() {
    let mut text = String::new();
    (0..50_000).for_each(|number| write!(text, "switchboard-form-{number:016} ").unwrap());
    let document = one(json!({"requestBody": {"content": {"multipart/form-data": {}}}}));
    let request = crate::support::call(&document, json!({"_requestBody": {"a": text}})).unwrap();
    let media = crate::support::header(&request, "content-type").unwrap();
    assert_eq!(media, "multipart/form-data; boundary=switchboard-form-0000000000050000");
}

#[test]
fn clones_share() {
    let document = one(json!({}));
    let clone = document.clone();
    assert!(std::ptr::eq(document.operations(), clone.operations()));
}

/// Returns any JSON, made mostly of keywords that the reader uses.
fn anything() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(WORDS);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        words.clone().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        (words.clone(), words.clone())
            .prop_map(|(a, b)| json!({"$ref": format!("#/components/{a}/{b}")})),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        let key = prop_oneof![4 => words.clone().prop_map(str::to_owned), 1 => ".{0,6}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..6)
                .prop_map(|map| map.into_iter().collect::<Value>()),
        ]
    })
}

const WORDS: &[&str] = &[
    "get",
    "post",
    "/a/{id}",
    "/{x}",
    "parameters",
    "name",
    "in",
    "path",
    "query",
    "header",
    "cookie",
    "schema",
    "type",
    "string",
    "array",
    "object",
    "items",
    "properties",
    "required",
    "allOf",
    "oneOf",
    "nullable",
    "enum",
    "style",
    "matrix",
    "deepObject",
    "form",
    "explode",
    "content",
    "application/json",
    "multipart/form-data",
    "requestBody",
    "application/x-www-form-urlencoded",
    "encoding",
    "contentType",
    "format",
    "binary",
    "servers",
    "url",
    "variables",
    "default",
    "https://{x}.example.com",
    "security",
    "s",
    "operationId",
    "additionalProperties",
    "$ref",
    "example",
    "schemas",
    "id",
    "x",
    "exclusiveMinimum",
    "minimum",
    "description",
    "additionalOperations",
    "formData",
    "body",
    "collectionFormat",
    "consumes",
];

proptest! {
    #[test]
    fn no_document_makes_it_panic(
        item in anything(), components in anything(), servers in anything(), security in anything(),
        arguments in anything(),
    ) {
        let paths = json!({"/a/{id}": item, "/fine": {"get": {"operationId": "fine"}}});
        let three = json!({
            "openapi": "3.0.1", "servers": servers, "security": security, "components": components, "paths": paths,
        });
        let two = json!({
            "swagger": "2.0", "host": servers, "basePath": servers, "schemes": servers, "consumes": servers,
            "x-ms-parameterized-host": components, "security": security, "securityDefinitions": components,
            "parameters": components, "definitions": components, "paths": paths,
        });
        for written in [three, two] {
            let document = parse(&written);
            let _ = document.settings_schema();
            let settings = document.settings(&arguments);
            for operation in document.operations() {
                let schema: Value = serde_json::from_str(operation.input_schema()).unwrap();
                prop_assert!(schema.is_object());
                prop_assert!(!operation.name().is_empty() && operation.name().len() <= 64);
                let _ = operation.request(&arguments.clone().into(), &settings);
                let _ = operation.tokens(&Settings::default().client("s", "a", "b"));
            }
        }
    }

    #[test]
    fn no_token_servers_answer_breaks_its_reader(
        noise in sa_hostile::noise(), nearly in sa_hostile::nearly(json!({ "access_token": "canary", "token_type": "Bearer", "expires_in": 5 })),
    ) {
        for answer in [noise, nearly.into_bytes()] {
            match sa_openapi::AccessToken::read(&answer) {
                Ok(token) => prop_assert!(!format!("{token:?}").contains("canary"), "the token is shown"),
                Err(error) => prop_assert!(error.to_string().len() < sa_hostile::SHORT && !error.to_string().contains("canary")),
            }
        }
    }

    #[test]
    fn no_argument_leaves_its_server(id in any::<String>(), query in anything(), head in any::<String>()) {
        let parameter = |name: &str, place: &str| json!({"name": name, "in": place});
        let operation = json!({"operationId": "call", "parameters": [
            parameter("id", "path"), parameter("q", "query"), parameter("h", "header"), parameter("c", "cookie"),
        ]});
        let document = parse(&json!({
            "openapi": "3.1.0",
            "servers": [{"url": "https://api.example.com:8443/base"}],
            "paths": {"/x/{id}/y": {"get": operation}},
        }));
        let arguments = json!({"id": id, "q": query, "h": head, "c": query});
        if let Ok(request) = crate::support::call(&document, arguments) {
            prop_assert_eq!(request.url.origin().ascii_serialization(), "https://api.example.com:8443");
            let segments: Vec<_> = request.url.path_segments().unwrap().collect();
            prop_assert_eq!(segments.len(), 4);
            prop_assert_eq!((segments[0], segments[1], segments[3]), ("base", "x", "y"));
            let decoded = percent_encoding::percent_decode_str(segments[2]).decode_utf8().unwrap();
            prop_assert_eq!(decoded.as_ref(), id.as_str());
            for (_, value) in &request.headers {
                prop_assert!(!value.contains(['\r', '\n', '\0']));
            }
        }
    }
}

proptest! {
    // Each text is parsed on a thread of its own.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_text_makes_it_panic(
        text in "(openapi: 3.1.0\n)?(paths:|[a-z/{}:\\[\\]&*!|>'\"\n -]){0,60}", noise in sa_hostile::noise(),
        stumbling in sa_hostile::text(&["openapi: 3.1.0\n", "paths:\n", "  ", "- ", ": ", "&a ", "*a", "<<: ", "| ", "{", "}", "[", "]", "'", "\"", "#", "%", "---\n"]),
        nearly in sa_hostile::nearly(json!({
            "openapi": "3.1.0", "servers": [{ "url": "https://a.example" }], "info": { "title": "t", "version": "1" },
            "paths": { "/a/{id}": { "get": { "operationId": "a", "parameters": [{ "name": "id", "in": "path", "schema": { "type": "string" } }] } } },
        })), long in sa_hostile::long(),
    ) {
        let endless = [format!("openapi: \"{long}"), format!("openapi: 3.1.0\n{long}: {long}: x"), format!("{{\"openapi\": {long}")];
        for text in [text.into_bytes(), noise, stumbling.into_bytes(), nearly.into_bytes()].into_iter().chain(endless.map(String::into_bytes)) {
            match Document::parse(&text, None) {
                Ok(document) => {
                    let names: std::collections::HashSet<_> = document.operations().iter().map(sa_openapi::Operation::name).collect();
                    prop_assert_eq!(names.len(), document.operations().len(), "each has a name of its own");
                    prop_assert!(document.problems().iter().all(|problem| problem.message.len() < sa_hostile::SHORT));
                }
                Err(error) => prop_assert!(error.to_string().len() < sa_hostile::SHORT, "{} bytes", error.to_string().len()),
            }
        }
    }
}
