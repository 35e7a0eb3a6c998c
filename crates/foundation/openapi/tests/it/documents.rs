//! Whole documents in the form that people write, and the errors for unusable ones.

use sa_openapi::{Document, DocumentErrorKind, Hints, ProblemKind, Settings};
use serde_json::{Value, json};

use crate::support::{header, schema, url};

fn names(document: &Document) -> Vec<&str> {
    document.operations().iter().map(sa_openapi::Operation::name).collect()
}

#[test]
fn a_pet_store_in_yaml() {
    let document = Document::parse(include_bytes!("documents/petstore-3.0.yaml"), None).unwrap();
    assert_eq!(document.title(), "Pet store");
    assert_eq!(names(&document), ["listPets", "createPet", "getPet", "deletePet", "uploadPhoto"]);
    assert!(document.problems().is_empty(), "{:?}", document.problems());
    let list = document.operation("listPets").unwrap();
    assert_eq!(list.description(), "List pets\n\nAll of them, a page at a time.");
    assert_eq!(list.hints(), Hints { read_only: true, idempotent: true, destructive: false });
    let delete = document.operation("deletePet").unwrap();
    assert_eq!(delete.hints(), Hints { read_only: false, idempotent: true, destructive: true });
    assert!(delete.description().starts_with("Deprecated. "));

    let settings = document.settings(&json!({"api_key": "k"}));
    let arguments = json!({"limit": 10, "tags": ["a", "b"], "X-Request-Id": "r1"});
    let request = list.request(&arguments.into(), &settings).unwrap();
    assert_eq!(request.url.as_str(), "https://petstore.example.com/v1/pets?limit=10&tags=a,b");
    assert_eq!(
        (header(&request, "x-request-id"), header(&request, "api_key")),
        (Some("r1"), Some("k"))
    );

    let create = schema(&document, "createPet");
    let validator = jsonschema::validator_for(&create).unwrap();
    assert!(
        validator.is_valid(&json!({"_requestBody": {"name": "Rex", "owner": null, "weight": 0.5}}))
    );
    for bad in [
        json!({}),
        json!({"_requestBody": {}}),
        json!({"_requestBody": {"name": "Rex", "weight": 0}}),
    ] {
        assert!(!validator.is_valid(&bad), "{bad}");
    }
    let photo = json!({"petId": 7, "_requestBody": {"file": "data:image/png;base64,aGk=", "caption": "Hi"}});
    let request =
        document.operation("uploadPhoto").unwrap().request(&photo.into(), &settings).unwrap();
    assert_eq!(request.url.path(), "/v1/pets/7/photo");
    assert!(
        String::from_utf8(request.body.unwrap())
            .unwrap()
            .contains("Content-Type: image/png\r\n\r\nhi\r\n")
    );
}

#[test]
fn an_issue_tracker_in_json() {
    let source = url("https://tracker.example.com/api/openapi.json");
    let document =
        Document::parse(include_bytes!("documents/tracker-3.1.json"), Some(&source)).unwrap();
    assert_eq!(names(&document), ["issues_search", "issues_create", "get_issues_number"]);
    let settings = document.settings(&json!({"token": "t", "server_region": "eu"}));
    let search = document.operation("issues_search").unwrap();
    let request = search
        .request(&json!({"filter": {"state": "open", "label": "bug"}}).into(), &settings)
        .unwrap();
    let expected =
        "https://eu.tracker.example.com/api/issues?filter%5Blabel%5D=bug&filter%5Bstate%5D=open";
    assert_eq!(request.url.as_str(), expected);
    assert_eq!(header(&request, "authorization"), Some("Bearer t"));
    let read = document.operation("get_issues_number").unwrap();
    assert!(
        read.request(&json!({"number": 4}).into(), &Settings::default()).is_ok(),
        "reading needs no token"
    );
    let created = document.operation("issues_create").unwrap();
    assert!(
        created
            .request(&json!({"_requestBody": {"title": "x"}}).into(), &Settings::default())
            .is_err()
    );
}

#[test]
fn a_sloppy_one() {
    let document = Document::parse(include_bytes!("documents/sloppy.yaml"), None).unwrap();
    assert_eq!(
        names(&document),
        ["find_things_", "post_things_id", "find_things__get_things_format_json"]
    );
    let kinds: Vec<_> = document.problems().iter().map(|problem| problem.kind).collect();
    assert_eq!(
        kinds,
        [
            ProblemKind::Malformed,
            ProblemKind::BrokenReference,
            ProblemKind::RemoteReference,
            ProblemKind::BrokenReference,
            ProblemKind::Unsupported,
            ProblemKind::Ignored,
        ],
        "{:#?}",
        document.problems()
    );
    for operation in document.operations() {
        let schema: Value = serde_json::from_str(operation.input_schema()).unwrap();
        jsonschema::validator_for(&schema).unwrap();
    }
    let find = document.operation("find_things__get_things_format_json").unwrap();
    let request =
        find.request(&json!({"country": "no", "limit": 3}).into(), &Settings::default()).unwrap();
    assert_eq!(
        request.url.as_str(),
        "https://sloppy.example.com/things?format=json&country=no&limit=3"
    );
    assert_eq!(
        schema(&document, find.name())["properties"]["country"]["enum"],
        json!(["no", "se", "on"])
    );
}

