//! Call extensions: data of one call that the core does not carry, shared between the gateway
//! surface and the provider. These are the settings of the request, and the plugin server's
//! original answer.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sa_core::{CallError, CallId};
use sa_limits::received::Held;
use sa_protocol::plugin::PluginErrorType;
use serde_json::Value;

use crate::settings::Settings;

/// The extensions of the running calls, by their ids.
#[derive(Default)]
pub(crate) struct ExtensionsByCall(Mutex<HashMap<CallId, Arc<CallExtensions>>>);

#[derive(Default)]
pub(crate) struct CallExtensions {
    /// The settings that the host has sent, which replace the stored ones.
    pub(crate) settings: Option<Settings>,
    pub(crate) end: Mutex<Option<Result<Answer, Fault>>>,
}

/// A plugin server's answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    pub(crate) body: Bytes,
    /// The part of the budget for answers that it holds.
    pub(crate) held: Held,
}

/// A failure in the plugin gateway's form, and in that of all other surfaces.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) error_type: PluginErrorType,
    pub(crate) body: Value,
    pub(crate) error: CallError,
    /// The plugin server's own answer, if the host receives it unchanged instead of `error_type`
    /// and `body`.
    pub(crate) answer: Option<Answer>,
}

/// The reason of a call that fails because of its plugin's settings. The console then opens their
/// form.
const SETTINGS_INVALID: &str = "settings_invalid";

impl Fault {
    /// Creates a failure with the same message in both forms.
    pub(crate) fn new(error_type: PluginErrorType, error: CallError) -> Self {
        Self::with_body(error_type, message(&error), error)
    }

    pub(crate) fn with_body(error_type: PluginErrorType, body: Value, error: CallError) -> Self {
        let settings = error_type == PluginErrorType::PluginSettingsInvalid;
        let error = if settings { error.with_reason(SETTINGS_INVALID) } else { error };
        Self { error_type, body, error, answer: None }
    }
}

/// Returns the error body for a plugin host.
pub(crate) fn message(error: &CallError) -> Value {
    let mut body = serde_json::json!({ "message": error.message });
    if let Some(hint) = &error.hint {
        body["hint"] = hint.as_ref().into();
    }
    body
}

impl ExtensionsByCall {
    /// Adds a call's extensions until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, id: CallId, extensions: CallExtensions) -> Entered {
        let extensions = Arc::new(extensions);
        self.0.lock().insert(id, Arc::clone(&extensions));
        Entered { extensions_by_call: Arc::clone(self), id, extensions }
    }

    pub(crate) fn of(&self, id: CallId) -> Option<Arc<CallExtensions>> {
        self.0.lock().get(&id).cloned()
    }
}

impl CallExtensions {
    pub(crate) fn settle(&self, end: Result<Answer, Fault>) {
        *self.end.lock() = Some(end);
    }
}

pub(crate) struct Entered {
    extensions_by_call: Arc<ExtensionsByCall>,
    id: CallId,
    extensions: Arc<CallExtensions>,
}

impl Entered {
    /// Returns the call's answer or failure, if there is one.
    pub(crate) fn end(&self) -> Option<Result<Answer, Fault>> {
        self.extensions.end.lock().take()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.extensions_by_call.0.lock().remove(&self.id);
    }
}
