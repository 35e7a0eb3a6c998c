//! A search in place of a long list: `find_tools` and `call_tool`.
//!
//! Five thousand tools would fill the context of any model. With the search the list contains two:
//! one that finds tools by their purpose, and one that calls them. The search is part of the
//! surface and not a provider, for two reasons. It finds only tools that *this* principal can see.
//! A call through it is the client's own call, with its progress, its cancellation and its
//! questions.

mod index;

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use sa_core::{CallError, CallErrorKind, Router, Scope, ToolView};
use sa_limits::offload;
use serde_json::{Value, json};

use self::index::Index;
use crate::caller::Caller;
use crate::convert::ONLINE;

pub(crate) const FIND: &str = "find_tools";
pub(crate) const CALL: &str = "call_tool";

/// The default and the maximum number of tools that a search returns.
const DEFAULT: usize = 10;
const MAX: usize = 50;
/// The maximum number of cached indexes, one per set of scopes.
const MAX_CACHED: usize = 16;
/// The maximum length of a query.
const MAX_QUERY: usize = 1_000;

/// The cached indexes.
#[derive(Default)]
pub(crate) struct Search(Mutex<Vec<CachedIndex>>);

struct CachedIndex {
    scopes: Vec<Scope>,
    revision: u64,
    index: Arc<Index>,
}

/// Returns the tools that are listed instead of all tools.
pub(crate) fn tools() -> Vec<Tool> {
    let find = json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "description": "What the tool should do, in a few words." },
            "limit": { "type": "integer", "minimum": 1, "maximum": MAX, "description": "Maximum number of tools to return; 10 by default." },
        },
        "required": ["query"],
    });
    let call = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "The tool's name, as returned by find_tools." },
            "arguments": { "type": "object", "description": "The tool's arguments, which must match its input_schema." },
        },
        "required": ["name"],
    });
    let tool = |name: &'static str, title: &str, description: &'static str, schema: &Value| {
        let mut tool =
            Tool::new(name, description, Arc::new(schema.as_object().cloned().unwrap_or_default()));
        tool.title = Some(title.to_owned());
        tool
    };
    let mut find = tool(
        FIND,
        "Find tools",
        "Finds tools by their purpose. Returns the best matches with their names, descriptions and input schemas; use call_tool to call one.",
        &find,
    );
    find.annotations = Some(ToolAnnotations::new().read_only(true));
    let call = tool(CALL, "Call a tool", "Calls a tool that find_tools returned.", &call);
    vec![call, find]
}

/// Returns the tool and the arguments that a use of `call_tool` contains.
pub(crate) fn unwrap(
    arguments: Option<JsonObject>,
) -> Result<(String, Option<JsonObject>), CallError> {
    let invalid = |message: &str| {
        CallError::new(CallErrorKind::InvalidArgs, message)
            .hint("call_tool takes {name, arguments}; see find_tools")
    };
    let mut given = arguments.unwrap_or_default();
    let Some(Value::String(name)) = given.remove("name") else {
        return Err(invalid("missing \"name\" (string)"));
    };
    match given.remove("arguments") {
        None | Some(Value::Null) => Ok((name, None)),
        Some(Value::Object(arguments)) => Ok((name, Some(arguments))),
        // Models sometimes send an object as text.
        Some(Value::String(text)) => serde_json::from_str(&text)
            .map(|arguments| (name, Some(arguments)))
            .map_err(|_| invalid("\"arguments\" must be an object")),
        Some(_) => Err(invalid("\"arguments\" must be an object")),
    }
}

