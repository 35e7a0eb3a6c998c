//! The `token` command: manages access tokens.

use std::io::IsTerminal as _;

use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Client, segment};
use super::lists::{Names, Place, all_tools, text};
use super::output::{self, Failure, clock, line};
use super::table::{
    Column, begun, cut, facts, name, shortened, spared, table, terminal_width, whole, wrapped,
};
use super::time::seconds;
use super::{Global, completion};
use sa_core::policy::Pattern;
use sa_gateway::tokens::MAX_LIFE_S;
use sa_text::printable;

/// The minimum terminal width for a token list with all columns.
const WIDE: usize = 120;
/// The maximum width of the grants in the token list. `token show` prints all of them.
const MAX_GRANTS: usize = 48;
const NAMES: Names = Names { path: "/v1/tokens", list: "tokens", key: "name" };

#[derive(Debug, clap::Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token. It is printed only once.
    Create {
        /// Name of the token.
        name: String,
        /// Role: operator, agent, caller, node, participant, user, or monitor (can only read
        /// /metrics).
        #[arg(long, default_value = "agent")]
        role: String,
        /// Restrict the token to these tools; channels and models must then be granted explicitly.
        /// * matches any characters; can be repeated.
        #[arg(long = "tool", value_name = "PATTERN")]
        tools: Vec<String>,
        /// Restrict the token to this node id (role node).
        #[arg(long, value_name = "ID")]
        node_id: Option<String>,
        /// Restrict the token to these channels; tools and models must then be granted explicitly.
        /// * matches any characters; can be repeated.
        #[arg(long = "channel", value_name = "PATTERN")]
        channels: Vec<String>,
        /// Restrict the token to these models; tools and channels must then be granted explicitly.
        /// * matches any characters; can be repeated.
        #[arg(long = "model", value_name = "PATTERN")]
        models: Vec<String>,
        /// Right in channels: read, publish, call or admin; can be repeated. Defaults to all except
        /// admin.
        #[arg(long = "channel-right", value_name = "RIGHT")]
        channel_rights: Vec<String>,
        /// Lifetime: seconds, or a number with s, m, h or d, such as 12h.
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
        expires_in: Option<u64>,
    },
    /// List all tokens, without their secret values.
    #[command(visible_alias = "ls")]
    List,
    /// Show all properties of a token, without its secret value.
    Show {
        /// Id, unique id prefix, or name of the token.
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Revoke a token. Its connections close and its calls fail immediately.
    Revoke {
        /// Id, unique id prefix, or name of the token.
        #[arg(add = completion::names(&NAMES))]
        id: String,
        /// Revoke the token even if it is the last operator token.
        #[arg(long)]
        yes: bool,
    },
}

/// The columns of the token list. The grants are never dropped, because a restricted token would
/// look unrestricted.
pub(super) const TOKENS: [Column; 6] = [
    name("NAME"),
    whole("ROLE"),
    wrapped("STATE (UTC)"),
    begun("ID"),
    spared("MADE (UTC)"),
    cut("MAY USE"),
];

/// Parses the lifetime of a token.
fn lifetime(text: &str) -> Result<u64, String> {
    let time = seconds(text)?;
    if (1..=MAX_LIFE_S).contains(&time) {
        return Ok(time);
    }
    Err(format!(
        "must be from 1s to {}d; leave it out for a token that does not expire",
        MAX_LIFE_S / 86_400
    ))
}

