//! A client that violates the protocol gets an answer to each request and leaves nothing behind.

use sa_testkit::{Gateway, Hello, Setup, eventually, soon};
use serde_json::{Value, json};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}"#;

fn post(gateway: &Gateway, session: &str, body: String) -> reqwest::RequestBuilder {
    let request = reqwest::Client::new()
        .post(format!("{}/mcp", gateway.url))
        .bearer_auth(&gateway.operator)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body);
    if session.is_empty() { request } else { request.header("mcp-session-id", session) }
}

async fn open(gateway: &Gateway) -> String {
    let response = soon(post(gateway, "", INITIALIZE.into()).send()).await.unwrap();
    response.headers()["mcp-session-id"].to_str().unwrap().to_owned()
}

/// Calls the slow tool and returns the answer: the whole response, or the last message of its
/// stream.
fn call(gateway: &Gateway, session: &str, id: u32, args: &Value) -> tokio::task::JoinHandle<Value> {
    let params =
        json!({ "name": "slow_work", "arguments": args, "_meta": { "progressToken": "same" } });
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let request = post(gateway, session, body.to_string());
    tokio::spawn(async move {
        let text = soon(request.send()).await.unwrap().text().await.unwrap();
        let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        serde_json::from_str(last.unwrap_or(&text))
            .unwrap_or_else(|error| panic!("{error}: {text}"))
    })
}

#[tokio::test]
async fn two_requests_of_one_id_at_once_are_one_and_a_refusal() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let session = open(&gateway).await;
    let first = call(&gateway, &session, 7, &json!({ "n": 1 }));
    let asked = node.request().await;
    let second = soon(call(&gateway, &session, 7, &json!({ "n": 2 }))).await.unwrap();
    assert_eq!((&second["id"], &second["error"]["code"]), (&json!(7), &json!(-32600)), "{second}");
    node.answer(&asked.id, json!("first")).await;
    let first = soon(first).await.unwrap();
    assert_eq!(first["result"]["content"][0]["text"], "first", "{first}");
    // After the answer the id is free again.
    let again = call(&gateway, &session, 7, &json!({ "n": 3 }));
    let asked = node.request().await;
    assert_eq!(asked.args, json!({ "n": 3 }));
    node.answer(&asked.id, json!("again")).await;
    assert_eq!(soon(again).await.unwrap()["result"]["content"][0]["text"], "again");
}

#[tokio::test]
async fn requests_with_one_progress_token_have_their_own_answers() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let session = open(&gateway).await;
    let first = call(&gateway, &session, 7, &json!({}));
    let asked_first = node.request().await;
    let second = call(&gateway, &session, 8, &json!({}));
    let asked_second = node.request().await;
    for (asked, word) in [(&asked_second, "second"), (&asked_first, "first")] {
        node.progress(&asked.id, 1.0).await;
        node.answer(&asked.id, json!(word)).await;
    }
    assert_eq!(soon(first).await.unwrap()["result"]["content"][0]["text"], "first");
    assert_eq!(soon(second).await.unwrap()["result"]["content"][0]["text"], "second");
    eventually("no call", || async { (gateway.running_calls().await == 0).then_some(()) }).await;
}

#[tokio::test]
async fn params_that_cannot_be_read_are_no_unknown_method() {
    let gateway = Setup::new().start().await;
    let session = open(&gateway).await;
    for (method, code) in [("tools/call", -32602), ("prompts/get", -32602), ("tools/cal", -32601)] {
        let params = json!({ "name": "a", "arguments": [1] });
        let body =
            json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        for session in ["", &session] {
            let response = soon(post(&gateway, session, body.clone()).send()).await.unwrap();
            let told = soon(response.text()).await.unwrap();
            assert!(
                told.contains(&format!("\"code\":{code}")) && told.contains("\"id\":7"),
                "{method}: {told}"
            );
        }
    }
}
