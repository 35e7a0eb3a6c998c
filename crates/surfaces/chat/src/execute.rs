//! For those with a loop of their own: what the tools are, and the calls of a model's reply carried out.

use std::sync::Arc;

use sa_core::{Router, ToolView, View, aside};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::calls::{Caller, Carried, Order, Runner};
use crate::error::ChatError;
use crate::formats::{Answer, Definition, Format, definitions, detect, messages, wanted};
use crate::offer;
use crate::request::Choice;

/// More calls than a reply has.
const MAX_CALLS: usize = 128;
const AT_ONCE: usize = 16;
const MAX_RESULT: usize = 1 << 20;

/// Definitions and calls of the gateway's tools in the words of several makers of models.
#[derive(Debug, Clone)]
pub struct Functions {
    router: Arc<Router>,
}

/// A model's reply whose calls are to be made.
#[derive(Debug)]
pub struct Execute {
    format: Option<Format>,
    reply: Value,
    /// Tools that are the client's own: their calls are left to it.
    leave: Vec<String>,
    session: Option<String>,
    channel: Option<String>,
}

impl Execute {
    /// Reads `{"reply": …}` with what may stand beside it, or the reply itself.
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
        let unreadable = |error: serde_json::Error| ChatError::invalid("", format!("the body cannot be read: {error}"));
        let body: Value = serde_json::from_slice(body).map_err(unreadable)?;
        if body.get("reply").is_none() {
            return Ok(Self { format, reply: body, leave: Vec::new(), session: None, channel: None });
        }
        let Envelope { reply, format: named, leave, session, channel } =
            serde_json::from_value(body).map_err(unreadable)?;
        let named = named.map(|name| Format::parse(&name).ok_or_else(|| unknown_format(&name))).transpose()?;
        Ok(Self { format: named.or(format), reply, leave, session, channel })
    }

    /// The session and the channel whose tools are wanted, too.
    pub fn scopes(&self) -> (Option<&str>, Option<&str>) {
        (self.session.as_deref(), self.channel.as_deref())
    }
}

/// A format that nobody knows.
pub fn unknown_format(name: &str) -> ChatError {
    let known: Vec<&str> = Format::ALL.into_iter().map(Format::as_str).collect();
    let name = crate::error::quoted(name, &[]);
    ChatError::invalid("format", format!("there is no format \"{name}\"; there are: {}", known.join(", ")))
}

impl Functions {
    pub fn new(router: Arc<Router>) -> Self {
        Self { router }
    }

    /// The definitions of the tools that a view may use; `tools` are names with commas between them, `*` standing for any
    /// characters.
    pub async fn list(&self, format: Format, view: &View, tools: Option<&str>) -> String {
        let choice = tools.map(Choice::of_header);
        let tools = offer::tools(&self.router, view, |name| choice.as_ref().is_none_or(|choice| choice.includes(name)));
        aside::in_turn(offer::weight(&tools), || definitions(format, &defined(format, tools)).to_string()).await
    }

    /// Makes the calls of a reply, and gives back the messages to append. A call that fails is a result like any other.
    pub async fn execute(&self, asked: Execute, caller: &Caller) -> Result<String, ChatError> {
        let format = asked.format.or_else(|| detect(&asked.reply)).ok_or_else(|| {
            ChatError::invalid("format", "the format of the reply cannot be told: name it in \"format\"")
        })?;
        let calls = wanted(format, &asked.reply);
        if calls.len() > MAX_CALLS {
            return Err(ChatError::invalid("reply", format!("a reply may have {MAX_CALLS} calls at most")));
        }
        let (left, calls): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| asked.leave.contains(&call.name));
        let tools = offer::tools(&self.router, &caller.view, |_| true);
        let tools = aside::in_turn(offer::weight(&tools), || defined(format, tools)).await;
        let orders = calls.into_iter().map(|wanted| {
            let tool = tools.iter().find(|tool| tool.name == wanted.name).map(|tool| Arc::clone(&tool.tool.name));
            // A tool that is away for the moment is not listed, and says so itself when it is called.
            let tool = tool.or_else(|| Some(wanted.name.as_str().into()));
            Order { wanted, tool }
        });
        let runner = Runner {
            router: &self.router,
            caller,
            surface: "functions",
            at_once: AT_ONCE,
            max_result_bytes: MAX_RESULT,
        };
        let carried = runner.run(orders.collect(), None).await;
        let made: Vec<Value> = carried
            .iter()
            .map(|carried| {
                let mut news = carried.news();
                if let Some(fields) = news.as_object_mut() {
                    fields.remove("event");
                    fields.remove("result");
                }
                news
            })
            .collect();
        let weight = carried.iter().map(|carried| carried.answer.shown.weight()).sum();
        let answers: Vec<Answer> = carried.into_iter().map(|Carried { answer, .. }| answer).collect();
        let left: Vec<Value> = left.iter().map(|call| json!({ "id": call.id, "name": call.name })).collect();
        let written = || {
            let mut done = json!({ "format": format.as_str(), "messages": messages(format, &answers), "calls": made });
            if !left.is_empty() {
                done["left"] = json!(left);
            }
            done.to_string()
        };
        Ok(aside::in_turn(weight, written).await)
    }
}

fn defined(format: Format, tools: Vec<ToolView>) -> Vec<Definition> {
    tools.into_iter().map(|tool| Definition::new(format, tool)).collect()
}
