//! The `chat` command: talks to a model that uses the gateway's tools.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Global;
use super::client::Client;
use super::ctrl_c::CtrlC;
use super::lists::text;
use super::output::{self, Failure, duration, err_lines};
use super::shown::describe_progress;
use sa_gateway::terminal::takes_colour;
use sa_text::{affects_display, excerpt, printable};

const MODEL: &str = "  [models.gpt]
  # any OpenAI-compatible server: OpenAI, Ollama, vLLM, …
  base_url = \"https://api.openai.com/v1\"
  # or file:PATH
  api_key = \"env:OPENAI_API_KEY\"
  # the name of the model on the server
  model = \"gpt-5.1\"";

#[derive(Debug, clap::Args)]
pub(crate) struct ChatArgs {
    /// Name of the model in the gateway's configuration; the first model by default.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Send this message, print the answer, and exit.
    #[arg(long = "once", short = 'm', value_name = "MESSAGE")]
    once: Option<String>,
    /// System prompt for the model.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Only offer these tools to the model: comma-separated names, where * matches any characters;
    /// none disables tools.
    #[arg(long, value_name = "NAMES")]
    tools: Option<String>,
}

pub(super) async fn run(global: &Global, args: ChatArgs) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let mut chat = Conversation {
        model: model(&client, args.model).await?,
        tools: args.tools,
        json: global.json,
        messages: args
            .system
            .map(|text| json!({ "role": "system", "content": text }))
            .into_iter()
            .collect(),
        client,
    };
    if let Some(message) = args.once {
        return chat.ask(&message).await;
    }
    let interactive = std::io::stdin().is_terminal();
    if interactive {
        err_lines(&format!(
            "Chatting with {}. Press Ctrl-C to stop an answer, or at the prompt to exit.",
            chat.model
        ));
    }
    let mut lines = typed_lines();
    loop {
        if interactive {
            eprint!("> ");
        }
        // Created again for each prompt. Ctrl-C during an answer only cancels that answer and must
        // not end the program here.
        let mut ctrl_c = CtrlC::new()?;
        let line = tokio::select! {
            line = lines.recv() => line,
            () = ctrl_c.pressed() => {
                eprintln!();
                std::process::exit(130);
            }
        };
        // A blocking read from the terminal cannot be cancelled and would prevent a normal exit.
        let Some(line) = line else { std::process::exit(0) };
        if line.trim().is_empty() {
            continue;
        }
        match chat.ask(&line).await {
            Err(failure) if !interactive => return Err(failure),
            Err(failure) => drop(failure.report(chat.json)),
            Ok(()) => {}
        }
    }
}

struct Conversation {
    client: Client,
    model: String,
    tools: Option<String>,
    json: bool,
    messages: Vec<Value>,
}

impl Conversation {
    /// Sends the message and prints the answer as it arrives. Failed and cancelled messages are
    /// removed from the conversation.
    async fn ask(&mut self, message: &str) -> Result<(), Failure> {
        self.messages.push(json!({ "role": "user", "content": message }));
        let mut ctrl_c = CtrlC::new()?;
        let answer = tokio::select! {
            answer = self.answer() => answer,
            // Closing the connection cancels the answer and its tool calls.
            () = ctrl_c.pressed() => Err(Failure::new(130, "cancelled")),
        };
        match answer {
            Ok(answer) => {
                self.messages.push(json!({ "role": "assistant", "content": answer }));
                Ok(())
            }
            Err(failure) => {
                self.messages.pop();
                Err(failure)
            }
        }
    }

