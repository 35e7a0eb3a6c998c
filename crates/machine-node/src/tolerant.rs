//! Ignores unknown arguments of a tool, and names them in the result.
//!
//! Models send arguments that other tools of the same name have, such as `description`. A rejection
//! would cost a second call.

use std::collections::HashSet;
use std::time::Duration;

use sa_node_sdk::{NodeTool, ToolContext, ToolRegistry, ToolResult};
use serde_json::{Map, Value, json};

/// The key for the ignored arguments in the `_meta` of the result.
const IGNORED: &str = "switchboard/ignored_arguments";
/// The maximum number of names, and the maximum length of each in characters.
const MAX_NAMES: usize = 8;
const MAX_NAME: usize = 32;

pub(crate) fn register(tools: &mut ToolRegistry, name: &str, tool: impl NodeTool) {
    let schema = tool.input_schema().unwrap_or_default();
    let known = schema["properties"].as_object().into_iter().flat_map(Map::keys).cloned().collect();
    tools.register_host_tool(name, Tolerant { known, tool });
}

struct Tolerant<T> {
    known: HashSet<String>,
    tool: T,
}

#[async_trait::async_trait]
impl<T: NodeTool> NodeTool for Tolerant<T> {
    async fn call(&self, ctx: ToolContext, mut args: Value) -> ToolResult {
        let mut ignored = Vec::new();
        if let Value::Object(args) = &mut args {
            args.retain(|name, _| {
                let known = self.known.contains(name);
                if !known && ignored.len() < MAX_NAMES {
                    ignored.push(name.chars().take(MAX_NAME).collect::<String>());
                }
                known
            });
        }
        let mut result = self.tool.call(ctx, args).await?;
        if !ignored.is_empty()
            && let Value::Object(result) = &mut result
        {
            result.insert("_meta".to_owned(), json!({ IGNORED: ignored }));
        }
        Ok(result)
    }

    fn title(&self) -> Option<String> {
        self.tool.title()
    }

    fn description(&self) -> Option<String> {
        self.tool.description()
    }

    fn input_schema(&self) -> Option<Value> {
        self.tool.input_schema()
    }

    fn output_schema(&self) -> Option<Value> {
        self.tool.output_schema()
    }

    fn annotations(&self) -> Option<Value> {
        self.tool.annotations()
    }

    fn capabilities(&self) -> Vec<String> {
        self.tool.capabilities()
    }

    fn timeout(&self) -> Option<Duration> {
        self.tool.timeout()
    }
}
