//! Errors in the form that OpenAI's clients read.

use sa_limits::budget::Refused;
use sa_text::excerpt;
use serde_json::json;

/// The maximum length of a quoted message of another server.
const MAX_MESSAGE_CHARS: usize = 1_000;

/// The reason why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatError {
    pub status: u16,
    /// The kind of error, in OpenAI's terms.
    pub kind: String,
    /// The code of the error, for programs.
    pub code: String,
    pub message: String,
    pub param: Option<String>,
    /// The server's time for a retry.
    pub retry_after: Option<String>,
    /// Whether the client should retry by itself; `None` leaves it to the client, which decides by
    /// the status.
    pub retry: Option<bool>,
}

impl ChatError {
    pub fn new(status: u16, kind: &str, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind: kind.into(),
            code: code.into(),
            message: message.into(),
            param: None,
            retry_after: None,
            retry: None,
        }
    }

    /// Creates an error for an invalid request.
    pub fn invalid(param: &str, message: impl Into<String>) -> Self {
        let error = Self::new(400, "invalid_request_error", "invalid_request", message);
        Self { param: (!param.is_empty()).then(|| param.into()), ..error }
    }

    /// Creates an error for a failure of the model's server.
    pub(crate) fn server(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self::new(status, "upstream_error", code, message)
    }

    #[must_use]
    pub(crate) fn retry(self, retry: bool) -> Self {
        Self { retry: Some(retry), ..self }
    }

    /// Returns the response's body, which is also the data of an event in a stream.
    pub fn body(&self) -> String {
        let Self { kind, code, message, param, .. } = self;
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
            .to_string()
    }
}

impl From<Refused> for ChatError {
    /// Creates the error for an answer that the budget refuses. The model has answered by then, so
    /// that a retry would run it, and perhaps tools, again.
    fn from(refused: Refused) -> Self {
        let Refused { message, hint, .. } = refused;
        let message = format!("there is no budget for the model's answer: {message}; {hint}");
        Self::new(503, "server_error", "overloaded", message).retry(false)
    }
}

/// Quotes another server's message: truncated, without control characters, and without the secrets
/// that it was sent.
pub(crate) fn quoted(text: &str, secrets: &[&str]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, sa_text::mask::MASK);
    }
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    excerpt(MAX_MESSAGE_CHARS, text.trim()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_errors_are_escaped_and_masked() {
        assert_eq!(
            quoted("Incorrect key sk-1 given:\n\x1b[1msk-1 ", &["sk-1", ""]),
            "Incorrect key *** given:  [1m***"
        );
        assert_eq!(quoted(&"ä".repeat(3_000), &[]).chars().count(), MAX_MESSAGE_CHARS + 1);
    }
}
