//! The protocol transcripts, replayed against the gateway: the frames of nodes and agents have the
//! documented effect.

use sa_gateway_kit::{Agent, FakeNode, Gateway, Hello, Setup};
use sa_hostile::{Line, transcripts};
use serde_json::{Value, json};

/// Returns the frame unchanged, except that it answers this request.
fn to(mut frame: Value, field: &str, id: &str) -> Value {
    frame[field] = json!(id);
    frame
}

#[tokio::test]
async fn what_nodes_say_has_the_effect_that_it_means() {
    let gateway = Setup::new().start().await;
    let operator = gateway.operator();
    let every =
        ["tool_cancel", "tool_progress", "tool_chunk", "attachments", "bin_probe", "events"];
    let mut node =
        Hello::new("replay").capability("a").with("features", json!(every)).connect(&gateway).await;
    for line in
        transcripts(&["node.jsonl", "node-old.jsonl", "node-extended.jsonl"], "node->gateway", 25)
    {
        match line.meaning["type"].as_str().unwrap() {
            "node_hello" => hello(&gateway, &line).await,
            "tool_response" => response(&operator, &mut node, &line).await,
            "tool_progress" | "tool_chunk" => update(&operator, &mut node, &line).await,
            "node_event" => event(&operator, &mut node, &line).await,
            "bin_probe_result" => probed(&operator, &mut node, &line).await,
            "ping" => {
                node.send(line.frame).await;
                let pong = json!({ "type": "pong", "timestamp": line.meaning["timestamp"] });
                assert_eq!(node.recv().await, pong, "{}", line.place);
            }
            "pong" => node.send(line.frame).await,
            other => panic!("{}: nobody knows what a gateway does with {other}", line.place),
        }
    }
    node.settle().await;
    assert_eq!(gateway.refused("node", "bad_frame").await, 0);
}

async fn hello(gateway: &Gateway, line: &Line) {
    let (place, meaning) = (&line.place, &line.meaning);
    let mut node = FakeNode::upgrade(gateway, "").await.unwrap();
    node.send(line.frame.clone()).await;
    let welcome = node.recv().await;
    assert_eq!(
        (&welcome["type"], &welcome["protocol_version"]),
        (&json!("gateway_welcome"), &json!(1)),
        "{place}"
    );
    let operator = gateway.operator();
    let nodes = operator.get("/v1/nodes").await.body;
    let listed =
        nodes["nodes"].as_array().unwrap().iter().find(|node| node["id"] == meaning["node"]["id"]);
    let listed = listed.unwrap_or_else(|| panic!("{place}: it is not listed"));
    for field in ["name", "node_type", "version"] {
        assert_eq!(listed["about"][field], meaning["node"][field], "{place}: {listed}");
    }
    assert_eq!(
        listed["about"]["tags"],
        meaning["node"].get("tags").cloned().unwrap_or(json!([])),
        "{place}: {listed}"
    );
    // A node's capability can be called, with or without a description.
    let capability = meaning["capabilities"][0].as_str().unwrap();
    let call = operator.call_later(&format!("{capability}.any"), json!({ "args": [1] }));
    let request = node.request().await;
    assert_eq!((request.tool, request.args), (format!("{capability}.any"), json!([1])), "{place}");
    node.answer(&request.id, json!("here")).await;
    assert_eq!(call.await.unwrap().result(), "here", "{place}");
    let tools = operator.get("/v1/tools?limit=1000").await.body;
    for tool in meaning["tools"].as_array().into_iter().flatten() {
        let name = tool["name"].as_str().unwrap().replace('.', "_");
        let listed =
            tools["tools"].as_array().unwrap().iter().find(|listed| listed["name"] == *name);
        let listed = listed.unwrap_or_else(|| panic!("{place}: {name} is not listed"));
        assert_eq!(listed["description"], tool["description"], "{place}: {listed}");
    }
}

async fn response(operator: &Agent, node: &mut FakeNode, line: &Line) {
    let (place, meaning) = (&line.place, &line.meaning);
    let call = operator.call_later("a.b", json!({}));
    let request = node.request().await;
    node.send(to(line.frame.clone(), "request_id", &request.id)).await;
    let reply = call.await.unwrap();
    if let Some(error) = meaning.get("error") {
        assert_eq!(
            (&reply.body["kind"], reply.detail()),
            (&error["kind"], error["message"].as_str().unwrap()),
            "{place}"
        );
        return;
    }
    assert_eq!(
        (reply.status, &reply.body["result"]),
        (200, &meaning["result"]),
        "{place}: {}",
        reply.text
    );
    for (number, file) in meaning["attachments"].as_array().into_iter().flatten().enumerate() {
        let got = &reply.body["attachments"][number];
        assert_eq!(
            (&got["mime_type"], &got["data"]),
            (&file["mime_type"], &file["data"]),
            "{place}: {}",
            reply.text
        );
    }
}

