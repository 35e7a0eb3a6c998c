//! What is shown of a call: what it says while it runs, and its result, each of it once.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::output::{self, Failure, duration, harmless, line, size};
use crate::redact::printable;

/// How much of what a call has streamed is remembered, to know it again in its result. A command's result has less.
const REMEMBERED: usize = 1 << 20;

/// Where parts of the result go while the call runs. A file or another program gets the result alone, and whole; parts of
/// it are for somebody who watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Live {
    Stdout,
    Stderr,
    Nowhere,
}

/// What has been shown of a call so far.
pub(super) struct Shown {
    live: Live,
    json: bool,
    /// A progress line that the next output has to overwrite.
    open: bool,
    /// The end of all text that came.
    text: String,
    /// Everything else that came, in the same bounds.
    values: Vec<Value>,
    values_bytes: usize,
    /// The last text ended with half of a line break.
    half_break: bool,
    /// What was printed last left the line open.
    inside_line: bool,
}

/// The last event of a call; the result is left as it came.
#[derive(Deserialize)]
struct Done<'a> {
    #[serde(borrow)]
    result: &'a RawValue,
    #[serde(borrow, default)]
    blocks: Vec<&'a RawValue>,
    #[serde(default)]
    attachments: Vec<Attachment>,
}

/// A piece of a result that people can look at.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Block {
    Text {
        text: String,
    },
    Image {
        data: String,
        #[serde(rename = "mimeType", alias = "mime_type")]
        mime_type: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Attachment {
    mime_type: String,
    name: Option<String>,
    data: String,
}

/// A part of the result.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

/// The result of a command, which every machine's shell gives in this form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Command {
    status: String,
    session_id: String,
    tail: String,
    output: Option<String>,
    exit_code: Option<i64>,
    signal: Option<String>,
    #[serde(default)]
    timed_out: bool,
    #[serde(default)]
    truncated: bool,
    duration_ms: Option<u64>,
}

impl Shown {
    pub(super) fn new(json: bool) -> Self {
        let live = match (std::io::stdout().is_terminal() && !json, std::io::stderr().is_terminal()) {
            (true, _) => Live::Stdout,
            (false, true) => Live::Stderr,
            (false, false) => Live::Nowhere,
        };
        Self {
            live,
            json,
            open: false,
            text: String::new(),
            values: Vec::new(),
            values_bytes: 0,
            half_break: false,
            inside_line: false,
        }
    }

    pub(super) fn progress(&mut self, data: &str) {
        let Ok(update) = serde_json::from_str::<Value>(data) else { return };
        self.note(&describe_progress(&update));
    }

    /// Something about the call that is no part of its result.
    pub(super) fn note(&mut self, text: &str) {
        self.end_line();
        let mut err = std::io::stderr().lock();
        if err.is_terminal() {
            let _ = write!(err, "\r\x1b[2K{}", printable(text));
            self.open = true;
        } else {
            let _ = writeln!(err, "{}", printable(text));
        }
    }

    pub(super) fn chunk(&mut self, data: &str) {
        let Ok(Chunk { content }) = serde_json::from_str(data) else { return };
        self.clear();
        match serde_json::from_str::<Value>(content.get()) {
            Ok(Value::String(text)) => {
                self.text.push_str(&text);
                let excess = self.text.len().saturating_sub(REMEMBERED);
                self.text.drain(..self.text.ceil_char_boundary(excess));
                let text = harmless(&text, &mut self.half_break);
                self.watched(&text);
            }
            other => {
                self.end_line();
                self.watched(&format!("{}\n", printable(content.get())));
                self.values_bytes += content.get().len();
                self.values.extend(other.ok().filter(|_| self.values_bytes <= REMEMBERED));
            }
        }
    }

