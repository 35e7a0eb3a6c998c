//! Rule: Swagger 2.0 documents with the habits of common generators and authors work as meant.

use sa_openapi::{Document, HttpRequest, Json, ProblemKind};
use serde_json::{Value, json};

use crate::support::{header, schema, url};

/// Reads a document from a server of its own, which counts if the document names no host.
#[track_caller]
fn read(text: &str) -> Document {
    let source = url("https://docs.example.com/v2/swagger.json");
    let document = Document::parse(text.as_bytes(), Some(&source)).unwrap();
    for operation in document.operations() {
        let schema: Value = serde_json::from_str(operation.input_schema()).unwrap();
        jsonschema::validator_for(&schema).unwrap();
    }
    document
}

#[track_caller]
fn ask(document: &Document, operation: &str, arguments: Value, settings: Value) -> HttpRequest {
    let arguments = Json::from(arguments);
    let settings = document.settings(&settings);
    document.operation(operation).unwrap().request(&arguments, &settings).unwrap()
}

#[track_caller]
fn check(document: &Document, operation: &str, arguments: Value, expected: &str) {
    let request = ask(document, operation, arguments, json!({}));
    assert_eq!(request.url.as_str(), expected);
}

/// Returns the lines of a form's parts, without the boundaries.
fn parts(request: HttpRequest) -> Vec<String> {
    let text = String::from_utf8(request.body.unwrap()).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.map(str::to_owned).collect()
}

#[track_caller]
fn fits(document: &Document, operation: &str, arguments: Value, expected: bool) {
    let validator = jsonschema::validator_for(&schema(document, operation)).unwrap();
    assert_eq!(validator.is_valid(&arguments), expected, "{arguments}");
}

/// Uploads without `consumes`, a host with a port, and a base path that ends with a slash.
#[test]
fn files_in_forms_and_bodies() {
    let document = read(include_str!("documents/uploads-2.0.yaml"));
    assert!(document.problems().is_empty(), "{:?}", document.problems());
    let fields = json!({"upload": "data:text/plain;base64,aGk=", "pages": [1, 2], "tags": ["a", "b"], "public": true});
    let arguments = json!({"id": 7, "_requestBody": fields});
    fits(&document, "addScan", arguments.clone(), true);
    let request = ask(&document, "addScan", arguments, json!({}));
    assert_eq!(request.url.as_str(), "http://scans.example.com:8080/api/scans/7/");
    assert!(header(&request, "content-type").unwrap().starts_with("multipart/form-data"));
    assert_eq!(
        parts(request),
        [
            "Content-Disposition: form-data; name=\"pages\"",
            "1",
            "Content-Disposition: form-data; name=\"pages\"",
            "2",
            "Content-Disposition: form-data; name=\"public\"",
            "true",
            "Content-Disposition: form-data; name=\"tags\"",
            "a,b",
            "Content-Disposition: form-data; name=\"upload\"; filename=\"upload\"",
            "Content-Type: text/plain",
            "hi",
        ]
    );
    for operation in ["putRaw", "addRaw", "patchRaw"] {
        let request = ask(&document, operation, json!({"_requestBody": "aGk="}), json!({}));
        assert_eq!(header(&request, "content-type"), Some("application/octet-stream"));
        assert_eq!(request.body.as_deref(), Some(&b"hi"[..]), "{operation}");
    }
}

/// A body with a name of its own, nullable references, a discriminator that is a string, and
/// `required` next to a property.
#[test]
fn a_named_body_with_nullable_fields() {
    let document = read(include_str!("documents/zoo-2.0.json"));
    assert!(document.problems().is_empty(), "{:?}", document.problems());
    let cat =
        json!({"kind": "cat", "sex": null, "keeper": null, "mother": {"kind": "cat"}, "age": null});
    let request = ask(&document, "AddAnimal", json!({"_requestBody": cat}), json!({}));
    assert_eq!(request.url.as_str(), "https://docs.example.com/animals");
    assert_eq!(header(&request, "content-type"), Some("application/json"));
    assert_eq!(serde_json::from_slice::<Value>(&request.body.unwrap()).unwrap(), cat);
    for (animal, valid) in [
        (cat, true),
        (json!({"kind": "cat", "mother": null, "keeper": {"name": "Ann"}}), true),
        (json!({"kind": "cat", "keeper": "Ann"}), false),
        (json!({"kind": "cat", "sex": "x"}), false),
        (json!({"kind": null}), false),
        (json!({"age": 1}), false),
    ] {
        fits(&document, "AddAnimal", json!({"_requestBody": animal}), valid);
    }
    // The path's parameter and the body have one name.
    let arguments = json!({"animal": "tom", "_requestBody": {"name": "Kit"}});
    fits(&document, "RenameAnimal", arguments.clone(), true);
    check(&document, "RenameAnimal", arguments, "https://docs.example.com/animals/tom");
}

