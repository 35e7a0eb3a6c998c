//! The `upstream` command: manages MCP servers behind the gateway.

use std::path::Path;
use std::time::Duration;

use clap::{CommandFactory as _, ValueHint};
use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Client, segment};
use super::lists::{Names, text};
use super::output::{self, Failure, clock, line, when};
use super::table::{cut, facts, filled, name, spared, whole};
use super::time::{milliseconds, typed};
use super::{Global, completion};
use sa_text::printable;
use sa_upstream::doctor::{unset_variable, unset_variable_fix};

/// The usage of `add`. A server is a URL or a program; clap would show both as required.
const USAGE: &str = "switchboard upstream add [OPTIONS] NAME SERVER_URL
       switchboard upstream add [OPTIONS] NAME -- PROGRAM [ARGUMENTS]...
       switchboard upstream add [OPTIONS] NAME --command PROGRAM [ARGUMENTS]...";
/// The time for which a new server is watched for errors, for example a mistyped program. Most
/// servers start or fail within it.
const WATCHED: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

const NAMES: Names = Names { path: "/v1/upstream", list: "upstream", key: "name" };

#[derive(Debug, clap::Subcommand)]
pub(crate) enum UpstreamCommand {
    /// Add a server. Its tools are named NAME__TOOL.
    #[command(override_usage = USAGE)]
    Add(Box<AddArgs>),
    /// List all servers and their state.
    #[command(visible_alias = "ls")]
    List,
    /// Show a server with its complete last error.
    Show {
        #[arg(add = completion::names(&NAMES))]
        name: String,
    },
    /// Remove a server that was added with this command.
    #[command(visible_alias = "rm")]
    Remove {
        #[arg(add = completion::names(&NAMES))]
        name: String,
    },
    /// Restart a server and reset its failure count.
    Restart {
        #[arg(add = completion::names(&NAMES))]
        name: String,
    },
    /// Log in to a server. Prints the address to open in a browser, and waits until the login is
    /// complete.
    Login {
        #[arg(add = completion::names(&NAMES))]
        name: String,
    },
    /// Remove the stored login for a server.
    Logout {
        #[arg(add = completion::names(&NAMES))]
        name: String,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// Name of the server, used as the prefix of its tool names.
    name: String,
    /// URL of a Streamable HTTP server.
    #[arg(value_name = "SERVER_URL", conflicts_with = "command")]
    server: Option<String>,
    /// Reference to the bearer token: env:NAME (a variable of the gateway's process) or file:PATH.
    #[arg(long, value_name = "REFERENCE", requires = "server")]
    bearer: Option<String>,
    /// The server needs an OAuth login. To log in: switchboard upstream login NAME.
    #[arg(long, requires = "server", conflicts_with = "bearer")]
    oauth: bool,
    /// OAuth client id of the gateway, for a server that accepts tokens of an OAuth authority. With
    /// --oauth, only needed if the authority does not support automatic registration.
    #[arg(long, value_name = "ID", requires = "server", conflicts_with = "bearer")]
    oauth_client_id: Option<String>,
    /// Reference to the OAuth client secret: env:NAME or file:PATH.
    #[arg(long, value_name = "REFERENCE", requires = "oauth_client_id")]
    oauth_client_secret: Option<String>,
    /// HTTPS URL of the client metadata document, for authorities that accept it as the client id.
    #[arg(long, value_name = "URL", requires = "oauth")]
    oauth_client_metadata_url: Option<String>,
    /// URL of the OAuth authority. By default, the authority that the server names.
    #[arg(long, value_name = "URL", requires = "server", conflicts_with = "bearer")]
    oauth_issuer: Option<String>,
    /// OAuth scope to request; can be repeated.
    #[arg(long = "oauth-scope", value_name = "SCOPE", requires = "server")]
    oauth_scopes: Vec<String>,
    /// Additional header for each request; the value may be a reference. Can be repeated.
    #[arg(long = "header", value_name = "NAME=VALUE", requires = "server")]
    headers: Vec<String>,
    /// Additional environment variable for the program; the value may be a reference. Can be
    /// repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", conflicts_with = "server")]
    env: Vec<String>,
    /// Working directory of the program. Defaults to the current directory if the gateway is on
    /// this machine, else to the gateway's own.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "server")]
    cwd: Option<String>,
    /// Default timeout of its tools: milliseconds, or a number with ms, s, m, h or d.
    #[arg(long, alias = "timeout-ms", value_name = "TIME", value_parser = milliseconds)]
    timeout: Option<u64>,
    /// Maximum number of concurrent calls.
    #[arg(long, value_name = "N")]
    max_running: Option<u64>,
    /// Use a separate connection or process for each calling token. Defaults to true for a URL.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    isolate: Option<bool>,
    /// Program and arguments without --. Must be the last option, because all following words
    /// belong to the program.
    #[arg(long, value_name = "WORDS", num_args = 1.., allow_hyphen_values = true)]
    command: Vec<String>,
    /// Program and its arguments; it must support MCP on stdin and stdout.
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["server", "command"])]
    program: Vec<String>,
}

