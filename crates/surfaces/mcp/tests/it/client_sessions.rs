//! A session of an older MCP client belongs to its principal, receives change notifications, and
//! ends when idle or deleted.

use std::sync::Arc;
use std::time::Duration;

use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};
use sa_testkit::mcp::raw::{INITIALIZE, open, post, stream};
use sa_testkit::mcp::{Era, connect, names, request, value};
use sa_testkit::{Gateway, Hello, Setup, eventually, soon};
use serde_json::{Value, json};
use tokio::sync::Notify;

const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

async fn list(gateway: &Gateway, token: &str, session: &str) -> u16 {
    let response =
        post(gateway, token, LIST).header("mcp-session-id", session).send().await.unwrap();
    response.status().as_u16()
}

#[tokio::test]
async fn a_session_is_its_principals_and_ends_with_a_delete() {
    let gateway = Setup::new().start().await;
    let (_, other) = gateway.token(json!({ "name": "other", "role": "agent" })).await;
    let id = open(&gateway, &gateway.operator).await;
    assert_eq!(list(&gateway, &gateway.operator, &id).await, 200);
    assert_eq!(list(&gateway, &other, &id).await, 404);
    assert_eq!(stream(&gateway, &other, &id).send().await.unwrap().status(), 404);
    let delete = |token: String, id: String| {
        let url = format!("{}/mcp", gateway.url);
        async move {
            let request =
                reqwest::Client::new().delete(url).bearer_auth(token).header("mcp-session-id", id);
            request.send().await.unwrap().status().as_u16()
        }
    };
    assert_eq!(delete(other.clone(), id.clone()).await, 404);
    // Other principals cannot initialize in this session either.
    for version in ["2025-11-25", "2026-07-28"] {
        let handshake = INITIALIZE.replace("2025-11-25", version);
        let request = post(&gateway, &other, &handshake).header("mcp-session-id", &id);
        let answer = request.header("mcp-protocol-version", version).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{version}");
    }
    assert_eq!(list(&gateway, &gateway.operator, &id).await, 200);
    assert_eq!(delete(gateway.operator.clone(), id.clone()).await, 204);
    assert_eq!(list(&gateway, &gateway.operator, &id).await, 404);
}

#[tokio::test]
async fn a_session_ends_when_it_is_idle_and_not_while_somebody_listens() {
    let gateway = Setup::new().config("[mcp]\nsession_idle_ms = 2_000").start().await;
    let listening = open(&gateway, &gateway.operator).await;
    let idle = open(&gateway, &gateway.operator).await;
    let _open = stream(&gateway, &gateway.operator, &listening).send().await.unwrap();
    // A request that does not count as use, while the sweep runs several times.
    let service_sees = |id: String| {
        let (url, token) = (format!("{}/mcp", gateway.url), gateway.operator.clone());
        async move {
            let request =
                reqwest::Client::new().get(url).bearer_auth(token).header("mcp-session-id", id);
            // A client that does not accept a stream opens none.
            request.header("accept", "application/json").send().await.unwrap().status().as_u16()
        }
    };
    eventually("the idle one to end", || async {
        (service_sees(idle.clone()).await == 404).then_some(())
    })
    .await;
    assert_eq!(service_sees(listening).await, 406);
}

#[tokio::test]
async fn there_are_never_more_sessions_than_may_be() {
    let gateway = Setup::new().config("[mcp]\nmax_sessions = 2").start().await;
    let (_, other) = gateway.token(json!({ "name": "other", "role": "agent" })).await;
    let kept = open(&gateway, &other).await;
    let first = open(&gateway, &gateway.operator).await;
    // The other principal's session is older, but stays, because it is its only one.
    let second = open(&gateway, &gateway.operator).await;
    assert_eq!(list(&gateway, &other, &kept).await, 200);
    assert_eq!(list(&gateway, &gateway.operator, &first).await, 404);
    assert_eq!(list(&gateway, &gateway.operator, &second).await, 200);
    let _held = stream(&gateway, &gateway.operator, &second).send().await.unwrap();
    let _kept_open = stream(&gateway, &other, &kept).send().await.unwrap();
    let full = post(&gateway, &gateway.operator, INITIALIZE).send().await.unwrap();
    assert_eq!(full.status(), 429, "both are in use");
}

