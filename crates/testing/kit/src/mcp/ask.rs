//! One call over MCP, which takes the fast path or not.

use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::{Server, soon};

/// A harmless key that disables the fast path.
const UNUSUAL: &str = r#""example.com/unusual":1,"#;

/// One request, in two versions.
#[derive(Debug, Clone)]
pub struct Ask {
    pub http: reqwest::Client,
    pub token: String,
    pub query: String,
    pub headers: Vec<(&'static str, Vec<u8>)>,
    pub id: &'static str,
    /// The request's members after the name.
    pub arguments: String,
    pub name: String,
    pub capabilities: &'static str,
    pub client: &'static str,
    pub more: String,
}

impl Ask {
    /// Returns a call of this tool, as the operator.
    pub fn new(gateway: &Server, name: &str, arguments: &str) -> Self {
        Self {
            http: reqwest::Client::new(),
            token: gateway.operator.clone(),
            query: String::new(),
            headers: Vec::new(),
            id: "1",
            arguments: format!(r#","arguments":{arguments}"#),
            name: name.into(),
            capabilities: "{}",
            client: r#""io.modelcontextprotocol/clientInfo":{"name":"t","version":"0"},"#,
            more: String::new(),
        }
    }

    /// Returns the request for another tool, token and query.
    #[must_use]
    pub fn vary(&self, name: &str, token: &str, query: &str) -> Self {
        Self {
            name: name.to_owned(),
            token: token.to_owned(),
            query: query.to_owned(),
            ..self.clone()
        }
    }

    /// Sets a header, in place of its usual value.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Returns the body of one of the versions.
    pub fn body(&self, unusual: bool) -> String {
        let Self { id, name, arguments, capabilities, client, more, .. } = self;
        let name = json!(name);
        let unusual = if unusual { UNUSUAL } else { "" };
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":{name}{arguments}{more},"_meta":{{{unusual}{client}
            "io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}}}"#
        )
    }

    /// Sends one of the versions, and returns the status, the media type and the body.
    pub async fn send(&self, gateway: &Server, unusual: bool) -> (u16, String, String) {
        let mut request = self
            .http
            .post(format!("{}/mcp{}", gateway.url, self.query))
            .bearer_auth(&self.token)
            .body(self.body(unusual));
        let usual = [
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", &self.name),
        ];
        let own = |name: &str| self.headers.iter().any(|(other, _)| *other == name);
        let usual = usual
            .iter()
            .filter(|(name, _)| !own(name))
            .map(|(name, value)| (*name, value.as_bytes()));
        for (name, value) in
            usual.chain(self.headers.iter().map(|(name, value)| (*name, value.as_slice())))
        {
            request = request
                .header(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        let response = soon(request.send()).await.unwrap();
        let kind =
            response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        (response.status().as_u16(), kind.unwrap_or_default(), soon(response.text()).await.unwrap())
    }

    /// Sends both versions, and returns their common answer.
    pub async fn both(&self, gateway: &Server) -> (u16, Value) {
        let (plain, unusual) = (self.send(gateway, false).await, self.send(gateway, true).await);
        assert_eq!(nameless(plain.clone()), nameless(unusual), "{}", self.body(false));
        (plain.0, serde_json::from_str(&plain.2).unwrap_or_default())
    }
}

/// Replaces the state of waiting calls, which always differs.
fn nameless((status, kind, body): (u16, String, String)) -> (u16, String, String) {
    let Ok(mut value) = serde_json::from_str::<Value>(&body) else { return (status, kind, body) };
    match value.pointer_mut("/result/requestState") {
        Some(state) => *state = json!("a name"),
        None => return (status, kind, body),
    }
    (status, kind, value.to_string())
}
