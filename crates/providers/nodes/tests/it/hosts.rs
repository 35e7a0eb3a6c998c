//! A tool name without a prefix runs on the operator's preferred machine, else on the longest
//! connected execution host, and never on a specialized one. `GET /v1/nodes` describes each
//! machine.

use sa_testkit::{FakeNode, Gateway, Hello, Setup, eventually};
use serde_json::{Value, json};

fn host(id: &str, role: Value) -> Hello {
    let bash = json!({ "name": "Bash", "capabilities": ["shell.exec"] });
    Hello::new(id).describe(bash).with("host", json!({ "role": role }))
}

async fn node(gateway: &Gateway, id: &str) -> Value {
    let nodes = gateway.operator().get("/v1/nodes").await.body;
    nodes["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|node| node["id"] == id)
        .cloned()
        .unwrap_or_default()
}

async fn primary(gateway: &Gateway) -> Vec<String> {
    let nodes = gateway.operator().get("/v1/nodes").await.body;
    let primary = nodes["nodes"].as_array().unwrap().iter().filter(|node| node["primary"] == true);
    primary.map(|node| node["id"].as_str().unwrap().to_owned()).collect()
}

async fn leave(gateway: &Gateway, id: &str, connection: FakeNode) {
    drop(connection);
    eventually("it gone", || async { (node(gateway, id).await["online"] == false).then_some(()) })
        .await;
}

/// Checks that `Bash` without a prefix reaches this node.
async fn runs_bash(gateway: &Gateway, node: &mut FakeNode) {
    let call = gateway.operator().call_later("Bash", json!({ "args": {} }));
    let request = node.request().await;
    assert_eq!(request.tool, "Bash");
    node.answer(&request.id, json!("done")).await;
    assert_eq!(call.await.unwrap().result(), "done");
}

#[tokio::test]
async fn bare_names_run_on_the_oldest_execution_host_and_then_on_the_next() {
    let gateway = Setup::new().env("SA_NODE_TOKENS", "special:t0,one:t1,two:t2").start().await;
    let _special = host("special", json!("specialized")).token("t0").connect(&gateway).await;
    let mut one = host("one", json!("execution")).token("t1").connect(&gateway).await;
    let mut two = host("two", json!("execution")).token("t2").connect(&gateway).await;
    assert_eq!(primary(&gateway).await, ["one"]);
    runs_bash(&gateway, &mut one).await;
    assert!(node(&gateway, "two").await.get("blocked").is_none(), "every host has its own Bash");
    leave(&gateway, "one", one).await;
    assert_eq!(primary(&gateway).await, ["two"]);
    runs_bash(&gateway, &mut two).await;
    // A reconnected host keeps its age.
    let mut one = host("one", json!("execution")).token("t1").connect(&gateway).await;
    assert_eq!(primary(&gateway).await, ["one"]);
    runs_bash(&gateway, &mut one).await;
    let names = gateway.operator().tool_names().await;
    assert_eq!(names, ["one__Bash", "special__Bash", "two__Bash"]);
}

#[tokio::test]
async fn the_operators_choice_goes_first_while_it_is_here() {
    let gateway = Setup::new().config("[nodes]\nprimary = \"two\"").start().await;
    let mut one = host("one", json!(null)).connect(&gateway).await;
    runs_bash(&gateway, &mut one).await;
    let mut two = host("two", json!(null)).connect(&gateway).await;
    assert_eq!(primary(&gateway).await, ["two"]);
    runs_bash(&gateway, &mut two).await;
    leave(&gateway, "two", two).await;
    runs_bash(&gateway, &mut one).await;
    // A preferred host is ignored if it does not run tools without a prefix.
    let _two = host("two", json!("specialized")).connect(&gateway).await;
    assert_eq!(primary(&gateway).await, ["one"]);
    runs_bash(&gateway, &mut one).await;
}

#[tokio::test]
async fn a_specialized_host_is_called_by_its_full_name_alone() {
    let gateway = Setup::new().start().await;
    // As in the SDK: each tool by its name, and with the host's prefix.
    let mut special = host("gpu", json!("specialized")).capability("Bash").connect(&gateway).await;
    assert!(primary(&gateway).await.is_empty());
    let refused = gateway.operator().call("Bash", json!({})).await;
    refused.assert_problem(404, "not_found");
    assert!(refused.body["hint"].as_str().unwrap().contains("gpu__Bash"), "{}", refused.text);
    let call = gateway.operator().call_later("gpu__Bash", json!({}));
    let request = special.request().await;
    special.answer(&request.id, json!(1)).await;
    assert_eq!(call.await.unwrap().result(), 1);
}

#[tokio::test]
async fn a_bare_name_without_a_host_says_what_is_missing() {
    let gateway = Setup::new().start().await;
    let _dotted = Hello::new("n").tool("a.b").connect(&gateway).await;
    let refused = gateway.operator().call("Bash", json!({})).await;
    refused.assert_problem(404, "not_found");
    let hint = refused.body["hint"].as_str().unwrap();
    assert!(hint.contains("host") && hint.contains("switchboard node"), "{hint}");
    // Hosts have no tool names with a dot.
    let refused = gateway.operator().call("x.y", json!({})).await;
    assert!(
        !refused.body["hint"].as_str().unwrap().contains("switchboard node"),
        "{}",
        refused.text
    );
    let one = host("one", json!(null)).connect(&gateway).await;
    leave(&gateway, "one", one).await;
    let body = json!({ "timeout_ms": 50 });
    let refused = gateway.operator().call_with("Bash", body).await;
    assert!([503, 504].contains(&refused.status), "{}", refused.text);
}
