//! The loop: asks the model, runs its calls and returns the results to it, until it answers or a
//! limit is reached.

mod answer;
mod body;
mod pieces;
mod stop;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sa_limits::offload;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::stop::Stop;
use crate::answers::Answers;
use crate::available_tools;
use crate::calls::{Caller, EVENT_QUEUE, FinishedCall, Order, Runner};
use crate::chat::{Chat, Event};
use crate::error::ChatError;
use crate::formats::{Answer, ToolCall, openai_messages, openai_tool};
use crate::legacy;
use crate::memory::{Hidden, digest};
use crate::request::{ChatRequest, raw};
use crate::round::{Call, MAX_CALLS, Round, new_id};
use crate::server::{Server, StartedAnswer};
use crate::stream::{Forward, send};
use crate::usage::Usage;

/// The number of retries after a failure of the server once tools have run: a client that starts
/// again would run them twice.
const RETRIES: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// The time that a reader has to receive the end of an answer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of one answer in progress.
pub(crate) struct Run<'a> {
    chat: &'a Chat,
    caller: &'a Caller,
    chat_request: ChatRequest,
    server: Server<'a>,
    /// The definitions of all tools, the client's first.
    tools: Vec<Value>,
    /// The size of the gateway's definitions in bytes.
    weight: usize,
    /// The gateway's tools among them.
    offered: HashMap<String, Arc<str>>,
    left_out: usize,
    /// The conversation, including the parts that the client does not know.
    messages: Vec<Box<RawValue>>,
    /// The messages that were added since.
    added: Vec<Box<RawValue>>,
    deadline: Instant,
    max_rounds: u32,
    rounds: u32,
    calls_made: usize,
    usage: Usage,
    texts: Vec<String>,
    /// The gateway's calls, for clients that want to know them.
    call_events: Vec<Value>,
    /// The last whole answer.
    last: Option<Map<String, Value>>,
    answers: Answers,
}

/// The end of an answer.
struct End {
    finish: String,
    /// Calls of the client's own tools.
    calls: Vec<Call>,
    stopped: Option<Stop>,
}

impl<'a> Run<'a> {
    pub(crate) async fn prepare(
        chat: &'a Chat,
        mut chat_request: ChatRequest,
        caller: &'a Caller,
    ) -> Result<Self, ChatError> {
        let refused = |error: sa_core::CallError| {
            ChatError::new(403, "invalid_request_error", "not_allowed", error.message).retry(false)
        };
        let principal = &caller.view.principal;
        chat.router.policy().authorise_role(principal).map_err(refused)?;
        let (name, spec) = chat.model(&chat_request.model, principal)?;
        let wanted = |tool: &str| {
            let chosen =
                chat_request.extension.tools.as_ref().is_none_or(|choice| choice.includes(tool));
            chosen && spec.offers(tool) && !chat_request.own.contains(tool)
        };
        let mut gateway_calls = available_tools::tools(&chat.router, &caller.view, wanted);
        let room = spec.max_tools.saturating_sub(chat_request.tools.len());
        let left_out = gateway_calls.len().saturating_sub(room);
        gateway_calls.truncate(room);
        if chat_request.answers > 1 && !gateway_calls.is_empty() {
            return Err(ChatError::invalid(
                "n",
                "the gateway calls tools for one answer at a time: omit n, or send \"switchboard\": {\"tools\": \"none\"}",
            ));
        }
        let mut tools = std::mem::take(&mut chat_request.tools);
        let weight = available_tools::weight(&gateway_calls);
        let defined =
            || gateway_calls.iter().map(|tool| openai_tool(&tool.name, tool)).collect::<Vec<_>>();
        tools.extend(offload::run_queued(weight, defined).await);
        let offered = gateway_calls
            .iter()
            .map(|tool| (tool.name.to_string(), Arc::clone(&tool.name)))
            .collect();
        let messages = chat.memory.restore(&principal.id, chat_request.messages.clone());
        let limit = chat_request
            .extension
            .timeout_ms
            .map_or(spec.timeout(), |ms| spec.timeout().min(Duration::from_millis(ms)));
        Ok(Self {
            chat,
            caller,
            server: Server { http: &chat.http, name, spec },
            tools,
            weight,
            offered,
            left_out,
            messages: legacy::to_modern(messages),
            added: Vec::new(),
            deadline: Instant::now() + limit,
            max_rounds: chat_request
                .extension
                .max_rounds
                .map_or(spec.max_rounds, |rounds| rounds.clamp(1, spec.max_rounds)),
            rounds: 0,
            calls_made: 0,
            usage: Usage::default(),
            texts: Vec::new(),
            call_events: Vec::new(),
            last: None,
            answers: Answers::of(chat.answers.share(&principal.holder())),
            chat_request,
        })
    }

