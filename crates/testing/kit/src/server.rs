//! A running gateway, as its clients see it.

use serde_json::{Value, json};

use crate::Agent;

/// The address of a gateway, and the token of its operator.
#[derive(Debug, Clone)]
pub struct Server {
    /// `http://127.0.0.1:PORT`, or `https`.
    pub url: String,
    /// The operator's token.
    pub operator: String,
}

impl Server {
    /// Returns `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        self.url.split_once("//").unwrap().1
    }

    pub fn port(&self) -> u16 {
        self.address().rsplit_once(':').unwrap().1.parse().unwrap()
    }

    pub fn nodes_url(&self) -> String {
        format!("{}/v1/nodes/ws", self.url.replacen("http", "ws", 1))
    }

    /// Returns an agent with the operator's token.
    pub fn operator(&self) -> Agent {
        self.agent(&self.operator)
    }

    pub fn agent(&self, token: &str) -> Agent {
        Agent::new(&self.url, token)
    }

    /// Creates a token and returns its id and the token itself.
    pub async fn token(&self, body: Value) -> (String, String) {
        let reply = self.operator().post("/v1/tokens", &body).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        (reply.body["id"].as_str().unwrap().into(), reply.body["token"].as_str().unwrap().into())
    }

    /// Creates an agent token and returns an agent that uses it.
    pub async fn new_agent(&self, name: &str) -> Agent {
        let (_, token) = self.token(json!({ "name": name, "role": "agent" })).await;
        self.agent(&token)
    }

    /// Returns the number of refusals that `/metrics` reports for this point and reason.
    pub async fn refused(&self, at: &str, reason: &str) -> u64 {
        self.metric(&format!("switchboard_refused_total{{at=\"{at}\",reason=\"{reason}\"}}")).await
    }

    /// Returns a value from `/metrics`, or 0 when the metric is not there yet.
    pub async fn metric(&self, name: &str) -> u64 {
        let text = self.operator().get_text("/metrics").await;
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        text.lines().find_map(value).unwrap_or(0)
    }

    pub async fn running_calls(&self) -> usize {
        let list = self.operator().get("/v1/calls?state=running&limit=1").await.body;
        list["calls"].as_array().unwrap().len()
            + list["more_running"].as_u64().unwrap_or(0) as usize
    }
}
