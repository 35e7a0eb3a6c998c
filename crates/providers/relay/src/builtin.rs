//! The tools for using sessions. They are a provider like any other, and so available on every
//! surface.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sa_core::{
    Attach, Call, CallError, CallErrorKind, Catalog, Grant, Outcome, Output, Principal, Provider,
    ProviderId, RawJson, Registration, Schema, Scope, Tool, Update, Updates,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::args::{self, EventsQuery, MAX_WAIT};
use crate::events::PAGE_BYTES;
use crate::sessions::{AcceptedMessage, Sessions};
use crate::{END, KIND, MESSAGE, RESPOND};

pub(crate) fn attach(sessions: &Arc<Sessions>) -> Option<Registration> {
    let attach = Attach {
        id: ProviderId::new(KIND, "gateway"),
        scope: Scope::Everyone,
        grant: Grant::installed("the gateway itself"),
        provider: Arc::new(Builtin(Arc::downgrade(sessions))),
        catalog: Catalog { tools: tools(), ..Catalog::default() },
        max_running: usize::MAX,
        about: RawJson::empty_object(),
        may_take_over: true,
    };
    sessions.router.directory().attach(attach).ok()
}

struct Builtin(Weak<Sessions>);

impl Provider for Builtin {
    fn call(&self, call: Arc<Call>, updates: Updates) -> BoxFuture<'static, Outcome> {
        let sessions = self.0.upgrade();
        Box::pin(async move {
            let sessions =
                sessions.ok_or_else(|| CallError::undelivered("the gateway is shutting down"))?;
            let content = run(&sessions, &call.tool, &call.principal, &call.args, &updates).await?;
            Ok(Output::json(RawJson::of(&content)))
        })
    }
}

async fn run(
    sessions: &Arc<Sessions>,
    tool: &str,
    principal: &Arc<Principal>,
    args: &RawJson,
    updates: &Updates,
) -> Result<Value, CallError> {
    match tool {
        "session" => {
            let action: Action = args::read(args)?;
            let tool = match &*action.action {
                "message" | "start" | "send" => MESSAGE,
                "events" => "session_events",
                "list" => "session_list",
                "end" | "stop" => END,
                "response" => RESPOND,
                "next" => "caller_tool_next",
                other => {
                    let other: String = other.chars().take(40).collect();
                    let error = args::invalid(format!("unknown action \"{other}\""));
                    return Err(error.hint("use message, events, list, end, response or next"));
                }
            };
            Box::pin(run(sessions, tool, principal, args, updates)).await
        }
        MESSAGE => {
            follow_answer(sessions, sessions.message(principal, args, None).await?, updates).await
        }
        "session_events" => {
            let query: EventsQuery = args::read(args)?;
            let id = query
                .session_id
                .as_deref()
                .ok_or_else(|| args::invalid("missing \"session_id\" (string)"))?;
            sessions.read_events(principal, id, &query, None).await
        }
        "session_list" => Ok(json!({ "sessions": sessions.list(principal).await? })),
        END => {
            let of: args::SessionArgs = args::read(args)?;
            Ok(json!(sessions.end(principal, &of.session_id).await?))
        }
        "caller_tool_next" => sessions.next(principal, &args::read(args)?).await,
        RESPOND => Ok(sessions.respond(principal, &args::Response::read(args)?).await),
        other => Err(CallError::new(
            CallErrorKind::NotFound,
            format!("unknown session tool \"{other}\""),
        )),
    }
}

#[derive(Deserialize)]
struct Action {
    action: String,
}

/// Returns the result of `session_message`: at once, or when the agent is done, after all events
/// were sent as updates.
async fn follow_answer(
    sessions: &Sessions,
    accepted: AcceptedMessage,
    updates: &Updates,
) -> Result<Value, CallError> {
    let AcceptedMessage { session, event, wait, .. } = &accepted;
    let (event, wait) = (*event, *wait);
    if wait.is_zero() {
        sessions.request_ended(session, None);
        return Ok(accepted.answer());
    }
    let over = Instant::now() + wait;
    let mut following = sessions.follow(&session.owner, &session.id, event, false).await?;
    let mut agents = session.agents.subscribe();
    // An agent that was started for this message is done when it has exited. An agent that
    // connects by itself may come at any time.
    let started = session.agent.is_some();
    let mut latest = LatestEvents::default();
    let mut over = std::pin::pin!(tokio::time::sleep_until(over));
    let mut last = false;
    while !last {
        let done = async {
            if !started {
                return std::future::pending().await;
            }
            let _ = agents.wait_for(|agents| *agents == 0).await;
        };
        let items = tokio::select! {
            biased;
            items = following.next() => items?,
            // All output is on disk before the agent counts as exited.
            () = done => {
                let (rest, more) = following.rest().await?;
                last = !more;
                Some(rest)
            }
            () = &mut over => break,
            () = sessions.closing.cancelled() => break,
        };
        let Some(items) = items else { break };
        for item in items {
            if let crate::SessionItem::Event(event) = item
                && let (Ok(content), Ok(value)) =
                    (RawJson::parse(&event.json), serde_json::from_str::<Value>(&event.json))
            {
                latest.push(content.len(), value);
                updates.send(Update::Chunk { content, attachments: Vec::new() });
            }
        }
    }
    sessions.request_ended(session, following.into_reader_guard());
    sessions.update_presence(session, Instant::now());
    let mut answer = accepted.answer();
    answer["events"] = json!(latest.events.iter().map(|(_, event)| event).collect::<Vec<_>>());
    Ok(answer)
}

/// The newest events, up to [`PAGE_BYTES`].
#[derive(Default)]
struct LatestEvents {
    events: VecDeque<(usize, Value)>,
    bytes: usize,
}