impl UpstreamCommand {
    /// Returns the name of the existing server that the command refers to, if any.
    fn name(&self) -> Option<&str> {
        match self {
            Self::Add(_) | Self::List => None,
            Self::Show { name }
            | Self::Remove { name }
            | Self::Restart { name }
            | Self::Login { name }
            | Self::Logout { name } => Some(name),
        }
    }
}

pub(super) async fn run(global: &Global, command: UpstreamCommand) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let name = command.name().map(str::to_owned);
    match (perform(global, &client, command).await, name) {
        (Err(failure), Some(name)) => Err(failure.or_meant_in(&name, &client, &NAMES).await),
        (done, _) => done,
    }
}

async fn perform(
    global: &Global,
    client: &Client,
    command: UpstreamCommand,
) -> Result<(), Failure> {
    let (request, done) = match command {
        UpstreamCommand::List => return list(global, client).await,
        UpstreamCommand::Show { name } => return show(global, client, &name).await,
        UpstreamCommand::Add(args) => return add(global, client, *args).await,
        UpstreamCommand::Remove { name } => (
            client.request(Method::DELETE, &format!("/v1/upstream/{}", segment(&name))),
            format!("removed {name}"),
        ),
        UpstreamCommand::Login { name } => return login(global, client, &name).await,
        UpstreamCommand::Logout { name } => {
            let path = format!("/v1/upstream/{}/logout", segment(&name));
            // Always sent, because it also cancels a pending login.
            let before = found(client, &name).await?.0;
            let done =
                if before["logged_in"] == true { "logged out of" } else { "was not logged in to" };
            (client.request(Method::POST, &path), format!("{done} {name}"))
        }
        UpstreamCommand::Restart { name } => {
            let path = format!("/v1/upstream/{}/restart", segment(&name));
            (client.request(Method::POST, &path), format!("restarting {name}"))
        }
    };
    let raw = client.send(request).await?.text().await.unwrap_or_default();
    if global.json { output::json(&raw) } else { line(&done) }
}

/// Adds a server, and reports if it does not start. The server is kept, because its program or host
/// may become available later.
async fn add(global: &Global, client: &Client, mut args: AddArgs) -> Result<(), Failure> {
    let name = args.name.clone();
    tell_of_options(&args);
    args.command.append(&mut args.program);
    args.place_files(client);
    let cwd = args.cwd.clone();
    let request = client.request(Method::POST, "/v1/upstream").json(&args.body()?);
    let raw = client.send(request).await?.text().await.unwrap_or_default();
    if global.json {
        return output::json(&raw);
    }
    let trouble = async {
        loop {
            let server = found(client, &name).await.ok()?.0;
            match (server["last_error"].as_str(), text(&server["state"])) {
                (_, state @ "login_needed") => return Some((state.to_owned(), String::new())),
                (Some(why), state) => return Some((state.to_owned(), why.to_owned())),
                (None, "starting") => tokio::time::sleep(LOOK_EVERY).await,
                (None, _) => return None,
            }
        }
    };
    let watched = tokio::time::timeout(WATCHED, trouble).await;
    line(&match &watched {
        Ok(_) => format!("added {name}"),
        Err(_) => format!(
            "added {name}; it is starting: run `switchboard upstream list` to see when its tools are there"
        ),
    })?;
    if let Some(cwd) = cwd {
        line(&format!("runs in {}", printable(&cwd)))?;
    }
    if let Ok(Some((state, why))) = watched {
        if state == "login_needed" {
            output::note(
                "note",
                &format!("it needs a login; run `switchboard upstream login {name}`"),
            );
            return Ok(());
        }
        output::note("warning", &format!("it does not run: {why}"));
        let hint = match unset_variable(&why) {
            Some(variable) => format!(
                "{}; to remove it, run `switchboard upstream remove {name}`",
                unset_variable_fix(variable)
            ),
            None => format!(
                "run `switchboard upstream remove {name}` and add it again; or fix it and run `switchboard upstream restart {name}`"
            ),
        };
        output::note("   hint", &hint);
    }
    Ok(())
}