/// As Springfox writes: `ref` as a type, choices next to their list, a template in a path, a name
/// with guillemets, and one id for several operations.
#[test]
fn a_document_of_springfox() {
    let document = read(include_str!("documents/spring-2.0.json"));
    let problems: Vec<_> = document.problems().iter().map(|problem| problem.kind).collect();
    assert_eq!(problems, [ProblemKind::Ignored], "{:?}", document.problems());
    let arguments =
        json!({"ids": [1, 2], "status": ["OPEN", "DONE"], "sort": ["a", "b"], "pageable": 3});
    fits(&document, "findUsingGET", arguments.clone(), true);
    fits(&document, "findUsingGET", json!({"status": ["GONE"]}), false);
    check(
        &document,
        "findUsingGET",
        arguments,
        "https://shop.example.com/shop/orders?ids=1&ids=2&status=OPEN&status=DONE&sort=a,b&pageable=3",
    );
    let one = document.operations().iter().find(|operation| operation.path().contains("id"));
    let arguments = json!({"id": "7", "expand": "lines"});
    check(
        &document,
        one.unwrap().name(),
        arguments,
        "https://shop.example.com/shop/orders/7?expand=lines",
    );
    let deep = json!({"_requestBody": {"page": {"content": [{"page": {"content": []}}]}}});
    fits(&document, "createUsingPOST", deep.clone(), true);
    fits(&document, "createUsingPOST", json!({"_requestBody": {"page": []}}), false);
    let request = ask(&document, "createUsingPOST", deep, json!({}));
    assert_eq!(header(&request, "content-type"), Some("application/json"));
}

/// Checks the query and the `Authorization` header of a request.
#[track_caller]
fn sent(document: &Document, operation: &str, settings: Value, query: &str, word: Option<&str>) {
    let request = ask(document, operation, json!({}), settings);
    assert_eq!(request.url.query().unwrap_or_default(), query, "{operation}");
    assert_eq!(header(&request, "authorization"), word, "{operation}");
}

/// A key and a password together, a key that is the whole header, and schemes that do not exist.
#[test]
fn keys_and_passwords() {
    let document = read(include_str!("documents/keys-2.0.yaml"));
    let problems: Vec<_> = document.problems().iter().map(|problem| problem.kind).collect();
    assert_eq!(problems, [ProblemKind::Malformed, ProblemKind::BrokenReference]);
    let all = json!({"login": "me:pw", "key": "k", "Bearer": "Bearer t"});
    sent(&document, "both", all.clone(), "api_key=k", Some("Basic bWU6cHc="));
    sent(&document, "both", json!({"key": "k", "Bearer": "Bearer t"}), "", Some("Bearer t"));
    sent(&document, "open", all.clone(), "", None);
    sent(&document, "either", all.clone(), "api_key=k", None);
    sent(&document, "either", json!({}), "", None);
    sent(&document, "gone", all, "", None);
    let half = document.settings(&json!({"key": "k"}));
    assert!(document.operation("both").unwrap().request(&Json::Null, &half).is_err());
}

/// As ASP.NET writes: names with dots and brackets, empty lists, the largest double, and a version
/// that has one choice.
#[test]
fn a_document_of_asp_net() {
    let document = read(include_str!("documents/parts-2.0.yaml"));
    assert!(document.problems().is_empty(), "{:?}", document.problems());
    let id = "6f0a8a0e-7c1e-4c57-9f4e-0d6f0f6f4a11";
    let arguments =
        json!({"filter.name": "x", "ids__": [id, id], "max": 1e300, "api-version": "1.0"});
    fits(&document, "Parts_Get", arguments.clone(), true);
    let query = format!("filter.name=x&ids%5B%5D={id}&ids%5B%5D={id}&max=1e%2B300&api-version=1.0");
    let expected = format!("https://depot.example.com/api/Parts?{query}");
    check(&document, "Parts_Get", arguments, &expected);
    let part = json!({"_requestBody": {"Name": null, "Kind": 2}});
    fits(&document, "Parts_Post", part.clone(), true);
    fits(&document, "Parts_Post", json!({"_requestBody": {"Name": "too long a name"}}), false);
    let request = ask(&document, "Parts_Post", part, json!({}));
    assert_eq!(header(&request, "content-type"), Some("application/json"));
}