#[tokio::test]
async fn one_token_cannot_keep_every_session_in_use() {
    let gateway = Setup::new().config("[mcp]\nmax_sessions = 16").start().await;
    let (_, greedy) = gateway.token(json!({ "name": "greedy", "role": "agent" })).await;
    let mut streams = Vec::new();
    for _ in 0..12 {
        let id = open(&gateway, &greedy).await;
        streams.push(stream(&gateway, &greedy, &id).send().await.unwrap());
    }
    let refused = post(&gateway, &greedy, INITIALIZE).send().await.unwrap();
    assert_eq!(refused.status(), 429);
    let why = refused.text().await.unwrap();
    assert!(
        why.contains("12 of 16 sessions of MCP clients") && why.contains("mcp.max_sessions"),
        "{why}"
    );
    open(&gateway, &gateway.operator).await;
}

#[tokio::test]
async fn a_revoked_token_ends_its_session_and_streams() {
    let gateway = Setup::new().start().await;
    let (token_id, token) = gateway.token(json!({ "name": "gone", "role": "agent" })).await;
    let id = open(&gateway, &token).await;
    let mut open_stream = stream(&gateway, &token, &id).send().await.unwrap();
    assert_eq!(gateway.operator().delete(&format!("/v1/tokens/{token_id}")).await.status, 200);
    soon(async { while let Ok(Some(_)) = open_stream.chunk().await {} }).await;
    assert_eq!(list(&gateway, &token, &id).await, 401);
}

#[derive(Clone, Default)]
struct Listener(Arc<Notify>);

impl ClientHandler for Listener {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn a_client_with_a_session_hears_of_changes_on_its_stream() {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let received = Listener::default();
    let client =
        connect(&gateway, &gateway.operator, "", Era::Sessions, received.clone()).await.unwrap();
    assert!(names(&client).await.is_empty());
    let _node = Hello::new("mac").tool("notes.search").connect(&gateway).await.echo();
    soon(received.0.notified()).await;
    assert_eq!(names(&client).await, ["notes_search"]);
}

#[tokio::test]
async fn a_client_without_sessions_hears_of_changes_when_it_listens() {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let client = connect(&gateway, &gateway.operator, "", Era::Stateless, ()).await.unwrap();
    let filter = rmcp::model::SubscriptionFilter::builder().tools_list_changed().build();
    let mut changes = client.listen(filter).await.unwrap();
    let _node = Hello::new("mac").tool("notes.search").connect(&gateway).await.echo();
    assert!(matches!(soon(changes.next()).await, Ok(Some(_))));
    assert_eq!(names(&client).await, ["notes_search"]);
}

#[tokio::test]
async fn a_call_in_a_session_is_cancelled_by_a_word() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let session = open(&gateway, &gateway.operator).await;
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "slow_work" } });
    let _answer = tokio::spawn(
        post(&gateway, &gateway.operator, &call.to_string())
            .header("mcp-session-id", &session)
            .send(),
    );
    let asked = node.request().await;
    let word = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    let taken = post(&gateway, &gateway.operator, word)
        .header("mcp-session-id", &session)
        .send()
        .await
        .unwrap();
    assert_eq!(taken.status(), 202);
    node.cancelled(&asked).await;
}