/// Prints a note if options of this command follow `--command`. They are passed to the program,
/// which may be unintended.
fn tell_of_options(args: &AddArgs) {
    let root = super::Cli::command();
    let add = root.find_subcommand("upstream").and_then(|upstream| upstream.find_subcommand("add"));
    let known: Vec<&str> = std::iter::once(&root)
        .chain(add)
        .flat_map(clap::Command::get_arguments)
        .flat_map(|arg| arg.get_long_and_visible_aliases().unwrap_or_default())
        .collect();
    let ours = |word: &&String| {
        let option =
            word.strip_prefix("--").map(|option| option.split('=').next().unwrap_or_default());
        option.is_some_and(|option| known.contains(&option))
    };
    let words = args.command.iter().skip(1).take_while(|word| *word != "--");
    let taken: Vec<String> = words.filter(ours).map(|word| printable(word).into_owned()).collect();
    if taken.is_empty() {
        return;
    }
    output::note(
        "note",
        &format!(
            "passed to the program: {}; options for switchboard must come before --command. If this is intended, \
             use `switchboard upstream add {} -- PROGRAM ARGUMENTS`",
            taken.join(" and "),
            printable(&args.name)
        ),
    );
}

/// Returns the server with this name, and its JSON text.
async fn found(client: &Client, name: &str) -> Result<(Value, String), Failure> {
    let (list, _): (Value, _) = client.get("/v1/upstream").await?;
    let server = list["upstream"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|server| server["name"] == name)
        .cloned();
    let server = server.ok_or_else(|| {
        Failure::of_kind(
            "not_found",
            format!("there is no upstream server \"{}\"", printable(name)),
        )
        .hint("run `switchboard upstream list` to list the servers")
    })?;
    let raw = server.to_string();
    Ok((server, raw))
}

async fn show(global: &Global, client: &Client, name: &str) -> Result<(), Failure> {
    let (server, raw) = found(client, name).await?;
    if global.json {
        return output::json(&raw);
    }
    line(&format!("{}  {}", printable(name), text(&server["state"])))?;
    // A server that is ready has recovered from its last error.
    let error = if server["state"] == "ready" { "previous error" } else { "last error" };
    let source = if server["source"] == "config" { "the configuration file" } else { "added" };
    facts(&[
        ("where", place(&server)),
        ("since", server["since_ms"].as_i64().map(clock).unwrap_or_default()),
        ("tools", server["tools"].to_string()),
        ("restarts", server["restarts"].to_string()),
        ("timeout", server["timeout_ms"].as_u64().map(typed).unwrap_or_default()),
        (
            "max. calls",
            server["max_running"].as_u64().map(|most| most.to_string()).unwrap_or_default(),
        ),
        ("isolate", server["isolate"].as_bool().map(|alone| alone.to_string()).unwrap_or_default()),
        ("folder", text(&server["cwd"]).to_owned()),
        ("source", source.to_owned()),
        (error, text(&server["last_error"]).to_owned()),
    ])?;
    for left in server["left_out"].as_array().into_iter().flatten() {
        line(&format!("left out: the tool \"{}\": {}", text(&left["tool"]), text(&left["why"])))?;
    }
    Ok(())
}

impl AddArgs {
    /// Makes relative paths absolute. They are relative to the current directory, which differs
    /// from the gateway's directory.
    fn place_files(&mut self, client: &Client) {
        let relative = |path: &str| Path::new(path).is_relative() && !path.is_empty();
        let program =
            self.command.first_mut().filter(|program| program.contains('/') && relative(program));
        // If a working directory is set, the program path may be relative to that directory.
        let inside = self.cwd.is_some();
        let program = program.filter(|program| !inside || Path::new(program.as_str()).exists());
        for path in program.into_iter().chain(self.cwd.as_mut().filter(|dir| relative(dir))) {
            if !client.is_local() {
                output::note(
                    "note",
                    &format!("{path} is resolved on the gateway's machine; use an absolute path"),
                );
            } else if let Some(whole) = std::path::absolute(&*path)
                .ok()
                .and_then(|whole| whole.into_os_string().into_string().ok())
            {
                *path = whole;
            }
        }
        // Relative paths in the arguments then mean the same as in the user's shell.
        if self.cwd.is_none() && !self.command.is_empty() && client.is_local() {
            let here = std::env::current_dir().ok();
            self.cwd = here.and_then(|here| here.into_os_string().into_string().ok());
        }
    }

