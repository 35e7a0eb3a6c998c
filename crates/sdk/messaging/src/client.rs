use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

use crate::call::{self, CallOptions, MethodCall};
use crate::event::{Event, EventFilter, Events};
use crate::handlers::Subscription;
use crate::metadata::AdvertisedMethod;
use crate::pubsub::PubSub;
use crate::roster::{Roster, RosterChanges, RosterUpdate};
use crate::shared::{Command, Position, Shared};
use crate::state::{ConnectionState, Reconnected};
use crate::{ClientBuilder, Error};

/// A participant of a channel. Clones are the same participant, which leaves when the last one is
/// dropped.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    _close_on_drop: Arc<DropGuard>,
}

/// A method that a participant in the channel offers.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveredMethod {
    pub provider_id: String,
    pub provider_name: String,
    pub method: AdvertisedMethod,
}

impl Client {
    /// Creates a [`ClientBuilder`].
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let guard = shared.closed.clone().drop_guard();
        Self { shared, _close_on_drop: Arc::new(guard) }
    }

    /// Returns a stream of the channel's events. The first stream begins when the client connected,
    /// later ones begin now. Replayed history comes first, if the filter includes it.
    pub fn events(&self, filter: EventFilter) -> Events {
        let replay = self.shared.replay.lock().clone();
        let first: Vec<Event> = if filter.include_replay { replay.to_vec() } else { Vec::new() };
        let wants = self.shared.wants(filter);
        Events { reader: self.shared.events.read(first, wants) }
    }

    /// Drops the replayed history, for a long-lived client that has read it.
    pub fn forget_replay(&self) {
        *self.shared.replay.lock() = Arc::default();
    }

    /// Returns all participants in the channel, by id.
    pub fn roster(&self) -> Arc<Roster> {
        self.shared.roster().now()
    }

    /// Returns a stream of the roster's changes.
    pub fn roster_changes(&self) -> RosterChanges {
        RosterChanges { reader: self.shared.roster_updates.read([], |_| true) }
    }

    /// Returns all methods that are offered in the channel, including the client's own.
    pub fn discover_methods(&self) -> Vec<DiscoveredMethod> {
        self.roster().keys().flat_map(|id| self.discover_methods_from(id)).collect()
    }

    /// Returns the methods that one participant offers.
    pub fn discover_methods_from(&self, provider_id: &str) -> Vec<DiscoveredMethod> {
        let roster = self.roster();
        let Some(participant) = roster.get(provider_id) else { return Vec::new() };
        let found = |method| DiscoveredMethod {
            provider_id: participant.id.clone(),
            provider_name: participant.name().to_owned(),
            method,
        };
        participant.methods().into_iter().map(found).collect()
    }

    /// Calls a method of another participant, or a tool of the gateway (participant `switchboard`).
    /// Call it within a Tokio runtime.
    pub fn call_method(
        &self,
        provider_id: &str,
        method: &str,
        args: impl Serialize,
        options: CallOptions,
    ) -> MethodCall {
        let args = serde_json::to_value(args);
        match args {
            Ok(args) => call::begin(&self.shared, provider_id, method, args, options),
            Err(error) => {
                call::failed(&self.shared, Error::sent("the arguments", error.to_string()))
            }
        }
    }

    /// Replaces this participant's metadata in the roster, except its methods.
    pub async fn update_metadata(&self, mut metadata: Map<String, Value>) -> Result<(), Error> {
        let methods = self.shared.metadata().get("methods").cloned();
        methods.map(|methods| metadata.insert("methods".into(), methods));
        self.shared.ask(|done| Command::Metadata { metadata, done }).await.map(drop)
    }

    /// Returns this participant's id in the channel: the name of its token.
    pub fn client_id(&self) -> String {
        self.shared.identity().participant.clone()
    }

    /// Returns the context that the channel belongs to, if it has one.
    pub fn context_id(&self) -> Option<String> {
        self.shared.identity().context_id.clone()
    }

    /// Returns the configuration that the channel was created with, if any.
    pub fn channel_config(&self) -> Option<Map<String, Value>> {
        self.shared.identity().channel_config.clone()
    }

    /// Returns the server's extensions of the protocol's first version.
    pub fn extensions(&self) -> Vec<String> {
        self.shared.identity().extensions.clone()
    }

    /// Returns the position up to which this client has read, or `None` before it has read
    /// anything.
    pub fn position(&self) -> Option<Position> {
        self.shared.identity().position.clone()
    }

    pub fn state(&self) -> ConnectionState {
        *self.shared.state.borrow()
    }

    /// Returns the connection's state as a watch channel.
    pub fn states(&self) -> watch::Receiver<ConnectionState> {
        self.shared.state.subscribe()
    }

    pub fn is_connected(&self) -> bool {
        self.state() == ConnectionState::Connected
    }

    pub fn is_reconnecting(&self) -> bool {
        matches!(self.state(), ConnectionState::Reconnecting { .. })
    }

    /// Calls a function with every error that no caller waits for: unusable messages of others, and
    /// failed attempts to connect.
    pub fn on_error(&self, handler: impl Fn(&Error) + Send + Sync + 'static) -> Subscription {
        self.shared.on_error.add(handler)
    }

    /// Calls a function with the reason whenever the connection is lost.
    pub fn on_disconnect(&self, handler: impl Fn(&Error) + Send + Sync + 'static) -> Subscription {
        self.shared.on_disconnect.add(handler)
    }

    /// Calls a function with the attempt's number before every attempt to reconnect.
    pub fn on_reconnecting(&self, handler: impl Fn(&u32) + Send + Sync + 'static) -> Subscription {
        self.shared.on_reconnecting.add(handler)
    }

    /// Calls a function whenever a lost connection is restored.
    pub fn on_reconnect(
        &self,
        handler: impl Fn(&Reconnected) + Send + Sync + 'static,
    ) -> Subscription {
        self.shared.on_reconnect.add(handler)
    }

    /// Calls a function whenever the roster changes.
    pub fn on_roster(
        &self,
        handler: impl Fn(&RosterUpdate) + Send + Sync + 'static,
    ) -> Subscription {
        self.shared.on_roster.add(handler)
    }

    /// Returns the underlying channel, for messages of types that this protocol does not know.
    pub fn pubsub(&self) -> PubSub<'_> {
        PubSub { shared: &self.shared }
    }

    /// Leaves the channel and waits until that is done. Running calls fail, and streams end.
    pub async fn close(&self) {
        self.shared.closed.cancel();
        self.shared.ended.cancelled().await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("channel", &self.shared.config.channel)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
