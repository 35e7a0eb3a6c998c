//! Whether an agent is done with what it was last asked, and what it answered. Clients of the original protocol poll for this.
//!
//! An agent is done when its process ends, or when it sends a message to its caller: a process may stay for the next message.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sa_core::CallError;
use serde_json::{Value, json};

use crate::events::{Event, Events};
use crate::sessions::stored;

/// Events of one turn that are searched for its answer.
const MAX_EVENTS: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Turn(Mutex<State>);

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct State {
    /// The event of the message that the agent works on.
    message: u64,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Progress {
    /// Nothing was asked yet.
    #[default]
    Waiting,
    Working,
    Completed,
    Failed,
}

impl Turn {
    /// The agent is given the message of this event. Returns the state before.
    pub(crate) fn begin(&self, message: u64) -> State {
        std::mem::replace(&mut *self.state(), State { message, progress: Progress::Working })
    }

    /// The message could not be given to the agent.
    pub(crate) fn take_back(&self, before: State) {
        *self.state() = before;
    }

    /// The message that the agent works on, by its event.
    pub(crate) fn message(&self) -> u64 {
        self.state().message
    }

    /// The agent is done with this message. Only the first time counts.
    pub(crate) fn end(&self, message: u64, succeeded: bool) {
        let mut state = self.state();
        if state.message == message && state.progress == Progress::Working {
            state.progress = if succeeded { Progress::Completed } else { Progress::Failed };
        }
    }

    /// How far it is, in a session that has ended or not.
    pub(crate) fn progress(&self, ended: bool) -> Progress {
        match self.state().progress {
            Progress::Working if ended => Progress::Failed,
            Progress::Waiting if ended => Progress::Completed,
            progress => progress,
        }
    }

    /// What the agent answered: its messages to the caller, or else what it wrote to its standard output.
    pub(crate) async fn answer(&self, events: &Events) -> Result<Option<String>, CallError> {
        let (found, _) = events.after(self.message(), MAX_EVENTS).await.map_err(stored)?;
        let read = |event: &Event| serde_json::from_str::<Value>(&event.json).ok();
        if found.iter().any(|event| event.kind == "agent_message") {
            // They are among the events already.
            return Ok(None);
        }
        let outputs = found.iter().filter(|event| event.kind == "output").filter_map(read);
        let lines: Vec<String> = outputs
            .filter(|output| output["stream"] == "stdout")
            .filter_map(|output| output["text"].as_str().map(str::to_owned))
            .collect();
        Ok(Some(lines.join("\n")).filter(|text| !text.is_empty()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A message of the assistant, as clients of the original protocol look for it.
pub(crate) fn assistant(mut event: Value, text: &str) -> Value {
    event["type"] = json!("message");
    event["role"] = json!("assistant");
    event["text"] = json!(text);
    event
}
