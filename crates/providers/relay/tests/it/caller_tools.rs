//! A session's agent calls tools that its caller lends. The caller receives each call in every
//! protocol, and only the caller's answer is returned.

use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use sa_testkit::sessions::{answer, id, reply, session, session_with};
use sa_testkit::{Agent, Gateway, RelaySocket, Setup, eventually};
use serde_json::{Value, json};

/// Sends the owner's answer to a request that is not open.
async fn answer_late(caller: &Agent, request: &Value, answer: Value) {
    assert_eq!(reply(caller, request, answer).await, json!({ "received": true, "counted": false }));
}

async fn start() -> (Gateway, Agent) {
    let gateway = Setup::new().config("[sessions]\ncaller_grace_ms = 100").start().await;
    let caller = gateway.new_agent("ant").await;
    (gateway, caller)
}

#[tokio::test]
async fn a_call_goes_to_the_caller_and_its_answer_back() {
    let (gateway, caller) = start().await;
    let session = session(&caller).await;
    assert_eq!(session["caller_tools"], json!(["ant_recall", "ant_send"]));
    let mut events = caller.events(&format!("/v1/sessions/{}/events", id(&session))).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    assert_eq!(agent.config["caller_id"], "ant");
    assert_eq!(agent.config["tools"][0]["inputSchema"]["required"], json!(["text"]));
    agent.caller_tool(0, "send", json!({ "text": "hi" })).await;
    let request = events.wait_for("caller_tool_request").await;
    assert_eq!(
        (&request["type"], &request["tool"], &request["arguments"], &request["session_id"]),
        (
            &json!("caller_tool_request"),
            &json!("send"),
            &json!({ "text": "hi" }),
            &session["session_id"]
        )
    );
    answer(&caller, &request, json!({ "result": { "sent": true } })).await;
    assert_eq!(
        agent.recv().await,
        json!({ "jsonrpc": "2.0", "id": 0, "result": { "sent": true } })
    );
    // The history records it like any other call.
    let call = eventually("the call in the history", || async {
        let calls = caller.get("/v1/calls?tool=ant_send").await.body;
        calls["calls"].get(0).filter(|call| call["state"] == "ended").cloned()
    })
    .await;
    assert_eq!((&call["surface"], &call["provider"]["kind"]), (&json!("relay"), &json!("caller")));
    assert_eq!(call["session_key"], session["session_id"]);
    drop(gateway);
}

#[tokio::test]
async fn a_failed_tool_is_an_error_and_progress_and_chunks_come_through() {
    let (_gateway, caller) = start().await;
    let session = session(&caller).await;
    let mut events = caller.events(&format!("/v1/sessions/{}/events", id(&session))).await;
    // A call from another API, in the session's scope.
    let mut call =
        caller.stream("ant_recall", json!({ "args": {}, "session_key": id(&session) })).await;
    let request = events.wait_for("caller_tool_request").await;
    answer(&caller, &request, json!({ "progress": 1, "total": 2, "message": "half" })).await;
    answer(&caller, &request, json!({ "chunk": { "part": 1 } })).await;
    answer(&caller, &request, json!({ "error": "no memory" })).await;
    assert_eq!(
        call.wait_for("progress").await,
        json!({ "progress": 1.0, "total": 2.0, "message": "half" })
    );
    assert_eq!(call.wait_for("chunk").await["content"], json!({ "part": 1 }));
    let error = call.wait_for("error").await;
    assert_eq!((&error["kind"], &error["detail"]), (&json!("failed"), &json!("no memory")));
}

