//! Translates OpenAI's Responses API from and to chat completions. The loop in [`crate::run`]
//! serves both: a request is translated before it, and the answer after it.

mod events;
mod input;
mod request;
mod response;

pub(crate) use self::events::translate as translate_events;
pub(crate) use self::request::translate as translate_request;
pub(crate) use self::response::Settings;

use crate::error::ChatError;

/// Returns the error for a field or a value that the gateway does not support.
fn unsupported(param: &str, message: impl Into<String>) -> ChatError {
    let error = ChatError::new(400, "invalid_request_error", "unsupported_parameter", message);
    ChatError { param: Some(param.to_owned()), ..error }
}