impl LatestEvents {
    fn push(&mut self, bytes: usize, event: Value) {
        self.events.push_back((bytes, event));
        self.bytes += bytes;
        while self.bytes > PAGE_BYTES
            && let Some((bytes, _)) = self.events.pop_front()
        {
            self.bytes -= bytes;
        }
    }
}

fn tools() -> Vec<Tool> {
    // Callers send null for omitted fields.
    let text = |about: &str| json!({ "type": ["string", "null"], "description": about });
    let number =
        |about: &str| json!({ "type": ["integer", "null"], "minimum": 0, "description": about });
    let id = json!({ "type": "string", "description": "The session's id" });
    let wait = number("Maximum time to wait, in milliseconds; at most 300000");
    let lent = json!({
        "type": ["array", "null"],
        "description": "Your tools that the agent can call. You receive a caller_tool_request for each call; answer it with caller_tool_response.",
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": { "type": "string", "description": "Letters, digits, _, - and dots" },
                "title": { "type": ["string", "null"] },
                "description": { "type": ["string", "null"], "description": "Description of the tool, for the agent" },
                "inputSchema": { "type": ["object", "null"], "description": "The JSON Schema of its arguments, of type object" },
                "outputSchema": { "type": ["object", "null"], "description": "The JSON Schema of its result" },
                "annotations": { "type": ["object", "null"], "description": "MCP tool annotations, such as readOnlyHint" },
                "timeout_ms": number("Timeout of this tool, in milliseconds"),
            },
        },
    });
    let caller = text("Your name; the names of your tools begin with it");
    let message = json!({
        "message": text("The task for the agent"),
        "session_id": text("The session to continue; omit it to start a new session"),
        "agent": text("The configured agent to use; omit it to use the default agent"),
        "context": { "type": ["object", "null"], "properties": { "caller_id": caller, "caller_tools": lent } },
        "caller_id": caller,
        "caller_tools": lent,
        "timeout_ms": number("Timeout of your tools, in milliseconds"),
        "wait_ms": number("Maximum time to wait for the agent to finish, in milliseconds; events are reported meanwhile. 0 returns at once"),
    });
    let response = json!({
        "session_id": id,
        "request_id": { "type": "string", "description": "The request's id" },
        "result": { "description": "The result of your tool" },
        "error": { "description": "The error of your tool: a string, or an object with a message" },
        "progress": { "type": ["number", "null"], "description": "The progress so far, instead of an answer" },
        "total": { "type": ["number", "null"] },
        "message": text("A description of the progress"),
        "chunk": { "description": "A part of the result, instead of an answer" },
    });
    let events = json!({
        "session_id": id, "since": number("Return only events after this one"), "limit": number("Maximum number of events"), "wait_ms": wait,
    });
    let next = json!({
        "session_id": id, "wait_ms": wait,
        "known": { "type": ["array", "null"], "items": { "type": "string" }, "description": "Ids of requests that you are already working on" },
    });
    let mut action = json!({ "action": { "type": "string", "description": "message, events, list, end, response or next; each works like the tool of that name and takes its arguments" } });
    for (name, about) in
        [&message, &events, &response, &next].into_iter().filter_map(Value::as_object).flatten()
    {
        // No action needs all of the fields, and some need none.
        let about = if name == "session_id" {
            text("The session's id; omit it to start a new session")
        } else {
            about.clone()
        };
        action.as_object_mut().map(|all| all.entry(name).or_insert(about));
    }
    vec![
        tool(
            "session",
            "Combines the session tools; `action` selects one of them.",
            action,
            &["action"],
        ),
        tool(
            MESSAGE,
            "Starts or continues a session, in which an agent works for you and can call your tools.",
            message,
            &[],
        ),
        tool(
            "session_events",
            "Lists the events of a session, oldest first.",
            events,
            &["session_id"],
        ),
        tool("session_list", "Lists your sessions, newest first.", json!({}), &[]),
        tool(
            END,
            "Ends a session and stops its agent.",
            json!({ "session_id": id }),
            &["session_id"],
        ),
        tool(
            "caller_tool_next",
            "Waits for calls of your tools that you have not answered yet, and returns them.",
            next,
            &["session_id"],
        ),
        tool(RESPOND, "Answers a caller_tool_request.", response, &["session_id", "request_id"]),
    ]
}

fn tool(name: &str, about: &str, properties: Value, required: &[&str]) -> Tool {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    Tool {
        description: Some(about.into()),
        input: Some(Schema::new(RawJson::of(&schema))),
        timeout: Some(MAX_WAIT + Duration::from_secs(30)),
        ..Tool::named(name)
    }
}

#[cfg(test)]
mod tests {
    /// A client that has only this schema must be able to use every argument.
    #[test]
    fn the_tool_for_all_actions_names_the_arguments_of_each() {
        let schema = |tool: &sa_core::Tool| {
            tool.input.as_ref().unwrap().raw().to_value().unwrap()["properties"].clone()
        };
        let tools = super::tools();
        let all = schema(tools.iter().find(|tool| &*tool.name == "session").unwrap());
        for tool in &tools {
            for name in schema(tool).as_object().unwrap().keys() {
                assert!(all[name].is_object(), "{} takes \"{name}\"", tool.name);
            }
        }
        let lent = &all["caller_tools"]["items"]["properties"];
        assert!(lent["inputSchema"].is_object() && lent["timeout_ms"].is_object(), "{lent}");
    }

    #[test]
    fn every_tool_has_a_schema_that_can_be_used() {
        for tool in super::tools() {
            assert_eq!(tool.input.unwrap().check(), Ok(()), "{}", tool.name);
        }
    }
}