#[tokio::test]
async fn callers_tools_are_seen_inside_their_session_alone() {
    let (gateway, caller) = start().await;
    let session = session(&caller).await;
    let names = |body: &Value| -> Vec<String> {
        let tools = body["tools"].as_array().unwrap().iter();
        let tools = tools.filter(|tool| tool["provider"]["kind"] == "caller");
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let inside = caller.get(&format!("/v1/tools?session={}", id(&session))).await.body;
    assert_eq!(names(&inside), ["ant_recall", "ant_send"]);
    assert!(names(&caller.get("/v1/tools").await.body).is_empty());
    let other = gateway.new_agent("other").await;
    // Another caller's session and an unknown one get the same error.
    for not_theirs in [id(&session), "nope"] {
        other
            .get(&format!("/v1/tools?session={not_theirs}"))
            .await
            .assert_problem(404, "not_found");
    }
    let body = json!({ "args": {}, "session_key": id(&session) });
    other.call_with("ant_recall", body).await.assert_problem(404, "not_found");
    // Arguments are checked before the caller receives the request.
    let body = json!({ "args": {}, "session_key": id(&session) });
    caller.call_with("ant_send", body).await.assert_problem(422, "invalid_args");
}

#[tokio::test]
async fn a_long_poll_returns_requests_and_a_client_that_reconnects_gets_the_open_ones() {
    let (_gateway, caller) = start().await;
    let session = caller
        .call("session", json!({ "action": "message", "message": "work", "caller_id": "ant", "caller_tools": [{ "name": "recall" }] }))
        .await
        .result();
    let poll = json!({ "session_id": session["session_id"], "wait_ms": 20_000 });
    let waiting = caller.call_later("caller_tool_next", json!({ "args": poll }));
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    agent.caller_tool(1, "ant_recall", json!({ "n": 1 })).await;
    let first = waiting.await.unwrap().result()["requests"][0].clone();
    assert_eq!((&first["tool"], &first["arguments"]), (&json!("recall"), &json!({ "n": 1 })));
    // A caller that has forgotten the request receives it again, and a caller that knows it does
    // not.
    let again = caller.call("caller_tool_next", poll.clone()).await.result();
    assert_eq!(again["requests"][0], first);
    let known = json!({ "session_id": session["session_id"], "known": [first["request_id"]] });
    assert_eq!(caller.call("caller_tool_next", known).await.result()["requests"], json!([]));
    let mut events = caller.events(&format!("/v1/sessions/{}/events", id(&session))).await;
    assert_eq!(events.wait_for("caller_tool_request").await, first);
    let reply = json!({ "session_id": session["session_id"], "request_id": first["request_id"], "result": "known" });
    caller.call("caller_tool_response", reply).await.result();
    assert_eq!(agent.recv().await["result"], "known");
    assert_eq!(
        caller
            .call("caller_tool_next", json!({ "session_id": session["session_id"] }))
            .await
            .result()["requests"],
        json!([])
    );
}

#[tokio::test]
async fn the_live_feed_and_the_socket_for_calls_work_as_well() {
    let (_gateway, caller) = start().await;
    let mut feed = caller.follow().await;
    let mut socket = caller.socket().await;
    let tools = json!([{ "name": "recall" }]);
    socket
        .call(
            "m",
            "session_message",
            json!({ "message": "work", "context": { "caller_id": "ant", "caller_tools": tools } }),
        )
        .await;
    let session = socket.wait_for("done", "m").await["result"].clone();
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    agent.caller_tool(7, "recall", json!({})).await;
    let request = feed.wait_for("caller_tool_request").await;
    // A caller that reconnects receives the request again.
    assert_eq!(caller.follow().await.wait_for("caller_tool_request").await, request);
    let reply = json!({ "session_id": session["session_id"], "request_id": request["request_id"], "result": 5 });
    socket.call("r", "caller_tool_response", reply).await;
    assert_eq!(agent.recv().await, json!({ "jsonrpc": "2.0", "id": 7, "result": 5 }));
}

#[tokio::test]
async fn only_the_callers_own_answer_counts_and_only_once() {
    let (gateway, caller) = start().await;
    let session = session(&caller).await;
    let mut events = caller.events(&format!("/v1/sessions/{}/events", id(&session))).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    agent.caller_tool(1, "recall", json!({})).await;
    let request = events.wait_for("caller_tool_request").await;
    // Answers of another agent or an operator do not count, and each receives the same reply as the
    // caller.
    let other = gateway.new_agent("other").await;
    answer(&other, &request, json!({ "result": "forged" })).await;
    answer(&gateway.operator(), &request, json!({ "result": "forged" })).await;
    let nonsense = json!({ "session_id": session["session_id"], "request_id": "nonsense" });
    answer_late(&caller, &nonsense, json!({ "result": 0 })).await;
    answer(
        &caller,
        &json!({ "session_id": "ses_none", "request_id": request["request_id"] }),
        json!({ "result": 0 }),
    )
    .await;
    answer(&caller, &request, json!({ "result": "genuine" })).await;
    answer_late(&caller, &request, json!({ "result": "twice" })).await;
    assert_eq!(agent.recv().await["result"], "genuine");
    assert_eq!(gateway.refused("session", "forged_reply").await, 2);
    assert_eq!(gateway.refused("session", "stray_reply").await, 3);
    let events = gateway.inner().journal.events();
    let forged: Vec<_> = events.iter().filter(|event| event.name == "reply.forged").collect();
    assert_eq!(forged.len(), 2, "{events:?}");
    assert_eq!(forged[0].actor, "agent other");
}

#[tokio::test]
async fn by_default_a_request_fails_at_once_when_the_stream_of_its_caller_closes() {
    // With a grace period that is longer than this, the request would time out instead.
    let gateway = Setup::new().config("[sessions]\ncaller_timeout_ms = 4000\n").start().await;
    let caller = gateway.new_agent("ant").await;
    let session = session(&caller).await;
    let mut events = caller.events(&format!("/v1/sessions/{}/events", id(&session))).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    agent.caller_tool(1, "recall", json!({})).await;
    events.wait_for("caller_tool_request").await;
    drop(events);
    let reply = agent.recv().await;
    assert_eq!(reply["error"]["data"]["kind"], "offline", "{reply}");
}

#[tokio::test]
async fn calls_run_side_by_side_and_end_in_any_order() {
    let (_gateway, caller) = start().await;
    let session = session(&caller).await;
    let mut events = caller.events(&format!("/v1/sessions/{}/events", id(&session))).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    let mut requests = Vec::new();
    for n in 0..20 {
        agent.caller_tool(n, "recall", json!({ "n": n })).await;
        requests.push(events.wait_for("caller_tool_request").await);
    }
    for request in requests.iter().rev() {
        answer(&caller, request, json!({ "result": request["arguments"]["n"] })).await;
        let reply = agent.recv().await;
        assert_eq!(
            (&reply["id"], &reply["result"]),
            (&request["arguments"]["n"], &request["arguments"]["n"])
        );
    }
}

#[tokio::test]
async fn a_caller_that_takes_too_long_is_a_timeout_and_is_told() {
    let (gateway, caller) = start().await;
    let session = session_with(&caller, json!({ "timeout_ms": 50 })).await;
    let mut events = caller.events(&format!("/v1/sessions/{}/events", id(&session))).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    agent.caller_tool(1, "recall", json!({})).await;
    let request = events.wait_for("caller_tool_request").await;
    let reply = agent.recv().await;
    assert_eq!(
        (&reply["error"]["code"], &reply["error"]["data"]["kind"]),
        (&json!(-32000), &json!("timeout"))
    );
    let cancelled = events.wait_for("caller_tool_cancelled").await;
    assert_eq!(
        (&cancelled["request_id"], &cancelled["reason"]),
        (&request["request_id"], &json!("deadline"))
    );
    answer_late(&caller, &request, json!({ "result": "late" })).await;
    assert_eq!(gateway.refused("session", "stray_reply").await, 1);
}

#[tokio::test]
async fn an_agent_that_cancels_or_leaves_cancels_at_the_caller() {
    let (gateway, caller) = start().await;
    let session = session(&caller).await;
    let mut events = caller.events(&format!("/v1/sessions/{}/events", id(&session))).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    agent.caller_tool(1, "recall", json!({})).await;
    let first = events.wait_for("caller_tool_request").await;
    agent.write(r#"{"jsonrpc":"2.0","method":"cancel","params":{"id":1}}"#).await;
    assert_eq!(events.wait_for("caller_tool_cancelled").await["request_id"], first["request_id"]);
    agent.caller_tool(2, "recall", json!({})).await;
    let second = events.wait_for("caller_tool_request").await;
    drop(agent);
    assert_eq!(events.wait_for("caller_tool_cancelled").await["request_id"], second["request_id"]);
    eventually("no calls left", || async { (gateway.running_calls().await == 0).then_some(()) })
        .await;
}

#[tokio::test]
async fn a_caller_that_is_gone_fails_its_tools_at_once_until_it_is_back() {
    let (_gateway, caller) = start().await;
    let session = session(&caller).await;
    let path = format!("/v1/sessions/{}/events", id(&session));
    let mut events = caller.events(&path).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    // The caller disconnects during a call.
    agent.caller_tool(1, "recall", json!({})).await;
    events.wait_for("caller_tool_request").await;
    drop(events);
    let reply = agent.recv().await;
    assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(1), &json!(-32001)), "{reply}");
    // The caller is away before the call, which would otherwise wait for a minute.
    agent.caller_tool(2, "recall", json!({})).await;
    assert_eq!(agent.recv().await["error"]["data"]["kind"], "offline");
    let mut events = caller.events(&path).await;
    eventually("the caller to be seen", || async {
        let session = caller.get(&format!("/v1/sessions/{}", id(&session))).await.body;
        (session["caller"] == "listening").then_some(())
    })
    .await;
    agent.caller_tool(3, "recall", json!({})).await;
    let request = events.wait_for("caller_tool_request").await;
    answer(&caller, &request, json!({ "result": "back" })).await;
    assert_eq!(agent.recv().await["result"], "back");
}

