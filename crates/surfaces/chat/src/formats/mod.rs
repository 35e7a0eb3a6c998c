//! Tools, calls and results in the formats of several model vendors.

mod definitions;
mod gemini;
mod reply;
mod results;
mod schema;

pub(crate) use definitions::{Definition, definitions, openai_tool};
pub(crate) use reply::{ToolCall, detect, wanted};
pub(crate) use results::{Answer, messages, openai_messages};

/// A vendor's format for tools and their calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `tools` and `tool_calls` of OpenAI's chat completions.
    OpenAi,
    /// `functions` and `function_call`, their older form.
    OpenAiLegacy,
    Anthropic,
    Gemini,
    Mcp,
}

impl Format {
    pub const ALL: [Self; 5] =
        [Self::OpenAi, Self::OpenAiLegacy, Self::Anthropic, Self::Gemini, Self::Mcp];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiLegacy => "openai-legacy",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Mcp => "mcp",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == text)
    }
}
