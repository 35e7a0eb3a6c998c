use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use sa_protocol::{NodeInfo, ReconnectBackoff};
use serde_json::Value;
use url::Url;

use crate::url::{Token, parse};
use crate::{NodeClient, NodeEvents, NodeSdkError, tls};

/// Whether a program is on this machine.
pub(crate) type BinProbe = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Puts a [`NodeClient`] together. Everything has a default.
#[derive(Clone)]
pub struct NodeClientBuilder {
    url: String,
    /// More certificates to trust, as they were given.
    ca_pem: Vec<u8>,
    config: Config,
}

/// What a client was told.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) node: NodeInfo,
    pub(crate) token: Token,
    pub(crate) heartbeat: Duration,
    pub(crate) backoff: ReconnectBackoff,
    pub(crate) max_concurrent_tools: usize,
    pub(crate) max_request_bytes: usize,
    pub(crate) max_response_bytes: usize,
    pub(crate) cancel_grace: Duration,
    pub(crate) host: Option<String>,
    pub(crate) bin_probe: Option<BinProbe>,
    pub(crate) events: Option<NodeEvents>,
    /// The gateway's address, without the credentials.
    pub(crate) url: Url,
    /// Whom to trust beside those whom the system trusts.
    pub(crate) trusted: Vec<CertificateDer<'static>>,
}

impl Default for NodeClientBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl NodeClientBuilder {
    /// A builder with all defaults.
    pub fn new() -> Self {
        let url = "ws://localhost:3210/v1/nodes/ws";
        Self {
            url: url.to_owned(),
            ca_pem: Vec::new(),
            config: Config {
                node: NodeInfo {
                    id: "unnamed-node".to_owned(),
                    name: "unnamed-node".to_owned(),
                    node_type: "generic".to_owned(),
                    version: "0.1.0".to_owned(),
                    tags: Vec::new(),
                },
                token: Token::default(),
                heartbeat: Duration::from_secs(30),
                backoff: ReconnectBackoff::default(),
                max_concurrent_tools: 16,
                max_request_bytes: 256 * 1024,
                max_response_bytes: 1024 * 1024,
                cancel_grace: Duration::from_secs(5),
                host: None,
                bin_probe: None,
                events: None,
                url: Url::parse(url).expect("the default address is a URL"),
                trusted: Vec::new(),
            },
        }
    }

    /// Who the node is, all at once. The best source is [`NodeInfo::from_env`]: the id is `SA_NODE_ID`, else
    /// `{node_type}:{hostname}`.
    #[must_use]
    pub fn node_info(mut self, info: NodeInfo) -> Self {
        self.config.node = info;
        self
    }

    /// A stable id, unique among the gateway's nodes. `unnamed-node` unless told.
    #[must_use]
    pub fn node_id(mut self, id: impl Into<String>) -> Self {
        self.config.node.id = id.into();
        self
    }

