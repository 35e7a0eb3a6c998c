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
use crate::calls::{Caller, Carried, NEWS, Order, Runner};
use crate::chat::{Chat, Event};
use crate::error::ChatError;
use crate::formats::{Answer, Wanted, openai_messages, openai_tool};
use crate::legacy;
use crate::memory::{Hidden, digest};
use crate::offer;
use crate::request::{Asked, raw};
use crate::round::{Call, MAX_CALLS, Round, new_id};
use crate::server::{Begun, Server};
use crate::stream::{Forward, send};
use crate::usage::Usage;

/// The number of retries after a failure of the server once tools have run: a client that starts
/// again would run them twice.
const RETRIES: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// The time that a reader has to receive the end of an answer.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// The state of one answer in progress.
pub(crate) struct Run<'a> {
    chat: &'a Chat,
    caller: &'a Caller,
    asked: Asked,
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
    carried: usize,
    usage: Usage,
    texts: Vec<String>,
    /// The gateway's calls, for clients that want to know them.
    news: Vec<Value>,
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
        mut asked: Asked,
        caller: &'a Caller,
    ) -> Result<Self, ChatError> {
        let refused = |error: sa_core::CallError| {
            ChatError::new(403, "invalid_request_error", "not_allowed", error.message).retry(false)
        };
        let principal = &caller.view.principal;
        chat.router.policy().authorise_role(principal).map_err(refused)?;
        let (name, spec) = chat.model(&asked.model, principal)?;
        let wanted = |tool: &str| {
            let chosen = asked.extension.tools.as_ref().is_none_or(|choice| choice.includes(tool));
            chosen && spec.offers(tool) && !asked.own.contains(tool)
        };
        let mut ours = offer::tools(&chat.router, &caller.view, wanted);
        let room = spec.max_tools.saturating_sub(asked.tools.len());
        let left_out = ours.len().saturating_sub(room);
        ours.truncate(room);
        if asked.answers > 1 && !ours.is_empty() {
            return Err(ChatError::invalid(
                "n",
                "the gateway calls tools for one answer at a time: omit n, or send \"switchboard\": {\"tools\": \"none\"}",
            ));
        }
        let mut tools = std::mem::take(&mut asked.tools);
        let weight = offer::weight(&ours);
        let defined = || ours.iter().map(|tool| openai_tool(&tool.name, tool)).collect::<Vec<_>>();
        tools.extend(offload::run_queued(weight, defined).await);
        let offered =
            ours.iter().map(|tool| (tool.name.to_string(), Arc::clone(&tool.name))).collect();
        let messages = chat.memory.restore(&principal.id, asked.messages.clone());
        let limit = asked
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
            max_rounds: asked
                .extension
                .max_rounds
                .map_or(spec.max_rounds, |rounds| rounds.clamp(1, spec.max_rounds)),
            rounds: 0,
            carried: 0,
            usage: Usage::default(),
            texts: Vec::new(),
            news: Vec::new(),
            last: None,
            answers: Answers::of(chat.answers.share(&principal.holder())),
            asked,
        })
    }

    /// Returns the whole answer.
    pub(crate) async fn whole(mut self) -> Result<(Map<String, Value>, usize, Answers), ChatError> {
        if self.only_relays() {
            let begun = within(self.deadline, self.server.ask(self.body().await?, false)).await??;
            let deadline = self.deadline;
            let answer = within(deadline, begun.whole(&mut self.answers)).await??;
            return Ok((answer, self.left_out, self.answers));
        }
        let started = Instant::now();
        let end = match tokio::time::timeout_at(self.deadline, self.go(&mut None)).await {
            Ok(end) => end.map_err(|error| self.settled(error))?,
            Err(_) => self.out_of_time(started, self.last.is_some())?,
        };
        Ok((self.answer(end), self.left_out, self.answers))
    }

    /// Sends the answer in pieces.
    pub(crate) async fn stream(mut self, events: &mpsc::Sender<Event>) -> Result<(), ChatError> {
        if self.only_relays() {
            let begun = within(self.deadline, self.server.ask(self.body().await?, true)).await??;
            send(events, Event::Started { left_out: self.left_out }).await?;
            return within(self.deadline, pieces::relay(begun, events, &mut self.answers)).await?;
        }
        let own = std::mem::take(&mut self.asked.own);
        let mut forward = Some(Forward::new(events, self.asked.legacy, &own));
        let started = Instant::now();
        let result = tokio::time::timeout_at(self.deadline, self.go(&mut forward)).await;
        let Some(mut forward) = forward else { return Ok(()) };
        let end = match result {
            Ok(end) => end.map_err(|error| self.settled(error))?,
            Err(_) => self.out_of_time(started, forward.has_begun() || self.carried > 0)?,
        };
        // The end is sent even after the deadline, but the time for a reader that does not read is
        // limited.
        let last = async {
            if let Some(stop) = end.stopped.filter(|_| !forward.has_said()) {
                forward.delta(json!({ "content": stop.note() }), Value::Null).await?;
            }
            if end.stopped.is_some() || self.asked.extension.events {
                let about = self.about(&end);
                forward.extra("switchboard", about).await?;
            }
            forward.delta(json!({}), json!(end.finish)).await?;
            match self.usage.sum().filter(|_| self.asked.include_usage) {
                Some(usage) => forward.extra("usage", usage.clone()).await,
                None => Ok(()),
            }
        };
        tokio::time::timeout(LAST_WORDS, last).await.unwrap_or(Ok(()))
    }

    /// Returns whether request and answer are passed on unchanged. A translation needs well-formed
    /// chunks, which the loop writes.
    fn only_relays(&self) -> bool {
        let same_form = self.asked.legacy == self.server.spec.legacy_functions
            && self.asked.responses.is_none();
        self.offered.is_empty() && same_form
    }

    async fn go(&mut self, forward: &mut Option<Forward<'_>>) -> Result<End, ChatError> {
        loop {
            self.rounds += 1;
            let (round, mut theirs) = self.round(forward).await?;
            self.usage.add(round.usage.as_ref());
            if !round.text().is_empty() {
                self.texts.push(round.text().to_owned());
            }
            let (own, ours): (Vec<&Call>, Vec<&Call>) =
                round.calls.iter().partition(|call| self.is_theirs(forward.as_ref(), &call.name));
            if forward.is_none() {
                let most = if self.asked.legacy { 1 } else { usize::MAX };
                theirs =
                    own.iter().take(most).map(|call| call.known_as(&new_id(&call.id))).collect();
            }
            // A truncated answer may have ended in the middle of a call.
            let cut = matches!(round.finish.as_deref(), Some("length" | "content_filter"));
            if round.calls.is_empty() || cut {
                let finish = round
                    .finish
                    .clone()
                    .filter(|finish| finish != "tool_calls")
                    .unwrap_or_else(|| "stop".into());
                return Ok(End { finish, calls: theirs, stopped: None });
            }
            // The calls are not run in part, because the model would take a part for the whole.
            let stop = if round.overflowed {
                Some(Stop::Calls(MAX_CALLS))
            } else {
                self.limit(ours.len())
            };
            if let (Some(stop), true) = (stop, theirs.is_empty()) {
                return Ok(End { finish: "length".into(), calls: theirs, stopped: Some(stop) });
            }
            let orders: Vec<Order> = if stop.is_some() {
                Vec::new()
            } else {
                ours.iter().map(|call| self.order(call)).collect()
            };
            let answers = self.carry_out(orders, forward).await?;
            let (results, images) = openai_messages(&answers);
            let calls: Vec<Value> = if answers.is_empty() {
                Vec::new()
            } else {
                ours.iter().map(|call| call.to_value()).collect()
            };
            if !theirs.is_empty() {
                let hidden = Hidden {
                    before: std::mem::take(&mut self.added),
                    calls,
                    results: results.iter().map(raw).collect(),
                    after: images.as_ref().map(raw),
                };
                self.remember(&theirs, hidden);
                let finish = if self.asked.legacy { "function_call" } else { "tool_calls" };
                return Ok(End { finish: finish.into(), calls: theirs, stopped: None });
            }
            let mut message = round.message.clone();
            message.insert("tool_calls".into(), Value::Array(calls));
            self.added.push(raw(&Value::Object(message)));
            self.added.extend(results.iter().chain(&images).map(raw));
        }
    }

    fn is_theirs(&self, forward: Option<&Forward<'_>>, name: &str) -> bool {
        forward.map_or_else(|| self.asked.own.contains(name), |forward| forward.owns(name))
    }

    /// Returns the limit that would be exceeded by this number of calls and another round.
    fn limit(&self, calls: usize) -> Option<Stop> {
        let spec = self.server.spec;
        let tokens = spec.max_total_tokens;
        match () {
            () if calls == 0 => None,
            () if self.rounds >= self.max_rounds => Some(Stop::Rounds(self.max_rounds)),
            () if self.carried + calls > spec.max_tool_calls => {
                Some(Stop::Calls(spec.max_tool_calls))
            }
            () if tokens > 0 && self.usage.total() >= tokens => Some(Stop::Tokens(tokens)),
            () => None,
        }
    }

    fn order(&self, call: &Call) -> Order {
        let wanted = Wanted::new(Some(json!(call.id)), call.name.clone(), &call.arguments);
        Order { tool: self.offered.get(&call.name).cloned(), wanted }
    }

    /// Runs the gateway's calls, and reports them to the client if it wants to know them.
    async fn carry_out(
        &mut self,
        orders: Vec<Order>,
        forward: &mut Option<Forward<'_>>,
    ) -> Result<Vec<Answer>, ChatError> {
        let spec = self.server.spec;
        let at_once = if self.asked.parallel { spec.max_parallel } else { 1 };
        let (router, max_result_bytes) = (&self.chat.router, spec.max_result_bytes);
        let runner =
            Runner { router, caller: self.caller, surface: "chat", at_once, max_result_bytes };
        self.carried += orders.len();
        let carried: Vec<Carried> = match forward.as_mut().filter(|_| self.asked.extension.events) {
            None => runner.run(orders, None).await,
            Some(forward) => {
                let (sender, mut news) = mpsc::channel(NEWS);
                let mut running = std::pin::pin!(runner.run(orders, Some(&sender)));
                let carried = loop {
                    tokio::select! {
                        biased;
                        Some(item) = news.recv() => forward.extra("switchboard", item).await?,
                        carried = &mut running => break carried,
                    }
                };
                while let Ok(item) = news.try_recv() {
                    forward.extra("switchboard", item).await?;
                }
                carried
            }
        };
        self.news.extend(carried.iter().map(Carried::news));
        let shown = |carried: Carried| {
            let mut answer = carried.answer;
            if !spec.images {
                answer.shown.without_images();
            }
            answer
        };
        Ok(carried.into_iter().map(shown).collect())
    }

    /// Runs one round. Also returns the client's calls in it that have been passed on.
    async fn round(
        &mut self,
        forward: &mut Option<Forward<'_>>,
    ) -> Result<(Round, Vec<Call>), ChatError> {
        let begun = self.ask(forward.is_some()).await?;
        match forward {
            None => {
                let answer = begun.whole(&mut self.answers).await?;
                let round = Round::of(&answer);
                self.last = Some(answer);
                Ok((round, Vec::new()))
            }
            Some(forward) => {
                if self.rounds == 1 {
                    forward.started(self.left_out).await?;
                }
                forward.new_round();
                pieces::forward(begun, forward, &mut self.answers).await
            }
        }
    }

    /// Asks the model. Once tools have run, temporary errors of the server are retried.
    async fn ask(&self, stream: bool) -> Result<Begun, ChatError> {
        let body = self.body().await?;
        let mut delay = FIRST_DELAY;
        for _ in 0..RETRIES {
            match self.server.ask(body.clone(), stream).await {
                Err(error)
                    if self.carried > 0
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
    fn remember(&self, theirs: &[Call], hidden: Hidden) {
        let principal = &self.caller.view.principal.id;
        if self.asked.legacy {
            let call = json!({ "name": theirs[0].name, "arguments": theirs[0].arguments });
            let place = digest(&self.asked.messages, &call.to_string());
            return self.chat.memory.keep(principal, std::iter::once(place), hidden);
        }
        self.chat.memory.keep(principal, theirs.iter().map(|call| call.id.clone()), hidden);
    }

    /// Adapts an error for the client: once tools have run, starting again would run them twice.
    fn settled(&self, error: ChatError) -> ChatError {
        if self.carried == 0 {
            return error;
        }
        let message =
            format!("{} ({} tool calls were made for this answer)", error.message, self.carried);
        ChatError { message, retry: Some(false), ..error }
    }

    fn out_of_time(&self, started: Instant, partly: bool) -> Result<End, ChatError> {
        let stop = Stop::Deadline(self.deadline.duration_since(started));
        if partly {
            return Ok(End { finish: "length".into(), calls: Vec::new(), stopped: Some(stop) });
        }
        Err(self.settled(ChatError::server(504, "deadline", stop.words())))
    }
}

async fn within<T>(deadline: Instant, work: impl Future<Output = T>) -> Result<T, ChatError> {
    let late = || ChatError::server(504, "deadline", "the answer exceeded its time limit");
    tokio::time::timeout_at(deadline, work).await.map_err(|_| late())
}