/// Returns the events of a stream, up to the first response.
async fn answer(mut response: reqwest::Response) -> (Vec<String>, Value) {
    let mut text = String::new();
    loop {
        let chunk =
            soon(response.chunk()).await.unwrap().expect("the stream ended without an answer");
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        let ids =
            text.lines().filter_map(|line| line.strip_prefix("id: ")).map(str::to_owned).collect();
        let found = text.lines().filter_map(|line| line.strip_prefix("data: ")).find_map(|data| {
            serde_json::from_str::<Value>(data)
                .ok()
                .filter(|message| message.get("result").is_some())
        });
        if let Some(found) = found {
            return (ids, found);
        }
    }
}

#[tokio::test]
async fn a_client_comes_back_for_the_answer_of_a_broken_stream() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let session = open(&gateway, &gateway.operator).await;
    let params = json!({ "name": "slow_work", "_meta": { "progressToken": 1 } });
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    let calling = tokio::spawn(
        post(&gateway, &gateway.operator, &call.to_string())
            .header("mcp-session-id", &session)
            .send(),
    );
    let asked = node.request().await;
    // The first progress report turns the response into a stream.
    node.progress(&asked.id, 1.0).await;
    let mut broken = soon(calling).await.unwrap().unwrap();
    // The first event has an id for resuming.
    let first = String::from_utf8(soon(broken.chunk()).await.unwrap().unwrap().to_vec()).unwrap();
    let id = first.lines().find_map(|line| line.strip_prefix("id:")).unwrap().trim().to_owned();
    drop(broken);
    let back = stream(&gateway, &gateway.operator, &session)
        .header("last-event-id", id)
        .send()
        .await
        .unwrap();
    node.answer(&asked.id, json!("late")).await;
    let (_, answer) = answer(back).await;
    assert_eq!(answer["result"]["content"][0]["text"], "late", "{answer}");
}

#[tokio::test]
async fn a_call_that_nobody_comes_back_for_is_cancelled() {
    let gateway = Setup::new().config("[mcp]\nresume_ms = 100").start().await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let session = open(&gateway, &gateway.operator).await;
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "slow_work" } });
    let left = tokio::spawn(
        post(&gateway, &gateway.operator, &call.to_string())
            .header("mcp-session-id", &session)
            .send(),
    );
    let asked = node.request().await;
    left.abort();
    node.cancelled(&asked).await;
}

#[tokio::test]
async fn progress_comes_on_the_stream_of_its_call_in_both_eras() {
    for era in sa_testkit::mcp::ERAS {
        let gateway = Setup::new().start().await;
        let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
        let seen = Progress::default();
        let client = connect(&gateway, &gateway.operator, "", era, seen.clone()).await.unwrap();
        let calling = tokio::spawn(async move {
            let result = client.call_tool(request("slow_work", json!({}))).await;
            (client, result)
        });
        let asked = node.request().await;
        node.progress(&asked.id, 1.0).await;
        soon(seen.0.notified()).await;
        node.answer(&asked.id, json!({ "a": 1 })).await;
        let (_client, result) = calling.await.unwrap();
        assert_eq!(value(&result.unwrap())["structuredContent"], json!({ "a": 1 }), "{era:?}");
    }
}

#[derive(Clone, Default)]
struct Progress(Arc<Notify>);

impl ClientHandler for Progress {
    async fn on_progress(
        &self,
        _: rmcp::model::ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn an_image_is_sent_once() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("mac").tool("screen.shot").connect(&gateway).await;
    let client = connect(&gateway, &gateway.operator, "", Era::Stateless, ()).await.unwrap();
    let calling =
        tokio::spawn(async move { client.call_tool(request("screen_shot", json!({}))).await });
    let asked = node.request().await;
    let image = json!({ "type": "image", "data": "QUJDRA==", "mimeType": "image/png" });
    node.answer(&asked.id, json!({ "content": [image] })).await;
    let result = value(
        &tokio::time::timeout(Duration::from_secs(20), calling).await.unwrap().unwrap().unwrap(),
    );
    assert_eq!(result.to_string().matches("QUJDRA==").count(), 1, "{result}");
    assert_eq!(result["content"], json!([image]));
}
