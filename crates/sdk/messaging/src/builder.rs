use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sa_protocol::ReconnectBackoff;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use url::Url;

use crate::address::{self, Token};
use crate::connection::Actor;
use crate::queue::Bounds;
use crate::shared::{Methods, Position, Shared};
use crate::{Client, Error, Method};

/// Puts a [`Client`] together: server, token, channel, handle, name and type; all else has a default.
#[derive(Clone)]
#[must_use = "nothing happens before `connect`"]
pub struct ClientBuilder {
    server: String,
    config: Config,
    methods: Vec<Method>,
}

/// What a client was told.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) url: Url,
    pub(crate) token: Token,
    pub(crate) channel: String,
    pub(crate) handle: String,
    /// Tells this program from others of the same participant.
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

/// What becomes of the messages that were stored before the client came. They are part of
/// [`events`](Client::events) that ask for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReplayMode {
    /// A message comes with all of its updates put together, a call with its last result.
    #[default]
    Collect,
    /// Everything comes as it was said.
    Stream,
    /// They are not asked for.
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
                handle: String::new(),
                instance: String::new(),
                name: String::new(),
                kind: "agent".into(),
                extra: Map::new(),
                methods: Methods::new(),
                replay: ReplayMode::default(),
                from: Position::default(),
                since_ms: None,
                reconnect: Some(ReconnectBackoff { max_delay: Duration::from_secs(30), ..ReconnectBackoff::default() }),
                skip_own: false,
                buffer: Bounds { items: 16_384, bytes: 64 << 20 },
                max_message_bytes: 64 << 20,
                heartbeat: Duration::from_secs(15),
                cancel_grace: Duration::from_secs(5),
            },
            methods: Vec::new(),
        }
    }

    /// The server's address. `ws://127.0.0.1:3210` unless told.
    pub fn server(mut self, url: impl Into<String>) -> Self {
        self.server = url.into();
        self
    }

    /// The token that the server knows this participant by.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.config.token = Token(token.into());
        self
    }

    /// The channel to take part in.
    pub fn channel(mut self, channel: impl Into<String>) -> Self {
        self.config.channel = channel.into();
        self
    }

    /// What others may write in a message's `at`. Unique in the channel.
    pub fn handle(mut self, handle: impl Into<String>) -> Self {
        self.config.handle = handle.into();
        self
    }

    /// A name for people. The handle unless told.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// What this participant is: `agent` unless told, `worker`, `panel` or whatever else.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.config.kind = kind.into();
        self
    }

    /// Something else that the roster is to say about this participant.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.config.extra.insert(key.into(), value.into());
        self
    }

    /// The workspace that this participant belongs to, as the roster says it.
    pub fn workspace_id(self, workspace: impl Into<String>) -> Self {
        self.metadata("workspaceId", workspace.into())
    }

    /// A name for this program among those that share the participant's token, as the roster says it. Who the
    /// participant is comes from the token: see [`Client::client_id`].
    pub fn client_id(self, id: impl Into<String>) -> Self {
        self.metadata("clientId", id.into())
    }

    /// Offers a method.
    pub fn method(mut self, method: Method) -> Self {
        self.methods.push(method);
        self
    }

    /// What becomes of the messages that were stored before. [`ReplayMode::Collect`] unless told.
    pub fn replay(mut self, mode: ReplayMode) -> Self {
        self.config.replay = mode;
        self
    }

    /// Replays only messages after this one. All that are stored unless told.
    pub fn since_id(mut self, id: u64) -> Self {
        self.config.from = Position { epoch: None, last_id: id };
        self
    }

    /// Goes on where another client of this channel was: see [`Client::position`].
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

    /// How to connect again when the connection is lost. Unless told, after one second, then after twice as long each
    /// time, up to half a minute, for ever. `None` never connects again.
    pub fn reconnect(mut self, backoff: impl Into<Option<ReconnectBackoff>>) -> Self {
        self.config.reconnect = backoff.into();
        self
    }

    /// Leaves what this participant says itself out of [`events`](Client::events). Not so unless told.
    pub fn skip_own_messages(mut self, skip: bool) -> Self {
        self.config.skip_own = skip;
        self
    }

    /// How many events, and bytes of them, may wait for a stream that nobody reads, before the oldest make room. 16,384
    /// and 64 MiB unless told. The same bounds the history that is replayed.
    pub fn event_buffer(mut self, events: usize, bytes: usize) -> Self {
        self.config.buffer = Bounds { items: events.max(1), bytes };
        self
    }

    /// The largest message that is read. 64 MiB unless told.
    pub fn max_message_bytes(mut self, bytes: usize) -> Self {
        self.config.max_message_bytes = bytes;
        self
    }

    /// How often to ask whether the server is still there. 15 seconds unless told; after three of them without a sign
    /// of life the connection counts as lost.
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.config.heartbeat = interval.max(Duration::from_millis(10));
        self
    }

    /// How long a method has to end after its call was cancelled, before it is dropped. 5 seconds unless told.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.config.cancel_grace = grace;
        self
    }

    /// Connects, and waits until everything that was stored has been replayed and the channel knows this participant.
    pub async fn connect(self) -> Result<Client, Error> {
        let config = self.check()?;
        let (commands, queue) = mpsc::channel(256);
        let shared = Arc::new(Shared::new(config, commands));
        let (first, connected) = oneshot::channel();
        // Made before the wait: if that is given up, dropping the client ends the connection.
        let client = Client::new(Arc::clone(&shared));
        tokio::spawn(Actor::new(shared, queue, first).run());
        connected.await.unwrap_or_else(|_| Err(Error::closed()))?;
        Ok(client)
    }

    /// Connects once, and sends back what it is sent until the connection ends. For the official test suite of WebSocket,
    /// which wants such a client: all but what is done with a message is what every connection of a participant does. Not
    /// for use.
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
            return bad("the token", "it is empty; make one with `switchboard token create NAME --role participant`");
        }
        if !sa_protocol::channel::is_channel_name(&self.config.channel) {
            return bad("the channel", "its name has 1 to 200 bytes of visible text, without spaces at its ends");
        }
        if self.config.handle.len() > 128 || self.config.handle.contains(char::is_control) {
            return bad("the handle", "it has at most 128 bytes of visible text");
        }
        for method in self.methods {
            method.check()?;
            let name = method.name().to_owned();
            if self.config.methods.insert(name.clone(), method).is_some() {
                return bad("the methods", &format!("two have the name \"{name}\"; give each its own"));
            }
        }
        Ok(self.config)
    }
}

impl Config {
    /// What the roster is to say about this participant.
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
            let methods: Vec<_> = self.methods.values().map(|method| json!(method.advertised)).collect();
            metadata.insert("methods".into(), Value::Array(methods));
        }
        metadata
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address is still as it was typed, and may have a token in its query.
        f.debug_struct("ClientBuilder").field("channel", &self.config.channel).finish_non_exhaustive()
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
        Method::raw("a", schema, async |_: Value, _: MethodContext| Ok::<_, String>(()))
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
        ] {
            assert_eq!(bad.check().err().map(|error| error.code().to_owned()).as_deref(), Some("validation-error"));
        }
    }

    #[test]
    fn the_roster_says_what_was_told() {
        let config = usable().metadata("team", "x").method(method(json!({ "type": "object" }))).check().unwrap();
        let expected = json!({ "team": "x", "name": "ann", "type": "agent", "handle": "ann",
            "methods": [{ "name": "a", "parameters": { "type": "object" }, "streaming": false }] });
        assert_eq!(Value::Object(config.metadata()), expected);
    }
}
