//! The limits that end an answer before the model does.

use std::time::Duration;

/// The limit that ended the answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    Rounds(u32),
    Calls(usize),
    Tokens(u64),
    Deadline(Duration),
}

impl Stop {
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Rounds(_) => "max_rounds",
            Self::Calls(_) => "max_tool_calls",
            Self::Tokens(_) => "max_total_tokens",
            Self::Deadline(_) => "deadline",
        }
    }

    pub(super) fn words(self) -> String {
        match self {
            Self::Rounds(most) => format!("the model still called tools after {most} rounds"),
            Self::Calls(most) => format!("the model called more than {most} tools for one answer"),
            Self::Tokens(most) => format!("the rounds so far have used {most} tokens or more"),
            Self::Deadline(most) => format!("the answer took longer than {} ms", most.as_millis()),
        }
    }

    /// Returns the text that replaces a missing answer.
    pub(super) fn note(self) -> String {
        format!("[The answer was stopped: {}.]", self.words())
    }
}