    /// Shows a text to whoever watches.
    fn watched(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let _ = match self.live {
            Live::Nowhere => return,
            Live::Stdout => {
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
            Live::Stderr => std::io::stderr().lock().write_all(text.as_bytes()),
        };
        self.inside_line = !text.ends_with('\n');
    }

    /// Takes a progress line away.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.open) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
        }
    }

    fn end_line(&mut self) {
        if self.inside_line {
            self.watched("\n");
        }
        self.half_break = false;
    }

    /// The call has failed. What it has said before may be the reason, and there is no result that has it.
    pub(super) fn failed(&mut self) {
        self.clear();
        self.end_line();
        if self.live == Live::Nowhere && !self.text.is_empty() {
            let _ = writeln!(std::io::stderr().lock(), "{}", harmless(&self.text, &mut false).trim_end_matches('\n'));
        }
    }

    /// Shows the result: to a file, to a program, or to somebody who has seen some of it already.
    pub(super) fn done(mut self, data: &str, file: Option<&Path>) -> Result<(), Failure> {
        self.clear();
        self.end_line();
        if let (true, None) = (self.json, file) {
            return output::json(data);
        }
        let Ok(done) = serde_json::from_str::<Done<'_>>(data) else {
            return Err(Failure::other("the gateway's answer cannot be read"));
        };
        if let Some(file) = file {
            return if self.json { write(file, data.as_bytes()) } else { done.save(file) };
        }
        if let Ok(command) = serde_json::from_str::<Command>(done.result.get()) {
            let output = command.output.as_deref().unwrap_or(&command.tail);
            if !output.is_empty() && !self.has_shown(output) {
                output::lines(output)?;
            }
            eprintln!("{}", printable(&command.facts()));
            return Ok(());
        }
        // JSON by its grammar, such as 1e999, and yet no value: what the tool said is shown as it is.
        let Ok(result) = serde_json::from_str(done.result.get()) else { return output::lines(done.result.get()) };
        match result {
            Value::String(text) if self.has_shown(&text) => {}
            Value::String(text) => output::lines(&text)?,
            result if !std::io::stdout().is_terminal() => line(&output::pretty(&result))?,
            _ if done.can_be_looked_at() => done.blocks().iter().try_for_each(Block::show)?,
            Value::Object(mut members) => {
                members.retain(|_, value| !self.has_shown_value(value));
                if !members.is_empty() {
                    show_object(members)?;
                }
            }
            result => line(&output::pretty(&result))?,
        }
        if std::io::stdout().is_terminal() {
            for attached in &done.attachments {
                let name = attached.name.as_deref().unwrap_or("attachment");
                line(&printable(&format!("[{name} {} {}]", attached.mime_type, decoded_size(&attached.data))))?;
            }
            if !done.files().is_empty() {
                eprintln!("--output FILE saves it");
            }
        }
        Ok(())
    }

    /// Whether somebody who reads stdout has this text before them.
    fn has_shown(&self, text: &str) -> bool {
        self.live == Live::Stdout && !text.is_empty() && self.text.ends_with(text)
    }

    fn has_shown_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.has_shown(text),
            Value::Array(values) => self.live == Live::Stdout && !values.is_empty() && *values == self.values,
            _ => false,
        }
    }
}

impl Command {
    /// What became of it, in one line.
    fn facts(&self) -> String {
        if self.status == "running" {
            return format!("[running in the background; sessionId {}]", self.session_id);
        }
        let code = self.exit_code.map(|code| format!("exit code {code}"));
        let signal = self.signal.as_ref().map(|signal| format!("ended by {signal}"));
        let late = self.timed_out.then(|| "timed out".to_owned());
        let took = self.duration_ms.map(|ms| duration(ms.saturating_mul(1_000)));
        let cut = self.truncated.then(|| "only the end of the output was kept".to_owned());
        let facts: Vec<String> = [code, signal, late, took, cut].into_iter().flatten().collect();
        format!("[{}]", facts.join(", "))
    }
}

impl Done<'_> {
    /// Whether its blocks say all that the result does, in a form for people.
    fn can_be_looked_at(&self) -> bool {
        !self.blocks.is_empty() && !self.blocks().iter().any(|block| matches!(block, Block::Other))
    }

    fn blocks(&self) -> Vec<Block> {
        self.blocks.iter().map(|block| serde_json::from_str(block.get()).unwrap_or(Block::Other)).collect()
    }

    /// What can be saved as files of their own: the base64 of each.
    fn files(&self) -> Vec<String> {
        let images = self.blocks().into_iter().filter_map(|block| match block {
            Block::Image { data, .. } => Some(data),
            Block::Text { .. } | Block::Other => None,
        });
        images.chain(self.attachments.iter().map(|attached| attached.data.clone())).collect()
    }

    /// Images and attachments as what they are, text as text, and everything else as JSON.
    fn save(&self, file: &Path) -> Result<(), Failure> {
        let files = self.files();
        for (number, data) in files.iter().enumerate() {
            let bytes = BASE64_STANDARD.decode(data).map_err(|error| {
                Failure::other(format!("what the tool gave back is no base64, and cannot be saved: {error}"))
            })?;
            write(&numbered(file, number), &bytes)?;
        }
        if !files.is_empty() {
            return Ok(());
        }
        let result = self.result.get();
        if let Ok(command) = serde_json::from_str::<Command>(result) {
            write(file, command.output.as_ref().unwrap_or(&command.tail).as_bytes())?;
            eprintln!("{}", printable(&command.facts()));
            return Ok(());
        }
        match serde_json::from_str::<String>(result) {
            Ok(text) => write(file, text.as_bytes()),
            Err(_) => write(file, result.as_bytes()),
        }
    }
}

impl Block {
    fn show(&self) -> Result<(), Failure> {
        match self {
            Self::Text { text } => output::lines(text),
            Self::Image { data, mime_type } => line(&printable(&format!("[image {mime_type} {}]", decoded_size(data)))),
            Self::Other => Ok(()),
        }
    }
}

