use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sa_protocol::ReconnectBackoff;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use url::Url;

use crate::address::{self, Address, Token};
use crate::connection::Actor;
use crate::queue::Bounds;
use crate::shared::{Methods, Position, Shared};
use crate::{Client, Error, Method};

/// Builds a [`Client`]. Set the server, token, channel, handle, name and type; every other setting
/// has a default.
#[derive(Clone)]
#[must_use = "nothing happens before `connect`"]
pub struct ClientBuilder {
    server: String,
    config: Config,
    methods: Vec<Method>,
}

/// The configuration of a client.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) url: Url,
    pub(crate) token: Token,
    pub(crate) channel: String,
    context_id: Option<String>,
    /// The configuration of a channel that does not exist yet, as JSON.
    of_channel: Option<String>,
    pub(crate) handle: String,
    /// Distinguishes this program from others of the same participant.
    pub(crate) instance: String,
    name: String,
    kind: String,
    extra: Map<String, Value>,
    pub(crate) methods: Methods,
    pub(crate) replay: ReplayMode,
    pub(crate) from: Position,
    pub(crate) since_ms: Option<i64>,
    pub(crate) reconnect: Option<ReconnectBackoff>,
    pub(crate) skip_own: bool,
    pub(crate) buffer: Bounds,
    pub(crate) max_message_bytes: usize,
    pub(crate) heartbeat: Duration,
    pub(crate) cancel_grace: Duration,
}

