//! The HTTP status of a call's error.

use sa_core::{CallError, CallErrorKind};

/// Returns the status of an error. Clients repeat a request that is answered with 429, so a call
/// that was executed has another status.
pub fn status(error: &CallError) -> u16 {
    if error.is_answer_refused() { 503 } else { status_of_kind(error.kind) }
}

pub fn status_of_kind(kind: CallErrorKind) -> u16 {
    match kind {
        CallErrorKind::InvalidArgs => 422,
        CallErrorKind::NotAllowed => 403,
        CallErrorKind::NotFound => 404,
        CallErrorKind::Timeout => 504,
        CallErrorKind::Cancelled => 499,
        CallErrorKind::Failed => 502,
        CallErrorKind::Offline | CallErrorKind::Store => 503,
        CallErrorKind::Overloaded => 429,
        CallErrorKind::Conflict => 409,
    }
}
