//! Stopping an agent in the middle of its work.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::event::Event;
use crate::payload::PauseStatus;
use crate::{Client, EventFilter, Method, MethodContext};

/// The name of the method that pauses a participant.
pub const PAUSE_METHOD: &str = "pause";

#[derive(Debug, Deserialize, JsonSchema)]
struct PauseArgs {
    /// Why it is to pause.
    #[serde(default)]
    reason: Option<String>,
}

/// A method `pause` for others to call. The function is called with the reason that they give.
pub fn pause_method<F, R>(on_pause: F) -> Method
where
    F: Fn(Option<String>) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let on_pause = Arc::new(on_pause);
    let method = Method::new(PAUSE_METHOD, move |args: PauseArgs, _: MethodContext| {
        let on_pause = Arc::clone(&on_pause);
        async move {
            on_pause(args.reason).await;
            Ok::<_, String>(json!({ "paused": true }))
        }
    });
    method.description("Pause what this participant is doing.")
}

type Callback = Box<dyn Fn(Option<String>) -> BoxFuture<'static, ()> + Send + Sync>;

/// Watches for whoever wants the work on a message to stop: by an `execution-pause` for the message, or by a call of this
/// participant's method `pause`.
#[must_use = "nothing is watched before `monitor`"]
pub struct InterruptHandler {
    client: Client,
    message_id: String,
    on_pause: Callback,
    on_resume: Option<Callback>,
    paused: Arc<AtomicBool>,
}

impl InterruptHandler {
    /// A handler for the work on this message. The function is called with the reason, if there is one.
    pub fn new<F, R>(client: &Client, message_id: impl Into<String>, on_pause: F) -> Self
    where
        F: Fn(Option<String>) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self {
            client: client.clone(),
            message_id: message_id.into(),
            on_pause: Box::new(move |reason| on_pause(reason).boxed()),
            on_resume: None,
            paused: Arc::default(),
        }
    }

    /// Calls a function when the work is to go on.
    pub fn on_resume<F, R>(mut self, on_resume: F) -> Self
    where
        F: Fn(Option<String>) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.on_resume = Some(Box::new(move |reason| on_resume(reason).boxed()));
        self
    }

    /// Watches from now on, on a task of its own, until the handle is dropped or the client is closed. Call it within a
    /// Tokio runtime.
    pub fn monitor(self) -> InterruptMonitor {
        let Self { client, message_id, on_pause, on_resume, paused } = self;
        // What is said from this moment on counts, stored or not.
        let mut events = client.shared.later_events(EventFilter { include_ephemeral: true, ..EventFilter::default() });
        let own = client.client_id();
        // The watch has no handle of the client's, which would keep it from leaving.
        drop(client);
        let shown = Arc::clone(&paused);
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match &event {
                    Event::ExecutionPause(pause) if pause.message_id == message_id => match pause.status {
                        PauseStatus::Paused | PauseStatus::Cancelled => {
                            paused.store(true, Ordering::Release);
                            on_pause(pause.reason.clone()).await;
                        }
                        PauseStatus::Resumed => {
                            paused.store(false, Ordering::Release);
                            if let Some(on_resume) = &on_resume {
                                on_resume(pause.reason.clone()).await;
                            }
                        }
                    },
                    Event::MethodCall(call) if call.provider_id == own && call.method_name == PAUSE_METHOD => {
                        paused.store(true, Ordering::Release);
                        let reason = call.args.get("reason").and_then(serde_json::Value::as_str);
                        on_pause(reason.map(Into::into)).await;
                    }
                    _ => {}
                }
            }
        });
        InterruptMonitor { paused: shown, task }
    }
}

/// A watch that runs. Dropping it ends it.
#[must_use = "dropping it ends the watch"]
#[derive(Debug)]
pub struct InterruptMonitor {
    paused: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl InterruptMonitor {
    /// Whether the work is to stand still.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }
}

impl Drop for InterruptMonitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for InterruptHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterruptHandler").field("message_id", &self.message_id).finish_non_exhaustive()
    }
}