pub(super) async fn run(global: &Global, command: TokenCommand) -> Result<(), Failure> {
    let client = Client::new(global)?;
    match command {
        TokenCommand::Create {
            name,
            role,
            tools,
            node_id,
            channels,
            models,
            channel_rights,
            expires_in,
        } => {
            let mut body = json!({ "name": name, "role": role });
            let lists = [
                ("tools", tools),
                ("channels", channels),
                ("models", models),
                ("channel_rights", channel_rights),
            ];
            for (key, words) in lists {
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
            let response =
                client.send(client.request(Method::POST, "/v1/tokens").json(&body)).await?;
            let raw = response.text().await.unwrap_or_default();
            if global.json {
                return output::json(&raw);
            }
            let token: Value = serde_json::from_str(&raw).unwrap_or_default();
            tell_notice(&token);
            let asked = token["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
            if !asked.is_empty()
                && let Ok(tools) = all_tools(&client, Place::default()).await
            {
                tell_unmatched(asked, &tools);
            }
            // Printed only on a terminal, not if stdout goes to a variable or file.
            if std::io::stdout().is_terminal() {
                eprintln!("The token is shown only this time:");
            }
            line(text(&token["token"]))
        }
        TokenCommand::List => {
            let (list, raw): (Value, _) = client.get("/v1/tokens").await?;
            if global.json {
                return output::json(&raw);
            }
            let rows: Vec<Vec<String>> = tokens_of(&list).iter().map(row).collect();
            table(&TOKENS, &rows)?;
            if terminal_width().is_some_and(|width| width < WIDE) {
                output::note("more", "run `switchboard token show NAME`");
            }
            Ok(())
        }
        TokenCommand::Show { id } => {
            let (list, _): (Value, _) = client.get("/v1/tokens").await?;
            let with = |key: &str| {
                tokens_of(&list).iter().filter(|token| token[key] == *id).collect::<Vec<_>>()
            };
            let mut found = with("id");
            if found.is_empty() {
                found = with("name");
            }
            if found.is_empty() {
                found = begin_with(&list, &id);
            }
            if found.is_empty() {
                let message = format!("there is no token \"{}\"", printable(&id));
                let failure = Failure::of_kind("not_found", message)
                    .hint("run `switchboard token list` to list the tokens");
                return Err(failure.or_meant_in(&id, &client, &NAMES).await);
            }
            if global.json {
                return output::json(&json!({ "tokens": found }).to_string());
            }
            found.into_iter().try_for_each(show)
        }
        TokenCommand::Revoke { id, yes } => {
            let even_last = if yes { "?last_operator=true" } else { "" };
            let revoke = async |id: &str| {
                let path = format!("/v1/tokens/{}{even_last}", segment(id));
                client.send(client.request(Method::DELETE, &path)).await
            };
            let mut id = id;
            let response = match revoke(&id).await {
                Ok(response) => response,
                Err(failure) => {
                    id = whole_id(&client, &id)
                        .await?
                        .ok_or(failure.or_meant_in(&id, &client, &NAMES).await)?;
                    revoke(&id).await?
                }
            };
            let raw = response.text().await.unwrap_or_default();
            if global.json {
                return output::json(&raw);
            }
            line(&format!("revoked {id}"))?;
            tell_notice(&serde_json::from_str(&raw).unwrap_or_default());
            Ok(())
        }
    }
}

/// Prints side effects of creating or revoking a token.
fn tell_notice(token: &Value) {
    if let Some(notice) = token["notice"].as_str() {
        output::note("note", notice);
    }
}

/// Prints a note on patterns that match no tool at present, because they may be misspelt. The tools
/// of a provider that has never connected are unknown.
fn tell_unmatched(patterns: &[Value], tools: &[Value]) {
    let none = unmatched(patterns, tools);
    if !none.is_empty() {
        let none = none.iter().map(|pattern| printable(pattern)).collect::<Vec<_>>().join(", ");
        output::note(
            "note",
            &format!("no tool matches now: {none}; run `switchboard tools` to see the names"),
        );
    }
}

/// Returns the patterns that match no tool. A pattern may also use the provider's own name of a
/// tool: `mail.*` for `mail_send`, `Bash` for `laptop__Bash`.
fn unmatched<'p>(patterns: &'p [Value], tools: &[Value]) -> Vec<&'p str> {
    let has_tool = |words: &str| {
        let exposed = Pattern::new(&words.replace(['.', ':'], "_"));
        tools.iter().map(|tool| text(&tool["name"])).any(|name| {
            let own = name.split_once("__").map_or(name, |(_, own)| own);
            exposed.matches_any_case(name) || exposed.matches_any_case(own)
        })
    };
    patterns.iter().map(text).filter(|words| !has_tool(words)).collect()
}

fn tokens_of(list: &Value) -> &[Value] {
    list["tokens"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the tokens with this id prefix. A shorter input is more likely a misspelt name.
fn begin_with<'t>(list: &'t Value, typed: &str) -> Vec<&'t Value> {
    const ENOUGH: usize = 8;
    let begins = |token: &&Value| typed.len() >= ENOUGH && text(&token["id"]).starts_with(typed);
    tokens_of(list).iter().filter(begins).collect()
}

/// Returns the id of the only valid token with this id prefix. Lists shorten ids to unique
/// prefixes.
async fn whole_id(client: &Client, typed: &str) -> Result<Option<String>, Failure> {
    let Ok((list, _)) = client.get::<Value>("/v1/tokens").await else { return Ok(None) };
    let mut begun = begin_with(&list, typed);
    begun.retain(|token| {
        token["revoked_ms"].is_null() && token["name"] != *typed && token["id"] != *typed
    });
    let ids: Vec<&str> = begun.iter().map(|token| text(&token["id"])).collect();
    match &ids[..] {
        [] => Ok(None),
        [id] => Ok(Some((*id).to_owned())),
        ids => {
            let message = format!(
                "more than one token has an id that begins with {}:\n{}",
                printable(typed),
                ids.join("\n")
            );
            Err(Failure::usage(message).hint("use more characters of the id"))
        }
    }
}

/// Formats the date and time of an expiry.
fn date(ms: &Value) -> String {
    date_at(ms, sa_core::clock::now_ms(), terminal_width().is_some_and(|width| width < 100))
}

/// Formats a date. In a narrow terminal, the time is only included for dates close to now.
fn date_at(ms: &Value, now_ms: i64, narrow: bool) -> String {
    /// Two days, in milliseconds.
    const NEAR: u64 = 2 * 24 * 3_600_000;
    let ms = ms.as_i64().unwrap_or(0);
    let Ok(at) = jiff::Timestamp::from_millisecond(ms) else {
        return "the far future".to_owned();
    };
    let form = match (narrow, ms.abs_diff(now_ms) < NEAR) {
        (false, _) => "%Y-%m-%d %H:%M",
        (true, true) => "%b %d %H:%M",
        (true, false) => "%Y-%m-%d",
    };
    at.strftime(form).to_string()
}