/// How far a call is, in its own words if it has any.
fn describe_progress(update: &Value) -> String {
    let message = update["message"].as_str().unwrap_or_default();
    let done = update["progress"].as_f64().unwrap_or(0.0);
    match update["total"].as_f64() {
        Some(total) if total > 0.0 => format!("{:3.0}% {message}", 100.0 * done / total).trim_end().to_owned(),
        // A number without an end says nothing beside words.
        _ if message.is_empty() => format!("{done}"),
        _ => message.to_owned(),
    }
}

/// An object with texts of several lines in it, which JSON would make one line of; and any other as JSON.
fn show_object(members: serde_json::Map<String, Value>) -> Result<(), Failure> {
    let long = |value: &Value| value.as_str().is_some_and(|text| text.contains('\n'));
    if !members.values().any(long) || members.values().any(|value| value.is_object() || value.is_array()) {
        return line(&output::pretty(&Value::Object(members)));
    }
    let (texts, facts): (Vec<_>, Vec<_>) = members.iter().partition(|(_, value)| long(value));
    for (name, value) in facts {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        line(&printable(&format!("{name}: {value}")))?;
    }
    for (name, text) in texts {
        line(&printable(&format!("{name}:")))?;
        output::lines(text.as_str().unwrap_or_default())?;
    }
    Ok(())
}

/// How much base64 stands for.
fn decoded_size(data: &str) -> String {
    size(data.trim_end_matches('=').len() * 3 / 4)
}

/// `plot.png`, `plot-2.png`, `plot-3.png`.
fn numbered(file: &Path, number: usize) -> std::path::PathBuf {
    if number == 0 {
        return file.to_owned();
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let extension = file.extension().map(|end| format!(".{}", end.to_string_lossy())).unwrap_or_default();
    file.with_file_name(format!("{stem}-{}{extension}", number + 1))
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(file, bytes).map_err(|error| Failure::other(format!("cannot write {}: {error}", file.display())))?;
    eprintln!("saved {} to {}", size(bytes.len()), file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_progress(update: Value, expected: &str) {
        assert_eq!(describe_progress(&update), expected);
    }

    #[test]
    fn progress_is_told_in_its_own_words() {
        check_progress(json!({ "progress": 5, "message": "running for 5 s" }), "running for 5 s");
        check_progress(json!({ "progress": 5 }), "5");
        check_progress(json!({ "progress": 1, "total": 4, "message": "reading" }), " 25% reading");
        check_progress(json!({ "progress": 1, "total": 4 }), " 25%");
    }

    fn watched() -> Shown {
        Shown { live: Live::Stdout, ..Shown::new(false) }
    }

    #[test]
    fn what_was_streamed_is_known_again() {
        let mut shown = watched();
        shown.text = "one\ntwo\n".to_owned();
        assert!(shown.has_shown("one\ntwo\n") && shown.has_shown("two\n"), "all of it, and its tail");
        assert!(!shown.has_shown("one\n") && !shown.has_shown(""));
        shown.values = vec![json!({ "a": 1 })];
        assert!(shown.has_shown_value(&json!([{ "a": 1 }])) && !shown.has_shown_value(&json!([])));
        shown.live = Live::Stderr;
        assert!(!shown.has_shown("two\n"), "a file has not seen what went by on a terminal");
    }

    #[test]
    fn what_is_remembered_has_bounds() {
        let mut shown = Shown { live: Live::Nowhere, ..Shown::new(true) };
        let chunk = json!({ "content": "é".repeat(REMEMBERED / 4) }).to_string();
        (0..5).for_each(|_| shown.chunk(&chunk));
        assert!(shown.text.len() <= REMEMBERED && shown.text.len() > REMEMBERED - 4);
        let chunk = json!({ "content": { "text": "x".repeat(REMEMBERED / 4) } }).to_string();
        (0..9).for_each(|_| shown.chunk(&chunk));
        assert!(shown.values.len() < 5);
    }

    #[track_caller]
    fn check_facts(result: Value, expected: &str) {
        let mut whole = json!({ "sessionId": "s1", "tail": "", "startedAt": 1, "workdir": "/w" });
        whole.as_object_mut().unwrap().extend(result.as_object().unwrap().clone());
        assert_eq!(serde_json::from_value::<Command>(whole).unwrap().facts(), expected);
    }

    #[test]
    fn a_command_is_summed_up_in_a_line() {
        check_facts(
            json!({ "status": "completed", "exitCode": 0, "signal": null, "durationMs": 12 }),
            "[exit code 0, 12.0 ms]",
        );
        check_facts(
            json!({ "status": "failed", "exitCode": null, "signal": "SIGKILL", "timedOut": true, "truncated": true }),
            "[ended by SIGKILL, timed out, only the end of the output was kept]",
        );
        check_facts(json!({ "status": "running" }), "[running in the background; sessionId s1]");
    }

    #[test]
    fn several_images_have_a_file_each() {
        assert_eq!(numbered(Path::new("a/plot.png"), 0), Path::new("a/plot.png"));
        assert_eq!(numbered(Path::new("a/plot.png"), 1), Path::new("a/plot-2.png"));
        assert_eq!(numbered(Path::new("plot"), 2), Path::new("plot-3"));
    }
}