impl Search {
    /// Finds tools among those that the caller may call.
    pub(crate) async fn find(
        &self,
        router: &Router,
        caller: &Caller,
        arguments: Option<&JsonObject>,
    ) -> Result<CallToolResult, CallError> {
        let invalid =
            |message: Cow<'static, str>| CallError::new(CallErrorKind::InvalidArgs, message);
        let field = |name: &str| arguments.and_then(|arguments| arguments.get(name));
        let query = field("query")
            .and_then(Value::as_str)
            .ok_or_else(|| invalid("missing \"query\" (string)".into()))?;
        if query.len() > MAX_QUERY {
            return Err(invalid(format!("\"query\" is longer than {MAX_QUERY} bytes").into()));
        }
        let limit = match field("limit") {
            None | Some(Value::Null) => DEFAULT,
            Some(limit) => limit
                .as_u64()
                .filter(|limit| (1..=MAX as u64).contains(limit))
                .and_then(|limit| usize::try_from(limit).ok())
                .ok_or_else(|| {
                    invalid(format!("\"limit\" must be a number from 1 to {MAX}").into())
                })?,
        };
        let index = self.index(router, caller).await;
        let policy = router.policy();
        let offered =
            |tool: &ToolView| tool.tool.for_models && policy.allows(&caller.principal, tool);
        let found = index.find(query, limit, offered);
        let bytes = found.iter().map(|view| view.tool.weight()).sum();
        let rendered = || {
            let tools: Vec<Value> =
                found.into_iter().map(crate::convert::tool).map(|tool| described(&tool)).collect();
            let result = json!({ "tools": tools });
            let mut answer = CallToolResult::success(vec![ContentBlock::text(result.to_string())]);
            answer.structured_content = Some(result);
            answer
        };
        Ok(offload::run_queued(bytes, rendered).await)
    }

    /// Returns the index over the tools that these scopes currently show.
    async fn index(&self, router: &Router, caller: &Caller) -> Arc<Index> {
        let directory = router.directory();
        let revision = *directory.subscribe().borrow();
        let lookup = |cache: &mut Vec<CachedIndex>| {
            let at = cache
                .iter()
                .position(|cache| cache.scopes == caller.scopes && cache.revision == revision)?;
            // Recently used indexes are kept longest.
            let used = cache.remove(at);
            let index = Arc::clone(&used.index);
            cache.push(used);
            Some(index)
        };
        if let Some(index) = lookup(&mut self.cache()) {
            return index;
        }
        // The index is built without the lock, so that others can search meanwhile. It contains all
        // tools; the access rights are checked at each search.
        let all = directory.list(&caller.view(), None, usize::MAX - 1, |_| true);
        let index = Arc::new(offload::run_queued(all.weight(), || Index::new(all.tools)).await);
        let mut cache = self.cache();
        cache.retain(|cache| cache.revision == revision && cache.scopes != caller.scopes);
        if cache.len() >= MAX_CACHED {
            cache.remove(0);
        }
        cache.push(CachedIndex {
            scopes: caller.scopes.clone(),
            revision,
            index: Arc::clone(&index),
        });
        index
    }

    fn cache(&self) -> parking_lot::MutexGuard<'_, Vec<CachedIndex>> {
        self.0.lock()
    }
}

fn described(tool: &Tool) -> Value {
    let mut described = json!({
        "name": tool.name,
        "description": tool.description,
        "input_schema": *tool.input_schema,
    });
    if let Some(title) = &tool.title {
        described["title"] = title.as_str().into();
    }
    if tool.meta.as_ref().is_some_and(|meta| meta.0.get(ONLINE) == Some(&Value::Bool(false))) {
        described["online"] = false.into();
    }
    described
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORDS: &[&str] = &["name", "arguments", "{}", "{\"a\":1}", "[", "null", "demo_echo"];

    proptest! {
        #[test]
        fn a_call_without_a_name_is_refused(given in sa_hostile::json(WORDS)) {
            let given = given.as_object().cloned();
            match unwrap(given.clone()) {
                Ok((name, arguments)) => {
                    let given = given.unwrap();
                    prop_assert_eq!(&given["name"], &name);
                    prop_assert!(arguments.is_none() || given.contains_key("arguments"));
                }
                Err(error) => prop_assert!(error.kind == CallErrorKind::InvalidArgs && error.message.len() < sa_hostile::SHORT),
            }
        }
    }
}