    /// Returns the whole answer.
    pub(crate) async fn whole(mut self) -> Result<(Map<String, Value>, usize, Answers), ChatError> {
        if self.only_relays() {
            let started =
                within(self.deadline, self.server.ask(self.body().await?, false)).await??;
            let deadline = self.deadline;
            let answer = within(deadline, started.whole(&mut self.answers)).await??;
            return Ok((answer, self.left_out, self.answers));
        }
        let started = Instant::now();
        let end = match tokio::time::timeout_at(self.deadline, self.go(&mut None)).await {
            Ok(end) => end.map_err(|error| self.with_usage_recorded(error))?,
            Err(_) => self.timed_out(started, self.last.is_some())?,
        };
        Ok((self.answer(end), self.left_out, self.answers))
    }

    /// Sends the answer in pieces.
    pub(crate) async fn stream(mut self, events: &mpsc::Sender<Event>) -> Result<(), ChatError> {
        if self.only_relays() {
            let started =
                within(self.deadline, self.server.ask(self.body().await?, true)).await??;
            send(events, Event::Started { left_out: self.left_out }).await?;
            return within(self.deadline, pieces::relay(started, events, &mut self.answers))
                .await?;
        }
        let own = std::mem::take(&mut self.chat_request.own);
        let mut forward = Some(Forward::new(events, self.chat_request.legacy, &own));
        let started = Instant::now();
        let result = tokio::time::timeout_at(self.deadline, self.go(&mut forward)).await;
        let Some(mut forward) = forward else { return Ok(()) };
        let end = match result {
            Ok(end) => end.map_err(|error| self.with_usage_recorded(error))?,
            Err(_) => self.timed_out(started, forward.has_started() || self.calls_made > 0)?,
        };
        // The end is sent even after the deadline, but the time for a reader that does not read is
        // limited.
        let last = async {
            if let Some(stop) = end.stopped.filter(|_| !forward.has_text()) {
                forward.delta(json!({ "content": stop.note() }), Value::Null).await?;
            }
            if end.stopped.is_some() || self.chat_request.extension.events {
                let about = self.about(&end);
                forward.extra("switchboard", about).await?;
            }
            forward.delta(json!({}), json!(end.finish)).await?;
            match self.usage.sum().filter(|_| self.chat_request.include_usage) {
                Some(usage) => forward.extra("usage", usage.clone()).await,
                None => Ok(()),
            }
        };
        tokio::time::timeout(CLOSE_TIMEOUT, last).await.unwrap_or(Ok(()))
    }

    /// Returns whether request and answer are passed on unchanged. A translation needs well-formed
    /// chunks, which the loop writes.
    fn only_relays(&self) -> bool {
        let is_same_form = self.chat_request.legacy == self.server.spec.legacy_functions
            && self.chat_request.responses.is_none();
        self.offered.is_empty() && is_same_form
    }

