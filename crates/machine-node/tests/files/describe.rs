//! Every tool describes its arguments, its result and its effects.

use sa_node_sdk::ErrorKind;
use serde_json::json;

use crate::Place;

#[tokio::test]
async fn every_tool_is_described() {
    let place = Place::new();
    let expected = [
        ("Edit", "filesystem.edit", false, vec!["newString", "oldString", "path", "replaceAll"]),
        ("Glob", "filesystem.list", true, vec!["path", "pattern"]),
        ("Grep", "text.search", true, vec!["include", "path", "pattern"]),
        ("Read", "filesystem.read", true, vec!["limit", "offset", "path"]),
        ("Write", "filesystem.write", false, vec!["content", "path"]),
    ];
    for (name, capability, reads_only, properties) in expected {
        let tool = place.tools.get(name).unwrap();
        assert_eq!(tool.capabilities(), [capability]);
        assert_eq!(tool.annotations().unwrap()["readOnlyHint"], reads_only);
        let schema = tool.input_schema().unwrap();
        assert_eq!(schema.get("additionalProperties"), None, "models send more than a tool knows");
        assert_eq!(
            schema["properties"].as_object().unwrap().keys().collect::<Vec<_>>(),
            properties
        );
        assert_eq!(tool.output_schema().unwrap()["type"], "object");
        assert!(tool.title().is_some() && tool.description().is_some());
    }
}

#[tokio::test]
async fn arguments_that_a_tool_does_not_know_are_ignored_and_named() {
    let place = Place::new();
    place.file("a", "text\n");
    let args = json!({ "path": "a", "description": "reads a file", "x".repeat(100): 1 });
    let read = place.ok("Read", args).await;
    assert_eq!(read["content"], "1\ttext");
    let named = json!({ "switchboard/ignored_arguments": ["description", "x".repeat(32)] });
    assert_eq!(read["_meta"], named);
    assert_eq!(place.ok("Read", json!({ "path": "a" })).await.get("_meta"), None);
    // A misspelt argument counts as missing.
    let message = place.fails("Read", json!({ "pth": "a" }), ErrorKind::InvalidArgs).await;
    assert!(message.contains("`path` is missing"), "{message}");
}