#[tokio::test]
async fn looking_on_is_not_listening() {
    let (_gateway, caller) = start().await;
    let session = session(&caller).await;
    let seen = || async {
        caller.get(&format!("/v1/sessions/{}", id(&session))).await.body["caller"].clone()
    };
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    for path in [
        format!("/v1/sessions/{}/events?since=0&watch=true", id(&session)),
        "/v1/events?watch=true".into(),
    ] {
        let mut events = caller.events(&path).await;
        agent.caller_tool(1, "recall", json!({})).await;
        let request = events.wait_for("caller_tool_request").await;
        assert_eq!(seen().await, "unknown", "{path}");
        drop(events);
        // The caller never listened, so it did not disconnect: the request waits for its answer.
        answer(&caller, &request, json!({ "result": "late" })).await;
        assert_eq!(agent.recv().await["result"], "late", "{path}");
    }
}

#[tokio::test]
async fn a_caller_may_change_its_tools_and_end_its_session() {
    let (gateway, caller) = start().await;
    let session = session(&caller).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    let change = json!({ "session_id": id(&session), "message": "more", "caller_tools": [{ "name": "ring" }] });
    assert_eq!(caller.post("/v1/sessions", &change).await.status, 200);
    let config = agent.recv().await;
    assert_eq!(config["params"]["tools"], json!([{ "name": "ring", "exposed_name": "ant_ring" }]));
    agent.caller_tool(1, "send", json!({ "text": "x" })).await;
    assert_eq!(agent.recv().await["error"]["data"]["kind"], "not_found");
    // Another caller's session looks like an unknown one.
    let other = gateway.new_agent("other").await;
    let path = format!("/v1/sessions/{}", id(&session));
    other.get(&path).await.assert_problem(404, "not_found");
    other.delete(&path).await.assert_problem(404, "not_found");
    other.post("/v1/sessions", &change).await.assert_problem(404, "not_found");
    assert_eq!(other.get("/v1/sessions").await.body, json!({ "sessions": [] }));
    let ended = caller.delete(&path).await;
    assert_eq!((ended.status, &ended.body["state"]), (200, &json!("ended")));
    assert_eq!(agent.next().await, None);
    assert!(!std::path::Path::new(session["socket"].as_str().unwrap()).exists());
    caller.post("/v1/sessions", &change).await.assert_problem(409, "conflict");
    // The events can be read afterwards.
    let events =
        caller.call("session_events", json!({ "session_id": id(&session) })).await.result();
    let kinds: Vec<_> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["session_started", "message", "message", "session_ended"]);
    let mut stream =
        caller.events(&format!("{path}/events?since={}", events["events"][1]["id"])).await;
    assert_eq!(stream.next().await.unwrap().0, "message");
    assert_eq!(stream.next().await.unwrap().0, "session_ended");
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_caller_on_mcp_needs_nothing_but_tools() {
    let (gateway, caller) = start().await;
    let mut config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", gateway.url));
    config.auth_header = Some(caller.token.clone());
    let client = ().serve(StreamableHttpClientTransport::from_config(config)).await.unwrap();
    let call = async |tool: &'static str, args: Value| {
        let mut request = CallToolRequestParams::new(tool);
        request.arguments = args.as_object().cloned();
        serde_json::to_value(client.call_tool(request).await.unwrap()).unwrap()["structuredContent"]
            .clone()
    };
    let lent = json!({ "caller_id": "ant", "caller_tools": [{ "name": "recall" }] });
    let session = call("session_message", json!({ "message": "work", "context": lent })).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    agent.caller_tool(1, "recall", json!({})).await;
    let next =
        call("caller_tool_next", json!({ "session_id": session["session_id"], "wait_ms": 20_000 }))
            .await;
    let request = next["requests"][0]["request_id"].clone();
    call(
        "caller_tool_response",
        json!({ "session_id": session["session_id"], "request_id": request, "result": "known" }),
    )
    .await;
    assert_eq!(agent.recv().await["result"], "known");
    client.cancel().await.unwrap();
}

/// The original relay protocol sends the answer without an `id`, and with `"error": null`.
#[tokio::test]
async fn an_answer_without_an_id_reaches_the_agent() {
    let (gateway, caller) = start().await;
    let session = session(&caller).await;
    let mut events = caller.events(&format!("/v1/sessions/{}/events", id(&session))).await;
    let mut agent = RelaySocket::connect(&session["socket"]).await;
    agent.caller_tool(1, "recall", json!({})).await;
    let request = events.wait_for("caller_tool_request").await;
    let answer = json!({
        "jsonrpc": "2.0",
        "method": "tools/call",
        "params": {
            "name": "caller_tool_response",
            "arguments": {
                "session_id": request["session_id"],
                "request_id": request["request_id"],
                "result": { "known": true },
                "error": null
            }
        }
    });
    let sent = reqwest::Client::new()
        .post(format!("{}/mcp", gateway.url))
        .bearer_auth(&caller.token)
        .header("accept", "application/json, text/event-stream")
        .json(&answer)
        .send()
        .await
        .unwrap();
    assert_eq!((sent.status().as_u16(), &*sent.text().await.unwrap()), (202, ""));
    assert_eq!(agent.recv().await["result"], json!({ "known": true }));
}
