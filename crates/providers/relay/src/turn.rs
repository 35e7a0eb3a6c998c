//! Whether an agent has finished its last message, and its answer. Clients of the original
//! protocol poll for this.
//!
//! An agent has finished when its process exits, or when it sends a message to its caller: a
//! process may stay for the next message.

use parking_lot::{Mutex, MutexGuard};

use sa_core::CallError;
use serde_json::{Value, json};

use crate::events::{Event, Events};
use crate::sessions::stored;

/// The maximum number of events of one turn that are searched for its answer.
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
    /// No message was sent yet.
    #[default]
    Waiting,
    Working,
    Completed,
    Failed,
}

impl Turn {
    /// Records that the agent receives the message of this event. Returns the previous state.
    pub(crate) fn begin(&self, message: u64) -> State {
        std::mem::replace(&mut *self.state(), State { message, progress: Progress::Working })
    }

    /// Restores the previous state, because the message could not be sent to the agent.
    pub(crate) fn take_back(&self, before: State) {
        *self.state() = before;
    }

    /// Returns the event of the message that the agent works on.
    pub(crate) fn message(&self) -> u64 {
        self.state().message
    }

    /// Records that the agent has finished this message. Only the first call has an effect.
    pub(crate) fn end(&self, message: u64, succeeded: bool) {
        let mut state = self.state();
        if state.message == message && state.progress == Progress::Working {
            state.progress = if succeeded { Progress::Completed } else { Progress::Failed };
        }
    }

    /// Returns the progress. `ended` is whether the session has ended.
    pub(crate) fn progress(&self, ended: bool) -> Progress {
        match self.state().progress {
            Progress::Working if ended => Progress::Failed,
            Progress::Waiting if ended => Progress::Completed,
            progress => progress,
        }
    }

    /// Returns the agent's standard output, or `None` if the agent has sent messages to the
    /// caller.
    pub(crate) async fn answer(&self, events: &Events) -> Result<Option<String>, CallError> {
        let (found, _) = events.after(self.message(), MAX_EVENTS).await.map_err(stored)?;
        let read = |event: &Event| serde_json::from_str::<Value>(&event.json).ok();
        if found.iter().any(|event| event.kind == "agent_message") {
            // The events already contain these messages.
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
        self.0.lock()
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
