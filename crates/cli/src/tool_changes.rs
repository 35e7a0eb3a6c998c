//! The `tool-changes` command: lists changed tool definitions and accepts changes.

use reqwest::Method;
use serde_json::{Value, json};

use super::Global;
use super::client::Client;
use super::lists::text;
use super::output::{Failure, json, line, when};
use super::plugin::differences;
use sa_text::printable;

#[derive(Debug, clap::Args)]
pub(crate) struct ToolChangesArgs {
    #[command(subcommand)]
    command: Option<ToolChangesCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum ToolChangesCommand {
    /// Accept the changed definition of a tool.
    Accept {
        /// Listed name of the tool, or its provider's name for it.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        tool: Option<String>,
        /// Accept all changes.
        #[arg(long)]
        all: bool,
    },
}

pub(super) async fn run(global: &Global, args: ToolChangesArgs) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let (list, raw): (Value, _) = client.get("/v1/tool-changes").await?;
    let changes = list["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(ToolChangesCommand::Accept { tool, .. }) = args.command else {
        if global.json {
            return json(&raw);
        }
        return show_all(changes);
    };
    let matches = |change: &&Value| {
        tool.as_deref().is_none_or(|tool| change["name"] == tool || change["tool"] == tool)
    };
    let chosen: Vec<&Value> = changes.iter().filter(matches).collect();
    if let (Some(tool), true) = (&tool, chosen.is_empty()) {
        return Err(Failure::of_kind(
            "not_found",
            format!("the tool \"{}\" has no change", printable(tool)),
        )
        .hint("run `switchboard tool-changes` to list all changes"));
    }
    for change in chosen {
        if !global.json {
            show(change)?;
        }
        // Accept exactly the revision that was shown, not a later one.
        let seen = json!({ "provider": change["provider"], "tool": change["tool"], "revision": change["revision"] });
        client.send(client.request(Method::POST, "/v1/tool-changes/accept").json(&seen)).await?;
        if !global.json {
            line("  accepted")?;
        }
    }
    Ok(())
}

fn show_all(changes: &[Value]) -> Result<(), Failure> {
    if changes.is_empty() {
        return line("No tool has changed since it was accepted.");
    }
    changes.iter().try_for_each(show)?;
    line("")?;
    line(
        "Run `switchboard tool-changes accept TOOL` to accept one, or `switchboard tool-changes accept --all`.",
    )
}

fn show(change: &Value) -> Result<(), Failure> {
    let provider = &change["provider"];
    let name = change["name"].as_str().unwrap_or_else(|| text(&change["tool"]));
    let at = when(change["at_ms"].as_i64().unwrap_or(0));
    let held = if change["held"] == true { "  HELD: calls fail until it is accepted" } else { "" };
    let (kind, id) = (text(&provider["kind"]), text(&provider["id"]));
    line(&printable(&format!("{name}  ({kind} \"{id}\", changed {at}){held}")))?;
    differences(&change["differences"])?;
    match change["invisible_characters"].as_u64() {
        Some(removed) if removed > 0 => {
            line(&format!("  {removed} invisible characters were removed from its texts"))
        }
        _ => Ok(()),
    }
}
