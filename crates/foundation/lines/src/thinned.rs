//! Changes answers of servers before rmcp reads them: lists of tools, and answers about tasks.

use std::collections::BTreeMap;

use sa_text::json::{Object, is_deeper_than};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::MAX_LEVELS;

/// The key in a tool's `_meta` that marks a replacement for a dropped tool. Its value is the
/// reason.
pub const LEFT_OUT: &str = "switchboard/left-out";

/// The maximum nesting depth of one tool. The list, the result and the message enclose it.
const MAX_TOOL_LEVELS: usize = MAX_LEVELS - 3;

type Fields = BTreeMap<String, Box<RawValue>>;

/// The key in a tool's `_meta` that marks a tool that only runs as a task.
///
/// It stands for `execution.taskSupport` of protocol version 2025-11-25, which rmcp drops.
pub const TASK_REQUIRED: &str = "switchboard/task-required";

/// The key that sets the task support of a tool. Inside a string its quotes would be escaped.
const TASK_SUPPORT: &str = "\"taskSupport\"";
/// The key of a task handle.
const TASK_ID: &str = "\"taskId\"";

/// Replaces every tool in a list that is nested too deeply by its name and the reason.
///
/// Returns `None` if the message is no such answer. Nested values are never parsed, so their depth
/// takes no stack.
pub(crate) fn thinned(message: &[u8]) -> Option<Vec<u8>> {
    with_result(message, |result| {
        with_tools(result, |tool| {
            if is_deeper_than(MAX_TOOL_LEVELS, tool.get().as_bytes()) {
                *tool = stand_in(tool)?;
            }
            Some(())
        })
    })
}

/// Changes an answer about tasks so that rmcp can read it.
///
/// rmcp has no types for the tasks of protocol version 2025-11-25 and would drop the relevant
/// parts. Returns `None` if there is nothing to change.
pub(crate) fn with_tasks(message: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(message).ok()?;
    if text.contains(TASK_SUPPORT) {
        return with_result(message, |result| with_tools(result, mark));
    }
    if !text.contains(TASK_ID) {
        return None;
    }
    // If the result has metadata, rmcp reads the handle as a tool result without content.
    with_result(message, |result| {
        let is_handle = result.contains_key("task") && !result.contains_key("content");
        result.remove("_meta").filter(|_| is_handle).map(drop)
    })
}

/// Marks a tool in its metadata if it only runs as a task.
fn mark(tool: &mut Box<RawValue>) -> Option<()> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Execution {
        task_support: Option<String>,
    }
    if !tool.get().contains(TASK_SUPPORT) {
        return Some(());
    }
    let mut fields: Fields = serde_json::from_str(tool.get()).ok()?;
    let execution = fields
        .get("execution")
        .and_then(|raw| serde_json::from_str::<Object<Execution>>(raw.get()).ok());
    if execution
        .is_none_or(|Object(execution)| execution.task_support.as_deref() != Some("required"))
    {
        return Some(());
    }
    let meta = fields.get("_meta").and_then(|meta| serde_json::from_str::<Fields>(meta.get()).ok());
    let mut meta = meta.unwrap_or_default();
    meta.insert(TASK_REQUIRED.into(), to_raw_value(&true).ok()?);
    fields.insert("_meta".into(), to_raw_value(&meta).ok()?);
    *tool = to_raw_value(&fields).ok()?;
    Some(())
}

fn with_result(message: &[u8], change: impl FnOnce(&mut Fields) -> Option<()>) -> Option<Vec<u8>> {
    let mut message: Fields = serde_json::from_slice(message).ok()?;
    let mut result: Fields = serde_json::from_str(message.get("result")?.get()).ok()?;
    change(&mut result)?;
    message.insert("result".into(), to_raw_value(&result).ok()?);
    serde_json::to_vec(&message).ok()
}

fn with_tools(
    result: &mut Fields,
    change: impl Fn(&mut Box<RawValue>) -> Option<()>,
) -> Option<()> {
    let mut tools: Vec<Box<RawValue>> = serde_json::from_str(result.get("tools")?.get()).ok()?;
    tools.iter_mut().try_for_each(change)?;
    result.insert("tools".into(), to_raw_value(&tools).ok()?);
    Some(())
}