    async fn go(&mut self, forward: &mut Option<Forward<'_>>) -> Result<End, ChatError> {
        loop {
            self.rounds += 1;
            let (round, mut client_calls) = self.round(forward).await?;
            self.usage.add(round.usage.as_ref());
            if !round.text().is_empty() {
                self.texts.push(round.text().to_owned());
            }
            let (own, gateway_calls): (Vec<&Call>, Vec<&Call>) = round
                .calls
                .iter()
                .partition(|call| self.is_for_client(forward.as_ref(), &call.name));
            if forward.is_none() {
                let most = if self.chat_request.legacy { 1 } else { usize::MAX };
                client_calls =
                    own.iter().take(most).map(|call| call.with_id(&new_id(&call.id))).collect();
            }
            // A truncated answer may have ended in the middle of a call.
            let cut = matches!(round.finish.as_deref(), Some("length" | "content_filter"));
            if round.calls.is_empty() || cut {
                let finish = round
                    .finish
                    .clone()
                    .filter(|finish| finish != "tool_calls")
                    .unwrap_or_else(|| "stop".into());
                return Ok(End { finish, calls: client_calls, stopped: None });
            }
            // The calls are not run in part, because the model would take a part for the whole.
            let stop = if round.overflowed {
                Some(Stop::Calls(MAX_CALLS))
            } else {
                self.limit(gateway_calls.len())
            };
            if let (Some(stop), true) = (stop, client_calls.is_empty()) {
                return Ok(End {
                    finish: "length".into(),
                    calls: client_calls,
                    stopped: Some(stop),
                });
            }
            let orders: Vec<Order> = if stop.is_some() {
                Vec::new()
            } else {
                gateway_calls.iter().map(|call| self.order(call)).collect()
            };
            let answers = self.execute_calls(orders, forward).await?;
            let (results, images) = openai_messages(&answers);
            let calls: Vec<Value> = if answers.is_empty() {
                Vec::new()
            } else {
                gateway_calls.iter().map(|call| call.to_value()).collect()
            };
            if !client_calls.is_empty() {
                let hidden = Hidden {
                    before: std::mem::take(&mut self.added),
                    calls,
                    results: results.iter().map(raw).collect(),
                    after: images.as_ref().map(raw),
                };
                self.remember(&client_calls, hidden);
                let finish = if self.chat_request.legacy { "function_call" } else { "tool_calls" };
                return Ok(End { finish: finish.into(), calls: client_calls, stopped: None });
            }
            let mut message = round.message.clone();
            message.insert("tool_calls".into(), Value::Array(calls));
            self.added.push(raw(&Value::Object(message)));
            self.added.extend(results.iter().chain(&images).map(raw));
        }
    }

    fn is_for_client(&self, forward: Option<&Forward<'_>>, name: &str) -> bool {
        forward.map_or_else(|| self.chat_request.own.contains(name), |forward| forward.owns(name))
    }

    /// Returns the limit that would be exceeded by this number of calls and another round.
    fn limit(&self, calls: usize) -> Option<Stop> {
        let spec = self.server.spec;
        let tokens = spec.max_total_tokens;
        match () {
            () if calls == 0 => None,
            () if self.rounds >= self.max_rounds => Some(Stop::Rounds(self.max_rounds)),
            () if self.calls_made + calls > spec.max_tool_calls => {
                Some(Stop::Calls(spec.max_tool_calls))
            }
            () if tokens > 0 && self.usage.total() >= tokens => Some(Stop::Tokens(tokens)),
            () => None,
        }
    }

    fn order(&self, call: &Call) -> Order {
        let wanted = ToolCall::new(Some(json!(call.id)), call.name.clone(), &call.arguments);
        Order { tool: self.offered.get(&call.name).cloned(), wanted }
    }

