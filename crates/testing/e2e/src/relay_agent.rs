//! An agent for tests. It receives commands as messages and runs them through `switchboard relay`,
//! like any MCP client.

use std::process::Stdio;
use std::sync::Arc;

use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest};
use rmcp::service::{NotificationContext, PeerRequestOptions};
use rmcp::{ClientHandler, RoleClient, ServiceExt as _};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::Notify;

#[derive(Clone, Default)]
struct Client(Arc<Notify>);

impl ClientHandler for Client {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.notify_one();
    }
}

type Service = rmcp::service::RunningService<RoleClient, Client>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let variable =
        |name: &str| std::env::var(name).map_err(|_| anyhow::anyhow!("{name} is not set"));
    let mut relay = Command::new(variable("SWITCHBOARD_PROGRAM")?);
    relay
        .args(["relay", &variable("SWITCHBOARD_RELAY_SOCKET")?])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut relay = relay.spawn()?;
    let pipes =
        relay.stdout.take().zip(relay.stdin.take()).ok_or_else(|| anyhow::anyhow!("no pipes"))?;
    let changed = Client::default();
    let service = Arc::new(changed.clone().serve(pipes).await?);
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let message: Value = serde_json::from_str(&line)?;
        let order = message["message"].as_str().unwrap_or_default();
        let words: Vec<&str> = order.splitn(3, ' ').collect();
        match *words.as_slice() {
            ["list"] => println!("tools {}", names(&service).await?),
            ["follow"] => {
                changed.0.notified().await;
                println!("tools {}", names(&service).await?);
            }
            ["call", tool, args] => {
                println!("{}", call(&service, tool.to_owned(), serde_json::from_str(args)?).await);
            }
            ["all", tool, count] => {
                let calls = (0..count.parse::<u64>()?)
                    .map(|n| call(&service, tool.to_owned(), serde_json::json!({ "n": n })));
                println!("{}", futures_util::future::join_all(calls).await.join(","));
            }
            // Starts a call and cancels it at the next line.
            ["change_your_mind", tool] => {
                let request = CallToolRequest::new(CallToolRequestParams::new(tool.to_owned()));
                let options = PeerRequestOptions::no_options();
                let call = service
                    .send_cancellable_request(ClientRequest::CallToolRequest(request), options)
                    .await?;
                lines.next_line().await?;
                call.cancel(Some("never mind".into())).await?;
                println!("cancelled");
            }
            ["exists", path] => println!("{path} {}", std::path::Path::new(path).exists()),
            ["stray"] => {
                // Starts a process that leaves its process group and its parent.
                let stray = std::process::Command::new("setsid").args(["sleep", "1000"]).spawn()?;
                println!("stray {}", stray.id());
            }
            ["exit"] => return Ok(()),
            _ => println!("what is {order}?"),
        }
    }
    Ok(())
}

async fn names(service: &Service) -> anyhow::Result<String> {
    let tools = service.list_all_tools().await?;
    Ok(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>().join(" "))
}

async fn call(service: &Service, tool: String, args: Value) -> String {
    let mut request = CallToolRequestParams::new(tool);
    request.arguments = args.as_object().cloned();
    match service.call_tool(request).await {
        Ok(result) => {
            let result = serde_json::to_value(&result).unwrap_or_default();
            let failed = if result["isError"] == true { "error" } else { "ok" };
            format!("{failed} {}", result["content"][0]["text"].as_str().unwrap_or_default())
        }
        Err(error) => format!("refused {error}"),
    }
}