fn stand_in(tool: &RawValue) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let named = serde_json::from_str(tool.get()).map(|Object(Named { name })| name);
    let name = named.unwrap_or_else(|_| "(unnamed)".into());
    let why = format!("it is nested deeper than {MAX_TOOL_LEVELS} levels, which is the limit");
    to_raw_value(&json!({ "name": name, "inputSchema": {}, "_meta": { LEFT_OUT: why } })).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    fn list(tools: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"tools":[{tools}],"nextCursor":"n"}}}}"#)
    }

    #[test]
    fn only_what_is_too_deep_is_replaced() {
        let fine =
            format!(r#"{{"name":"fine","inputSchema":{{"x":{}}}}}"#, nested(MAX_TOOL_LEVELS - 2));
        let deep =
            format!(r#"{{"name":"deep","inputSchema":{{"x":{}}}}}"#, nested(MAX_TOOL_LEVELS - 1));
        let bomb = format!(r#"{{"inputSchema":{}}}"#, nested(100_000));
        let thin = thinned(list(&[&*fine, &deep, &bomb].join(",")).as_bytes()).unwrap();
        assert!(!is_deeper_than(MAX_LEVELS, &thin));
        let thin: Value = serde_json::from_slice(&thin).unwrap();
        assert_eq!((&thin["id"], &thin["result"]["nextCursor"]), (&json!(7), &json!("n")));
        let tools = &thin["result"]["tools"];
        assert_eq!(tools[0], serde_json::from_str::<Value>(&fine).unwrap());
        assert_eq!((&tools[1]["name"], &tools[2]["name"]), (&json!("deep"), &json!("(unnamed)")));
        for tool in [&tools[1], &tools[2]] {
            assert!(tool["_meta"][LEFT_OUT].as_str().unwrap().contains("levels"), "{tool}");
            serde_json::from_value::<rmcp::model::Tool>(tool.clone()).unwrap();
        }
    }

    #[test]
    fn only_tools_that_must_run_as_tasks_are_marked() {
        let tools = json!([
            { "name": "a", "inputSchema": {}, "execution": { "taskSupport": "required" }, "_meta": { "k": 1 } },
            { "name": "b", "inputSchema": {}, "execution": { "taskSupport": "optional" } },
            { "name": "c", "inputSchema": { "properties": { "taskSupport": { "const": "required" } } } },
        ]);
        let message =
            json!({ "jsonrpc": "2.0", "id": 7, "result": { "tools": tools, "nextCursor": "n" } });
        let marked: Value =
            serde_json::from_slice(&with_tasks(message.to_string().as_bytes()).unwrap()).unwrap();
        let mut expected = message.clone();
        expected["result"]["tools"][0]["_meta"][TASK_REQUIRED] = json!(true);
        assert_eq!(marked, expected);
        let tools: Vec<rmcp::model::Tool> =
            serde_json::from_value(marked["result"]["tools"].clone()).unwrap();
        assert_eq!(tools[0].meta.as_ref().unwrap().0[TASK_REQUIRED], true);
    }

    #[test]
    fn the_handle_of_a_task_reaches_the_client() {
        let task = json!({ "taskId": "t", "status": "working" });
        let handle =
            json!({ "jsonrpc": "2.0", "id": 7, "result": { "task": task, "_meta": { "k": 1 } } });
        let changed: Value =
            serde_json::from_slice(&with_tasks(handle.to_string().as_bytes()).unwrap()).unwrap();
        assert_eq!(changed["result"], json!({ "task": task }));
        let text = json!({ "type": "text", "text": "\"taskSupport\" \"taskId\"" });
        for result in [
            json!({ "content": [text] }),
            json!({ "content": [], "_meta": { "x": { "taskId": "t" } } }),
        ] {
            let message = json!({ "jsonrpc": "2.0", "id": 7, "result": result });
            assert_eq!(with_tasks(message.to_string().as_bytes()), None);
        }
    }

    #[test]
    fn what_lists_no_tools_is_left_alone() {
        let deep = nested(500);
        for text in [
            format!(r#"{{"id":1,"result":{{"content":[{deep}]}}}}"#),
            format!(r#"{{"id":1,"result":{{"tools":{{"x":{deep}}}}}}}"#),
            format!(r#"{{"id":1,"method":"x","params":{{"tools":[{deep}]}}}}"#),
            list(&deep)[1..].to_owned(),
            deep,
        ] {
            assert!(thinned(text.as_bytes()).is_none(), "{text:.80}");
        }
    }
}
