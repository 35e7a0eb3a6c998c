//! The state that a client's handles, its connection and its running methods share.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::builder::Config;
use crate::call::Calls;
use crate::event::{Event, EventFilter, Events};
use crate::execute::Executions;
use crate::handlers::Handlers;
use crate::pubsub::{HistoryPage, RawItem};
use crate::queue::Hub;
use crate::roster::{Known, RosterUpdate};
use crate::state::{ConnectionState, Reconnected};
use crate::{Attachment, Error, Participant};

/// The gateway's own id, as the provider of its tools.
const GATEWAY: &str = "switchboard";

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) commands: mpsc::Sender<Command>,
    /// Cancelled to ask the client to end.
    pub(crate) closed: CancellationToken,
    /// Cancelled when the client has ended.
    pub(crate) ended: CancellationToken,
    pub(crate) reason: OnceLock<Error>,
    pub(crate) state: watch::Sender<ConnectionState>,
    pub(crate) identity: Mutex<Identity>,
    pub(crate) metadata: Mutex<Map<String, Value>>,
    pub(crate) roster: Mutex<Known>,
    pub(crate) replay: Mutex<Arc<Vec<Event>>>,
    pub(crate) calls: Calls,
    pub(crate) executions: Executions,
    pub(crate) events: Hub<Event>,
    pub(crate) raw: Hub<RawItem>,
    pub(crate) roster_updates: Hub<RosterUpdate>,
    pub(crate) on_roster: Handlers<RosterUpdate>,
    pub(crate) on_error: Handlers<Error>,
    pub(crate) on_disconnect: Handlers<Error>,
    pub(crate) on_reconnecting: Handlers<u32>,
    pub(crate) on_reconnect: Handlers<Reconnected>,
}

/// This client's identity, and its read position.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identity {
    pub(crate) participant: String,
    pub(crate) extensions: Vec<String>,
    /// The channel's context and configuration.
    pub(crate) context_id: Option<String>,
    pub(crate) channel_config: Option<Map<String, Value>>,
    pub(crate) position: Option<Position>,
}

/// A read position in a channel. A program can store it, and continue there after a restart:
/// [`ClientBuilder::resume`](crate::ClientBuilder::resume).
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Position {
    /// The name of the history that the id belongs to, if the server has such names.
    pub epoch: Option<String>,
    /// The id of the last message.
    pub last_id: u64,
}

/// A command for the connection.
pub(crate) enum Command {
    Publish { draft: Draft, done: oneshot::Sender<Result<Option<u64>, Error>> },
    Metadata { metadata: Map<String, Value>, done: oneshot::Sender<Result<Option<u64>, Error>> },
    History { before: Option<u64>, limit: usize, done: oneshot::Sender<Result<HistoryPage, Error>> },
}

/// A message to send.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) kind: String,
    /// JSON.
    pub(crate) payload: String,
    pub(crate) persist: bool,
    /// An id that makes the server store the message once, even if it is sent again.
    pub(crate) client_message_id: String,
    /// The id in the payload that identifies the message in a replay.
    pub(crate) subject: Option<String>,
    pub(crate) attachments: Vec<Attachment>,
}

impl Draft {
    pub(crate) fn new(kind: &str, payload: String, persist: bool) -> Self {
        Self {
            kind: kind.into(),
            payload,
            persist,
            client_message_id: uuid::Uuid::new_v4().to_string(),
            subject: None,
            attachments: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.payload.len()
            + self.attachments.iter().map(|attachment| attachment.data.len()).sum::<usize>()
    }
}

impl Shared {
    pub(crate) fn new(config: Config, commands: mpsc::Sender<Command>) -> Self {
        let (buffer, metadata) = (config.buffer, config.metadata());
        Self {
            config,
            commands,
            closed: CancellationToken::new(),
            ended: CancellationToken::new(),
            reason: OnceLock::new(),
            state: watch::Sender::new(ConnectionState::Connecting),
            identity: Mutex::default(),
            metadata: Mutex::new(metadata),
            roster: Mutex::default(),
            replay: Mutex::default(),
            calls: Calls::default(),
            executions: Executions::default(),
            events: Hub::new(buffer, true),
            raw: Hub::new(buffer, false),
            roster_updates: Hub::new(buffer, false),
            on_roster: Handlers::default(),
            on_error: Handlers::default(),
            on_disconnect: Handlers::default(),
            on_reconnecting: Handlers::default(),
            on_reconnect: Handlers::default(),
        }
    }

    /// Sends a message and waits until the server has acknowledged it. A stored message is then on
    /// disk.
    pub(crate) async fn publish(&self, draft: Draft) -> Result<Option<u64>, Error> {
        crate::attachment::check(&draft.attachments)?;
        self.ask(|done| Command::Publish { draft, done }).await
    }