    /// Returns the body of the API request.
    fn body(self) -> Result<Value, Failure> {
        if self.server.is_none() && self.command.is_empty() {
            let missing = "the URL of a server is missing, or a program and its arguments after -- (or --command)";
            return Err(Failure::usage(missing).hint(format!(
                "run `switchboard upstream add {name} -- PROGRAM ARGUMENTS` or `switchboard upstream add {name} SERVER_URL`",
                name = printable(&self.name)
            )));
        }
        let mut body = json!({ "name": self.name });
        let texts = [("url", self.server), ("bearer", self.bearer), ("cwd", self.cwd)];
        for (key, value) in texts.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            body[key] = json!(value);
        }
        let numbers = [("timeout_ms", self.timeout), ("max_running", self.max_running)];
        for (key, value) in numbers.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            body[key] = json!(value);
        }
        if let Some(isolate) = self.isolate {
            body["isolate"] = json!(isolate);
        }
        let any = self.oauth_client_id.is_some()
            || self.oauth_issuer.is_some()
            || !self.oauth_scopes.is_empty();
        if self.oauth || any {
            let grant = if self.oauth { "authorization_code" } else { "client_credentials" };
            body["oauth"] = json!({ "grant": grant, "scopes": self.oauth_scopes });
            let texts = [
                ("client_id", self.oauth_client_id),
                ("client_secret", self.oauth_client_secret),
                ("client_metadata_url", self.oauth_client_metadata_url),
                ("issuer", self.oauth_issuer),
            ];
            for (key, value) in texts.into_iter().filter_map(|(key, value)| Some((key, value?))) {
                body["oauth"][key] = json!(value);
            }
        }
        for (key, pairs) in [("env", self.env), ("headers", self.headers)] {
            if !pairs.is_empty() {
                body[key] = Value::Object(
                    pairs.iter().map(|pair| split(key, pair)).collect::<Result<_, _>>()?,
                );
            }
        }
        if !self.command.is_empty() {
            body["command"] = json!(self.command);
        }
        Ok(body)
    }
}

fn split(key: &str, pair: &str) -> Result<(String, Value), Failure> {
    let (name, value) = pair
        .split_once('=')
        .ok_or_else(|| Failure::usage(format!("{key}: \"{pair}\" has no =")))?;
    Ok((name.to_owned(), json!(value)))
}

/// Starts a login and waits until it is complete.
async fn login(global: &Global, client: &Client, name: &str) -> Result<(), Failure> {
    let path = format!("/v1/upstream/{}/login", segment(name));
    let raw =
        client.send(client.request(Method::POST, &path)).await?.text().await.unwrap_or_default();
    let begun: Value = client.read(&raw)?;
    if global.json {
        output::json(&raw)?;
    } else {
        let minutes = begun["expires_in_ms"].as_u64().unwrap_or_default() / 60_000;
        line(&format!(
            "Open this address in a browser and log in there, within {minutes} minutes:"
        ))?;
        line(text(&begun["url"]))?;
    }
    let path = format!("{path}/{}", segment(text(&begun["login"])));
    loop {
        let (progress, raw): (Value, _) = client.get(&path).await?;
        match text(&progress["state"]) {
            "waiting" => {}
            "done" if global.json => return output::json(&raw),
            "done" => return line(&format!("logged in to {name}")),
            _ => {
                return Err(Failure::other(format!(
                    "not logged in: {}",
                    text(&progress["problem"])
                )));
            }
        }
    }
}

async fn list(global: &Global, client: &Client) -> Result<(), Failure> {
    let (list, raw): (Value, _) = client.get("/v1/upstream").await?;
    if global.json {
        return output::json(&raw);
    }
    let servers = list["upstream"].as_array().map(Vec::as_slice).unwrap_or_default();
    if servers.is_empty() {
        return line(
            "No upstream servers yet. Run `switchboard upstream add NAME SERVER_URL` to add one,\n\
             or `switchboard upstream add NAME --command PROGRAM` to add a program.",
        );
    }
    let rows: Vec<Vec<String>> = servers.iter().map(row).collect();
    let columns = [
        name("NAME"),
        whole("STATE"),
        spared("SINCE"),
        spared("TOOLS"),
        cut("WHERE"),
        cut("LAST ERROR"),
    ];
    filled(&columns, &rows)
}

fn place(server: &Value) -> String {
    match (&server["url"], &server["command"]) {
        (Value::String(url), _) => url.clone(),
        (_, Value::Array(words)) => words.iter().map(text).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    }
}

fn row(server: &Value) -> Vec<String> {
    let name = |key: &str| text(&server[key]).to_owned();
    let since = when(server["since_ms"].as_i64().unwrap_or(0));
    let left_out: Vec<&str> = server["left_out"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|left| text(&left["tool"]))
        .collect();
    let error = match server["state"].as_str() {
        Some("ready") if left_out.is_empty() => String::new(),
        Some("ready") => format!("left out: {}", left_out.join(", ")),
        _ => name("last_error"),
    };
    vec![name("name"), name("state"), since, server["tools"].to_string(), place(server), error]
}
