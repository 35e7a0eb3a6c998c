//! The answer lists the hosts that meet all requirements, and what the others lack. Programs
//! without a recent answer are probed on all hosts at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sa_node_sdk::{NodeTool, ToolContext, ToolRegistry, ToolResult};
use sa_testkit::{Gateway, Hello, SdkNode, Setup};
use serde_json::{Value, json};

struct Bash;

#[async_trait::async_trait]
impl NodeTool for Bash {
    async fn call(&self, _: ToolContext, args: Value) -> ToolResult {
        Ok(args)
    }

    fn capabilities(&self) -> Vec<String> {
        vec!["shell.exec".into()]
    }
}

/// Starts a host that has `git` and counts the probes for programs.
async fn laptop(gateway: &Gateway) -> (SdkNode, Arc<AtomicUsize>) {
    let mut tools = ToolRegistry::new();
    tools.register_host_tool("Bash", Bash).derive_capabilities_from_tools();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let node = SdkNode::start(gateway, "laptop", tools, move |builder| {
        builder
            .host(json!({ "role": "execution", "os": "darwin", "env": ["HOME", "LANG"] }))
            .bin_probe(move |bin| {
                count.fetch_add(1, Ordering::SeqCst);
                bin == "git"
            })
    })
    .await;
    (node, asked)
}

fn server() -> Hello {
    let tool = |name: &str, capability: &str| json!({ "name": name, "capabilities": [capability] });
    Hello::new("server")
        .describe(tool("Bash", "shell.exec"))
        .describe(tool("Read", "filesystem.read"))
        .with("host", json!({ "role": "specialized", "os": "linux", "env": ["HOME"] }))
}

async fn ask(gateway: &Gateway, body: Value) -> Value {
    let reply = gateway.operator().post("/v1/eligibility", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.body
}

fn of<'a>(answer: &'a Value, node: &str) -> &'a Value {
    answer["hosts"].as_array().unwrap().iter().find(|host| host["node"] == node).unwrap()
}

