//! `chat`: talk to a model that uses the gateway's tools.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Global;
use super::client::Client;
use super::ctrl_c::CtrlC;
use super::lists::text;
use super::output::{self, Failure, duration, err_lines};
use crate::redact::{printable, steers};
use crate::terminal::takes_colour;

const MODEL: &str = "  [models.gpt]
  # any OpenAI-compatible server: OpenAI, Ollama, vLLM, …
  base_url = \"https://api.openai.com/v1\"
  # or file:PATH
  api_key = \"env:OPENAI_API_KEY\"
  # what the server calls it
  model = \"gpt-5.1\"";

#[derive(Debug, clap::Args)]
pub(crate) struct ChatArgs {
    /// The model, by its name in the gateway's configuration; by default the first.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Ask this, print the answer, and end.
    #[arg(long = "once", short = 'm', value_name = "MESSAGE")]
    once: Option<String>,
    /// What the model is told before anything else.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Only these tools: names with commas between them, * standing for any characters; none for no tools.
    #[arg(long, value_name = "NAMES")]
    tools: Option<String>,
}

pub(super) async fn run(global: &Global, args: ChatArgs) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let mut chat = Conversation {
        model: model(&client, args.model).await?,
        tools: args.tools,
        json: global.json,
        messages: args.system.map(|text| json!({ "role": "system", "content": text })).into_iter().collect(),
        client,
    };
    if let Some(message) = args.once {
        return chat.ask(&message).await;
    }
    let interactive = std::io::stdin().is_terminal();
    if interactive {
        err_lines(&format!("Talking to {}. Ctrl-C stops an answer, and at the prompt it ends the chat.", chat.model));
    }
    let mut lines = typed_lines();
    loop {
        if interactive {
            eprint!("> ");
        }
        // A press while the model answers cancels the answer alone: this one counts presses since the prompt.
        let mut ctrl_c = CtrlC::new()?;
        let line = tokio::select! {
            line = lines.recv() => line,
            () = ctrl_c.pressed() => {
                eprintln!();
                std::process::exit(130);
            }
        };
        // Reading from a terminal cannot be given up, and would hold the program back.
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
    /// Asks, and prints the answer as it comes. What failed or was cancelled is not a part of the conversation.
    async fn ask(&mut self, message: &str) -> Result<(), Failure> {
        self.messages.push(json!({ "role": "user", "content": message }));
        let mut ctrl_c = CtrlC::new()?;
        let answer = tokio::select! {
            answer = self.answer() => answer,
            // Hanging up is what cancels the answer, and the calls that are made for it.
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
            Some(names) => body["switchboard"]["tools"] = names.split(',').map(|name| json!(name.trim())).collect(),
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
            return Ok(answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned());
        }
        self.show(self.client.events(response)?).await
    }

    async fn show(&self, mut events: sa_sse::Events) -> Result<String, Failure> {
        let mut said = String::new();
        let terminal = std::io::stdout().is_terminal();
        while let Some(event) = events.next().await.map_err(|broken| self.client.lost_in(&broken))? {
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
                let shown = |c: char| if c != '\n' && c != '\t' && steers(c) { '\u{fffd}' } else { c };
                if terminal {
                    output::print(&text.chars().map(shown).collect::<String>())?;
                } else {
                    output::print(text)?;
                }
            }
            if piece["switchboard"].is_object() {
                activity(&piece["switchboard"], !said.is_empty() && !said.ends_with('\n') && terminal);
            }
        }
        Err(Failure::other("the gateway ended the answer in the middle"))
    }
}

/// What the gateway does meanwhile, beside the answer.
fn activity(news: &Value, in_a_line: bool) {
    let name = printable(text(&news["name"]));
    let shown = match text(&news["event"]) {
        "tool_call" => format!("→ {name} {}", short(text(&news["arguments"]))),
        "tool_progress" => format!("… {name} {} {}", news["progress"], short(text(&news["message"]))),
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

/// One line of what may be many.
fn short(text: &str) -> String {
    let line: String = text.chars().take(100).map(|c| if c == '\n' { ' ' } else { c }).collect();
    let more = if text.chars().nth(100).is_some() { "…" } else { "" };
    format!("{}{more}", printable(&line))
}

fn dim(text: &str) -> String {
    if takes_colour(&std::io::stderr()) { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
}

/// The model to talk to, which the gateway must have.
async fn model(client: &Client, wanted: Option<String>) -> Result<String, Failure> {
    let (list, _): (Value, _) = client.get("/v1/models").await?;
    let names: Vec<&str> =
        list["data"].as_array().into_iter().flatten().filter_map(|model| model["id"].as_str()).collect();
    match wanted {
        _ if names.is_empty() => {
            let status = client.status("").await.ok();
            let how = configure(status.as_ref().map(|(status, _)| status));
            err_lines(&format!("The gateway has no model to talk to. To give it one, {how}\n\n{MODEL}\n"));
            eprintln!();
            Err(Failure::new(5, "no model is configured").hint("docs/chat.md shows what else a model may have"))
        }
        Some(name) if !names.contains(&name.as_str()) => {
            let message = format!("there is no model \"{}\"", printable(&name));
            Err(Failure::new(5, message).hint(format!("one of these: {}", names.join(", "))))
        }
        Some(name) => Ok(name),
        None => Ok(names[0].to_owned()),
    }
}

/// Where to write it down, for a gateway whose status says which file it has, if any; only operators are told.
fn configure(status: Option<&Value>) -> String {
    match status.map(|status| text(&status["config_file"])) {
        Some("") => {
            "write this to a file, and restart the gateway with it: switchboard up --config switchboard.toml".into()
        }
        Some(file) => format!("add this to {}, and restart the gateway:", printable(file)),
        None => "add this to the gateway's configuration file, and restart it:".to_owned(),
    }
}

/// The gateway's words about a failure, which these routes have in OpenAI's form.
fn refusal(status: reqwest::StatusCode, body: &str) -> Failure {
    let said: Value = serde_json::from_str(body).unwrap_or_default();
    let Some(message) = said["error"]["message"].as_str() else { return super::client::problem(status, body) };
    let code = match text(&said["error"]["code"]) {
        "deadline" | "upstream_timeout" => 7,
        "model_not_found" => 5,
        "not_allowed" => 4,
        "upstream_overloaded" | "upstream_unreachable" | "shutting_down" => 8,
        _ if status == reqwest::StatusCode::TOO_MANY_REQUESTS => 8,
        _ => 1,
    };
    // What happened, and after it what to do.
    match message.rsplit_once("; ").filter(|_| code == 8 && said["error"]["code"] == "upstream_unreachable") {
        Some((message, hint)) => Failure::new(code, message).hint(hint),
        None => Failure::new(code, message),
    }
}

/// The lines of stdin, read beside everything else.
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