    /// A name for people. `unnamed-node` unless told.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.node.name = name.into();
        self
    }

    /// The platform, such as `macos` or `linux`. `generic` unless told.
    #[must_use]
    pub fn node_type(mut self, node_type: impl Into<String>) -> Self {
        self.config.node.node_type = node_type.into();
        self
    }

    /// The version of the node's software. `0.1.0` unless told.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.config.node.version = version.into();
        self
    }

    /// Free words to group and filter nodes by. None unless told.
    #[must_use]
    pub fn tags(mut self, tags: impl Into<Vec<String>>) -> Self {
        self.config.node.tags = tags.into();
        self
    }

    /// The gateway's address. `ws://localhost:3210/v1/nodes/ws` unless told. Query parameters in it are kept. One without a
    /// path gets that of the nodes, and `http` and `https` are taken for `ws` and `wss`: `http://localhost:3210` is the same.
    #[must_use]
    pub fn gateway_ws_url(mut self, url: impl Into<String>) -> Self {
        self.url = url.into();
        self
    }

    /// The token that the gateway knows this node by. An empty one counts as none.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.config.token = Token::new(token.into());
        self
    }

    /// Certificates (PEM) to trust beside the system's, for a gateway at a `wss` address: that of the authority that signed the
    /// gateway's own, or that one itself if nobody else did. May be called more than once. None unless told.
    #[must_use]
    pub fn ca_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        // Two files that are put together must not share a line.
        if !self.ca_pem.is_empty() {
            self.ca_pem.push(b'\n');
        }
        self.ca_pem.extend_from_slice(pem.as_ref());
        self
    }

    /// How often the node asks whether the gateway is still there. 30 seconds unless told.
    ///
    /// A gateway that has been silent for three of these (and at least half a minute) is taken for gone.
    #[must_use]
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.config.heartbeat = interval;
        self
    }

    /// How long to wait before connecting again.
    #[must_use]
    pub fn reconnect_backoff(mut self, backoff: ReconnectBackoff) -> Self {
        self.config.backoff = backoff;
        self
    }

    /// How many tools run at once. 16 unless told. Further calls wait for their turn.
    #[must_use]
    pub fn max_concurrent_tools(mut self, count: usize) -> Self {
        self.config.max_concurrent_tools = count;
        self
    }

    /// The largest request. 256 KB unless told. A larger one is answered `invalid_args` without running its tool: by the
    /// gateway, which is told the limit, or else by the node.
    #[must_use]
    pub fn max_request_bytes(mut self, bytes: usize) -> Self {
        self.config.max_request_bytes = bytes;
        self
    }

    /// The largest result, as JSON, with its attachments. 1 MB unless told, and never more than the gateway says it takes;
    /// of one that does not say, [`MAX_TOOL_RESPONSE_BYTES`](crate::MAX_TOOL_RESPONSE_BYTES). A larger result is cut, and
    /// says so. What a response needs besides does not count.
    #[must_use]
    pub fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.config.max_response_bytes = bytes;
        self
    }

    /// How long a tool has to end after its call was cancelled, before it is dropped. 5 seconds unless told.
    #[must_use]
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.config.cancel_grace = grace;
        self
    }

    /// What to tell the gateway about this machine: a JSON object with whatever the agents should know.
    #[must_use]
    pub fn host(mut self, host: Value) -> Self {
        self.config.host = Some(host.to_string());
        self
    }

    /// Answers the gateway's question which programs this machine has. It may look at the disk: it does not run on
    /// the runtime's own threads.
    #[must_use]
    pub fn bin_probe(mut self, probe: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.config.bin_probe = Some(Arc::new(probe));
        self
    }

    /// What the node says outside of its calls, to a gateway that wants to know.
    #[must_use]
    pub fn events(mut self, events: &NodeEvents) -> Self {
        self.config.events = Some(events.clone());
        self
    }

    /// Checks everything and makes the client. Nothing is connected yet.
    pub fn build(mut self) -> Result<NodeClient, NodeSdkError> {
        self.config.url = parse(&self.url)?;
        let invalid = |why: &str| Err(NodeSdkError::Config(why.to_owned()));
        if self.config.max_concurrent_tools == 0 {
            return invalid("max_concurrent_tools is 0, so that no tool could ever run; allow at least 1");
        }
        if self.config.heartbeat.is_zero() {
            return invalid("heartbeat_interval is zero; give it at least some milliseconds");
        }
        if self.config.host.as_ref().is_some_and(|host| !host.starts_with('{')) {
            return invalid("host is not a JSON object");
        }
        if !self.ca_pem.is_empty() {
            self.config.trusted = tls::certificates(&self.ca_pem)?;
        }
        Ok(NodeClient::new(self.config))
    }
}

impl fmt::Debug for NodeClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address is still as it was typed, and may have a token in its query.
        f.debug_struct("NodeClientBuilder").field("node", &self.config.node).finish_non_exhaustive()
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("node", &self.node)
            .field("url", &crate::url::shown(&self.url))
            .field("token", &self.token)
            .field("heartbeat", &self.heartbeat)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}
