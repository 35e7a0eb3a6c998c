//! Chats in which the model calls one tool: two requests to the model's server and a call to a node, beside what the server
//! alone takes for the two requests.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Bench, median, ratio};
use crate::child::Child;
use crate::gateway::Gateway;
use crate::helper::TOOL;
use crate::load::http::Target;
use crate::load::{ARGS, Latencies, Target as Load};
use crate::report::{Report, Row};

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let mut model = Child::helper(&["model"], &bench.dir.join("model.log"))?;
    let server: SocketAddr = model.line("ready ").await?.parse()?;
    let config = bench.dir.join("chat.toml");
    std::fs::write(
        &config,
        format!("[sessions]\nenabled = false\n[models.bench]\nbase_url = \"http://{server}/v1\"\n"),
    )?;
    let gateway = Gateway::configured(&bench.args.switchboard, &bench.dir.join("chat"), Some(&config)).await?;
    let _node = Child::helper(&["node", &gateway.address.to_string()], &bench.dir.join("chat-node.log"))?;
    let tool = gateway.wait_for_tool(TOOL).await?;

    let ask = json!({ "role": "user", "content": "What does the tool say?" });
    let call = json!({ "id": "call_1", "type": "function", "function": { "name": tool, "arguments": ARGS } });
    let second = json!([ask, { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "call_1", "content": ARGS }]);
    let routed = target(gateway.address, &gateway.token, json!([ask]), None);
    // The second request is the longer one: it stands for both.
    let tools: Value = crate::load::http::get(gateway.address, "/v1/functions", &gateway.token).await?;
    let direct = target(server, "", second, Some(tools["tools"].clone()));
    let (rounds, length) = bench.rounds();
    for in_flight in [1, 32] {
        for target in [&routed, &direct] {
            target.load(in_flight, length / 4).await?;
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let (mut our_times, mut their_times) = (Latencies::new(), Latencies::new());
        let mut cpu = Duration::ZERO;
        for _ in 0..rounds {
            let before = gateway.cpu_time()?;
            let sample = routed.load(in_flight, length).await?;
            cpu += gateway.cpu_time()?.saturating_sub(before);
            ours.push(sample.rate());
            our_times.add(&sample.latencies);
            let sample = direct.load(in_flight, length).await?;
            theirs.push(sample.rate() / 2.0);
            their_times.add(&sample.latencies);
        }
        let cpu_us = cpu.as_secs_f64() * 1e6 / our_times.count() as f64;
        let row = Row::new(format!("chat with one tool call, {in_flight} in flight"), median(ours.clone()), "/s");
        report.row(row.latencies(&our_times).cpu_us(cpu_us).beside("its model's server alone", ratio(&ours, &theirs)));
        if in_flight == 1 {
            let alone = their_times.at(0.5).as_secs_f64() * 2.0;
            let added = (our_times.at(0.5).as_secs_f64() - alone) * 1e6;
            report.row(Row::new("what the gateway and the call add to such a chat", added, "µs"));
        }
    }
    gateway.stop().await
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