fn state(token: &Value, date: fn(&Value) -> String) -> String {
    match (&token["revoked_ms"], &token["expires_ms"]) {
        (at @ Value::Number(_), _) => format!("revoked {}", date(at)),
        (_, at @ Value::Number(_)) if at.as_i64() <= Some(sa_core::clock::now_ms()) => {
            format!("expired {}", date(at))
        }
        (_, at @ Value::Number(_)) => format!("until {}", date(at)),
        _ => "valid".to_owned(),
    }
}

/// Returns the grants of a token: tools, channels, models and node id.
fn grants(token: &Value) -> Vec<(&'static str, String)> {
    let words = |key: &str| {
        token[key].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ")
    };
    let [tools, channels, models] = ["tools", "channels", "models"].map(words);
    let role = text(&token["role"]);
    let narrowed = !(tools.is_empty() && channels.is_empty() && models.is_empty());
    let named = |words: String, without: &str| match words.is_empty() {
        true if narrowed => "none".to_owned(),
        true => without.to_owned(),
        false => words,
    };
    let others = if role == "participant" { "none" } else { "all" };
    let (tools, channels, models) = match role {
        "node" | "monitor" => Default::default(),
        "operator" => (
            if tools.is_empty() { "all".to_owned() } else { tools },
            "all".to_owned(),
            "all".to_owned(),
        ),
        _ => (named(tools, others), named(channels, "all"), named(models, others)),
    };
    let rights = words("channel_rights");
    let channels = match role {
        "operator" => channels,
        _ if rights.is_empty() || channels == "none" => channels,
        _ => format!("{channels} ({rights})"),
    };
    let node = match (role, text(&token["node_id"])) {
        ("node", "") => "any id",
        (_, id) => id,
    };
    let grants =
        [("tools", tools), ("channels", channels), ("models", models), ("node", node.to_owned())];
    grants.into_iter().filter(|(_, words)| !words.is_empty()).collect()
}

fn row(token: &Value) -> Vec<String> {
    let part = |key: &str| text(&token[key]).to_owned();
    // Unrestricted grants are left out. If the token names something, empty grants are left out,
    // too.
    let mut grants = grants(token);
    grants.retain(|(_, words)| words != "all" && words != "any id");
    if grants.iter().any(|(_, words)| words != "none") {
        grants.retain(|(_, words)| words != "none");
    }
    let grants = grants
        .iter()
        .map(|(what, words)| format!("{what}: {words}"))
        .collect::<Vec<_>>()
        .join("; ");
    let grants = if terminal_width().is_some() { shortened(&grants, MAX_GRANTS) } else { grants };
    vec![
        part("name"),
        part("role"),
        state(token, date),
        part("id"),
        date(&token["created_ms"]),
        grants,
    ]
}

fn show(token: &Value) -> Result<(), Failure> {
    let time = |ms: &Value| clock(ms.as_i64().unwrap_or(0));
    line(&format!("token {}  {}", printable(text(&token["name"])), state(token, time)))?;
    let mut rows = vec![
        ("id", text(&token["id"]).to_owned()),
        ("role", text(&token["role"]).to_owned()),
        ("made", time(&token["created_ms"])),
    ];
    rows.extend(grants(token));
    facts(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_matches_no_tool_is_found() {
        let tools = [json!({ "name": "laptop__Bash" }), json!({ "name": "mail_send" })];
        for (pattern, known) in [
            ("laptop__*", true),
            ("Bash", true),
            ("mail.send", true),
            ("*", true),
            ("mial_*", false),
            ("Read", false),
        ] {
            let patterns = [json!(pattern)];
            assert_eq!(unmatched(&patterns, &tools).is_empty(), known, "{pattern}");
        }
    }

    #[test]
    fn a_token_is_good_for_a_time_that_calendars_have() {
        for good in ["1", "1s", "12h", "36500d"] {
            assert!(lifetime(good).is_ok(), "{good}");
        }
        for bad in ["0", "0d", "36501d", "36500000d", "18446744073709551615", "x", "-1"] {
            assert!(lifetime(bad).is_err(), "{bad}");
        }
        let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_millisecond();
        let now = at("2026-11-17T09:00:00Z");
        for (end, narrow, expected) in [
            ("2026-11-17T21:05:00Z", true, "Nov 17 21:05"),
            ("2026-11-18T01:00:00Z", true, "Nov 18 01:00"),
            ("2026-12-17T21:05:00Z", true, "2026-12-17"),
            ("2026-11-17T21:05:00Z", false, "2026-11-17 21:05"),
        ] {
            assert_eq!(date_at(&json!(at(end)), now, narrow), expected);
        }
        let beyond = json!({ "expires_ms": i64::MAX });
        assert!(!state(&beyond, date).contains("1970"), "{}", state(&beyond, date));
    }
}