    /// Runs the gateway's calls, and reports them to the client if it wants to know them.
    async fn execute_calls(
        &mut self,
        orders: Vec<Order>,
        forward: &mut Option<Forward<'_>>,
    ) -> Result<Vec<Answer>, ChatError> {
        let spec = self.server.spec;
        let max_parallel = if self.chat_request.parallel { spec.max_parallel } else { 1 };
        let (router, max_result_bytes) = (&self.chat.router, spec.max_result_bytes);
        let runner =
            Runner { router, caller: self.caller, surface: "chat", max_parallel, max_result_bytes };
        self.calls_made += orders.len();
        let finished_call: Vec<FinishedCall> = match forward
            .as_mut()
            .filter(|_| self.chat_request.extension.events)
        {
            None => runner.run(orders, None).await,
            Some(forward) => {
                let (sender, mut receiver) = mpsc::channel(EVENT_QUEUE);
                let mut running = std::pin::pin!(runner.run(orders, Some(&sender)));
                let finished_call = loop {
                    tokio::select! {
                        biased;
                        Some(item) = receiver.recv() => forward.extra("switchboard", item).await?,
                        finished_call = &mut running => break finished_call,
                    }
                };
                while let Ok(item) = receiver.try_recv() {
                    forward.extra("switchboard", item).await?;
                }
                finished_call
            }
        };
        self.call_events.extend(finished_call.iter().map(FinishedCall::event));
        let rendered = |finished_call: FinishedCall| {
            let mut answer = finished_call.answer;
            if !spec.images {
                answer.rendered.without_images();
            }
            answer
        };
        Ok(finished_call.into_iter().map(rendered).collect())
    }

    /// Runs one round. Also returns the client's calls in it that have been passed on.
    async fn round(
        &mut self,
        forward: &mut Option<Forward<'_>>,
    ) -> Result<(Round, Vec<Call>), ChatError> {
        let started = self.ask(forward.is_some()).await?;
        match forward {
            None => {
                let answer = started.whole(&mut self.answers).await?;
                let round = Round::of(&answer);
                self.last = Some(answer);
                Ok((round, Vec::new()))
            }
            Some(forward) => {
                if self.rounds == 1 {
                    forward.started(self.left_out).await?;
                }
                forward.new_round();
                pieces::forward(started, forward, &mut self.answers).await
            }
        }
    }

    /// Asks the model. Once tools have run, temporary errors of the server are retried.
    async fn ask(&self, stream: bool) -> Result<StartedAnswer, ChatError> {
        let body = self.body().await?;
        let mut delay = FIRST_DELAY;
        for _ in 0..RETRIES {
            match self.server.ask(body.clone(), stream).await {
                Err(error)
                    if self.calls_made > 0
                        && error.retry.is_none()
                        && matches!(error.status, 429 | 502..=504) =>
                {
                    let asked_for = error
                        .retry_after
                        .as_ref()
                        .and_then(|text| text.parse().ok())
                        .map(Duration::from_secs);
                    tokio::time::sleep(asked_for.unwrap_or(delay).min(LONGEST_DELAY)).await;
                    delay *= 2;
                }
                result => return result,
            }
        }
        self.server.ask(body, stream).await
    }

    /// Stores the messages that the client does not see, until it returns with the results of its
    /// calls.
    fn remember(&self, client_calls: &[Call], hidden: Hidden) {
        let principal = &self.caller.view.principal.id;
        if self.chat_request.legacy {
            let call =
                json!({ "name": client_calls[0].name, "arguments": client_calls[0].arguments });
            let place = digest(&self.chat_request.messages, &call.to_string());
            return self.chat.memory.keep(principal, std::iter::once(place), hidden);
        }
        self.chat.memory.keep(principal, client_calls.iter().map(|call| call.id.clone()), hidden);
    }

    /// Adapts an error for the client: once tools have run, starting again would run them twice.
    fn with_usage_recorded(&self, error: ChatError) -> ChatError {
        if self.calls_made == 0 {
            return error;
        }
        let message =
            format!("{} ({} tool calls were made for this answer)", error.message, self.calls_made);
        ChatError { message, retry: Some(false), ..error }
    }

    fn timed_out(&self, started: Instant, partly: bool) -> Result<End, ChatError> {
        let stop = Stop::Deadline(self.deadline.duration_since(started));
        if partly {
            return Ok(End { finish: "length".into(), calls: Vec::new(), stopped: Some(stop) });
        }
        Err(self.with_usage_recorded(ChatError::server(504, "deadline", stop.words())))
    }
}

async fn within<T>(deadline: Instant, work: impl Future<Output = T>) -> Result<T, ChatError> {
    let late = || ChatError::server(504, "deadline", "the answer exceeded its time limit");
    tokio::time::timeout_at(deadline, work).await.map_err(|_| late())
}
