use std::fmt;
use std::sync::{Arc, PoisonError};

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

/// A participant of a channel. Clones are the same participant; when the last one is dropped, it leaves.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    _close_on_drop: Arc<DropGuard>,
}

/// A method that somebody in the channel offers.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveredMethod {
    pub provider_id: String,
    pub provider_name: String,
    pub method: AdvertisedMethod,
}

impl Client {
    /// Starts a [`ClientBuilder`].
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let guard = shared.closed.clone().drop_guard();
        Self { shared, _close_on_drop: Arc::new(guard) }
    }

    /// What happens in the channel. The first stream that is asked for has everything since the client connected, later
    /// ones everything from now on; before that comes what the filter wants of the history.
    pub fn events(&self, filter: EventFilter) -> Events {
        let replay = self.shared.replay.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let first: Vec<Event> = if filter.include_replay { replay.to_vec() } else { Vec::new() };
        let wants = self.shared.wants(filter);
        Events { reader: self.shared.events.read(first, wants) }
    }

    /// Lets go of the history that was replayed, for a client that lives long and has read it.
    pub fn forget_replay(&self) {
        *self.shared.replay.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
    }

    /// Everybody who is in the channel, by id.
    pub fn roster(&self) -> Arc<Roster> {
        self.shared.roster().now()
    }

    /// The roster as it changes.
    pub fn roster_changes(&self) -> RosterChanges {
        RosterChanges { reader: self.shared.roster_updates.read([], |_| true) }
    }

    /// All methods that are offered in the channel, one's own among them.
    pub fn discover_methods(&self) -> Vec<DiscoveredMethod> {
        self.roster().keys().flat_map(|id| self.discover_methods_from(id)).collect()
    }

    /// The methods that one participant offers.
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

    /// Calls a method of another participant; or a tool of the gateway's, whose participant is `switchboard`. Call it
    /// within a Tokio runtime.
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
            Err(error) => call::failed(&self.shared, Error::sent("the arguments", error.to_string())),
        }
    }

    /// Replaces what the roster says about this participant, but for its methods.
    pub async fn update_metadata(&self, mut metadata: Map<String, Value>) -> Result<(), Error> {
        let methods = self.shared.metadata().get("methods").cloned();
        methods.map(|methods| metadata.insert("methods".into(), methods));
        self.shared.ask(|done| Command::Metadata { metadata, done }).await.map(drop)
    }

    /// Who this participant is in the channel: the name of its token.
    pub fn client_id(&self) -> String {
        self.shared.identity().participant.clone()
    }

    /// What the server can do beyond the protocol's first version.
    pub fn extensions(&self) -> Vec<String> {
        self.shared.identity().extensions.clone()
    }

    /// How far this client has read; nothing before it has read anything.
    pub fn position(&self) -> Option<Position> {
        self.shared.identity().position.clone()
    }

    pub fn state(&self) -> ConnectionState {
        *self.shared.state.borrow()
    }

    /// The connection's state as it changes.
    pub fn states(&self) -> watch::Receiver<ConnectionState> {
        self.shared.state.subscribe()
    }

    pub fn is_connected(&self) -> bool {
        self.state() == ConnectionState::Connected
    }

    pub fn is_reconnecting(&self) -> bool {
        matches!(self.state(), ConnectionState::Reconnecting { .. })
    }

    /// Calls a function with every error that nobody waits for: messages of others that cannot be used, attempts to
    /// connect that failed.
    pub fn on_error(&self, handler: impl Fn(&Error) + Send + Sync + 'static) -> Subscription {
        self.shared.on_error.add(handler)
    }

    /// Calls a function whenever the connection is lost, with the reason.
    pub fn on_disconnect(&self, handler: impl Fn(&Error) + Send + Sync + 'static) -> Subscription {
        self.shared.on_disconnect.add(handler)
    }

    /// Calls a function before every attempt to connect again, with the attempt's number.
    pub fn on_reconnecting(&self, handler: impl Fn(&u32) + Send + Sync + 'static) -> Subscription {
        self.shared.on_reconnecting.add(handler)
    }

    /// Calls a function whenever a lost connection is back.
    pub fn on_reconnect(&self, handler: impl Fn(&Reconnected) + Send + Sync + 'static) -> Subscription {
        self.shared.on_reconnect.add(handler)
    }

    /// Calls a function whenever the roster changes.
    pub fn on_roster(&self, handler: impl Fn(&RosterUpdate) + Send + Sync + 'static) -> Subscription {
        self.shared.on_roster.add(handler)
    }

    /// The channel underneath, for messages of types that this protocol does not know.
    pub fn pubsub(&self) -> PubSub<'_> {
        PubSub { shared: &self.shared }
    }

    /// Leaves the channel, and waits until that is done. Calls that run fail, streams end.
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
