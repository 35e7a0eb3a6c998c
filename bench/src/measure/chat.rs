//! Measures chats in which the model calls one tool: two requests to the model server and a call to
//! a node. The reference is the server's own time for the two requests.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::Bench;
use crate::child::Child;
use crate::gateway::Gateway;
use crate::helper::TOOL;
use crate::load::http::Target;
use crate::load::{ARGS, Target as Load};
use crate::report::{Report, Row};

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let mut model = Child::helper(&["model"], &bench.dir.join("model.log"))?;
    let server: SocketAddr = model.line("ready ").await?.parse()?;
    let config = bench.dir.join("chat.toml");
    std::fs::write(
        &config,
        format!("[sessions]\nenabled = false\n[models.bench]\nbase_url = \"http://{server}/v1\"\n"),
    )?;
    let gateway =
        Gateway::configured(&bench.args.switchboard, &bench.dir.join("chat"), Some(&config))
            .await?;
    let _node =
        Child::helper(&["node", &gateway.address.to_string()], &bench.dir.join("chat-node.log"))?;
    let tool = gateway.wait_for_tool(TOOL).await?;

    let ask = first_message();
    let call = json!({ "id": "call_1", "type": "function", "function": { "name": tool, "arguments": ARGS } });
    let second = json!([ask, { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "call_1", "content": ARGS }]);
    let routed = question(gateway.address, &gateway.token);
    // The second request is the longer one; it is used for both.
    let tools: Value =
        crate::load::http::get(gateway.address, "/v1/functions", &gateway.token).await?;
    let direct = target(server, "", second, Some(tools["tools"].clone()));
    for in_flight in [1, 32] {
        let compared = bench.compare(&gateway, in_flight, &routed, Some(&direct)).await?;
        let row = compared.ours(format!("chat with one tool call, {in_flight} in flight"));
        // A chat makes two requests to the server.
        report.row(row.beside("its model's server alone", compared.ratio() * 2.0));
        if in_flight == 1 {
            let alone = compared.their_times.at(0.5).as_secs_f64() * 2.0;
            let added = (compared.our_times.at(0.5).as_secs_f64() - alone) * 1e6;
            report.row(Row::new("what the gateway and the call add to such a chat", added, "µs"));
        }
    }
    gateway.stop().await
}

fn first_message() -> Value {
    json!({ "role": "user", "content": "What does the tool say?" })
}

/// Builds a chat request in which the model calls the node's tool once.
pub(super) fn question(server: SocketAddr, token: &str) -> Load {
    target(server, token, json!([first_message()]), None)
}

fn target(server: SocketAddr, token: &str, messages: Value, tools: Option<Value>) -> Load {
    let mut body = json!({ "model": "bench", "messages": messages });
    if let Some(tools) = tools {
        body["tools"] = tools;
    }
    Load::Http(Target {
        server,
        path: "/v1/chat/completions".into(),
        token: token.to_owned(),
        body: body.to_string().into(),
        headers: Vec::new(),
    })
}
