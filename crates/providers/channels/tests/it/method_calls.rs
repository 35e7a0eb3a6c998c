//! A participant's methods are tools in its channel's scope. A call ends exactly once, at once if
//! there is no provider, and only its provider can answer it.

use std::sync::Arc;

use sa_testkit::mcp::{ERAS, connect, names, request, value};
use sa_testkit::{Gateway, Hello, Participant, Setup, eventually, soon};
use serde_json::{Value, json};

async fn provider(gateway: &Gateway, name: &str) -> Participant {
    let mut participant = Participant::join(gateway, "room", name).await;
    let parameters =
        json!({ "type": "object", "properties": { "q": { "type": "string" } }, "required": ["q"] });
    let method = json!({ "name": "search", "description": "Search", "parameters": parameters, "streaming": true, "timeout": 30000 });
    let answer = participant
        .update(json!({ "name": name, "type": "worker", "handle": name, "methods": [method] }))
        .await;
    assert_eq!(answer["kind"], "persisted", "{answer}");
    participant
}

fn result(call: &Value, content: Value) -> Value {
    json!({ "callId": call["payload"]["callId"], "content": content, "complete": true })
}

#[tokio::test]
async fn an_agent_calls_a_participants_method() {
    let gateway = Setup::new().start().await;
    let mut worker = provider(&gateway, "worker").await;
    let agent = gateway.new_agent("agent").await;
    let tool = "pubsub_worker_search";
    let listed = async |path: &str| {
        agent.get(path).await.body["tools"].as_array().unwrap().iter().any(|t| t["name"] == tool)
    };
    assert!(!listed("/v1/tools").await, "only who is in the channel sees it");
    assert!(listed("/v1/tools?channel=room").await);
    let path = format!("/v1/tools/{tool}/call");
    agent.post(&path, &json!({ "args": { "q": "x" } })).await.assert_problem(404, "not_found");
    agent
        .post(&format!("{path}?channel=room"), &json!({ "args": {} }))
        .await
        .assert_problem(422, "invalid_args");

    let calling = {
        let (agent, path) = (agent.clone(), path.clone());
        tokio::spawn(async move {
            agent.post(&format!("{path}?channel=room"), &json!({ "args": { "q": "x" } })).await
        })
    };
    let call = worker.message("method-call").await;
    assert_eq!(call["senderId"], "agent");
    assert_eq!(
        (&call["payload"]["methodName"], &call["payload"]["providerId"], &call["payload"]["args"]),
        (&json!("search"), &json!("worker"), &json!({ "q": "x" }))
    );
    worker
        .say(
            "method-result",
            json!({ "callId": call["payload"]["callId"], "content": ["partial"], "complete": false, "progress": 50 }),
        )
        .await;
    worker.say("method-result", result(&call, json!({ "found": 3 }))).await;
    let reply = soon(calling).await.unwrap();
    assert_eq!((reply.status, &reply.body["result"]), (200, &json!({ "found": 3 })));
    assert_eq!(worker.say("method-result", result(&call, json!(4))).await["kind"], "error", "once");

    // A token that names the channel has it in scope without further settings.
    let (_, token) =
        gateway.token(json!({ "name": "insider", "role": "agent", "channels": ["room"] })).await;
    let insider = gateway.agent(&token);
    let calling =
        tokio::spawn(async move { insider.post(&path, &json!({ "args": { "q": "y" } })).await });
    let call = worker.message("method-call").await;
    let failure = json!({ "callId": call["payload"]["callId"], "content": { "error": "no luck", "code": "execution-error" }, "complete": true, "isError": true });
    worker.say("method-result", failure).await;
    let reply = soon(calling).await.unwrap();
    assert_eq!((reply.status, &reply.body["detail"]), (502, &json!("no luck")));
    gateway.stop().await;
}

