//! Every tool says what it takes, gives and may do.

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
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(schema["properties"].as_object().unwrap().keys().collect::<Vec<_>>(), properties);
        assert_eq!(tool.output_schema().unwrap()["type"], "object");
        assert!(tool.title().is_some() && tool.description().is_some());
    }
}
