//! The tools with which sessions are used: a provider like any other, and so on every surface.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sa_core::{
    Attach, Call, CallError, CallErrorKind, Catalog, Grant, Outcome, Output, Principal, Provider, ProviderId, RawJson,
    Registration, Schema, Scope, Tool, Update, Updates,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::args::{self, EventsQuery, MAX_WAIT};
use crate::sessions::{Heard, Sessions};
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
            let sessions = sessions.ok_or_else(|| CallError::undelivered("the gateway is shutting down"))?;
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
                    let error = args::invalid(format!("there is no action \"{other}\""));
                    return Err(error.hint("message, events, list, end, response, next"));
                }
            };
            Box::pin(run(sessions, tool, principal, args, updates)).await
        }
        MESSAGE => attend(sessions, sessions.message(principal, args, None).await?, updates).await,
        "session_events" => {
            let query: EventsQuery = args::read(args)?;
            let id = query.session_id.as_deref().ok_or_else(|| args::invalid("missing \"session_id\" (string)"))?;
            sessions.read_events(principal, id, &query, None).await
        }
        "session_list" => Ok(json!({ "sessions": sessions.list(principal).await? })),
        END => {
            let of: args::Of = args::read(args)?;
            Ok(json!(sessions.end(principal, &of.session_id).await?))
        }
        "caller_tool_next" => sessions.next(principal, &args::read(args)?).await,
        RESPOND => Ok(sessions.respond(principal, &args::Response::read(args)?).await),
        other => Err(CallError::new(CallErrorKind::NotFound, format!("there is no session tool \"{other}\""))),
    }
}

#[derive(Deserialize)]
struct Action {
    action: String,
}

/// What `session_message` answers: at once, or once the agent is done, after everything that happens meanwhile was told.
async fn attend(sessions: &Sessions, heard: Heard, updates: &Updates) -> Result<Value, CallError> {
    let Heard { session, event, wait, .. } = &heard;
    let (event, wait) = (*event, *wait);
    let hint = sessions.hint_for(session);
    if wait.is_zero() {
        session.presence.asks_again();
        return Ok(with_hint(heard.answer(), hint));
    }
    let over = Instant::now() + wait;
    let mut following = sessions.follow(&session.owner, &session.id, event, false).await?;
    let mut agents = session.agents.subscribe();
    // An agent that was started for this message is done when it is gone. One that comes by itself may come any time.
    let started = session.agent.is_some();
    let mut said = Vec::new();
    let mut over = std::pin::pin!(tokio::time::sleep_until(over));
    let mut last = false;
    while !last {
        let done = async {
            if !started {
                return std::future::pending().await;
            }
            let _ = agents.wait_for(|agents| *agents == 0).await;
        };
        let news = tokio::select! {
            biased;
            news = following.next() => news?,
            // All that it said was on disk before it was gone.
            () = done => {
                last = true;
                following.rest().await?
            }
            () = &mut over => break,
            () = sessions.closing.cancelled() => break,
        };
        let Some(news) = news else { break };
        for news in news {
            if let crate::News::Event(event) = news
                && let (Ok(content), Ok(value)) =
                    (RawJson::parse(&event.json), serde_json::from_str::<Value>(&event.json))
            {
                said.push(value);
                updates.send(Update::Chunk { content, attachments: Vec::new() });
            }
        }
    }
    // The caller does not listen after this answer, unless it has another stream. It has time to come back.
    session.presence.asks_again();
    drop(following);
    sessions.look_at(session, Instant::now());
    let mut answer = heard.answer();
    answer["events"] = json!(said);
    Ok(with_hint(answer, hint))
}

fn with_hint(mut answer: Value, hint: Option<String>) -> Value {
    if let Some(hint) = hint {
        answer["hint"] = json!(hint);
    }
    answer
}

fn tools() -> Vec<Tool> {
    // Callers write null for what they do not say.
    let text = |about: &str| json!({ "type": ["string", "null"], "description": about });
    let number = |about: &str| json!({ "type": ["integer", "null"], "minimum": 0, "description": about });
    let id = json!({ "type": "string", "description": "The session's id" });
    let wait = number("How long to wait, in milliseconds; 300000 at most");
    let lent = json!({
        "type": ["array", "null"],
        "description": "Tools of yours that the agent may call. You get a caller_tool_request for each call, and answer it with caller_tool_response.",
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": { "type": "string", "description": "Letters, digits, _, - and dots" },
                "title": { "type": ["string", "null"] },
                "description": { "type": ["string", "null"], "description": "What it does, for the agent" },
                "inputSchema": { "type": ["object", "null"], "description": "The JSON Schema of its arguments, of type object" },
                "outputSchema": { "type": ["object", "null"], "description": "The JSON Schema of its result" },
                "annotations": { "type": ["object", "null"], "description": "Hints as MCP has them, such as readOnlyHint" },
                "timeout_ms": number("How long this one may take"),
            },
        },
    });
    let caller = text("Your name, which the names of your tools begin with");
    let message = json!({
        "message": text("What the agent is to do"),
        "session_id": text("The session to go on with; absent for a new one"),
        "agent": text("The configured agent that is to work; absent for the usual one"),
        "context": { "type": ["object", "null"], "properties": { "caller_id": caller, "caller_tools": lent } },
        "caller_id": caller,
        "caller_tools": lent,
        "timeout_ms": number("How long one of your tools may take"),
        "wait_ms": number("Wait for the agent to be done, and tell what happens meanwhile; 0 answers at once"),
    });
    let response = json!({
        "session_id": id,
        "request_id": { "type": "string", "description": "The request's id" },
        "result": { "description": "What your tool gave back" },
        "error": { "description": "Why it did not; a text, or an object with message" },
        "progress": { "type": ["number", "null"], "description": "Instead of an answer: how far it is" },
        "total": { "type": ["number", "null"] },
        "message": text("A word on the progress"),
        "chunk": { "description": "Instead of an answer: a part of the result" },
    });
    let events = json!({
        "session_id": id, "since": number("Only events after this one"), "limit": number("How many at most"), "wait_ms": wait,
    });
    let next = json!({
        "session_id": id, "wait_ms": wait,
        "known": { "type": ["array", "null"], "items": { "type": "string" }, "description": "Ids of requests that you work on already" },
    });
    let mut action = json!({ "action": { "type": "string", "description": "message, events, list, end, response or next: as the tool of that name, with its arguments" } });
    for (name, about) in [&message, &events, &response, &next].into_iter().filter_map(Value::as_object).flatten() {
        // No action needs all of them, and some need none.
        let about = if name == "session_id" { text("The session's id; absent for a new one") } else { about.clone() };
        action.as_object_mut().map(|all| all.entry(name).or_insert(about));
    }
    vec![
        tool("session", "The session tools in one, chosen by action.", action, &["action"]),
        tool(
            MESSAGE,
            "Starts a session, in which an agent works for you and may use tools of yours, or goes on with one.",
            message,
            &[],
        ),
        tool("session_events", "What happened in a session, oldest first.", events, &["session_id"]),
        tool("session_list", "Your sessions, newest first.", json!({}), &[]),
        tool(END, "Ends a session: its agent stops.", json!({ "session_id": id }), &["session_id"]),
        tool(
            "caller_tool_next",
            "What an agent wants of your tools, and you have not answered; waits for it.",
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
    /// Somebody who has only the schema must be able to say all that can be said.
    #[test]
    fn the_tool_for_all_actions_names_the_arguments_of_each() {
        let schema =
            |tool: &sa_core::Tool| tool.input.as_ref().unwrap().raw().to_value().unwrap()["properties"].clone();
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
