//! Tool definitions and call execution for clients with their own loop.

use std::sync::Arc;

use sa_core::{Router, ToolView, View};
use sa_limits::offload;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::available_tools;
use crate::calls::{Caller, FinishedCall, Order, Runner};
use crate::error::ChatError;
use crate::formats::{Answer, Definition, Format, definitions, detect, messages, wanted};
use crate::request::Choice;

/// The maximum number of calls in a reply; no reply has more.
const MAX_CALLS: usize = 128;
const MAX_PARALLEL: usize = 16;
const MAX_RESULT: usize = 1 << 20;

/// Definitions and calls of the gateway's tools in the formats of several model vendors.
#[derive(Debug, Clone)]
pub struct Functions {
    router: Arc<Router>,
}

/// A model's reply with calls to run.
#[derive(Debug)]
pub struct Execute {
    format: Option<Format>,
    reply: Value,
    /// The client's own tools: their calls are left to it.
    leave: Vec<String>,
    session: Option<String>,
    channel: Option<String>,
}

impl Execute {
    /// Reads `{"reply": …}` with optional fields, or the reply itself.
    pub fn read(body: &[u8], format: Option<Format>) -> Result<Self, ChatError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Envelope {
            reply: Value,
            format: Option<String>,
            #[serde(default)]
            leave: Vec<String>,
            session: Option<String>,
            channel: Option<String>,
        }
        let unreadable = |error: serde_json::Error| {
            ChatError::invalid("", format!("the request body is invalid: {error}"))
        };
        let body: Value = serde_json::from_slice(body).map_err(unreadable)?;
        if body.get("reply").is_none() {
            return Ok(Self {
                format,
                reply: body,
                leave: Vec::new(),
                session: None,
                channel: None,
            });
        }
        let Envelope { reply, format: named, leave, session, channel } =
            serde_json::from_value(body).map_err(unreadable)?;
        let named = named
            .map(|name| Format::parse(&name).ok_or_else(|| unknown_format(&name)))
            .transpose()?;
        Ok(Self { format: named.or(format), reply, leave, session, channel })
    }

    /// Returns the session and the channel that add further tools.
    pub fn scopes(&self) -> (Option<&str>, Option<&str>) {
        (self.session.as_deref(), self.channel.as_deref())
    }
}

/// Returns the error for an unknown format.
pub fn unknown_format(name: &str) -> ChatError {
    let known: Vec<&str> = Format::ALL.into_iter().map(Format::as_str).collect();
    let name = crate::error::quoted(name, &[]);
    ChatError::invalid(
        "format",
        format!("unknown format \"{name}\"; available formats: {}", known.join(", ")),
    )
}

impl Functions {
    pub fn new(router: Arc<Router>) -> Self {
        Self { router }
    }

    /// Returns the definitions of the tools that a view may use. `tools` is a list of names
    /// separated by commas, in which `*` matches any characters.
    pub async fn list(&self, format: Format, view: &View, tools: Option<&str>) -> String {
        let choice = tools.map(Choice::of_header);
        let tools = available_tools::tools(&self.router, view, |name| {
            choice.as_ref().is_none_or(|choice| choice.includes(name))
        });
        offload::run_queued(available_tools::weight(&tools), || {
            definitions(format, &defined(format, tools)).to_string()
        })
        .await
    }

    /// Runs the calls of a reply, and returns the messages to append. A call that fails has a
    /// result like any other.
    pub async fn execute(
        &self,
        chat_request: Execute,
        caller: &Caller,
    ) -> Result<String, ChatError> {
        let format =
            chat_request.format.or_else(|| detect(&chat_request.reply)).ok_or_else(|| {
                ChatError::invalid(
                    "format",
                    "the format of the reply cannot be detected: set \"format\"",
                )
            })?;
        let calls = wanted(format, &chat_request.reply);
        if calls.len() > MAX_CALLS {
            return Err(ChatError::invalid(
                "reply",
                format!("a reply can have at most {MAX_CALLS} calls"),
            ));
        }
        let (left, calls): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|call| chat_request.leave.contains(&call.name));
        let tools = available_tools::tools(&self.router, &caller.view, |_| true);
        let tools =
            offload::run_queued(available_tools::weight(&tools), || defined(format, tools)).await;
        let orders = calls.into_iter().map(|wanted| {
            let tool = tools
                .iter()
                .find(|tool| tool.name == wanted.name)
                .map(|tool| Arc::clone(&tool.tool.name));
            // A tool that is temporarily offline is not listed, and returns its own error when it
            // is called.
            let tool = tool.or_else(|| Some(wanted.name.as_str().into()));
            Order { wanted, tool }
        });
        let runner = Runner {
            router: &self.router,
            caller,
            surface: "functions",
            max_parallel: MAX_PARALLEL,
            max_result_bytes: MAX_RESULT,
        };
        let finished_call = runner.run(orders.collect(), None).await;
        let events: Vec<Value> = finished_call
            .iter()
            .map(|finished_call| {
                let mut event = finished_call.event();
                if let Some(fields) = event.as_object_mut() {
                    fields.remove("event");
                    fields.remove("result");
                }
                event
            })
            .collect();
        let weight =
            finished_call.iter().map(|finished_call| finished_call.answer.rendered.weight()).sum();
        let answers: Vec<Answer> =
            finished_call.into_iter().map(|FinishedCall { answer, .. }| answer).collect();
        let left: Vec<Value> =
            left.iter().map(|call| json!({ "id": call.id, "name": call.name })).collect();
        let written = || {
            let mut done = json!({ "format": format.as_str(), "messages": messages(format, &answers), "calls": events });
            if !left.is_empty() {
                done["left"] = json!(left);
            }
            done.to_string()
        };
        Ok(offload::run_queued(weight, written).await)
    }
}

fn defined(format: Format, tools: Vec<ToolView>) -> Vec<Definition> {
    tools.into_iter().map(|tool| Definition::new(format, tool)).collect()
}
