//! Rule: each mistake in a manifest is reported with its line, and the valid parts are used.

use super::Severity::{Error, Warning};
use super::*;

#[track_caller]
fn check(manifest: &str, usable: bool, said: &[(usize, Severity, &str)]) {
    let reading = read(manifest, Some(&"https://a.example/p/manifest.json".parse().unwrap()));
    assert_eq!(reading.manifest.is_some(), usable, "{:?}", reading.problems);
    for (line, severity, words) in said {
        let found = reading.problems.iter().any(|problem| {
            problem.line == *line
                && problem.severity == *severity
                && problem.message.contains(words)
        });
        assert!(found, "line {line}: {words}; but {:?}", reading.problems);
    }
    if said.is_empty() {
        assert_eq!(reading.problems, []);
    }
}

#[test]
fn an_identifier_is_a_segment_of_a_path() {
    for good in ["a", "a.b", "@a_b-1", ".a", &"x".repeat(64)] {
        assert!(is_identifier(good), "{good}");
    }
    for bad in ["", ".", "..", "...", "../a", "a/b", "a b", "ü", "a%2f", "a\n", &"x".repeat(65)] {
        assert!(!is_identifier(bad), "{bad}");
    }
}

#[test]
fn problems_are_named_line_by_line() {
    check("{", false, &[(1, Error, "not valid JSON")]);
    check("{\n \"a\": 1,\n}", false, &[(3, Error, "not valid JSON")]);
    check("[]", false, &[(1, Error, "object")]);
    check(
        "{\n \"identifier\": \"a b\",\n \"api\": []\n}",
        false,
        &[(2, Error, "identifier"), (3, Error, "no function")],
    );
    let whole = r#"{
        "identifier": "weather", "meta": {"title": "W"},
        "type": "markdwon",
        "api": [
            {"name": "now", "description": "d", "url": "/now"},
            {"name": "now", "description": "d", "url": "/now"},
            {"name": "later"},
            {"name": "x", "description": "d", "url": "ftp://a/"},
            {"name": "y", "description": "d", "url": "/y", "parameters": {"$ref": "http://evil/"}}
        ],
        "settings": {"type": "object", "properties": {
            "apiKey": {"type": "string"}
        }}
    }"#;
    let said = [
        (3, Warning, "\"type\""),
        (6, Error, "twice"),
        (7, Error, "\"url\""),
        (7, Warning, "description"),
        (8, Error, "must be a URL"),
        (9, Error, "schema"),
        (12, Warning, "secret"),
    ];
    check(whole, true, &said);
}

#[test]
fn misspelt_names_and_wrong_types_are_found() {
    let wrong = r#"{
        "identifier": "weather", "meta": {
            "title": 5,
            "tags": ["a", 7], "x-own": true },
        "setings": {},
        "createAt": "2024-01-01",
        "api": [
            {"name": "now", "description": "d", "url": "/now",
             "paramaters": {}, "returns": {}},
            {"name": "later", "description": "d", "url": "/later",
             "parameters": {"type": "string"}}
        ],
        "ui": {"url": "/ui", "hieght": 3}
    }"#;
    let said = [
        (3, Warning, "\"title\" must be a string"),
        (4, Warning, "\"tags\""),
        (5, Warning, "did you mean \"settings\"?"),
        (9, Warning, "did you mean \"parameters\"?"),
        (11, Error, "\"later\" is ignored"),
        (13, Warning, "did you mean \"height\"?"),
    ];
    check(wrong, true, &said);
    let count = read(wrong, Some(&"https://a.example/".parse().unwrap())).problems.len();
    assert_eq!(count, said.len(), "names that are nobody's misspelling are left in peace");
}

#[test]
fn incomplete_manifests_are_taken_as_they_are() {
    let good = r#"{"identifier":"w","meta":{},"api":[{"name":"a","description":"d","url":"https://x.example/a"}]}"#;
    check(good, true, &[]);
    check(r#"{"identifier":"w","meta":{},"openapi":"./openapi.json"}"#, true, &[]);
    check(
        r#"{"identifier":"w","meta":{},"type":"standalone","ui":{"url":"/ui"},"api":[{"name":"a","description":"d"}]}"#,
        true,
        &[],
    );
    let relative = read(
        good.replace("https://x.example", "").as_str(),
        Some(&"https://b.example/m.json".parse().unwrap()),
    );
    assert_eq!(
        relative.manifest.unwrap().apis[0].url.as_ref().unwrap().as_str(),
        "https://b.example/a"
    );
    assert!(
        read(&good.replace("https://x.example", ""), None).manifest.is_none(),
        "nothing to be relative to"
    );
}

fn usual() -> serde_json::Value {
    serde_json::json!({
        "identifier": "weather", "type": "markdown", "meta": { "title": "W", "tags": ["a"], "avatar": "x" }, "author": "me",
        "ui": { "url": "/ui", "height": 5, "mode": "iframe" }, "openapi": "https://a.example/o.json",
        "api": [{ "name": "now", "description": "d", "url": "/now", "parameters": { "type": "object", "properties": { "a": {} } } }],
        "settings": { "type": "object", "properties": { "apiKey": { "type": "string", "format": "password" } } },
    })
}

proptest::proptest! {
    #[test]
    fn what_is_used_of_a_manifest_keeps_to_the_rules_and_the_rest_is_told_in_few_words(
        nearly in sa_hostile::nearly(usual()), text in sa_hostile::text(&["{", "}", "[", "]", ":", ",", "\"api\":", "\"name\"", "\n"]),
    ) {
        for text in [nearly, text] {
            let reading = read(&text, Some(&"https://a.example/p/manifest.json".parse().unwrap()));
            let lines = text.split('\n').count();
            proptest::prop_assert!(reading.problems.iter().all(|problem| (1..=lines).contains(&problem.line)));
            proptest::prop_assert!(reading.problems.iter().all(|problem| problem.message.len() < sa_hostile::SHORT));
            proptest::prop_assert!(reading.errors().len() < 5 * sa_hostile::SHORT);
            let Some(manifest) = reading.manifest else {
                proptest::prop_assert!(reading.problems.iter().any(|problem| problem.severity == Error));
                continue;
            };
            proptest::prop_assert!(is_identifier(&manifest.identifier));
            let urls = manifest.apis.iter().filter_map(|api| api.url.as_ref()).chain(&manifest.openapi);
            for url in urls {
                proptest::prop_assert!(matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none());
            }
            for api in &manifest.apis {
                proptest::prop_assert!((1..=128).contains(&api.name.len()));
                proptest::prop_assert!(api.parameters.as_str().starts_with('{'), "the rule is broken");
            }
        }
    }
}