#[tokio::test]
async fn a_provider_that_leaves_fails_its_calls_at_once_and_a_cancel_reaches_it() {
    let gateway = Setup::new().start().await;
    let mut worker = provider(&gateway, "worker").await;
    let agent = gateway.new_agent("agent").await;
    let path = "/v1/tools/pubsub_worker_search/call?channel=room";
    let start = |agent: &sa_testkit::Agent| {
        let agent = agent.clone();
        tokio::spawn(async move { agent.post(path, &json!({ "args": { "q": "x" } })).await })
    };
    let calling = start(&agent);
    let call = worker.message("method-call").await;
    let id = call["payload"]["callId"].as_str().unwrap();
    let mut eve = Participant::join(&gateway, "room", "eve").await;
    assert_eq!(eve.say("method-cancel", json!({ "callId": id })).await["code"], "not-allowed");
    assert_eq!(
        eve.say("method-result", result(&call, json!("forged"))).await["code"],
        "not-allowed"
    );
    agent.delete(&format!("/v1/calls/{id}")).await;
    let cancel = worker.message("method-cancel").await;
    assert_eq!((&cancel["payload"]["callId"], &cancel["senderId"]), (&json!(id), &json!("agent")));
    soon(calling).await.unwrap().assert_problem(499, "cancelled");

    let calling = start(&agent);
    worker.message("method-call").await;
    drop(worker);
    soon(calling).await.unwrap().assert_problem(503, "offline");
    agent.post(path, &json!({ "args": { "q": "x" } })).await.assert_problem(404, "not_found");
    gateway.stop().await;
}

#[tokio::test]
async fn participants_call_each_other() {
    let gateway = Setup::new().start().await;
    let mut worker = provider(&gateway, "worker").await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let mut eve = Participant::join(&gateway, "room", "eve").await;
    let call = |id: &str, provider: &str, method: &str| json!({ "callId": id, "methodName": method, "providerId": provider, "args": { "q": "x" } });
    for (id, provider, method, code) in [
        ("c1", "nobody", "search", "provider-not-found"),
        ("c2", "worker", "dance", "method-not-found"),
    ] {
        ann.say("method-call", call(id, provider, method)).await;
        let failed = ann.message("method-result").await;
        assert_eq!(failed["payload"]["content"]["code"], code);
        assert_eq!(
            (
                &failed["payload"]["callId"],
                &failed["payload"]["isError"],
                &failed["payload"]["complete"]
            ),
            (&json!(id), &json!(true), &json!(true))
        );
    }
    let first = ann.say("method-call", call("c4", "worker", "search")).await;
    let again = ann.say("method-call", call("c4", "worker", "search")).await;
    assert_eq!(
        (&again["id"], &again["duplicate"]),
        (&first["id"], &json!(true)),
        "the call is made once"
    );
    assert_eq!(eve.say("method-call", call("c4", "worker", "search")).await["code"], "conflict");
    let asked = worker.until(|frame| frame["payload"]["callId"] == "c4").await;
    assert_eq!(
        eve.say("method-result", result(&asked, json!("forged"))).await["code"],
        "not-allowed"
    );
    assert_eq!(eve.say("method-cancel", json!({ "callId": "c4" })).await["code"], "not-allowed");
    worker
        .say("method-result", json!({ "callId": "c4", "content": "part", "complete": false }))
        .await;
    worker.say("method-result", result(&asked, json!("real"))).await;
    assert_eq!(ann.message("method-result").await["payload"]["content"], "part");
    assert_eq!(
        ann.message("method-result").await["payload"]["content"],
        "real",
        "and nothing that was forged"
    );

    let late = ann.say("method-call", call("c4", "worker", "search")).await;
    assert_eq!(
        (&late["id"], &late["duplicate"]),
        (&first["id"], &json!(true)),
        "also after its end"
    );
    ann.say("method-call", call("c5", "worker", "search")).await;
    let asked = worker.message("method-call").await;
    assert_eq!(asked["payload"]["callId"], "c5", "the worker was asked for c4 once");
    ann.say("method-cancel", json!({ "callId": "c5" })).await;
    worker.message("method-cancel").await;
    drop(worker);
    let failed = ann.message("method-result").await;
    assert_eq!(
        (&failed["payload"]["callId"], &failed["payload"]["content"]["code"]),
        (&json!("c5"), &json!("provider-offline"))
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_participant_calls_a_tool_on_a_node() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("laptop").capability("demo").connect(&gateway).await;
    Participant::token_with_tools(&gateway, "ann", &["demo.*"]).await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let call = |id: &str, tool: &str| json!({ "callId": id, "methodName": tool, "providerId": "switchboard", "args": { "a": 1 } });
    ann.say("method-call", call("c1", "demo.echo")).await;
    let request = node.request().await;
    assert_eq!(request.args, json!({ "a": 1 }));
    node.chunk(&request.id, json!("part")).await;
    node.answer(&request.id, json!({ "b": 2 })).await;
    assert_eq!(ann.message("method-result").await["payload"]["content"], "part");
    let done = ann.message("method-result").await;
    assert_eq!(
        (&done["senderId"], &done["payload"]["content"], &done["payload"]["complete"]),
        (&json!("switchboard"), &json!({ "b": 2 }), &json!(true))
    );
    ann.say("method-call", call("c2", "nothing.there")).await;
    assert_eq!(
        ann.message("method-result").await["payload"]["content"]["code"],
        "method-not-found"
    );
    ann.say("method-call", call("c3", "demo.slow")).await;
    let request = node.request().await;
    ann.say("method-cancel", json!({ "callId": "c3" })).await;
    let cancelled = ann.message("method-result").await;
    assert_eq!(cancelled["payload"]["content"]["code"], "cancelled");
    node.cancelled(&request).await;
    gateway.stop().await;
}

#[tokio::test]
async fn an_mcp_client_calls_a_participants_method() {
    let gateway = Setup::new().start().await;
    let tool = "pubsub_worker_search";
    let (_, token) = gateway.token(json!({ "name": "agent", "role": "agent" })).await;
    for era in ERAS {
        let mut worker = provider(&gateway, "worker").await;
        let outside = connect(&gateway, &token, "", era, ()).await.unwrap();
        assert!(
            !names(&outside).await.contains(&tool.to_owned()),
            "only who asks for the channel sees it"
        );
        let client = Arc::new(connect(&gateway, &token, "?channel=room", era, ()).await.unwrap());
        assert!(names(&client).await.contains(&tool.to_owned()));
        let calling = || {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                client.call_tool(request(tool, json!({ "q": "x" }))).await.unwrap()
            })
        };
        let answer = calling();
        let call = worker.message("method-call").await;
        assert_eq!(
            (&call["senderId"], &call["payload"]["args"]),
            (&json!("agent"), &json!({ "q": "x" }))
        );
        worker.say("method-result", result(&call, json!({ "found": 3 }))).await;
        let answer = value(&soon(answer).await.unwrap());
        assert!(answer.to_string().contains("found") && answer["isError"] != true, "{answer}");

        let answer = calling();
        worker.message("method-call").await;
        drop(worker);
        let answer = value(&soon(answer).await.unwrap());
        assert_eq!(answer["isError"], true, "{answer}");
        assert!(answer.to_string().contains("left during the call"), "{answer}");
        eventually("the method gone", || async {
            (!names(&client).await.contains(&tool.to_owned())).then_some(())
        })
        .await;
    }
    gateway.stop().await;
}

