//! The complete path with real processes: a caller over MCP, with old and new revisions, and a
//! sandboxed agent that uses stdio MCP with `switchboard relay`. The gateway is killed in between,
//! and the next one serves them as well.

use sa_gateway_kit::mcp::{Client, ERAS, Era, connect, request, value};
use sa_gateway_kit::{Gateway, soon};
use serde_json::{Value, json};

use crate::SWITCHBOARD;
use crate::relay::agents::setup;

/// A caller that uses only the MCP tools.
struct Caller {
    client: Client<()>,
    session: Value,
    /// The position for reading the agent's events.
    since: Value,
}

impl Caller {
    async fn start(gateway: &Gateway, token: &str, era: Era) -> Self {
        let client = connect(gateway, token, "", era, ()).await.unwrap();
        let mut caller = Self { client, session: Value::Null, since: json!(0) };
        let tools = json!([{ "name": "recall", "description": "Remembers" }]);
        let lent = json!({ "caller_id": "ant", "caller_tools": tools });
        let started = caller
            .call(
                "session_message",
                json!({ "message": "list", "agent": "boxed", "context": lent }),
            )
            .await;
        caller.session = started["session_id"].clone();
        assert!(caller.said("tools").await.contains("ant_recall"));
        caller
    }

    async fn call(&self, tool: &'static str, args: Value) -> Value {
        // Boxed, because many calls make a large future.
        let result =
            value(&Box::pin(soon(self.client.call_tool(request(tool, args)))).await.unwrap());
        assert_ne!(result["isError"], true, "{result}");
        result["structuredContent"].clone()
    }

    async fn order(&self, message: &str) {
        self.call("session_message", json!({ "session_id": self.session, "message": message }))
            .await;
    }

    /// Returns the next event.
    async fn event(&mut self) -> Value {
        let wanted = json!({ "session_id": self.session, "since": self.since, "limit": 1, "wait_ms": 10_000 });
        let page = self.call("session_events", wanted).await;
        self.since = page["next"].clone();
        page["events"][0].clone()
    }

    /// Returns the rest of the agent's next line that begins with this word.
    async fn said(&mut self, word: &str) -> String {
        loop {
            let event = self.event().await;
            if let Some(rest) = event["text"].as_str().unwrap_or_default().strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Waits for this number of pending requests.
    async fn requests(&self, count: usize) -> Vec<Value> {
        let mut found: Vec<Value> = Vec::new();
        while found.len() < count {
            let known: Vec<_> = found.iter().map(|request| request["request_id"].clone()).collect();
            let wanted = json!({ "session_id": self.session, "wait_ms": 10_000, "known": known });
            found.extend(
                self.call("caller_tool_next", wanted).await["requests"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .cloned(),
            );
        }
        found
    }

    async fn answer(&self, request: &Value, answer: Value) {
        let mut args = json!({ "session_id": self.session, "request_id": request["request_id"] });
        args.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        self.call("caller_tool_response", args).await;
    }

    async fn work(&mut self) {
        self.order("call ant_recall {\"n\":1}").await;
        let request = self.requests(1).await.remove(0);
        assert_eq!(
            (&request["tool"], &request["arguments"]),
            (&json!("recall"), &json!({ "n": 1 }))
        );
        self.answer(&request, json!({ "result": "seen" })).await;
        assert_eq!(self.said("ok").await, "seen");
        self.order("call ant_recall {}").await;
        let request = self.requests(1).await.remove(0);
        self.answer(&request, json!({ "error": "no memory" })).await;
        assert!(self.said("error").await.contains("no memory"));
        // Concurrent calls, answered in reverse order.
        self.order("all ant_recall 5").await;
        for request in self.requests(5).await.iter().rev() {
            self.answer(request, json!({ "result": request["arguments"]["n"] })).await;
        }
        assert_eq!(self.said("ok").await, "0,ok 1,ok 2,ok 3,ok 4");
        // The agent cancels the call.
        self.order("change_your_mind ant_recall").await;
        let request = self.requests(1).await.remove(0);
        self.order("now").await;
        let cancelled = async {
            loop {
                let event = self.event().await;
                if event["type"] == "caller_tool_cancelled" {
                    return event;
                }
            }
        };
        assert_eq!(soon(cancelled).await["request_id"], request["request_id"]);
        // The caller takes too long.
        let lent = json!({ "caller_id": "ant", "caller_tools": [{ "name": "recall", "timeout_ms": 100 }] });
        let order =
            json!({ "session_id": self.session, "message": "call ant_recall {}", "context": lent });
        self.call("session_message", order).await;
        assert!(self.said("error").await.starts_with("timeout"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_on_mcp_lend_their_tools_to_an_agent_in_a_sandbox_before_and_after_a_crash() {
    let mut gateway = setup().spawn(SWITCHBOARD).await;
    let (_, token) = gateway.token(json!({ "name": "ant", "role": "agent" })).await;
    for era in ERAS {
        Caller::start(&gateway, &token, era).await.work().await;
    }
    let caller = Caller::start(&gateway, &token, Era::Stateless).await;
    gateway.kill().await;
    let address = gateway.address().to_owned();
    let gateway = setup().on(&gateway).at(&address).spawn(SWITCHBOARD).await;
    // The same client connects to the next gateway, which knows how the session ended.
    let sessions = caller.call("session_list", json!({})).await;
    let ended = sessions["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|session| session["session_id"] == caller.session);
    assert_eq!(ended.unwrap()["reason"], "the gateway stopped");
    for era in ERAS {
        Caller::start(&gateway, &token, era).await.work().await;
    }
    gateway.stop().await;
}
