//! Rule: the roster of a participant contains the gateway's tools that its token includes.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sa_core::call::Updates;
use sa_core::directory::{Attach, Registration};
use sa_core::{Call, Catalog, Grant, Outcome, Provider, ProviderId, RawJson, Schema, Scope, Tool};
use serde_json::{Value, json};

use crate::kit::Server;

/// Answers every call with its arguments.
struct Echo;

impl Provider for Echo {
    fn call(&self, call: Arc<Call>, _: Updates) -> BoxFuture<'static, Outcome> {
        async move { Ok(sa_http::blocks::output(call.args.clone(), Vec::new())) }.boxed()
    }
}

fn catalog(names: &[&str]) -> Catalog {
    let tool = |name: &&str| Tool {
        description: Some(format!("About {name}")),
        input: Some(Schema::new(RawJson::parse(r#"{"type":"object","title":"T"}"#).unwrap())),
        timeout: Some(std::time::Duration::from_secs(5)),
        ..Tool::named(name)
    };
    Catalog { tools: names.iter().map(tool).collect(), ..Catalog::default() }
}

pub(crate) fn attach(server: &Server, names: &[&str]) -> Registration {
    let attach = Attach {
        id: ProviderId::new("node", "laptop"),
        scope: Scope::Everyone,
        grant: Grant::none(),
        provider: Arc::new(Echo),
        catalog: catalog(names),
        max_running: 10,
        about: RawJson::empty_object(),
        may_take_over: false,
    };
    server.router.directory().attach(attach).unwrap()
}

pub(crate) fn names(metadata: &Value) -> Vec<&str> {
    metadata["methods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|method| method["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn the_tools_are_methods_of_a_member_and_follow_changes() {
    let server = Server::start().await;
    let node = attach(&server, &["demo_echo", "secret"]);
    let mut ann = server.connect("token=ann&tools=demo*").await;
    let entry = ann.next().await.unwrap();
    assert_eq!(
        (&entry["kind"], &entry["senderId"]),
        (&json!("replay"), &json!("switchboard")),
        "{entry}"
    );
    let metadata = &entry["payload"]["metadata"];
    assert_eq!((&metadata["name"], &metadata["type"]), (&json!("Switchboard"), &json!("gateway")));
    let method = json!({ "name": "demo_echo", "description": "About demo_echo", "parameters": { "type": "object", "title": "T" },
        "streaming": true, "timeout": 5000 });
    assert_eq!(metadata["methods"], json!([method]), "and not what the token does not include");
    ann.here().await;

    let mut bob = server.connect("token=bob&tools=demo*&roster=snapshot&sinceId=0").await;
    let ready = bob.until(|frame| frame["kind"] == "ready").await;
    assert_eq!(names(&ready["roster"]["switchboard"]["metadata"]), ["demo_echo"]);

    let mut eve = server.connect("token=eve").await;
    loop {
        let frame = eve.next().await.unwrap();
        assert_ne!(frame["senderId"], "switchboard", "its token includes no tools");
        if frame["kind"] == "ready" {
            break;
        }
    }

    node.publish(catalog(&["demo_echo", "demo_more", "secret"]));
    for participant in [&mut ann, &mut bob] {
        let update = participant.until(|frame| frame["senderId"] == "switchboard").await;
        assert_eq!((&update["payload"]["action"], &update["id"]), (&json!("update"), &Value::Null));
        assert_eq!(names(&update["payload"]["metadata"]), ["demo_echo", "demo_more"]);
    }
    // A hidden change sends no update; the next visible one is sent alone.
    node.publish(catalog(&["demo_echo", "demo_more", "secret", "other"]));
    node.withdraw();
    let update = ann.until(|frame| frame["senderId"] == "switchboard").await;
    assert_eq!(update["payload"]["metadata"]["methods"], json!([]));
}

#[tokio::test]
async fn a_listed_tool_can_be_called() {
    let server = Server::start().await;
    let _node = attach(&server, &["demo_echo"]);
    let mut ann = server.join("token=ann&tools=demo*").await;
    let call = json!({ "callId": "c1", "methodName": "demo_echo", "providerId": "switchboard", "args": { "a": 1 } });
    ann.say("method-call", call).await;
    let result = ann.message("method-result").await;
    assert_eq!(
        (&result["senderId"], &result["payload"]["content"]),
        (&json!("switchboard"), &json!({ "a": 1 }))
    );
}

/// A list that is too long for one frame is cut, and contains the number of omitted tools.
#[tokio::test]
async fn a_long_list_is_cut() {
    let server = Server::start().await;
    let names: Vec<String> =
        (0..4_000).map(|n| format!("demo_{n:04}_{}", "x".repeat(40))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let _node = attach(&server, &names);
    let mut ann = server.connect("token=ann&tools=demo*").await;
    let entry = ann.next().await.unwrap();
    let metadata = &entry["payload"]["metadata"];
    let (listed, omitted) = (
        metadata["methods"].as_array().unwrap().len(),
        metadata["methodsOmitted"].as_u64().unwrap() as usize,
    );
    assert!(listed > 1_000 && listed + omitted == 4_000, "{listed} {omitted}");
    ann.here().await;
}
