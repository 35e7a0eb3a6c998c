//! The command line and the machine node describe each machine, without values of its environment.

use sa_gateway_kit::{Gateway, Hello, Setup, eventually};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

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

#[tokio::test]
async fn nodes_tell_what_they_are_and_no_value_of_their_environment() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let machine = json!({ "role": "execution", "os": "Linux", "env": ["PATH", "HOME=/root", "TOKEN=hunter2", "bad key"], "cpu": 8 });
    let _laptop = Hello::new("laptop")
        .describe(json!({ "name": "Bash", "capabilities": ["shell.exec"] }))
        .describe(json!({ "name": "Read", "capabilities": ["filesystem.read"] }))
        .describe(json!({ "name": "Process", "capabilities": ["shell.exec"] }))
        .with("host", machine)
        .connect(&gateway)
        .await;
    let _plain = Hello::new("plain").tool("a.b").connect(&gateway).await;
    let laptop = node(&gateway, "laptop").await;
    assert_eq!((&laptop["role"], &laptop["primary"]), (&json!("execution"), &json!(true)));
    assert_eq!(
        (&laptop["hostOs"], &laptop["hostEnv"]),
        (&json!("linux"), &json!(["HOME", "PATH", "TOKEN"]))
    );
    assert_eq!(laptop["host_capabilities"], json!(["filesystem.read", "shell.exec"]));
    assert_eq!(laptop["about"]["host"]["cpu"], 8);
    assert!(
        !laptop.to_string().contains("hunter2") && !laptop.to_string().contains("/root"),
        "{laptop}"
    );
    let plain = node(&gateway, "plain").await;
    assert_eq!((plain.get("role"), &plain["primary"]), (None, &json!(false)));
    let shown = gateway.cli(&["nodes"]).run().await.stdout;
    assert!(shown.contains("execution (primary)") && shown.contains("linux"), "{shown}");
    gateway.stop().await;
}

#[tokio::test]
async fn the_machine_node_says_all_of_this_itself() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let url = gateway.nodes_url();
    let args = [
        "node",
        "--gateway",
        &url,
        "--id",
        "box",
        "--name",
        "The box",
        "--tag",
        "rack",
        "--role",
        "specialized",
    ];
    let machine = gateway.cli(&args).env("SA_NODE_TOKEN", "hunter2-secret").start();
    let shown = eventually("the machine", || async {
        Some(node(&gateway, "box").await).filter(|n| n["online"] == true)
    })
    .await;
    assert_eq!((&shown["role"], &shown["hostOs"]), (&json!("specialized"), &json!("linux")));
    assert_eq!(
        (&shown["about"]["name"], &shown["about"]["tags"]),
        (&json!("The box"), &json!(["rack"]))
    );
    let keys = shown["hostEnv"].as_array().unwrap();
    assert!(keys.contains(&json!("PATH")) && keys.contains(&json!("SA_NODE_TOKEN")), "{keys:?}");
    assert!(!shown.to_string().contains("hunter2-secret"));
    let probed = gateway
        .operator()
        .post("/v1/nodes/box/probe", &json!({ "bins": ["sh", "no-such-program"] }))
        .await;
    assert_eq!(
        probed.body["hostBinStatus"],
        json!({ "no-such-program": false, "sh": true }),
        "{}",
        probed.text
    );
    machine.signal(rustix::process::Signal::TERM);
    machine.end().await;
    gateway.stop().await;
}