/// How a client handles messages that were stored before it connected. They are part of
/// [`events`](Client::events) if the filter includes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReplayMode {
    /// A message is delivered with all its updates merged, and a call with its last result.
    #[default]
    Collect,
    /// Every message is delivered as it was sent.
    Stream,
    /// Stored messages are not requested.
    Skip,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ClientBuilder {
    pub fn new() -> Self {
        let server = "ws://127.0.0.1:3210";
        Self {
            server: server.into(),
            config: Config {
                url: Url::parse(server).expect("the default address is a URL"),
                token: Token::default(),
                channel: String::new(),
                context_id: None,
                of_channel: None,
                handle: String::new(),
                instance: String::new(),
                name: String::new(),
                kind: "agent".into(),
                extra: Map::new(),
                methods: Methods::new(),
                replay: ReplayMode::default(),
                from: Position::default(),
                since_ms: None,
                reconnect: Some(ReconnectBackoff {
                    max_delay: Duration::from_secs(30),
                    ..ReconnectBackoff::default()
                }),
                skip_own: false,
                buffer: Bounds { items: 16_384, bytes: 64 << 20 },
                max_message_bytes: 64 << 20,
                heartbeat: Duration::from_secs(15),
                cancel_grace: Duration::from_secs(5),
            },
            methods: Vec::new(),
        }
    }

    /// Sets the server's URL. `ws://127.0.0.1:3210` by default.
    pub fn server(mut self, url: impl Into<String>) -> Self {
        self.server = url.into();
        self
    }

    /// Sets the token with which the participant authenticates.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.config.token = Token(token.into());
        self
    }

    /// Sets the channel to join.
    pub fn channel(mut self, channel: impl Into<String>) -> Self {
        self.config.channel = channel.into();
        self
    }

    /// Sets the context that the channel must belong to. A channel without a context takes the
    /// first one given.
    pub fn context_id(mut self, context: impl Into<String>) -> Self {
        self.config.context_id = Some(context.into());
        self
    }

    /// Sets the configuration of the channel, which is stored if this client creates the channel.
    /// [`Client::channel_config`] returns the stored one.
    pub fn channel_config(mut self, config: Map<String, Value>) -> Self {
        self.config.of_channel = Some(Value::Object(config).to_string());
        self
    }

    /// Sets the handle, which others may write in a message's `at`. It is unique in the channel.
    pub fn handle(mut self, handle: impl Into<String>) -> Self {
        self.config.handle = handle.into();
        self
    }

    /// Sets a name for people. The handle by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// Sets the type of this participant: `agent` by default, `worker`, `panel`, or any other text.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.config.kind = kind.into();
        self
    }

    /// Adds an entry to this participant's metadata in the roster.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.config.extra.insert(key.into(), value.into());
        self
    }

    /// Sets the workspace that this participant belongs to, as shown in the roster.
    pub fn workspace_id(self, workspace: impl Into<String>) -> Self {
        self.metadata("workspaceId", workspace.into())
    }

    /// Sets a name for this program in the roster, among those that share the participant's token.
    /// The participant's identity comes from the token: see [`Client::client_id`].
    pub fn client_id(self, id: impl Into<String>) -> Self {
        self.metadata("clientId", id.into())
    }

    /// Offers a method.
    pub fn method(mut self, method: Method) -> Self {
        self.methods.push(method);
        self
    }

    /// Sets how stored messages are handled. [`ReplayMode::Collect`] by default.
    pub fn replay(mut self, mode: ReplayMode) -> Self {
        self.config.replay = mode;
        self
    }

    /// Replays only messages after this one. All stored messages by default.
    pub fn since_id(mut self, id: u64) -> Self {
        self.config.from = Position { epoch: None, last_id: id };
        self
    }

    /// Continues at the position of another client of this channel: see [`Client::position`].
    pub fn resume(mut self, position: Position) -> Self {
        self.config.from = position;
        self
    }

    /// Keeps only replayed messages that are not older than this.
    pub fn since(mut self, time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.config.since_ms = Some(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        self
    }

    /// Sets how to reconnect when the connection is lost. `None` never reconnects.
    ///
    /// By default the first delay is one second. Each further delay is twice as long, up to half a
    /// minute, without a limit on attempts.
    pub fn reconnect(mut self, backoff: impl Into<Option<ReconnectBackoff>>) -> Self {
        self.config.reconnect = backoff.into();
        self
    }

    /// Excludes this participant's own messages from [`events`](Client::events). They are included
    /// by default.
    pub fn skip_own_messages(mut self, skip: bool) -> Self {
        self.config.skip_own = skip;
        self
    }

    /// Sets how many events, and bytes of them, are queued for a stream that is not read, before
    /// the oldest are dropped. 16,384 and 64 MiB by default. The same limits apply to the replayed
    /// history.
    pub fn event_buffer(mut self, events: usize, bytes: usize) -> Self {
        self.config.buffer = Bounds { items: events.max(1), bytes };
        self
    }

    /// Sets the maximum size of a message that is read. 64 MiB by default.
    pub fn max_message_bytes(mut self, bytes: usize) -> Self {
        self.config.max_message_bytes = bytes;
        self
    }

    /// Sets the interval of the pings to the server. 15 seconds by default. If the server is silent
    /// for three intervals, the connection counts as lost.
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.config.heartbeat = interval.max(Duration::from_millis(10));
        self
    }

    /// Sets the time that a method has to end after its call was cancelled, before it is dropped. 5
    /// seconds by default.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.config.cancel_grace = grace;
        self
    }

    /// Connects, and waits until all stored messages have been replayed and the channel has
    /// registered this participant.
    pub async fn connect(self) -> Result<Client, Error> {
        let config = self.check()?;
        let (commands, queue) = mpsc::channel(256);
        let shared = Arc::new(Shared::new(config, commands));
        let (first, connected) = oneshot::channel();
        // The client is created before the wait, so that dropping the future ends the connection.
        let client = Client::new(Arc::clone(&shared));
        tokio::spawn(Actor::new(shared, queue, first).run());
        connected.await.unwrap_or_else(|_| Err(Error::closed()))?;
        Ok(client)
    }

    /// Connects once and echoes every message until the connection ends.
    ///
    /// The official WebSocket test suite requires such a client. Everything except the handling of
    /// a message is the code of a normal connection. Not for public use.
    #[doc(hidden)]
    pub async fn echo(self) -> Result<(), Error> {
        let (commands, queue) = mpsc::channel(1);
        let shared = Arc::new(Shared::new(self.check()?, commands));
        let (first, _) = oneshot::channel();
        Actor::new(shared, queue, first).echo().await
    }

    fn check(mut self) -> Result<Config, Error> {
        self.config.url = address::parse(&self.server)?;
        self.config.instance = uuid::Uuid::new_v4().simple().to_string();
        let bad = |what: &str, why: &str| Err(Error::sent(what, why));
        if self.config.token.0.is_empty() {
            return bad(
                "the token",
                "it is empty; create one with `switchboard token create NAME --role participant`",
            );
        }
        if !sa_protocol::channel::is_channel_name(&self.config.channel) {
            return bad(
                "the channel",
                "its name must have 1 to 200 bytes of visible text, without spaces at the beginning or end",
            );
        }
        if self.config.handle.len() > 128 || self.config.handle.contains(char::is_control) {
            return bad("the handle", "it must have at most 128 bytes of visible text");
        }
        for method in self.methods {
            method.check()?;
            let name = method.name().to_owned();
            if self.config.methods.insert(name.clone(), method).is_some() {
                return bad(
                    "the methods",
                    &format!("two have the name \"{name}\"; use a different name for each"),
                );
            }
        }
        Ok(self.config)
    }
}

