//! A caller is present while it listens, in any protocol, and when it reconnects it receives the
//! requests that still wait.

#![expect(deprecated, reason = "what clients of the older revisions have")]

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, RequestMetaObject};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};
use sa_testkit::mcp::{Client, Era, connect, request, value};
use sa_testkit::sessions::{id, session};
use sa_testkit::{Agent, CallSocket, Gateway, RelaySocket, Setup, eventually, soon};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Collects requests for the caller's tools.
#[derive(Clone)]
struct Hears(mpsc::UnboundedSender<Value>);

impl ClientHandler for Hears {
    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        if message.logger.as_deref() == Some("oubliette.caller_tool") {
            let _ = self.0.send(message.data);
        }
    }
}

async fn listener(
    gateway: &Gateway,
    caller: &Agent,
    era: Era,
) -> (Client<Hears>, mpsc::UnboundedReceiver<Value>) {
    let (hears, received) = mpsc::unbounded_channel();
    (connect(gateway, &caller.token, "", era, Hears(hears)).await.unwrap(), received)
}

/// Starts a gateway, a caller with a session, and an agent that has called `recall`.
async fn start() -> (Gateway, Agent, Value, RelaySocket) {
    // Long enough to reconnect, even on a busy machine.
    let gateway = Setup::new().config("[sessions]\ncaller_grace_ms = 2000").start().await;
    let caller = gateway.new_agent("ant").await;
    let session = session(&caller).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    agent.caller_tool(1, "recall", json!({ "n": 1 })).await;
    eventually("the request", || async {
        (caller.get(&format!("/v1/sessions/{}", id(&session))).await.body["pending"] == 1)
            .then_some(())
    })
    .await;
    (gateway, caller, session, agent)
}

async fn until_caller_is(caller: &Agent, session: &Value, state: &str) {
    eventually(state, || async {
        (caller.get(&format!("/v1/sessions/{}", id(session))).await.body["caller"] == state)
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_mcp_sessions_stream_begins_with_the_open_requests_each_time() {
    let (gateway, caller, session, mut agent) = start().await;
    let (client, mut received) = listener(&gateway, &caller, Era::Sessions).await;
    let first = soon(received.recv()).await.unwrap();
    assert_eq!((&first["tool"], &first["arguments"]), (&json!("recall"), &json!({ "n": 1 })));
    until_caller_is(&caller, &session, "listening").await;
    client.cancel().await.unwrap();
    let (client, mut received) = listener(&gateway, &caller, Era::Sessions).await;
    assert_eq!(soon(received.recv()).await.unwrap(), first);
    let answer = json!({ "session_id": session["session_id"], "request_id": first["request_id"], "result": "known" });
    client.call_tool(request("caller_tool_response", answer)).await.unwrap();
    assert_eq!(agent.recv().await["result"], "known");
    // An answered request is not sent again.
    agent.caller_tool(2, "recall", json!({ "n": 2 })).await;
    assert_eq!(soon(received.recv()).await.unwrap()["arguments"], json!({ "n": 2 }));
    // When the stream closes, the caller is no longer present.
    client.cancel().await.unwrap();
    assert_eq!(agent.recv().await["error"]["code"], -32001);
    until_caller_is(&caller, &session, "gone").await;
}

#[tokio::test]
async fn without_sessions_the_stream_of_a_call_begins_with_the_open_requests() {
    let (gateway, caller, session, mut agent) = start().await;
    let (client, mut received) = listener(&gateway, &caller, Era::Stateless).await;
    let mut meta = RequestMetaObject::new();
    meta.set_log_level(LoggingLevel::Info);
    let mut message = request(
        "session_message",
        json!({ "session_id": session["session_id"], "message": "go on", "wait_ms": 20_000 }),
    );
    message.meta = Some(meta);
    let peer = client.peer().clone();
    let waiting = tokio::spawn(async move { peer.call_tool(message).await });
    let first = soon(received.recv()).await.unwrap();
    assert_eq!(first["arguments"], json!({ "n": 1 }));
    until_caller_is(&caller, &session, "listening").await;
    let answer = json!({ "session_id": session["session_id"], "request_id": first["request_id"], "result": "known" });
    let answered = client.call_tool(request("caller_tool_response", answer)).await.unwrap();
    assert_eq!(value(&answered)["isError"], false, "{answered:?}");
    assert_eq!(agent.recv().await["result"], "known");
    waiting.abort();
}

/// Returns the next notice with this event.
async fn notice(socket: &mut CallSocket, event: &str) -> Value {
    loop {
        let frame = socket.recv().await;
        if frame["type"] == "notice" && frame["event"] == event {
            return frame["data"].clone();
        }
    }
}

#[tokio::test]
async fn the_socket_for_calls_sends_requests_to_listeners() {
    let (_gateway, caller, session, mut agent) = start().await;
    let mut socket = caller.socket().await;
    socket.send(json!({ "type": "listen" })).await;
    let first = notice(&mut socket, "caller_tool_request").await;
    assert_eq!(first["arguments"], json!({ "n": 1 }));
    until_caller_is(&caller, &session, "listening").await;
    drop(socket);
    let mut socket = caller.socket().await;
    socket.send(json!({ "type": "listen" })).await;
    assert_eq!(notice(&mut socket, "caller_tool_request").await, first);
    let answer = json!({ "session_id": session["session_id"], "request_id": first["request_id"], "result": "known" });
    socket.call("r", "caller_tool_response", answer).await;
    assert_eq!(agent.recv().await["result"], "known");
    agent.caller_tool(2, "recall", json!({ "n": 2 })).await;
    assert_eq!(notice(&mut socket, "caller_tool_request").await["arguments"], json!({ "n": 2 }));
    drop(socket);
    assert_eq!(agent.recv().await["error"]["code"], -32001);
}
