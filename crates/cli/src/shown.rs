//! Prints a call: its progress and streamed output while it runs, and its result, each only once.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::output::{self, Failure, harmless, line};
use super::result::{Attachment, Block, Command, Done, show_object, write};
use super::sessions::{self, event_line};
use super::table::{shortened, width_of};
use sa_text::printable;

/// The number of streamed bytes that are kept to recognise them in the result. The result of a
/// shell command is smaller.
const REMEMBERED: usize = 1 << 20;

/// The target of streamed output while the call runs. A file or pipe receives only the complete
/// result; partial output goes to a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Live {
    Stdout,
    Stderr,
    Nowhere,
}

/// The output of a call that has been printed so far.
pub(super) struct Shown {
    live: Live,
    json: bool,
    /// Set if the next output must overwrite a progress line.
    open: bool,
    /// The last bytes of the streamed text.
    text: String,
    /// Other streamed values, limited to the same size.
    values: Vec<Value>,
    values_bytes: usize,
    /// Set if the last text ended within a line break.
    half_break: bool,
    /// Set if the last output did not end with a line break.
    inside_line: bool,
}

/// A streamed part of the result.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

impl Shown {
    pub(super) fn new(json: bool) -> Self {
        let live = match (std::io::stdout().is_terminal() && !json, std::io::stderr().is_terminal())
        {
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

    /// Prints a note about the call that is not part of its result.
    pub(super) fn note(&mut self, text: &str) {
        self.end_line();
        let mut err = std::io::stderr().lock();
        if let Some(width) = width_of(&err) {
            // Shortened to one line, because a second line could not be erased again.
            let _ =
                write!(err, "\r\x1b[2K{}", shortened(&printable(text), width.saturating_sub(1)));
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
                let event = other.as_ref().ok().filter(|value| is_session_event(value));
                let shown = event.map_or_else(|| printable(content.get()).into_owned(), event_line);
                self.watched(&format!("{shown}\n"));
                self.values_bytes += content.get().len();
                self.values.extend(other.ok().filter(|_| self.values_bytes <= REMEMBERED));
            }
        }
    }

    /// Prints streamed text to the terminal.
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

    /// Erases the progress line.
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

    /// Handles a failed call. There is no result, and the streamed text may contain the reason, so
    /// it is printed to stderr.
    pub(super) fn failed(&mut self) {
        self.clear();
        self.end_line();
        if self.live == Live::Nowhere && !self.text.is_empty() {
            let _ = writeln!(
                std::io::stderr().lock(),
                "{}",
                harmless(&self.text, &mut false).trim_end_matches('\n')
            );
        }
    }

    /// Prints the result to a file, a pipe or a terminal. Output that the terminal already shows is
    /// not repeated.
    pub(super) fn done(mut self, data: &str, file: Option<&Path>) -> Result<(), Failure> {
        self.clear();
        self.end_line();
        if let (true, None) = (self.json, file) {
            return output::json(data);
        }
        let Ok(done) = serde_json::from_str::<Done<'_>>(data) else {
            return Err(Failure::other("cannot read the gateway's response"));
        };
        if let Some(file) = file {
            if self.json {
                return write(file, data.as_bytes());
            }
            return if done.save(file)? { self.result(&done, true) } else { Ok(()) };
        }
        self.result(&done, false)?;
        match (done.files().len(), std::io::stdout().is_terminal()) {
            (0, _) => {}
            (_, true) => {
                done.attachments.iter().try_for_each(Attachment::show)?;
                eprintln!("add --output FILE to save it");
            }
            // Images are part of the result itself.
            (_, false) if done.attachments.is_empty() => {}
            (_, false) => {
                let (count, s) =
                    (done.attachments.len(), if done.attachments.len() == 1 { "" } else { "s" });
                eprintln!(
                    "the result has {count} attachment{s}; add --output FILE to save them, or --json to print them"
                );
            }
        }
        Ok(())
    }

    /// Prints the result. The bytes of saved images are left out.
    fn result(&self, done: &Done<'_>, saved: bool) -> Result<(), Failure> {
        if let Ok(command) = serde_json::from_str::<Command>(done.result.get()) {
            let output = command.output();
            if !output.is_empty() && !self.has_shown(output) {
                output::lines(output)?;
            }
            eprintln!("{}", printable(&command.facts()));
            return Ok(());
        }
        // The text is valid JSON but cannot be represented, such as 1e999. It is printed unchanged.
        let Ok(result) = serde_json::from_str(done.result.get()) else {
            return output::lines(done.result.get());
        };
        match result {
            Value::String(text) if self.has_shown(&text) => {}
            Value::String(text) => output::lines(&text)?,
            _ if saved && done.can_be_looked_at() => {
                done.blocks().iter().try_for_each(Block::show)?;
            }
            _ if !std::io::stdout().is_terminal() => line(&output::laid_out(done.result.get()))?,
            session if is_session(&session) => sessions::show(&session)?,
            _ if done.can_be_looked_at() => done.blocks().iter().try_for_each(Block::show)?,
            Value::Object(mut members) => {
                members.retain(|_, value| !self.has_shown_value(value));
                if !members.is_empty() {
                    show_object(&members, done.result.get())?;
                }
            }
            _ => line(&output::pretty(done.result.get()))?,
        }
        Ok(())
    }

    /// Reports whether stdout already shows this text.
    fn has_shown(&self, text: &str) -> bool {
        self.live == Live::Stdout && !text.is_empty() && self.text.ends_with(text)
    }

    fn has_shown_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.has_shown(text),
            Value::Array(values) => {
                self.live == Live::Stdout && !values.is_empty() && *values == self.values
            }
            _ => false,
        }
    }
}

/// Reports whether the value is a session, as returned by the session tools.
fn is_session(value: &Value) -> bool {
    value["session_id"].is_string() && value["state"].is_string() && value["owner"].is_object()
}

fn is_session_event(value: &Value) -> bool {
    value["session_id"].is_string() && value["type"].is_string()
}

/// Formats a progress report, with its message if it has one.
pub(super) fn describe_progress(update: &Value) -> String {
    let message = update["message"].as_str().unwrap_or_default();
    let done = update["progress"].as_f64().unwrap_or(0.0);
    match update["total"].as_f64() {
        Some(total) if total > 0.0 => {
            format!("{:3.0}% {message}", 100.0 * done / total).trim_end().to_owned()
        }
        // Without a total, the number is only shown if there is no message.
        _ if message.is_empty() => format!("{done}"),
        _ => message.to_owned(),
    }
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
        assert!(
            shown.has_shown("one\ntwo\n") && shown.has_shown("two\n"),
            "all of it, and its tail"
        );
        assert!(!shown.has_shown("one\n") && !shown.has_shown(""));
        shown.values = vec![json!({ "a": 1 })];
        assert!(shown.has_shown_value(&json!([{ "a": 1 }])) && !shown.has_shown_value(&json!([])));
        shown.live = Live::Stderr;
        assert!(!shown.has_shown("two\n"), "output on a terminal is not in the file");
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
}
