//! A list of tools without those that nobody could read.

use std::collections::BTreeMap;

use sa_core::json::{Object, is_deeper_than};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::MAX_LEVELS;

/// Where a tool says in its `_meta` that it stands for one that was left out, and why.
pub const LEFT_OUT: &str = "switchboard/left-out";

/// How deeply one tool may be nested: the list, the result and the message are around it.
const MAX_TOOL_LEVELS: usize = MAX_LEVELS - 3;

type Fields = BTreeMap<String, Box<RawValue>>;

/// An answer that lists tools, with something else in the place of each that is nested too deeply: no more than its name, and
/// word of why. `None` if it is no such answer. Nothing of what is nested is built, so that no depth of it takes any stack.
pub(crate) fn thinned(message: &[u8]) -> Option<Vec<u8>> {
    let mut message: Fields = serde_json::from_slice(message).ok()?;
    let mut result: Fields = serde_json::from_str(message.get("result")?.get()).ok()?;
    let mut tools: Vec<Box<RawValue>> = serde_json::from_str(result.get("tools")?.get()).ok()?;
    for tool in &mut tools {
        if is_deeper_than(MAX_TOOL_LEVELS, tool.get().as_bytes()) {
            *tool = stand_in(tool)?;
        }
    }
    result.insert("tools".into(), to_raw_value(&tools).ok()?);
    message.insert("result".into(), to_raw_value(&result).ok()?);
    serde_json::to_vec(&message).ok()
}

fn stand_in(tool: &RawValue) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let named = serde_json::from_str(tool.get()).map(|Object(Named { name })| name);
    let name = named.unwrap_or_else(|_| "(one without a name)".into());
    let why = format!("it is nested deeper than {MAX_TOOL_LEVELS} levels, the most that is taken");
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
        let fine = format!(r#"{{"name":"fine","inputSchema":{{"x":{}}}}}"#, nested(MAX_TOOL_LEVELS - 2));
        let deep = format!(r#"{{"name":"deep","inputSchema":{{"x":{}}}}}"#, nested(MAX_TOOL_LEVELS - 1));
        let bomb = format!(r#"{{"inputSchema":{}}}"#, nested(100_000));
        let thin = thinned(list(&[&*fine, &deep, &bomb].join(",")).as_bytes()).unwrap();
        assert!(!is_deeper_than(MAX_LEVELS, &thin));
        let thin: Value = serde_json::from_slice(&thin).unwrap();
        assert_eq!((&thin["id"], &thin["result"]["nextCursor"]), (&json!(7), &json!("n")));
        let tools = &thin["result"]["tools"];
        assert_eq!(tools[0], serde_json::from_str::<Value>(&fine).unwrap());
        assert_eq!((&tools[1]["name"], &tools[2]["name"]), (&json!("deep"), &json!("(one without a name)")));
        for tool in [&tools[1], &tools[2]] {
            assert!(tool["_meta"][LEFT_OUT].as_str().unwrap().contains("levels"), "{tool}");
            serde_json::from_value::<rmcp::model::Tool>(tool.clone()).unwrap();
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
