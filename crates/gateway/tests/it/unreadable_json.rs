//! Arguments that are valid by the grammar but break parsers are refused in every API.

use futures_util::SinkExt as _;
use reqwest::Method;
use sa_gateway_kit::{Agent, Hello, Message, Participant, Reply, Setup, soon};
use serde_json::{Value, json};

/// Half of a surrogate pair, a number out of range, and a key that one parser reserves.
const UNREADABLE: [&str; 4] = [
    r#"{"x":"\ud800"}"#,
    r#"{"x":[-1e999]}"#,
    r#"{"\udc00":1}"#,
    r#"{"x":{"$serde_json::private::RawValue":"1"}}"#,
];

async fn post(agent: &Agent, path: &str, body: String) -> Reply {
    Reply::of(agent.request(Method::POST, path).body(body)).await
}

#[tokio::test]
async fn arguments_are_refused_on_every_surface() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let agent = gateway.operator();
    let mut socket = agent.socket().await;
    let mut ann = Participant::connect(
        &gateway,
        &Participant::room(&Participant::token_with_tools(&gateway, "ann", &["*"]).await),
    )
    .await;
    for (number, args) in UNREADABLE.into_iter().enumerate() {
        let refused = |reply: Reply| {
            reply.assert_problem(422, "invalid_args");
            assert!(reply.detail().contains("args cannot be read"), "{args}: {}", reply.text);
        };
        refused(post(&agent, "/v1/tools/a.b/call", format!(r#"{{"args":{args}}}"#)).await);
        refused(
            post(&agent, "/v1/tools/invoke", format!(r#"{{"tool":"a.b","args":{args}}}"#)).await,
        );

        socket
            .send_raw(Message::text(format!(
                r#"{{"type":"call","id":"{number}","tool":"a.b","args":{args}}}"#
            )))
            .await;
        let answer = socket.recv().await;
        assert_eq!(
            (&answer["id"], &answer["kind"]),
            (&json!(number.to_string()), &json!("invalid_args")),
            "{args}: {answer}"
        );

        let call = format!(
            r#"{{"callId":"c{number}","methodName":"a.b","providerId":"switchboard","args":{args}}}"#
        );
        let frame = format!(
            r#"{{"action":"publish","type":"method-call","payload":{call},"persist":false}}"#
        );
        ann.socket.send(Message::text(frame)).await.unwrap();
        let told = next_result(&mut ann).await;
        assert!(
            told.contains("validation-error") && told.contains(&format!("c{number}")),
            "{args}: {told}"
        );
    }
    // All other arguments are the tool's responsibility.
    for args in [r#"{"x":1,"x":2}"#, "[1]", r#""\ud83d\ude00""#] {
        let (agent, body) = (gateway.operator(), format!(r#"{{"args":{args}}}"#));
        let call = tokio::spawn(async move { post(&agent, "/v1/tools/a.b/call", body).await });
        let request = node.request().await;
        assert_eq!(request.args, serde_json::from_str::<Value>(args).unwrap());
        node.answer(&request.id, json!(1)).await;
        assert_eq!(call.await.unwrap().result(), 1, "{args}");
    }
    node.settle().await;
    gateway.stop().await;
}

/// Returns the next result in a channel as text. The participant's own message is repeated to it
/// and cannot be parsed.
async fn next_result(participant: &mut Participant) -> String {
    use futures_util::StreamExt as _;
    loop {
        if let Message::Text(text) = soon(participant.socket.next()).await.unwrap().unwrap()
            && text.contains(r#""type":"method-result""#)
        {
            return text.to_string();
        }
    }
}

#[tokio::test]
async fn over_mcp_they_are_an_error_of_the_protocol() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let bodies = UNREADABLE.map(|args| {
        let params = format!(r#"{{"name":"a.b","arguments":{args}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#)
    });
    for version in ["2025-06-18", "2026-07-28"] {
        for (body, args) in
            bodies.iter().zip(UNREADABLE).filter(|(_, args)| !args.contains("private"))
        {
            let request = gateway.operator().request(Method::POST, "/mcp").body(body.clone());
            let request = request.header("accept", "application/json, text/event-stream");
            let request = request
                .header("content-type", "application/json")
                .header("mcp-protocol-version", version);
            let request = request.header("mcp-method", "tools/call").header("mcp-name", "a.b");
            let reply = Reply::of(request).await;
            assert_eq!(
                (reply.status, &reply.body["error"]["code"]),
                (400, &json!(-32700)),
                "{args}: {}",
                reply.text
            );
            assert_eq!(
                (&reply.body["jsonrpc"], &reply.body["id"]),
                (&json!("2.0"), &json!(7)),
                "{args}: {}",
                reply.text
            );
            let told = reply.body["error"]["message"].as_str().unwrap();
            assert!(told.contains("is invalid") && told.contains("column"), "{args}: {told}");
        }
    }
    node.settle().await;
    gateway.stop().await;
}

#[tokio::test]
async fn so_does_one_of_a_participant() {
    let gateway = Setup::new().start().await;
    let mut worker = Participant::worker(
        &gateway,
        &Participant::room(&Participant::token(&gateway, "worker").await),
    )
    .await;
    for unreadable in UNREADABLE {
        let agent = gateway.operator();
        let calling = tokio::spawn(async move {
            agent
                .post("/v1/tools/pubsub_worker_work/call?channel=room", &json!({ "args": {} }))
                .await
        });
        let asked = worker.message("method-call").await;
        let result = format!(
            r#"{{"callId":{},"content":{unreadable},"complete":true}}"#,
            asked["payload"]["callId"]
        );
        let frame = format!(
            r#"{{"action":"publish","type":"method-result","payload":{result},"persist":false}}"#
        );
        worker.socket.send(Message::text(frame)).await.unwrap();
        let reply = soon(calling).await.unwrap();
        let told = reply.assert_problem(502, "failed").detail();
        assert!(told.contains("\"worker\" returned an invalid result"), "{unreadable}: {told}");
        next_result(&mut worker).await;
    }
    gateway.stop().await;
}
