use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use sa_protocol::{NodeInfo, ReconnectBackoff};
use serde_json::Value;
use url::Url;

use crate::url::{Token, parse};
use crate::{NodeClient, NodeEvents, NodeSdkError, tls};

/// Returns whether a program is installed on this machine.
pub(crate) type BinProbe = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Builds a [`NodeClient`]. Every setting has a default.
#[derive(Clone)]
pub struct NodeClientBuilder {
    url: String,
    /// Additional certificates to trust, as the caller passed them.
    ca_pem: Vec<u8>,
    config: Config,
}

/// The configuration of a client.
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
    /// The gateway's URL, without the credentials.
    pub(crate) url: Url,
    /// The certificates to trust in addition to the system's.
    pub(crate) trusted: Vec<CertificateDer<'static>>,
}

impl Default for NodeClientBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl NodeClientBuilder {
    /// Creates a builder with all defaults.
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

    /// Sets the node's whole identity. The best source is [`NodeInfo::from_env`]: the id is
    /// `SA_NODE_ID`, or else `{node_type}:{hostname}`.
    #[must_use]
    pub fn node_info(mut self, info: NodeInfo) -> Self {
        self.config.node = info;
        self
    }

    /// Sets a stable id, unique among the gateway's nodes. `unnamed-node` by default.
    #[must_use]
    pub fn node_id(mut self, id: impl Into<String>) -> Self {
        self.config.node.id = id.into();
        self
    }

    /// Sets a name for people. `unnamed-node` by default.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.node.name = name.into();
        self
    }

    /// Sets the platform, such as `macos` or `linux`. `generic` by default.
    #[must_use]
    pub fn node_type(mut self, node_type: impl Into<String>) -> Self {
        self.config.node.node_type = node_type.into();
        self
    }

    /// Sets the version of the node's software. `0.1.0` by default.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.config.node.version = version.into();
        self
    }

    /// Sets free-form tags to group and filter nodes by. None by default.
    #[must_use]
    pub fn tags(mut self, tags: impl Into<Vec<String>>) -> Self {
        self.config.node.tags = tags.into();
        self
    }

    /// Sets the gateway's URL. `ws://localhost:3210/v1/nodes/ws` by default.
    ///
    /// Query parameters are kept. A URL without a path gets the path for nodes, and `http` and
    /// `https` mean `ws` and `wss`: `http://localhost:3210` is the same as the default.
    #[must_use]
    pub fn gateway_ws_url(mut self, url: impl Into<String>) -> Self {
        self.url = url.into();
        self
    }

    /// Sets the token with which the node authenticates. An empty token counts as none.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.config.token = Token::new(token.into());
        self
    }

    /// Adds certificates (PEM) to trust in addition to the system's, for a gateway at a `wss` URL.
    /// None by default.
    ///
    /// Pass the certificate of the authority that signed the gateway's certificate, or the
    /// gateway's own if it is self-signed. May be called more than once.
    #[must_use]
    pub fn ca_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        // Two concatenated files must not share a line.
        if !self.ca_pem.is_empty() {
            self.ca_pem.push(b'\n');
        }
        self.ca_pem.extend_from_slice(pem.as_ref());
        self
    }

    /// Sets the interval of the pings to the gateway. 30 seconds by default.
    ///
    /// If the gateway is silent for three intervals (and at least half a minute), the connection
    /// counts as lost.
    #[must_use]
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.config.heartbeat = interval;
        self
    }

    /// Sets the delays between attempts to reconnect.
    #[must_use]
    pub fn reconnect_backoff(mut self, backoff: ReconnectBackoff) -> Self {
        self.config.backoff = backoff;
        self
    }

    /// Sets the number of tools that run concurrently. 16 by default. Further calls wait in a
    /// queue.
    #[must_use]
    pub fn max_concurrent_tools(mut self, count: usize) -> Self {
        self.config.max_concurrent_tools = count;
        self
    }

    /// Sets the maximum size of a request. 256 KB by default.
    ///
    /// A larger request is answered `invalid_args` without running its tool: by the gateway, which
    /// receives the limit in the hello, or else by the node.
    #[must_use]
    pub fn max_request_bytes(mut self, bytes: usize) -> Self {
        self.config.max_request_bytes = bytes;
        self
    }

    /// Sets the maximum size of a result as JSON, with its attachments. 1 MB by default.
    ///
    /// The limit never exceeds the one that the gateway announces. Without an announcement that is
    /// [`MAX_TOOL_RESPONSE_BYTES`](crate::MAX_TOOL_RESPONSE_BYTES). A larger result is truncated
    /// and marked as such. The rest of the response does not count.
    #[must_use]
    pub fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.config.max_response_bytes = bytes;
        self
    }

    /// Sets the time that a tool has to end after its call was cancelled, before it is dropped. 5
    /// seconds by default.
    #[must_use]
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.config.cancel_grace = grace;
        self
    }

    /// Sets a description of this machine for the gateway: a JSON object with any information that
    /// is useful to agents.
    #[must_use]
    pub fn host(mut self, host: Value) -> Self {
        self.config.host = Some(host.to_string());
        self
    }

    /// Sets the function that answers which programs this machine has. It may access the disk,
    /// because it runs on the blocking thread pool.
    #[must_use]
    pub fn bin_probe(mut self, probe: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.config.bin_probe = Some(Arc::new(probe));
        self
    }

    /// Sets the events that the node sends outside of its calls, if the gateway supports them.
    #[must_use]
    pub fn events(mut self, events: &NodeEvents) -> Self {
        self.config.events = Some(events.clone());
        self
    }

    /// Checks all settings and creates the client. It does not connect yet.
    pub fn build(mut self) -> Result<NodeClient, NodeSdkError> {
        self.config.url = parse(&self.url)?;
        let invalid = |why: &str| Err(NodeSdkError::Config(why.to_owned()));
        if self.config.max_concurrent_tools == 0 {
            return invalid(
                "max_concurrent_tools is 0, so no tool could run; set it to at least 1",
            );
        }
        if self.config.heartbeat.is_zero() {
            return invalid("heartbeat_interval is zero; set it to at least one millisecond");
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
        // The URL is still unparsed, and may have a token in its query.
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