/// The gateway's own timeout applies only to methods that declare none.
#[tokio::test]
async fn a_method_has_the_time_that_it_says_it_needs() {
    let gateway = Setup::new().config("[limits]\ndefault_timeout_ms = 300").start().await;
    let mut worker = Participant::join(&gateway, "room", "worker").await;
    let methods = json!([{ "name": "long", "timeout": 60000 }, { "name": "short" }]);
    worker.update(json!({ "methods": methods })).await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let agent = gateway.new_agent("agent").await;
    let call = |method: &'static str| {
        let agent = agent.clone();
        let path = format!("/v1/tools/pubsub_worker_{method}/call?channel=room");
        tokio::spawn(async move { agent.post(&path, &json!({ "args": {} })).await })
    };
    let long = call("long");
    let asked = worker.message("method-call").await;
    let between =
        json!({ "callId": "c1", "methodName": "short", "providerId": "worker", "args": {} });
    ann.say("method-call", between).await;
    let asked_by_ann = worker.message("method-call").await;
    let short = call("short");
    // The last of the three calls is the first to time out. That shows that the default timeout has
    // passed for all of them.
    let late = worker.message("method-call").await;
    assert_eq!(
        worker.message("method-cancel").await["payload"]["callId"],
        late["payload"]["callId"]
    );
    soon(short).await.unwrap().assert_problem(504, "timeout");
    worker.say("method-result", result(&asked, json!("in time"))).await;
    assert_eq!(soon(long).await.unwrap().body["result"], "in time");
    assert_eq!(
        worker.say("method-result", result(&asked_by_ann, json!("too"))).await["kind"],
        "persisted"
    );
    let answer = ann
        .until(|frame| frame["payload"]["callId"] == "c1" && frame["type"] == "method-result")
        .await;
    assert_eq!(
        answer["payload"]["content"], "too",
        "how long a participant waits is its own business"
    );
    gateway.stop().await;
}
