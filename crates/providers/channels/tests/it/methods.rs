//! Rule: a call reaches its provider only if the provider may have the method; otherwise only the
//! caller receives an error.

use sa_channels::{Draft, Sender};
use sa_core::{Principal, Role, View};
use sa_http::Rights;
use serde_json::{Value, json};

use crate::kit::{Participant, Server};

fn search() -> Value {
    json!([{ "name": "search", "parameters": { "type": "object" } }])
}

fn call(id: &str, provider: &str, method: &str) -> Value {
    json!({ "callId": id, "methodName": method, "providerId": provider, "args": {} })
}

/// Makes a call that must be rejected, and checks the answer.
async fn refused(caller: &mut Participant, call: Value, code: &str) {
    let answer = caller.say("method-call", call.clone()).await;
    assert_eq!(
        (&answer["type"], &answer["id"]),
        (&json!("method-call"), &Value::Null),
        "it is not stored: {answer}"
    );
    let result = caller.message("method-result").await;
    assert_eq!(
        (&result["payload"]["callId"], &result["id"]),
        (&call["callId"], &Value::Null),
        "{result}"
    );
    assert_eq!(
        (&result["payload"]["isError"], &result["payload"]["complete"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(result["payload"]["content"]["code"], code, "{result}");
}

/// Makes a call that must reach its provider, and answers it.
async fn reaches(caller: &mut Participant, provider: &mut Participant, call: Value) {
    assert_eq!(caller.say("method-call", call.clone()).await["kind"], "persisted");
    let asked = provider.message("method-call").await;
    assert_eq!(asked["payload"]["callId"], call["callId"], "{asked}");
    let result = json!({ "callId": call["callId"], "content": "done", "complete": true });
    assert_eq!(provider.say("method-result", result).await["kind"], "persisted");
    let result = caller.message("method-result").await;
    assert_eq!(
        (&result["payload"]["callId"], &result["payload"]["content"]),
        (&call["callId"], &json!("done"))
    );
}

#[tokio::test]
async fn a_provider_that_declares_nothing_answers_for_itself() {
    let server = Server::start().await;
    let mut ann = server.join("token=ann").await;
    let mut worker = server.join("token=worker").await;
    reaches(&mut ann, &mut worker, call("c1", "worker", "search")).await;
    worker.update(json!({ "name": "Worker" })).await;
    reaches(&mut ann, &mut worker, call("c2", "worker", "search")).await;
    worker.update(json!({ "methods": [] })).await;
    refused(&mut ann, call("c3", "worker", "search"), "method-not-found").await;
}

#[tokio::test]
async fn methods_that_are_null_declare_nothing() {
    let server = Server::start().await;
    let mut ann = server.join("token=ann").await;
    let mut worker = server.join("token=worker").await;
    let null = json!({ "name": "Worker", "methods": null });
    let updated = worker.update(null.clone()).await;
    assert_eq!(updated["payload"]["metadata"], json!({ "name": "Worker" }));
    reaches(&mut ann, &mut worker, call("c1", "worker", "search")).await;
    // The earlier declaration stays valid.
    worker.update(json!({ "methods": search() })).await;
    let updated = worker.update(null).await;
    let expected = json!({ "name": "Worker", "methods": search() });
    assert_eq!(updated["payload"]["metadata"], expected);
    refused(&mut ann, call("c2", "worker", "dance"), "method-not-found").await;
    reaches(&mut ann, &mut worker, call("c3", "worker", "search")).await;
}

#[tokio::test]
async fn a_refused_call_is_seen_by_its_caller_alone() {
    let server = Server::start().await;
    let mut ann = server.join("token=ann").await;
    let mut worker = server.join("token=worker").await;
    worker.update(json!({ "methods": search() })).await;
    let mut eve = server.join("token=eve").await;
    refused(&mut ann, call("c1", "worker", "dance"), "method-not-found").await;
    refused(&mut ann, call("to nobody", "nobody", "search"), "provider-not-found").await;
    // A rejected call was never made: its id can be used again.
    reaches(&mut ann, &mut worker, call("c1", "worker", "search")).await;
    let seen = eve.until(|frame| frame["type"] == "method-call").await;
    assert_eq!(seen["payload"]["methodName"], "search", "the first call that anybody else sees");
    let mut late = server.connect("token=late&sinceId=0").await;
    loop {
        let frame = late.next().await.unwrap();
        assert!(
            !frame.to_string().contains("dance") && !frame.to_string().contains("nobody"),
            "{frame}"
        );
        if frame["kind"] == "ready" {
            break;
        }
    }
    // A call that was made is not rejected when it is repeated: its result is in the log.
    drop(worker);
    ann.until(|frame| frame["payload"]["action"] == "leave").await;
    let again = ann.say("method-call", call("c1", "worker", "search")).await;
    assert_eq!((&again["duplicate"], &again["id"]), (&json!(true), &seen["id"]), "{again}");
    let _worker = {
        let mut worker = server.join("token=worker").await;
        worker.update(json!({ "methods": search() })).await;
        worker
    };
    // A caller without a connection receives the rejection as an error.
    let rights = Rights { read: true, publish: true, call: true, admin: false };
    let principal = Principal::new("bob", "bob", Role::Agent).into();
    let payload = call("c3", "worker", "dance").to_string();
    let draft = Draft {
        kind: "method-call".into(),
        payload: &payload,
        persist: true,
        client_message_id: None,
        attachments: Vec::new(),
        bytes: bytes::Bytes::new(),
    };
    let room = server.channels.existing("room").await.unwrap().unwrap();
    let refusal = room.publish(&Sender { principal, rights }, draft).await.unwrap_err();
    assert_eq!(refusal.code, "method-not-found");
}

/// Returns whether agents in the channel see the method as a tool.
fn offered(server: &Server) -> bool {
    let principal = Principal::new("agent", "agent", Role::Agent).into();
    let view = View { principal, scopes: vec![sa_core::Scope::Channel("room".into())] };
    let tools = server.router.directory().list(&view, None, 10, |tool| tool.online).tools;
    tools.iter().any(|tool| &*tool.name == "pubsub_worker_search")
}

#[tokio::test]
async fn what_was_declared_holds_across_a_reconnect() {
    let server = Server::start().await;
    let mut ann = server.join("token=ann").await;
    for (id, query) in [("anonymous", "token=worker"), ("named", "token=worker&instance=one")] {
        let mut worker = server.join(query).await;
        worker.update(json!({ "name": "Worker", "methods": search() })).await;
        drop(worker);
        ann.until(|frame| frame["payload"]["action"] == "leave").await;
        assert!(!offered(&server));

        // Before it sends its metadata, and when its metadata has no methods.
        let mut worker = server.join(query).await;
        assert!(offered(&server), "{query}");
        refused(&mut ann, call(&format!("{id} 1"), "worker", "dance"), "method-not-found").await;
        reaches(&mut ann, &mut worker, call(&format!("{id} 2"), "worker", "search")).await;
        let updated = worker.update(json!({ "name": "Worker" })).await;
        assert_eq!(
            updated["payload"]["metadata"],
            json!({ "name": "Worker", "methods": search() })
        );
        refused(&mut ann, call(&format!("{id} 3"), "worker", "dance"), "method-not-found").await;
        reaches(&mut ann, &mut worker, call(&format!("{id} 4"), "worker", "search")).await;

        // A list without methods is a declaration, too.
        worker.update(json!({ "methods": [] })).await;
        drop(worker);
        ann.until(|frame| frame["payload"]["action"] == "leave").await;
        let mut worker = server.join(query).await;
        refused(&mut ann, call(&format!("{id} 6"), "worker", "search"), "method-not-found").await;

        worker.update(json!({ "methods": [{ "name": "dance" }] })).await;
        reaches(&mut ann, &mut worker, call(&format!("{id} 5"), "worker", "dance")).await;
        assert!(!offered(&server));
        worker.send(json!({ "action": "close" })).await;
        while worker.next().await.is_some() {}
        ann.until(|frame| frame["payload"]["action"] == "leave").await;
    }
    // Another program of the participant has declared nothing, and a graceful leave ends a
    // declaration.
    let mut other = server.join("token=worker&instance=two").await;
    reaches(&mut ann, &mut other, call("c1", "worker", "sing")).await;
    drop(other);
    ann.until(|frame| frame["payload"]["action"] == "leave").await;
    let mut again = server.join("token=worker&instance=one").await;
    reaches(&mut ann, &mut again, call("c2", "worker", "sing")).await;
}

#[tokio::test]
async fn what_was_declared_holds_after_the_channel_was_closed() {
    let server = Server::start().await;
    let mut worker = server.join("token=worker").await;
    worker.update(json!({ "name": "Worker", "methods": search() })).await;
    drop(worker);
    server.close_idle("room").await;
    let _worker = server.join("token=worker").await;
    assert!(offered(&server));
}

#[tokio::test]
async fn what_was_declared_holds_across_a_restart() {
    let mut server = Server::start().await;
    for query in ["token=worker", "token=worker&instance=one"] {
        let mut worker = server.join(query).await;
        worker.update(json!({ "methods": search() })).await;
        server.restart().await;
        let mut worker = server.join(query).await;
        assert!(offered(&server), "{query}");

        // The latest declaration counts, and a graceful leave ends it.
        worker.update(json!({ "methods": [] })).await;
        server.restart().await;
        let mut ann = server.join("token=ann").await;
        let mut worker = server.join(query).await;
        refused(&mut ann, call(query, "worker", "search"), "method-not-found").await;
        worker.send(json!({ "action": "close" })).await;
        while worker.next().await.is_some() {}
        ann.until(|frame| frame["payload"]["action"] == "leave").await;
        server.restart().await;
        let mut ann = server.join("token=ann").await;
        let mut worker = server.join(query).await;
        reaches(&mut ann, &mut worker, call(&format!("{query} 2"), "worker", "search")).await;
        worker.send(json!({ "action": "close" })).await;
        while worker.next().await.is_some() {}
    }
}

#[tokio::test]
async fn a_deleted_channel_has_no_declarations() {
    let server = Server::start().await;
    let mut worker = server.join("token=worker").await;
    worker.update(json!({ "methods": search() })).await;
    drop(worker);
    server.close_idle("room").await;
    server.channels.delete("room").await.unwrap();
    let _worker = server.join("token=worker").await;
    assert!(!offered(&server));
}

#[tokio::test]
async fn a_method_with_a_bad_name_is_left_out_and_the_others_stay() {
    let server = Server::start().await;
    let mut ann = server.join("token=ann").await;
    let mut worker = server.join("token=worker").await;
    let bad = ["se arch", "s\u{435}arch", "search\u{200b}"];
    let named = |name: &str| json!({ "name": name, "parameters": { "type": "object" } });
    let methods: Vec<Value> = ["search"].iter().chain(&bad).map(|name| named(name)).collect();
    let payload = json!({ "name": "Worker", "methods": methods });
    worker.send(json!({ "action": "update-metadata", "payload": payload, "ref": 9 })).await;
    for _ in bad {
        let error = worker.next().await.unwrap();
        assert_eq!((&error["kind"], &error["code"]), (&json!("error"), &json!("validation-error")));
        assert_eq!(error.get("ref"), None, "the update itself is accepted: {error}");
    }
    let updated = worker.next().await.unwrap();
    assert_eq!((&updated["kind"], &updated["ref"]), (&json!("persisted"), &json!(9)));
    let expected = json!({ "name": "Worker", "methods": search() });
    assert_eq!(updated["payload"]["metadata"], expected, "the roster");
    assert!(offered(&server));
    for (at, name) in bad.iter().enumerate() {
        let call = call(&format!("bad {at}"), "worker", name);
        refused(&mut ann, call, "method-not-found").await;
    }
    reaches(&mut ann, &mut worker, call("good", "worker", "search")).await;
}