#[tokio::test]
async fn hosts_qualify_or_it_is_said_what_they_lack() {
    let gateway = Setup::new().start().await;
    let _server = server().connect(&gateway).await;
    let (_laptop, _) = laptop(&gateway).await;
    let _tools_only = Hello::new("no-host").tool("a.b").connect(&gateway).await;

    let answer = ask(&gateway, json!({ "capabilities": ["shell.exec"] })).await;
    let both =
        json!([{ "node": "laptop", "primary": true }, { "node": "server", "primary": false }]);
    assert_eq!(answer["eligible"], both);
    assert_eq!(
        answer["hosts"].as_array().unwrap().len(),
        2,
        "a node that is no host is no host: {answer}"
    );

    let body = json!({ "capabilities": ["shell.exec", "filesystem.read"], "env": ["HOME", "LANG"], "os": ["linux", "windows"] });
    let answer = ask(&gateway, body).await;
    assert_eq!(answer["eligible"], json!([]));
    let missing = json!({ "capabilities": ["filesystem.read"], "bins": [], "any_bins": [], "env": [], "os": ["linux", "windows"] });
    assert_eq!(of(&answer, "laptop")["missing"], missing);
    assert_eq!(of(&answer, "server")["missing"]["env"], json!(["LANG"]));
    assert_eq!(
        (&of(&answer, "server")["role"], &of(&answer, "server")["online"]),
        (&json!("specialized"), &json!(true))
    );

    assert_eq!(ask(&gateway, json!({ "os": ["macos"] })).await["eligible"][0]["node"], "laptop");
    assert_eq!(ask(&gateway, json!({})).await["eligible"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn programs_are_asked_for_once_and_then_known() {
    let gateway = Setup::new().start().await;
    let (laptop, asked) = laptop(&gateway).await;
    // A host without probe support is reported as such, and the answer does not wait for it.
    let _server = server().connect(&gateway).await;
    let answer = ask(&gateway, json!({ "bins": ["git", "docker"] })).await;
    assert_eq!(of(&answer, "laptop")["missing"]["bins"], json!(["docker"]));
    assert_eq!(of(&answer, "server")["missing"]["bins"], json!(["git", "docker"]));
    assert!(of(&answer, "server")["problem"].as_str().unwrap().contains("bin_probe"), "{answer}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    let answer = ask(&gateway, json!({ "bins": ["git"], "any_bins": ["podman", "git"] })).await;
    assert_eq!(answer["eligible"], json!([{ "node": "laptop", "primary": true }]));
    assert_eq!(asked.load(Ordering::SeqCst), 3, "only of what was not known");
    let answer = ask(&gateway, json!({ "any_bins": ["podman", "docker"] })).await;
    assert_eq!(of(&answer, "laptop")["missing"]["any_bins"], json!(["podman", "docker"]));
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    laptop.stop().await;
    let answer = ask(&gateway, json!({ "capabilities": ["shell.exec"] })).await;
    let gone = of(&answer, "laptop");
    assert_eq!((&gone["eligible"], &gone["online"]), (&json!(false), &json!(false)), "{gone}");
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_not_waited_for_longer_than_any() {
    let gateway = Setup::new().start().await;
    let silent = |id: &str| Hello::new(id).tool("Bash").with("features", json!(["bin_probe"]));
    let (mut one, mut two) =
        (silent("one").connect(&gateway).await, silent("two").connect(&gateway).await);
    let (_laptop, _) = laptop(&gateway).await;
    let operator = gateway.operator();
    let answer = tokio::spawn(async move {
        operator.post("/v1/eligibility", &json!({ "bins": ["git"] })).await.body
    });
    // Both hosts are probed before either has answered.
    assert_eq!(one.recv().await["type"], "bin_probe");
    assert_eq!(two.recv().await["type"], "bin_probe");
    let answer = answer.await.unwrap();
    assert_eq!(answer["eligible"], json!([{ "node": "laptop", "primary": false }]));
    for host in ["one", "two"] {
        assert_eq!(of(&answer, host)["eligible"], false);
        assert!(of(&answer, host)["problem"].as_str().unwrap().contains("within"), "{answer}");
    }
}

#[tokio::test]
async fn agents_may_ask_about_the_hosts_whose_tools_they_may_use() {
    let gateway = Setup::new().start().await;
    let _server = server().connect(&gateway).await;
    let (_laptop, _) = laptop(&gateway).await;
    let body = json!({ "capabilities": ["filesystem.read"] });
    let hosts = |reply: sa_testkit::Reply| reply.body["hosts"].as_array().map_or(0, Vec::len);
    assert_eq!(hosts(gateway.new_agent("any").await.post("/v1/eligibility", &body).await), 2);
    let (_, token) =
        gateway.token(json!({ "name": "some", "role": "agent", "tools": ["server__Bash"] })).await;
    let reply = gateway.agent(&token).post("/v1/eligibility", &body).await;
    assert_eq!(
        reply.body["eligible"],
        json!([]),
        "what it may not use is not there: {}",
        reply.text
    );
    assert_eq!(hosts(reply), 1);
    let (_, token) = gateway.token(json!({ "name": "n", "role": "node" })).await;
    gateway.agent(&token).post("/v1/eligibility", &body).await.assert_problem(403, "not_allowed");
}

#[tokio::test]
async fn a_question_that_makes_no_sense_is_refused() {
    let gateway = Setup::new().start().await;
    let operator = gateway.operator();
    for body in [
        json!({ "bin": ["git"] }),
        json!({ "bins": [1] }),
        json!({ "bins": ["a/b"] }),
        json!({ "any_bins": [""] }),
        json!({ "env": ["a\u{0}"] }),
        json!({ "os": ["x".repeat(200)] }),
        json!({ "capabilities": vec!["x"; 65] }),
        json!({ "os": { "linux": true } }),
        json!(["shell.exec"]),
    ] {
        let refused = operator.post("/v1/eligibility", &body).await;
        refused.assert_problem(400, "bad_request");
    }
}
