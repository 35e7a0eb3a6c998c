//! What the gateway surface and the provider know of one call beyond what the core carries: settings that came with the
//! request, and the answer as the plugin server gave it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use sa_core::{CallError, CallId};
use sa_protocol::plugin::PluginErrorType;
use serde_json::Value;

use crate::settings::Settings;

/// The errands of the calls that run, by their ids.
#[derive(Default)]
pub(crate) struct Errands(Mutex<HashMap<CallId, Arc<Errand>>>);

#[derive(Default)]
pub(crate) struct Errand {
    /// What the host has sent along; instead of what is stored.
    pub(crate) settings: Option<Settings>,
    pub(crate) end: Mutex<Option<Result<Answer, Fault>>>,
}

/// What a plugin server has said.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    pub(crate) body: Bytes,
}

/// A failure in the words of the plugin gateway, and in those of all other surfaces.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) error_type: PluginErrorType,
    pub(crate) body: Value,
    pub(crate) error: CallError,
    /// The plugin server's own answer, where the host gets it unchanged in place of `error_type` and `body`.
    pub(crate) answer: Option<Answer>,
}

/// The reason of a call that fails for its plugin's settings. The console opens their form for it.
const SETTINGS_INVALID: &str = "settings_invalid";

impl Fault {
    /// With one sentence for both.
    pub(crate) fn new(error_type: PluginErrorType, error: CallError) -> Self {
        Self::with_body(error_type, message(&error), error)
    }

    pub(crate) fn with_body(error_type: PluginErrorType, body: Value, error: CallError) -> Self {
        let settings = error_type == PluginErrorType::PluginSettingsInvalid;
        let error = if settings { error.with_reason(SETTINGS_INVALID) } else { error };
        Self { error_type, body, error, answer: None }
    }
}

/// What a plugin host is told.
pub(crate) fn message(error: &CallError) -> Value {
    let mut body = serde_json::json!({ "message": error.message });
    if let Some(hint) = &error.hint {
        body["hint"] = hint.as_ref().into();
    }
    body
}

impl Errands {
    /// Enters an errand for as long as the guard lives.
    pub(crate) fn enter(self: &Arc<Self>, id: CallId, errand: Errand) -> Entered {
        let errand = Arc::new(errand);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&errand));
        Entered { errands: Arc::clone(self), id, errand }
    }

    pub(crate) fn of(&self, id: CallId) -> Option<Arc<Errand>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

impl Errand {
    pub(crate) fn settle(&self, end: Result<Answer, Fault>) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }
}

pub(crate) struct Entered {
    errands: Arc<Errands>,
    id: CallId,
    errand: Arc<Errand>,
}

impl Entered {
    /// How it ended, if it came to that.
    pub(crate) fn end(&self) -> Option<Result<Answer, Fault>> {
        self.errand.end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.errands.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