/// A document that a program wrote: the one of this gateway.
#[test]
fn our_own() {
    let source = url("https://gateway.example.com/openapi.json");
    let written = include_bytes!("../../../../../docs/openapi.json");
    let document = Document::parse(written, Some(&source)).unwrap();
    assert!(document.problems().is_empty(), "{:#?}", document.problems());
    let count =
        serde_json::from_slice::<Value>(written).unwrap()["paths"].as_object().unwrap().len();
    assert!(document.operations().len() >= count);
    for operation in document.operations() {
        let schema: Value = serde_json::from_str(operation.input_schema()).unwrap();
        jsonschema::validator_for(&schema).unwrap();
    }
}

#[track_caller]
fn refused(text: &str, kind: DocumentErrorKind, words: &str) {
    let error = Document::parse(text.as_bytes(), None).unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn what_is_no_document_of_ours() {
    refused(
        "swagger: 2.0\npaths: {}\n",
        DocumentErrorKind::Empty,
        "at /paths: the document has no operations",
    );
    refused(
        "openapi: 4.0.0\n",
        DocumentErrorKind::Version,
        "at /openapi: OpenAPI 4.0.0 is not supported",
    );
    refused("openapi: [3]\n", DocumentErrorKind::NotOpenApi, "no field \"openapi\"");
    refused("hello", DocumentErrorKind::NotOpenApi, "not an OpenAPI document");
    refused("{}", DocumentErrorKind::NotOpenApi, "not an OpenAPI document");
    refused(
        "openapi: 3.1.0\npaths: {}\n",
        DocumentErrorKind::Empty,
        "at /paths: the document has no operations",
    );
    refused("", DocumentErrorKind::NotOpenApi, "not an OpenAPI document");
}

#[test]
fn control_characters_of_another_encoding_stay_as_they_are() {
    let text = "openapi: 3.1.0\ninfo: {title: It\u{92}s \u{85}mine\u{7f}}\npaths: {/a\u{96}b: {get: {}}}\n";
    let document = Document::parse(text.as_bytes(), None).unwrap();
    assert_eq!(document.title(), "It\u{92}s \u{85}mine\u{7f}");
    assert_eq!(document.operations()[0].path(), "/a\u{96}b");
    // A document that contains the replacement characters itself is rejected, with the line of the
    // first control character.
    let both = format!("# \u{10ff92}\n{text}");
    refused(&both, DocumentErrorKind::Syntax, "line 3");
}

#[test]
fn mistakes_are_shown_where_they_are() {
    refused(
        "{\"openapi\":\n  3.1.0}",
        DocumentErrorKind::Syntax,
        "line 2, column 6: this is not valid JSON",
    );
    refused("{\"openapi\": \"3.1.0\"} x", DocumentErrorKind::Syntax, "line 1, column 22: ");
    refused(
        "openapi: 3.1.0\npaths:\n  a: [1\nb: 2\n",
        DocumentErrorKind::Syntax,
        "line 4, column ",
    );
    let error = Document::parse(b"openapi: 3.1.0\n\xff", None).unwrap_err();
    assert_eq!((error.kind, error.place), (DocumentErrorKind::Syntax, Some((2, 1))));
}

#[test]
fn versions() {
    for version in ["3.0.0", "3.0", "'3.1'", "3.1.1", "3.2.0", "\"3.0.4\""] {
        let text = format!("\u{feff}openapi: {version}\npaths: {{/a: {{get: {{}}}}}}\n");
        let document = Document::parse(text.as_bytes(), None).unwrap();
        assert_eq!(names(&document), ["get_a"], "{version}");
    }
}

#[test]
fn methods_of_3_2() {
    let text = "openapi: 3.2.0\npaths: {/a: {query: {}, additionalOperations: {COPY: {}, 'BAD METHOD': {}}}}\n";
    let document = Document::parse(text.as_bytes(), None).unwrap();
    let methods: Vec<_> = document
        .operations()
        .iter()
        .map(|operation| (operation.method(), operation.name()))
        .collect();
    assert_eq!(methods, [("QUERY", "query_a"), ("COPY", "copy_a")]);
    assert!(document.operations()[0].hints().read_only);
}