async fn update(operator: &Agent, node: &mut FakeNode, line: &Line) {
    let (place, meaning) = (&line.place, &line.meaning);
    let mut events = operator.stream("a.b", json!({})).await;
    let request = node.request().await;
    node.send(to(line.frame.clone(), "request_id", &request.id)).await;
    let name = meaning["type"].as_str().unwrap().strip_prefix("tool_").unwrap();
    let seen = events.wait_for(name).await;
    for field in ["progress", "total"] {
        assert_eq!(seen[field].as_f64(), meaning[field].as_f64(), "{place}: {seen}");
    }
    for field in ["message", "content"] {
        assert_eq!(seen[field], meaning[field], "{place}: {seen}");
    }
    let files = |value: &Value| value["attachments"].as_array().map_or(0, Vec::len);
    assert_eq!(files(&seen), files(meaning), "{place}: {seen}");
    node.answer(&request.id, json!(1)).await;
    assert_eq!(events.wait_for("done").await["result"], 1, "{place}");
}

async fn event(operator: &Agent, node: &mut FakeNode, line: &Line) {
    let (place, meaning) = (&line.place, &line.meaning);
    let mut feed = operator.follow().await;
    node.send(line.frame.clone()).await;
    let seen = feed.wait_for("node_event").await;
    assert_eq!((&seen["node"], &seen["event"]), (&json!("replay"), &meaning["event"]), "{place}");
    assert_eq!(seen["data"], meaning["data"], "{place}");
    if let Some(at) = meaning.get("at_ms") {
        assert_eq!(&seen["at_ms"], at, "{place}");
    }
}

async fn probed(operator: &Agent, node: &mut FakeNode, line: &Line) {
    let bins: Vec<String> = line.meaning["bins"].as_object().unwrap().keys().cloned().collect();
    let asker = operator.clone();
    let asked = tokio::spawn(async move {
        asker.post("/v1/nodes/replay/probe", &json!({ "bins": bins })).await
    });
    let question = node.recv().await;
    assert_eq!(question["type"], "bin_probe", "{}", line.place);
    node.send(to(line.frame.clone(), "probe_id", question["probe_id"].as_str().unwrap())).await;
    let reply = asked.await.unwrap();
    let known = &reply.body["hostBinStatus"];
    assert_eq!(
        (reply.status, known),
        (200, &line.meaning["bins"]),
        "{}: {}",
        line.place,
        reply.text
    );
}

#[tokio::test]
async fn what_agents_say_has_the_effect_that_it_means() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("replay").capability("linux").capability("n").connect(&gateway).await;
    let mut socket = gateway.operator().socket().await;
    let mut open = Vec::new();
    for Line { place, frame, meaning } in transcripts(&["calls.jsonl"], "agent->gateway", 5) {
        socket.send(frame).await;
        match meaning["type"].as_str().unwrap() {
            "call" => {
                let request = node.request().await;
                assert_eq!(request.tool, meaning["tool"].as_str().unwrap(), "{place}");
                let args = meaning.get("args").cloned().unwrap_or(json!({}));
                assert_eq!(request.args, args, "{place}");
                assert_eq!(request.frame["session_key"], meaning["session_key"], "{place}");
                if let Some(trace) = meaning["traceparent"].as_str() {
                    // The same trace id, with a new span id from the gateway.
                    assert_eq!(
                        &request.frame["traceparent"].as_str().unwrap()[..35],
                        &trace[..35],
                        "{place}"
                    );
                }
                open.push((meaning["id"].as_str().unwrap().to_owned(), request));
            }
            "cancel" => {
                let at = open.iter().position(|(id, _)| meaning["id"] == **id).unwrap();
                let (id, request) = open.remove(at);
                node.cancelled(&request).await;
                assert_eq!(socket.wait_for("error", &id).await["kind"], "cancelled", "{place}");
            }
            "ping" => {
                let pong = json!({ "type": "pong", "timestamp": meaning["timestamp"] });
                assert_eq!(socket.recv().await, pong, "{place}");
            }
            // These frames get no answer.
            "pong" | "listen" => {}
            other => panic!("{place}: nobody knows what a gateway does with {other}"),
        }
    }
    assert!(open.len() >= 2, "the transcript is gone");
    for (id, request) in open {
        node.answer(&request.id, json!(id)).await;
        let done = socket.wait_for("done", &id).await;
        assert_eq!((&done["result"], &done["call_id"]), (&json!(id), &json!(request.id)), "{done}");
    }
}