    async fn answer(&self) -> Result<String, Failure> {
        let mut body = json!({ "model": self.model, "messages": self.messages, "stream": !self.json, "switchboard": { "events": true } });
        match self.tools.as_deref() {
            Some(word @ ("none" | "all")) => body["switchboard"]["tools"] = json!(word),
            Some(names) => {
                body["switchboard"]["tools"] =
                    names.split(',').map(|name| json!(name.trim())).collect();
            }
            None => {}
        }
        let request = self.client.request(Method::POST, "/v1/chat/completions").json(&body);
        let response = request.send().await.map_err(|error| self.client.lost(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(refusal(status, &response.text().await.unwrap_or_default()));
        }
        if self.json {
            let text = response.text().await.map_err(|error| self.client.lost(&error))?;
            let answer: Value = serde_json::from_str(&text).unwrap_or_default();
            output::json(&text)?;
            return Ok(answer["choices"][0]["message"]["content"]
                .as_str()
                .unwrap_or_default()
                .to_owned());
        }
        self.show(self.client.events(response)?).await
    }

    async fn show(&self, mut events: sa_sse::Events) -> Result<String, Failure> {
        let mut said = String::new();
        let terminal = std::io::stdout().is_terminal();
        while let Some(event) =
            events.next().await.map_err(|broken| self.client.lost_in(&broken))?
        {
            if event.data == "[DONE]" {
                if !said.ends_with('\n') {
                    output::print("\n")?;
                }
                return Ok(said);
            }
            let piece: Value = serde_json::from_str(&event.data).unwrap_or_default();
            if piece["error"].is_object() {
                eprintln!();
                return Err(refusal(reqwest::StatusCode::BAD_GATEWAY, &event.data));
            }
            if let Some(text) = piece["choices"][0]["delta"]["content"].as_str() {
                said.push_str(text);
                let shown = |c: char| {
                    if c != '\n' && c != '\t' && affects_display(c) { '\u{fffd}' } else { c }
                };
                if terminal {
                    output::print(&text.chars().map(shown).collect::<String>())?;
                } else {
                    output::print(text)?;
                }
            }
            if piece["switchboard"].is_object() {
                activity(
                    &piece["switchboard"],
                    !said.is_empty() && !said.ends_with('\n') && terminal,
                );
            }
        }
        Err(Failure::other("the gateway ended the answer before it was complete"))
    }
}

/// Prints an event that arrives together with the answer, such as a tool call.
fn activity(news: &Value, in_a_line: bool) {
    let name = printable(text(&news["name"]));
    let shown = match text(&news["event"]) {
        "tool_call" => format!("→ {name} {}", short(text(&news["arguments"]))),
        "tool_progress" => {
            format!("… {name} {}", short(describe_progress(news).trim_start()))
        }
        "tool_result" => {
            let took = duration(news["duration_ms"].as_u64().unwrap_or(0).saturating_mul(1_000));
            let sign = if news["ok"] == true { "✓" } else { "✗" };
            format!("{sign} {name} ({took}) {}", short(text(&news["result"])))
        }
        _ => match news["stopped"]["message"].as_str() {
            Some(why) => format!("stopped: {}", printable(why)),
            None => return,
        },
    };
    let mut err = std::io::stderr().lock();
    let _ = writeln!(err, "{}{}", if in_a_line { "\n" } else { "" }, dim(&shown));
}

/// Shortens the text to a single line.
fn short(text: &str) -> String {
    printable(&excerpt(100, text).replace('\n', " ")).into_owned()
}

fn dim(text: &str) -> String {
    if takes_colour(&std::io::stderr()) { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
}

/// Returns the model to use, after checking that the gateway has it.
async fn model(client: &Client, wanted: Option<String>) -> Result<String, Failure> {
    let (list, _): (Value, _) = client.get("/v1/models").await?;
    let names: Vec<&str> = list["data"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|model| model["id"].as_str())
        .collect();
    match wanted {
        _ if names.is_empty() => {
            let status = client.status("").await.ok();
            let how = configure(status.as_ref().map(|(status, _)| status));
            err_lines(&format!("The gateway has no model. To configure one, {how}\n\n{MODEL}\n"));
            eprintln!();
            Err(Failure::new(5, "no model is configured")
                .hint("see docs/chat.md for the other settings of a model"))
        }
        Some(name) if !names.contains(&name.as_str()) => {
            let message = format!("there is no model \"{}\"", printable(&name));
            Err(Failure::new(5, message).hint(format!("use one of these: {}", names.join(", "))))
        }
        Some(name) => Ok(name),
        None => Ok(names[0].to_owned()),
    }
}

/// Returns a hint on where to configure a model. The status contains the path of the configuration
/// file only for operators.
fn configure(status: Option<&Value>) -> String {
    match status.map(|status| text(&status["config_file"])) {
        Some("") => {
            "write this to switchboard.toml, and restart the gateway with `switchboard up --config switchboard.toml`:".into()
        }
        Some(file) => format!("add this to {}, and restart the gateway:", printable(file)),
        None => "add this to the gateway's configuration file, and restart it:".to_owned(),
    }
}

/// Parses an error response. These routes return errors in OpenAI's format.
fn refusal(status: reqwest::StatusCode, body: &str) -> Failure {
    let said: Value = serde_json::from_str(body).unwrap_or_default();
    let Some(message) = said["error"]["message"].as_str() else {
        return super::client::problem(status, body);
    };
    let code = match text(&said["error"]["code"]) {
        "deadline" | "upstream_timeout" => 7,
        "model_not_found" => 5,
        "not_allowed" => 4,
        "upstream_overloaded" | "upstream_unreachable" | "shutting_down" => 8,
        _ if status == reqwest::StatusCode::TOO_MANY_REQUESTS => 8,
        _ => 1,
    };
    // The message contains the problem, then the hint.
    match message
        .rsplit_once("; ")
        .filter(|_| code == 8 && said["error"]["code"] == "upstream_unreachable")
    {
        Some((message, hint)) => Failure::new(code, message).hint(hint),
        None => Failure::new(code, message),
    }
}

/// Reads the lines of stdin on a separate thread.
fn typed_lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}
