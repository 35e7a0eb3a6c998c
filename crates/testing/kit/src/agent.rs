//! An agent that uses the REST API.

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::{CallSocket, soon};

/// A REST client with a token.
#[derive(Debug, Clone)]
pub struct Agent {
    pub http: Client,
    pub base: String,
    pub token: String,
}

/// An HTTP response, read to the end.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    /// `null` when the body is not JSON.
    pub body: Value,
    pub text: String,
}

impl Agent {
    pub fn new(base: &str, token: &str) -> Self {
        let http = Client::builder().no_proxy().build().unwrap();
        Self { http, base: base.into(), token: token.into() }
    }

    /// Builds a request with the token, but does not send it.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token)
    }

    pub async fn get(&self, path: &str) -> Reply {
        Reply::of(self.request(Method::GET, path)).await
    }

    pub async fn get_text(&self, path: &str) -> String {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        reply.text
    }

    pub async fn delete(&self, path: &str) -> Reply {
        Reply::of(self.request(Method::DELETE, path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        Reply::of(self.request(Method::POST, path).json(body)).await
    }

    /// Calls a tool with these arguments.
    pub async fn call(&self, tool: &str, args: Value) -> Reply {
        self.call_with(tool, json!({ "args": args })).await
    }

    /// Calls a tool with this request body.
    pub async fn call_with(&self, tool: &str, body: Value) -> Reply {
        self.post(&format!("/v1/tools/{tool}/call"), &body).await
    }

    /// Makes a call in a background task. Dropping the handle does not end the call; aborting it
    /// closes the connection.
    pub fn call_later(&self, tool: &str, body: Value) -> tokio::task::JoinHandle<Reply> {
        let (agent, tool) = (self.clone(), tool.to_owned());
        tokio::spawn(async move { agent.call_with(&tool, body).await })
    }

    /// Makes a call and returns its stream of events.
    pub async fn stream(&self, tool: &str, body: Value) -> Events {
        let request = self.request(Method::POST, &format!("/v1/tools/{tool}/call")).json(&body);
        Events::new(soon(request.header("accept", "text/event-stream").send()).await.unwrap())
    }

    /// Opens the live event feed.
    pub async fn follow(&self) -> Events {
        self.events("/v1/events").await
    }

    /// Opens the event stream at this path.
    pub async fn events(&self, path: &str) -> Events {
        Events::new(soon(self.request(Method::GET, path).send()).await.unwrap())
    }

    /// Opens the WebSocket for calls.
    pub async fn socket(&self) -> CallSocket {
        CallSocket::connect(&self.base, &self.token).await
    }

    /// Returns the names of the visible tools, without the tools that control sessions.
    pub async fn tool_names(&self) -> Vec<String> {
        let reply = self.get("/v1/tools?limit=1000").await;
        let tools = reply.body["tools"].as_array().unwrap();
        let tools = tools.iter().filter(|tool| tool["provider"]["kind"] != "sessions");
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Reply {
    pub async fn of(request: RequestBuilder) -> Self {
        let response = soon(request.send()).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = soon(response.text()).await.unwrap();
        Self { status, headers, body: serde_json::from_str(&text).unwrap_or_default(), text }
    }

    /// Returns the result of a successful call.
    #[track_caller]
    pub fn result(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.body["result"].clone()
    }

    /// Checks a problem's status and kind, and that it has the members that every problem has.
    #[track_caller]
    pub fn assert_problem(&self, status: u16, kind: &str) -> &Self {
        assert_eq!(
            (self.status, self.body["kind"].as_str()),
            (status, Some(kind)),
            "{}",
            self.text
        );
        assert_eq!(self.body["status"], status);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["type"], format!("urn:switchboard:problem:{kind}"));
        assert!(
            self.body["title"].is_string()
                && self.body["detail"].is_string()
                && self.body["retryable"].is_boolean()
        );
        let error = &self.body["error"];
        assert_eq!(
            (&error["message"], &error["code"]),
            (&self.body["detail"], &self.body["kind"]),
            "{}",
            self.text
        );
        assert!(error["type"].is_string() && error["param"].is_null(), "{}", self.text);
        self
    }

    pub fn detail(&self) -> &str {
        self.body["detail"].as_str().unwrap_or_default()
    }
}

/// The limit for one event, larger than any event that a test makes the gateway send.
const MAX_EVENT: usize = 64 << 20;

/// Reads server-sent events one by one.
pub struct Events {
    pub status: u16,
    pub headers: HeaderMap,
    stream: sa_sse::Events,
}

impl Events {
    fn new(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self { status, headers, stream: sa_sse::Events::new(response, MAX_EVENT) }
    }

    /// Returns the id of the call to which this stream belongs.
    pub fn call_id(&self) -> String {
        self.headers["x-call-id"].to_str().unwrap().to_owned()
    }

    /// Returns the next event's name and data, or `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        let event = soon(self.stream.next()).await.ok()??;
        Some((event.name, serde_json::from_str(&event.data).unwrap()))
    }

    /// Returns the data of the next event with this name, and skips all others.
    pub async fn wait_for(&mut self, name: &str) -> Value {
        loop {
            let (seen, data) =
                self.next().await.unwrap_or_else(|| panic!("the stream ended before {name}"));
            if seen == name {
                return data;
            }
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("status", &self.status).finish_non_exhaustive()
    }
}
