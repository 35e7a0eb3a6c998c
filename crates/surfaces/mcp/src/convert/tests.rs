use super::*;
use sa_core::{CallErrorKind, Passthrough};
use serde_json::json;

/// The content's types, and what is structured beside them.
#[track_caller]
fn check(given: &Value, types: &[&str], structured: Option<Value>) {
    let converted = result(&Ok(sa_http::blocks::output(RawJson::of(given), Vec::new())));
    let content = serde_json::to_value(&converted.content).unwrap();
    let found: Vec<_> =
        content.as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(found, types, "{given}");
    assert_eq!(converted.structured_content, structured, "{given}");
}

#[test]
fn a_result_is_text_and_an_object_is_structured_too() {
    check(&json!({ "a": 1 }), &["text"], Some(json!({ "a": 1 })));
    check(&json!("plain"), &["text"], None);
    check(&json!([1, 2]), &["text"], None);
    let plain = result(&Ok(Output::json(RawJson::parse("\"plain\"").unwrap())));
    assert_eq!(serde_json::to_value(&plain.content).unwrap()[0]["text"], "plain");
}

#[test]
fn a_plain_result_is_written_as_any_other_is() {
    let output =
        |json: &str| Ok(sa_http::blocks::output(RawJson::parse(json).unwrap(), Vec::new()));
    let written =
        |outcome: &Outcome| plain(outcome).map(|plain| serde_json::to_value(plain).unwrap());
    for json in [
        "{}",
        r#"{"a":[1,{"b":"\u00e9"}]}"#,
        "[1,2]",
        "null",
        "17",
        r#""a \"text\"\n""#,
        r#"{"content":1}"#,
    ] {
        let outcome = output(json);
        assert_eq!(
            written(&outcome),
            Some(serde_json::to_value(result(&outcome)).unwrap()),
            "{json}"
        );
    }
    assert_eq!(written(&output(r#"{"content":[{"type":"text","text":"x"}]}"#)), None);
    let attached = Attachment { mime_type: "image/png".into(), name: None, data: vec![0].into() };
    let content = RawJson::parse("{}").unwrap();
    assert_eq!(
        written(&Ok(Output { attachments: vec![attached], ..Output::json(content.clone()) })),
        None
    );
    assert_eq!(
        written(&Ok(Output {
            passthrough: Some(Passthrough::new(MCP, content.clone())),
            ..Output::json(content)
        })),
        None
    );
    assert_eq!(written(&Err(CallError::new(CallErrorKind::Failed, "no"))), None);
}

#[test]
fn blocks_are_sent_once() {
    let image = json!({ "type": "image", "data": "AA==", "mimeType": "image/png" });
    let audio = json!({ "type": "audio", "data": "AA==", "mimeType": "audio/wav" });
    let resource = json!({ "type": "resource", "resource": { "uri": "a://b", "mimeType": "text/plain", "text": "x" } });
    check(&json!({ "content": [image] }), &["image"], None);
    check(&json!({ "content": [image, audio, resource] }), &["image", "audio", "resource"], None);
    check(&json!({ "content": [image], "width": 3 }), &["image"], Some(json!({ "width": 3 })));
    let full = json!({ "content": [image], "structuredContent": { "a": 1 }, "isError": false, "_meta": {} });
    check(&full, &["image"], Some(json!({ "a": 1 })));
    let odd = json!({ "content": [{ "type": "video" }] });
    check(&odd, &["text"], Some(odd.clone()));
}

#[test]
fn metadata_of_a_result_has_its_own_place() {
    let given = json!({ "a": 1, "_meta": { "k": ["v"] } });
    let outcome = Ok(sa_http::blocks::output(RawJson::of(&given), Vec::new()));
    let converted = result(&outcome);
    assert_eq!(converted.structured_content, Some(json!({ "a": 1 })));
    assert_eq!(serde_json::to_value(converted.meta).unwrap(), json!({ "k": ["v"] }));
    assert!(plain(&outcome).is_none());
    let odd = json!({ "_meta": 1 });
    check(&odd, &["text"], Some(odd.clone()));
}

fn schema(json: &Value) -> Schema {
    Schema::new(RawJson::of(json))
}

#[test]
fn a_tool_with_an_output_schema_has_structured_content() {
    let converted = |given: &Value, listed: Option<Schema>| {
        let outcome = Ok(sa_http::blocks::output(RawJson::of(given), Vec::new()));
        let converted = result_of(&outcome, "t", || listed);
        (converted.structured_content, converted.is_error == Some(true), converted.content.len())
    };
    let any = || Some(schema(&json!({ "type": "object" })));
    let image =
        json!({ "content": [{ "type": "image", "data": "AA==", "mimeType": "image/png" }] });
    assert_eq!(converted(&image, any()), (Some(image.clone()), false, 1));
    assert_eq!(converted(&image, None), (None, false, 1));
    assert_eq!(converted(&json!({ "a": 1 }), any()), (Some(json!({ "a": 1 })), false, 1));
    // What is promised and cannot be had is an error, with the result in it.
    assert_eq!(converted(&json!("text"), any()), (None, true, 2));
    assert_eq!(converted(&json!("text"), None), (None, false, 1));
    let numbers = || Some(schema(&json!({ "type": "object", "required": ["n"] })));
    assert_eq!(converted(&image, numbers()), (None, true, 2));
    let failed = Err(CallError::new(CallErrorKind::Failed, "no"));
    let failed = result_of(&failed, "t", || panic!("not needed"));
    assert_eq!(failed.structured_content, None);
}

/// A map reserves space for several entries, so these take a hundred times their text.
#[test]
fn a_result_of_very_many_small_values_is_only_text() {
    let text = format!(r#"{{"list":[{}0]}}"#, r#"{"":0},"#.repeat(300_000));
    let passthrough = Passthrough::new(MCP, RawJson::parse(&text).unwrap());
    let output = sa_http::blocks::output(RawJson::parse(&text).unwrap(), Vec::new());
    let outcomes = [Ok(output.clone()), Ok(Output { passthrough: Some(passthrough), ..output })];
    for outcome in &outcomes {
        let converted = result(outcome);
        assert_eq!((converted.structured_content, converted.content.len()), (None, 1));
    }
    let listed = result_of(&outcomes[0], "t", || Some(schema(&json!({ "type": "object" }))));
    assert_eq!((listed.is_error, listed.content.len()), (Some(true), 2));
    assert!(
        matches!(&listed.content[0], ContentBlock::Text(text) if text.text.contains("too many values"))
    );
}

#[test]
fn a_result_that_violates_the_output_schema_is_an_error_that_contains_it() {
    let numbers = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let converted = |outcome: &Outcome| {
        let converted = result_of(outcome, "node.count", || Some(schema(&numbers)));
        serde_json::to_value(converted).unwrap()
    };
    let plain =
        |given: &Value| converted(&Ok(sa_http::blocks::output(RawJson::of(given), Vec::new())));
    let fits = plain(&json!({ "n": 1 }));
    assert_eq!((&fits["structuredContent"], &fits["isError"]), (&json!({ "n": 1 }), &json!(false)));
    for given in [json!({ "n": "1" }), json!({ "_truncated": true, "partial": "{\"n\":1" })] {
        let wrong = plain(&given);
        assert_eq!((&wrong["structuredContent"], &wrong["isError"]), (&Value::Null, &json!(true)));
        let why = wrong["content"][0]["text"].as_str().unwrap();
        assert!(why.contains("node.count") && why.contains("\"n\""), "{why}");
        assert_eq!(wrong["content"][1]["text"], given.to_string());
        assert_eq!(wrong["content"].as_array().unwrap().len(), 2);
    }
    // A result in MCP's own words, whose text says less than its structured content.
    let passed_through = |result: Value| {
        let mut output = Output::json(RawJson::of(&json!({})));
        output.passthrough = Some(Passthrough::new(MCP, RawJson::of(&result)));
        converted(&Ok(output))
    };
    let text = json!([{ "type": "text", "text": "one" }]);
    let wrong = passed_through(json!({ "content": text, "structuredContent": { "n": "one" } }));
    assert_eq!((&wrong["structuredContent"], &wrong["isError"]), (&Value::Null, &json!(true)));
    assert_eq!(wrong["content"][1]["text"], "one");
    assert_eq!(wrong["content"][2]["text"], json!({ "n": "one" }).to_string());
    assert_eq!(passed_through(json!({ "content": text }))["isError"], true);
    let fits = passed_through(json!({ "content": text, "structuredContent": { "n": 1 } }));
    assert_eq!((&fits["structuredContent"], &fits["content"]), (&json!({ "n": 1 }), &text));
    // Clients check the structured content of an error, too.
    let failed =
        passed_through(json!({ "content": text, "structuredContent": {}, "isError": true }));
    assert_eq!((&failed["structuredContent"], &failed["isError"]), (&Value::Null, &json!(true)));
    assert_eq!(failed["content"][1]["text"], "{}");
}

#[test]
fn an_output_schema_that_cannot_be_used_is_not_listed() {
    let lists = |json: &Value| {
        let tool = sa_core::Tool { output: Some(schema(json)), ..sa_core::Tool::named("t") };
        (listed_output(&tool).is_some(), tool.schema_problem().is_some())
    };
    assert_eq!(lists(&json!({ "type": "object" })), (true, false));
    assert_eq!(lists(&json!({ "type": "array" })), (false, false));
    let broken = json!({ "type": "object", "properties": { "n": { "type": "number!" } } });
    assert_eq!(lists(&broken), (false, true));
    let nowhere = json!({ "type": "object", "properties": { "n": { "$ref": "#/$defs/n" } } });
    assert_eq!(lists(&nowhere), (false, true));
}

#[test]
fn blocks_may_be_marked_as_an_error() {
    let given = json!({ "content": [{ "type": "text", "text": "no" }], "isError": true });
    let converted = result(&Ok(sa_http::blocks::output(RawJson::of(&given), Vec::new())));
    assert_eq!(converted.is_error, Some(true));
    assert_eq!(converted.structured_content, None);
}

#[test]
fn every_attachment_is_a_block() {
    let attach = |mime: &str, name: Option<&str>, data: &[u8]| Attachment {
        mime_type: mime.into(),
        name: name.map(Into::into),
        data: data.to_vec().into(),
    };
    let attachments = vec![
        attach("image/png", None, &[0]),
        attach("audio/wav", None, &[0]),
        attach("application/zip", Some("a b/ü.zip"), &[0]),
        attach("text/csv; charset=utf-8", None, b"a,b"),
        attach("application/ld+json", Some("x"), b"{}"),
        attach("text/plain", None, &[0xff]),
    ];
    let output = Output { attachments, ..Output::json(RawJson::parse("{\"a\":1}").unwrap()) };
    let content = serde_json::to_value(result(&Ok(output)).content).unwrap();
    let expected = json!([
        { "type": "text", "text": "{\"a\":1}" },
        { "type": "image", "data": "AA==", "mimeType": "image/png" },
        { "type": "audio", "data": "AA==", "mimeType": "audio/wav" },
        { "type": "resource", "resource":
            { "uri": "attachment:///3/a%20b%2F%C3%BC%2Ezip", "mimeType": "application/zip", "blob": "AA==" } },
        { "type": "resource", "resource":
            { "uri": "attachment:///4/attachment", "mimeType": "text/csv; charset=utf-8", "text": "a,b" } },
        { "type": "resource", "resource":
            { "uri": "attachment:///5/x", "mimeType": "application/ld+json", "text": "{}" } },
        { "type": "resource", "resource":
            { "uri": "attachment:///6/attachment", "mimeType": "text/plain", "blob": "/w==" } },
    ]);
    assert_eq!(content, expected);
}

#[test]
fn a_failure_is_an_error_that_the_model_can_read() {
    let error =
        CallError::new(CallErrorKind::InvalidArgs, "missing \"query\"").hint("see the schema");
    let converted = result(&Err(error));
    assert_eq!(converted.is_error, Some(true));
    let text =
        serde_json::to_value(&converted.content).unwrap()[0]["text"].as_str().unwrap().to_owned();
    assert_eq!(text, "invalid_args: missing \"query\"; see the schema");
}

const WORDS: &[&str] = &[
    "content",
    "type",
    "text",
    "image",
    "audio",
    "data",
    "mimeType",
    "image/png",
    "resource",
    "uri",
    "isError",
    "structuredContent",
    "_meta",
    "resultType",
    "complete",
    "error",
    "code",
    "message",
    "annotations",
];

proptest::proptest! {
    #[test]
    fn any_result_is_one_that_clients_can_read(
        content in sa_hostile::json(WORDS), returned in sa_hostile::json(WORDS), failed in proptest::prelude::any::<bool>(),
    ) {
        let wrapped = json!({ "content": [content] });
        for content in [content, wrapped] {
            let output = sa_http::blocks::output(RawJson::of(&content), Vec::new());
            let rendered = result(&Ok(output.clone()));
            let written = serde_json::to_value(&rendered).unwrap();
            proptest::prop_assert!(serde_json::from_value::<CallToolResult>(written).is_ok());
            // The short way says the same as the long one.
            if let Some(plain) = plain(&Ok(output.clone())) {
                proptest::prop_assert_eq!(serde_json::to_value(plain).unwrap(), serde_json::to_value(&rendered).unwrap());
            }
            let passthrough = Passthrough::new(MCP, RawJson::of(&returned));
            let outcome = if failed {
                Err(CallError::new(CallErrorKind::Failed, "f").with_passthrough(passthrough))
            } else {
                Ok(Output { passthrough: Some(passthrough), ..output })
            };
            let written = serde_json::to_value(result(&outcome)).unwrap();
            proptest::prop_assert!(serde_json::from_value::<CallToolResult>(written).is_ok());
            let _ = protocol_error(&outcome);
        }
    }
}
