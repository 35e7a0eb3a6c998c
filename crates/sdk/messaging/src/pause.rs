//! Pauses, resumes and cancels the work of an agent.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::event::Event;
use crate::payload::{ExecutionPause, PauseStatus, Payload as _};
use crate::shared::Draft;
use crate::{Client, EventFilter, Method, MethodContext};

/// The name of the method that pauses a participant.
pub const PAUSE_METHOD: &str = "pause";

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PauseArgs {
    /// The reason for the pause.
    #[serde(default)]
    reason: Option<String>,
    /// The message to stop working on. By default, the current work is paused.
    #[serde(default)]
    message_id: Option<String>,
}

/// Returns a method `pause` for others to call. The given function is called with their reason.
pub fn pause_method<F, R>(on_pause: F) -> Method
where
    F: Fn(Option<String>) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let on_pause = Arc::new(on_pause);
    let method = Method::new(PAUSE_METHOD, move |args: PauseArgs, _: MethodContext| {
        let on_pause = Arc::clone(&on_pause);
        async move {
            on_pause(args.reason.clone()).await;
            let mut answer = json!({ "paused": true });
            if let Some(reason) = args.reason {
                answer["reason"] = reason.into();
            }
            Ok::<_, String>(answer)
        }
    });
    method.description("Pause the current work of this participant.")
}

type Callback = Box<dyn Fn(Option<String>) -> BoxFuture<'static, ()> + Send + Sync>;

/// Watches for requests to stop the work on a message: an `execution-pause` for the message, or a
/// call of this participant's method `pause`.
#[must_use = "nothing is watched before `monitor`"]
pub struct InterruptHandler {
    client: Client,
    message_id: String,
    on_pause: Callback,
    on_resume: Option<Callback>,
    on_cancel: Option<Callback>,
    paused: Arc<AtomicBool>,
}

impl InterruptHandler {
    /// Creates a handler for the work on this message. The function is called with the reason, if
    /// there is one.
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
            on_cancel: None,
            paused: Arc::default(),
        }
    }

    /// Sets a function that is called when the work should continue.
    pub fn on_resume<F, R>(mut self, on_resume: F) -> Self
    where
        F: Fn(Option<String>) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.on_resume = Some(Box::new(move |reason| on_resume(reason).boxed()));
        self
    }

    /// Sets a function that is called when the work should end for good. By default, a cancel is
    /// handled like a pause.
    pub fn on_cancel<F, R>(mut self, on_cancel: F) -> Self
    where
        F: Fn(Option<String>) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.on_cancel = Some(Box::new(move |reason| on_cancel(reason).boxed()));
        self
    }

    /// Starts watching on a new task, until the returned monitor is dropped or the client is
    /// closed. Call it within a Tokio runtime.
    pub fn monitor(self) -> InterruptMonitor {
        // Every message from this moment on counts, stored or not.
        let filter = EventFilter { include_ephemeral: true, ..EventFilter::default() };
        let mut events = self.client.shared.later_events(filter);
        let Self { client, message_id, on_pause, on_resume, on_cancel, paused } = self;
        let (shared, own, shown) =
            (Arc::clone(&client.shared), client.client_id(), Arc::clone(&paused));
        // The task holds no client handle, because a handle would keep the client from leaving.
        drop(client);
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match &event {
                    Event::ExecutionPause(pause) if pause.message_id == message_id => {
                        let reason = pause.reason.clone();
                        let was_paused =
                            paused.swap(pause.status != PauseStatus::Resumed, Ordering::AcqRel);
                        match pause.status {
                            // A second request to pause has no effect.
                            PauseStatus::Paused if was_paused => {}
                            PauseStatus::Paused => on_pause(reason).await,
                            PauseStatus::Cancelled => {
                                on_cancel.as_ref().unwrap_or(&on_pause)(reason).await;
                            }
                            PauseStatus::Resumed => {
                                if let Some(on_resume) = &on_resume {
                                    on_resume(reason).await;
                                }
                            }
                        }
                    }
                    Event::MethodCall(call)
                        if call.provider_id == own && call.method_name == PAUSE_METHOD =>
                    {
                        let args: PauseArgs =
                            serde_json::from_value(call.args.clone()).unwrap_or_default();
                        if args.message_id.is_some_and(|only| only != message_id)
                            || paused.swap(true, Ordering::AcqRel)
                        {
                            continue;
                        }
                        on_pause(args.reason.clone()).await;
                        // Other participants see a call of the method like an `execution-pause`
                        // message.
                        let (message_id, status) = (message_id.clone(), PauseStatus::Paused);
                        let told =
                            ExecutionPause { message_id, status, reason: args.reason }.write();
                        let told = async {
                            shared.publish(Draft::new(ExecutionPause::KIND, told?, true)).await
                        };
                        if let Err(error) = told.await {
                            shared.report(&error);
                        }
                    }
                    _ => {}
                }
            }
        });
        InterruptMonitor { paused: shown, task }
    }
}

/// A running watch. Dropping it ends the watch.
#[must_use = "dropping it ends the watch"]
#[derive(Debug)]
pub struct InterruptMonitor {
    paused: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl InterruptMonitor {
    /// Returns whether the work is paused.
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
        f.debug_struct("InterruptHandler")
            .field("message_id", &self.message_id)
            .finish_non_exhaustive()
    }
}
