//! Whether an agent has finished its last message, and its answer. Clients of the original
//! protocol poll for this.
//!
//! An agent has finished when its process exits, or when it sends a message to its caller: a
//! process may stay for the next message.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sa_core::CallError;
use sa_core::store::StoreError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::events::{Event, Events, Page};
use crate::sessions::stored;

/// The number of events that are read at a time.
const PAGE: usize = 1_000;

/// The turn of an open session.
#[derive(Debug, Default)]
pub(crate) struct Turn(Mutex<Current>);

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Current {
    state: State,
    began: Option<Instant>,
    /// Whether the agent's process has succeeded, from its exit until the event is stored.
    exited: Option<bool>,
}

/// The state of a turn, as it is stored when the session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// The event of the message that the agent works on.
    message: u64,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Progress {
    /// No message was sent yet.
    #[default]
    Waiting,
    Working,
    Completed,
    Failed,
}

impl Turn {
    /// Records that the agent receives the message of this event. Returns the previous state.
    pub(crate) fn begin(&self, message: u64) -> Current {
        let state = State { message, progress: Progress::Working };
        let new = Current { state, began: Some(Instant::now()), exited: None };
        std::mem::replace(&mut *self.current(), new)
    }

    /// Restores the previous state, because the message could not be sent to the agent.
    pub(crate) fn take_back(&self, before: Current) {
        *self.current() = before;
    }

    /// Records that the agent's process has exited, before the event about it is stored. Returns
    /// the event of the message that it worked on.
    pub(crate) fn exited(&self, succeeded: bool) -> u64 {
        let mut current = self.current();
        current.exited = Some(succeeded);
        current.state.message
    }

    /// Records that the agent has finished this message. Only the first call has an effect.
    pub(crate) fn end(&self, message: u64, succeeded: bool) {
        let mut current = self.current();
        if current.state.message == message {
            current.state.end(succeeded);
        }
    }

    /// Records that the agent has sent a message to its caller.
    pub(crate) fn answered(&self) {
        self.current().state.end(true);
    }

    /// Records that the session has ended.
    pub(crate) fn close(&self) {
        let mut current = self.current();
        let succeeded = current.exited == Some(true);
        current.state.close(succeeded);
    }

    pub(crate) fn state(&self) -> State {
        self.current().state
    }

    /// Returns how long the agent has been working on the message.
    pub(crate) fn working_for(&self) -> Option<Duration> {
        let current = self.current();
        let is_working = current.state.progress == Progress::Working;
        current.began.filter(|_| is_working).map(|began| began.elapsed())
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.0.lock()
    }
}

impl State {
    /// Derives the state of a session that a gateway process left open from its stored events.
    /// Returns also their size.
    pub(crate) async fn left_open(events: &Events) -> Result<(Self, u64), StoreError> {
        let (mut state, mut bytes, mut page) = (Self::default(), 0, Page::default());
        loop {
            page = events.after(page.last, PAGE).await?;
            for event in &page.events {
                state.observe(event);
                bytes += event.json.len() as u64;
            }
            if !page.more {
                break;
            }
        }
        state.close(false);
        Ok((state, bytes))
    }

    fn observe(&mut self, event: &Event) {
        match &*event.kind {
            "message" => *self = Self { message: event.id, progress: Progress::Working },
            "agent_message" => self.end(true),
            "agent_exited" => {
                let event: Value = serde_json::from_str(&event.json).unwrap_or_default();
                self.end(event["code"] == 0);
            }
            _ => {}
        }
    }

    fn end(&mut self, succeeded: bool) {
        if !self.progress.is_over() {
            self.progress = if succeeded { Progress::Completed } else { Progress::Failed };
        }
    }

    /// A session that ends while its agent works has failed, unless the agent has `succeeded`.
    fn close(&mut self, succeeded: bool) {
        self.end(succeeded || self.progress == Progress::Waiting);
    }

    pub(crate) fn progress(self) -> Progress {
        self.progress
    }

    /// Returns the agent's standard output, or `None` if the agent has sent messages to the
    /// caller.
    pub(crate) async fn answer(self, events: &Events) -> Result<Option<String>, CallError> {
        let (mut lines, mut page) = (Vec::new(), Page { last: self.message, ..Page::default() });
        loop {
            page = events.after(page.last, PAGE).await.map_err(stored)?;
            if page.events.iter().any(|event| event.kind == "agent_message") {
                // The events already contain these messages.
                return Ok(None);
            }
            let outputs = page.events.iter().filter(|event| event.kind == "output");
            let outputs = outputs.filter_map(|event| serde_json::from_str(&event.json).ok());
            let stdout = outputs.filter(|output: &Value| output["stream"] == "stdout");
            lines.extend(stdout.filter_map(|output| output["text"].as_str().map(str::to_owned)));
            if !page.more {
                return Ok(Some(lines.join("\n")).filter(|text| !text.is_empty()));
            }
        }
    }
}

impl Progress {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting | Self::Working => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// Converts an event to a message of the assistant, in the form of the original protocol.
pub(crate) fn assistant(mut event: Value, text: &str) -> Value {
    event["type"] = json!("message");
    event["role"] = json!("assistant");
    event["text"] = json!(text);
    event
}