impl Config {
    pub(crate) fn address(&self) -> Address<'_> {
        Address {
            url: &self.url,
            token: &self.token,
            channel: &self.channel,
            instance: &self.instance,
            context_id: self.context_id.as_deref(),
            channel_config: self.of_channel.as_deref(),
        }
    }

    /// Returns this participant's metadata for the roster.
    pub(crate) fn metadata(&self) -> Map<String, Value> {
        let mut metadata = self.extra.clone();
        let name = if self.name.is_empty() { &self.handle } else { &self.name };
        if !name.is_empty() {
            metadata.insert("name".into(), json!(name));
        }
        metadata.insert("type".into(), json!(self.kind));
        if !self.handle.is_empty() {
            metadata.insert("handle".into(), json!(self.handle));
        }
        if !self.methods.is_empty() {
            let methods: Vec<_> =
                self.methods.values().map(|method| json!(method.advertised)).collect();
            metadata.insert("methods".into(), Value::Array(methods));
        }
        metadata
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL is still unparsed, and may have a token in its query.
        f.debug_struct("ClientBuilder")
            .field("channel", &self.config.channel)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MethodContext;

    fn usable() -> ClientBuilder {
        ClientBuilder::new().token("t").channel("room").handle("ann")
    }

    fn method(schema: Value) -> Method {
        named("a", schema)
    }

    fn named(name: &str, schema: Value) -> Method {
        Method::raw(name, schema, async |_: Value, _: MethodContext| Ok::<_, String>(()))
    }

    #[test]
    fn what_cannot_work_is_said_before_anything_is_connected() {
        assert!(usable().check().is_ok());
        for bad in [
            usable().server("nonsense"),
            usable().token(""),
            usable().channel(" "),
            usable().handle("a\n"),
            usable().method(method(json!({}))).method(method(json!({}))),
            usable().method(method(json!({ "type": 7 }))),
            usable().method(named("a b", json!({}))),
        ] {
            assert_eq!(
                bad.check().err().map(|error| error.code().to_owned()).as_deref(),
                Some("validation-error")
            );
        }
    }

    #[test]
    fn the_roster_says_what_was_told() {
        let config = usable()
            .metadata("team", "x")
            .method(method(json!({ "type": "object" })))
            .check()
            .unwrap();
        let expected = json!({ "team": "x", "name": "ann", "type": "agent", "handle": "ann",
            "methods": [{ "name": "a", "parameters": { "type": "object" }, "streaming": false }] });
        assert_eq!(Value::Object(config.metadata()), expected);
    }
}
