//! `token`: who may use the gateway.

use std::io::IsTerminal as _;

use reqwest::Method;
use serde_json::{Value, json};

use super::Global;
use super::client::{Client, segment};
use super::lists::text;
use super::output::{self, Failure, line, when};
use super::table::{cut, table, whole};
use super::time::seconds;
use crate::redact::printable;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token. It is shown once.
    Create {
        /// Who it is for.
        name: String,
        /// operator, agent, caller, node, participant or user.
        #[arg(long, default_value = "agent")]
        role: String,
        /// Only these tools; * stands for any characters. May be repeated. Without it all, but for a participant none of the gateway's.
        #[arg(long = "tool", value_name = "PATTERN")]
        tools: Vec<String>,
        /// The only node id it may use (role node).
        #[arg(long, value_name = "ID")]
        node_id: Option<String>,
        /// Only these channels; * stands for any characters. May be repeated.
        #[arg(long = "channel", value_name = "PATTERN")]
        channels: Vec<String>,
        /// What it may do in channels: read, publish, call, admin. May be repeated; all but the last when left out.
        #[arg(long = "channel-right", value_name = "RIGHT")]
        channel_rights: Vec<String>,
        /// How long it is good for: seconds, or a number with s, m, h or d, such as 12h.
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        expires_in: Option<u64>,
    },
    /// List all tokens, without the tokens themselves.
    List,
    /// Revoke a token: its sockets close and its calls fail at once.
    Revoke {
        /// The token's id, or its name.
        id: String,
    },
}

pub(super) async fn run(global: &Global, command: TokenCommand) -> Result<(), Failure> {
    let client = Client::new(global)?;
    match command {
        TokenCommand::Create { name, role, tools, node_id, channels, channel_rights, expires_in } => {
            let mut body = json!({ "name": name, "role": role });
            if !tools.is_empty() {
                body["tools"] = json!(tools);
            }
            for (key, words) in [("channels", channels), ("channel_rights", channel_rights)] {
                if !words.is_empty() {
                    body[key] = json!(words);
                }
            }
            if let Some(id) = node_id {
                body["node_id"] = json!(id);
            }
            if let Some(seconds) = expires_in {
                body["expires_in_s"] = json!(seconds);
            }
            let response = client.send(client.request(Method::POST, "/v1/tokens").json(&body)).await?;
            let raw = response.text().await.unwrap_or_default();
            if global.json {
                return output::json(&raw);
            }
            let token: Value = serde_json::from_str(&raw).unwrap_or_default();
            if let Some(notice) = token["notice"].as_str() {
                eprintln!("note: {}", printable(notice));
            }
            // Where it goes into a variable or a file, nothing is shown.
            if std::io::stdout().is_terminal() {
                eprintln!("This is the only time that it is shown:");
            }
            line(text(&token["token"]))
        }
        TokenCommand::List => {
            let (list, raw): (Value, _) = client.get("/v1/tokens").await?;
            if global.json {
                return output::json(&raw);
            }
            let tokens = list["tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
            let rows: Vec<Vec<String>> = tokens
                .iter()
                .map(|token| {
                    let state = match (&token["revoked_ms"], &token["expires_ms"]) {
                        (Value::Number(at), _) => format!("revoked {}", when(at.as_i64().unwrap_or(0))),
                        (_, Value::Number(at)) => format!("until {}", when(at.as_i64().unwrap_or(0))),
                        _ => "valid".to_owned(),
                    };
                    let name = |key: &str| text(&token[key]).to_owned();
                    vec![name("name"), name("role"), state, name("id")]
                })
                .collect();
            table(&[cut("NAME"), whole("ROLE"), whole("STATE"), whole("ID")], &rows)
        }
        TokenCommand::Revoke { id } => {
            let response = client.send(client.request(Method::DELETE, &format!("/v1/tokens/{}", segment(&id)))).await?;
            let raw = response.text().await.unwrap_or_default();
            if global.json { output::json(&raw) } else { line(&format!("revoked {id}")) }
        }
    }
}