    pub(crate) async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Command,
    ) -> Result<T, Error> {
        // Whether a message could still be sent while the client leaves would be unpredictable.
        if self.closed.is_cancelled() {
            return Err(self.why_ended());
        }
        let (done, answer) = oneshot::channel();
        let work = async {
            self.commands.send(command(done)).await.ok()?;
            answer.await.ok()
        };
        tokio::select! {
            biased;
            answer = work => answer.unwrap_or_else(|| Err(self.why_ended())),
            () = self.ended.cancelled() => Err(self.why_ended()),
        }
    }

    /// Returns the reason why nothing can be sent any more.
    pub(crate) fn why_ended(&self) -> Error {
        self.reason.get().cloned().unwrap_or_else(Error::closed)
    }

    /// Returns a predicate that applies the filter for this participant.
    pub(crate) fn wants(
        &self,
        filter: EventFilter,
    ) -> impl Fn(&Event) -> bool + Send + Sync + 'static {
        let (id, handle) = (self.identity().participant.clone(), self.config.handle.clone());
        let skip = self.config.skip_own;
        move |event| {
            let own = event.envelope().is_some_and(|envelope| envelope.sender_id == id);
            !(skip && own)
                && filter.wants(
                    event,
                    &id,
                    Some(handle.as_str()).filter(|handle| !handle.is_empty()),
                )
        }
    }

    /// Returns a stream of events from now on, without affecting other readers.
    pub(crate) fn later_events(&self, filter: EventFilter) -> Events {
        Events { reader: self.events.read_later(self.wants(filter)) }
    }

    /// Reports an error that no caller waits for.
    pub(crate) fn report(&self, error: &Error) {
        tracing::debug!(%error, "channel");
        self.on_error.call(error);
    }

    pub(crate) fn tell_roster(&self, update: &RosterUpdate) {
        self.roster_updates.push(update);
        self.on_roster.call(update);
    }

    /// Returns the advertised timeout of a method, or an error if it certainly cannot be called.
    pub(crate) fn find_method(
        &self,
        provider: &str,
        method: &str,
    ) -> Result<Option<Duration>, Error> {
        let roster = self.roster().now();
        // Without a connection the roster is outdated.
        if *self.state.borrow() != ConnectionState::Connected {
            return Ok(None);
        }
        let found = roster.get(provider);
        if provider == GATEWAY {
            // Its list may be incomplete.
            let methods = found.map(Participant::methods).unwrap_or_default();
            let tool = methods.into_iter().find(|candidate| candidate.name == method);
            return Ok(tool.and_then(|tool| tool.timeout).map(Duration::from_millis));
        }
        let Some(participant) = found else {
            let here: Vec<_> = roster.keys().take(10).map(String::as_str).collect();
            return Err(Error::ProviderNotFound(format!(
                "there is no participant \"{provider}\" in the channel; the participants are: {}",
                here.join(", ")
            )));
        };
        // A provider that declares no methods answers for itself.
        if !participant.metadata.contains_key("methods") {
            return Ok(None);
        }
        let methods = participant.methods();
        let Some(found) = methods.iter().find(|candidate| candidate.name == method) else {
            let offered: Vec<_> =
                methods.iter().take(10).map(|method| method.name.as_str()).collect();
            return Err(Error::MethodNotFound(format!(
                "\"{provider}\" has no method \"{method}\"; its methods are: {}",
                if offered.is_empty() { "none".into() } else { offered.join(", ") }
            )));
        };
        Ok(found.timeout.map(Duration::from_millis))
    }

    /// Returns whether the server fails calls itself that cannot be answered.
    pub(crate) fn watches_calls(&self) -> bool {
        !self.identity().extensions.is_empty()
    }

    pub(crate) fn identity(&self) -> MutexGuard<'_, Identity> {
        self.identity.lock()
    }

    pub(crate) fn roster(&self) -> MutexGuard<'_, Known> {
        self.roster.lock()
    }

    pub(crate) fn metadata(&self) -> MutexGuard<'_, Map<String, Value>> {
        self.metadata.lock()
    }

    /// Ends the client for this reason.
    pub(crate) fn end(&self, reason: Error) {
        let reason = self.reason.get_or_init(|| reason);
        self.state.send_replace(ConnectionState::Closed);
        self.closed.cancel();
        self.calls.end_all(reason);
        self.events.end();
        self.raw.end();
        self.roster_updates.end();
        self.ended.cancel();
    }
}

/// Methods by name.
pub(crate) type Methods = BTreeMap<String, crate::Method>;
