//! Output and failures of commands.

use std::borrow::Cow;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use serde_json::value::RawValue;

use super::table::{display_width, paragraph, width_of};
use sa_gateway::config::environment::variable_name;
use sa_gateway::config::{Mistake, UNREADABLE};
use sa_text::{affects_display, json_escape};

/// Prints to stdout. A closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::other(format!("cannot write the output: {error}"))),
        Ok(()) => Ok(()),
    }
}

pub(crate) fn line(text: &str) -> Result<(), Failure> {
    print(&format!("{text}\n"))
}

/// Prints JSON: indented on a terminal, unchanged otherwise.
pub(crate) fn json(text: &str) -> Result<(), Failure> {
    let laid_out =
        std::io::stdout().is_terminal() && serde_json::from_str::<&RawValue>(text).is_ok();
    if laid_out { line(&pretty(text)) } else { line(text) }
}

/// Returns indented JSON for display. Numbers and duplicate keys stay as written. Only strings are
/// rewritten: readable, with escapes for terminal control characters.
pub(crate) fn pretty(json: &str) -> String {
    indented(json, readable)
}

/// Returns indented JSON for a program. All strings stay as written.
pub(crate) fn laid_out(json: &str) -> String {
    indented(json, str::to_owned)
}

fn indented(json: &str, text: fn(&str) -> String) -> String {
    let mut shown = String::with_capacity(json.len() * 2);
    let (mut rest, mut depth, mut last) = (json, 0_usize, ' ');
    while let Some(c) = rest.chars().next() {
        let (token, more) = rest.split_at(if c == '"' { text_len(rest) } else { c.len_utf8() });
        rest = more;
        if c.is_ascii_whitespace() {
            continue;
        }
        let (opens, ends) = (matches!(last, '{' | '['), matches!(c, '}' | ']'));
        depth = depth.saturating_sub(usize::from(ends));
        if last == ',' || opens != ends {
            shown.push('\n');
            shown.extend(std::iter::repeat_n("  ", depth));
        }
        match c {
            '"' => shown.push_str(&text(token)),
            ':' => shown.push_str(": "),
            _ => shown.push_str(token),
        }
        depth += usize::from(matches!(c, '{' | '['));
        last = c;
    }
    shown
}

/// Returns the length of the JSON string at the start of the input, including quotes.
fn text_len(json: &str) -> usize {
    let mut escaped = false;
    let end = json.bytes().skip(1).position(|byte| match byte {
        _ if std::mem::take(&mut escaped) => false,
        b'\\' => {
            escaped = true;
            false
        }
        byte => byte == b'"',
    });
    end.map_or(json.len(), |end| end + 2)
}

/// Rewrites a JSON string with escapes only where a terminal would interpret a character. An
/// invalid string is returned unchanged.
fn readable(text: &str) -> String {
    let plain = serde_json::from_str::<String>(text)
        .map_or_else(|_| text.to_owned(), |text| serde_json::Value::from(text).to_string());
    plain.chars().map(|c| if affects_display(c) { json_escape(c) } else { c.to_string() }).collect()
}

/// Prints a text of several lines, made safe if stdout is a terminal. The output always ends with a
/// line break.
pub(crate) fn lines(text: &str) -> Result<(), Failure> {
    let shown = if std::io::stdout().is_terminal() {
        harmless(text, &mut false).into()
    } else {
        Cow::Borrowed(text)
    };
    print(&format!("{}\n", shown.strip_suffix('\n').unwrap_or(&shown)))
}

/// Escapes program output for a terminal. Line breaks and tabs are kept, in all their common
/// encodings; other control characters are escaped. `open` records that the previous chunk ended
/// within a line break.
pub(crate) fn harmless(text: &str, open: &mut bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        // A terminal in between turns a line break into `\r\r
        // `, which is still one line break.
        if c != '\r' && std::mem::take(open) && c != '\n' {
            shown.push('\n');
        }
        match c {
            '\r' => *open = true,
            '\n' | '\t' => shown.push(c),
            c if affects_display(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// Formats a duration: `350 µs`, `12.3 ms`, `4.50 s`.
pub(crate) fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

/// Formats a timestamp in UTC.
pub(crate) fn clock(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms)
        .map_or_else(|_| at_ms.to_string(), |at| format!("{at:.3}").replace('T', " "))
}

/// Formats a timestamp for a table: complete in a file, shortened on a terminal.
pub(crate) fn when(at_ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(at_ms) {
        Ok(at) if std::io::stdout().is_terminal() => {
            brief(at, jiff::Timestamp::from_millisecond(sa_core::clock::now_ms()).unwrap_or(at))
        }
        _ => clock(at_ms),
    }
}

fn brief(at: jiff::Timestamp, now: jiff::Timestamp) -> String {
    let same = |part: &str| at.strftime(part).to_string() == now.strftime(part).to_string();
    let form = match (same("%Y-%m-%d"), same("%Y")) {
        (true, _) => "%H:%M:%S",
        (_, true) => "%b %d %H:%M",
        _ => "%Y-%m-%d",
    };
    at.strftime(form).to_string()
}

/// Formats a size: `812 B`, `34 KB`, `1.2 MB`.
pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} KB", bytes.div_ceil(1_000)),
        // From here on, rounding shows "1.0 GB" and not "1000.0 MB".
        1_000_000..999_950_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// The failure of a command, with a message and a hint.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// The gateway's problem document, as received.
    problem: Option<String>,
    /// The JSON answer that was already printed contains the failure.
    told: bool,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, problem: None, told: false }
    }

    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self::new(1, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(2, message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Attaches the gateway's problem document, for JSON output.
    pub(crate) fn because(mut self, problem: &str) -> Self {
        self.problem = Some(problem.to_owned());
        self
    }

    /// Changes the exit code of a usage error that refers to a file or URL, not to the command
    /// line.
    pub(super) fn of_content(mut self) -> Self {
        if self.problem.is_some() && self.code == Self::usage("").code {
            self.code = Self::of_kind("invalid_args", "").code;
        }
        self
    }

    /// Marks the failure as already reported in the printed JSON answer.
    pub(crate) fn told(mut self) -> Self {
        self.told = true;
        self
    }

    /// Creates a failure with the exit code for a problem kind of the gateway.
    pub(crate) fn of_kind(kind: &str, message: impl Into<String>) -> Self {
        let code = match kind {
            "https_required" => 3,
            "unauthorized" | "not_allowed" => 4,
            "not_found" => 5,
            // The command line does not form a valid request.
            "bad_request" => 2,
            "invalid_args" => 6,
            "timeout" => 7,
            "offline" | "overloaded" | "store" => 8,
            "conflict" => 9,
            "cancelled" => 130,
            _ => 1,
        };
        Self::new(code, message)
    }

    /// Returns the failure as a problem document, in the format of the gateway's API.
    fn as_problem(&self) -> String {
        if let Some(problem) = &self.problem {
            return with_hint(problem, self.hint.as_deref());
        }
        let (kind, retryable) = match self.code {
            2 => ("usage", false),
            3 => ("unreachable", true),
            4 => ("not_allowed", false),
            5 => ("not_found", false),
            6 => ("invalid_args", false),
            7 => ("timeout", true),
            8 => ("offline", true),
            9 => ("conflict", false),
            10 => ("connection_lost", false),
            130 => ("cancelled", false),
            _ => ("failed", false),
        };
        let uri = format!("urn:switchboard:problem:{kind}");
        let mut problem = serde_json::json!({ "type": uri, "detail": self.message, "kind": kind, "retryable": retryable });
        if let Some(hint) = &self.hint {
            problem["hint"] = hint.as_str().into();
        }
        problem.to_string()
    }

    /// Prints the failure as JSON.
    pub(super) fn print_problem(&self) {
        // An error while printing is ignored: the message on stderr and the exit code remain.
        let _ = json(&self.as_problem());
    }

    /// Reports the failure as text on stderr. With `--json`, also prints it as JSON on stdout,
    /// where the caller expects the answer.
    pub(crate) fn report(&self, as_json: bool) -> ExitCode {
        const INDENT: &str = "\n       ";
        if as_json && !self.told {
            self.print_problem();
        }
        let mut err = std::io::stderr().lock();
        // A message that points at a position in a text has several lines, and their layout must
        // not change.
        let room = width_of(&err).map(|width| width.saturating_sub(INDENT.len()).max(20));
        let _ = writeln!(err, "error: {}", paragraph(&self.message, room).join(INDENT));
        if let Some(hint) = &self.hint {
            let _ = writeln!(err, " hint: {}", advice(hint, room).join(INDENT));
        }
        ExitCode::from(self.code)
    }
}

/// Replaces the hint in the gateway's problem document. The command knows better than the gateway
/// which words were typed.
fn with_hint(problem: &str, hint: Option<&str>) -> String {
    let told: Option<serde_json::Map<_, _>> = serde_json::from_str(problem).ok();
    let (Some(mut told), Some(hint)) = (told, hint) else { return problem.to_owned() };
    told.insert("hint".to_owned(), hint.into());
    serde_json::Value::Object(told).to_string()
}

/// Prints a text to stderr, wrapped to the terminal width.
pub(crate) fn err_lines(text: &str) {
    let mut err = std::io::stderr().lock();
    let lines = paragraph(text, width_of(&err));
    let _ = writeln!(err, "{}", lines.join("\n"));
}

/// Prints a labelled note to stderr. A note is not a failure.
pub(crate) fn note(label: &str, text: &str) {
    let mut err = std::io::stderr().lock();
    let room = width_of(&err).map(|width| width.saturating_sub(label.len() + 2).max(20));
    let indent = format!("\n{}", " ".repeat(label.len() + 2));
    let _ = writeln!(err, "{label}: {}", advice(text, room).join(&indent));
}

/// Wraps a hint to this width. Commands are never broken, because a broken command cannot be
/// copied.
fn advice(text: &str, room: Option<usize>) -> Vec<String> {
    let is_command =
        |piece: &str| piece.contains("switchboard ") || piece.contains("--") || piece.contains('$');
    let whole = paragraph(text, None);
    let Some(room) = room else { return whole };
    let fits = |line: &str, more: &str| display_width(line) + 1 + display_width(more) <= room;
    let mut lines: Vec<String> = Vec::new();
    for own in whole {
        if display_width(&own) <= room {
            lines.push(own);
            continue;
        }
        let begins = lines.len();
        let clauses = own.split_inclusive("; ").flat_map(|clause| clause.split_inclusive(": "));
        for piece in clauses
            .flat_map(|clause| clause.split("   "))
            .map(str::trim)
            .filter(|piece| !piece.is_empty())
        {
            let words: Vec<&str> = if piece.contains('`') {
                words(piece)
            } else if is_command(piece) {
                vec![piece]
            } else {
                piece.split(' ').collect()
            };
            for word in words {
                match lines[begins..].last_mut().filter(|line| fits(line, word)) {
                    Some(line) => line.extend([" ", word]),
                    None => lines.push(word.to_owned()),
                }
            }
        }
    }
    lines
}

/// Splits a clause into words. A command in backticks is one word.
fn words(clause: &str) -> Vec<&str> {
    let mut quoted = false;
    clause
        .split(|c: char| {
            quoted ^= c == '`';
            c == ' ' && !quoted
        })
        .collect()
}

impl From<sa_gateway::config::ConfigError> for Failure {
    fn from(error: sa_gateway::config::ConfigError) -> Self {
        let plain = |key: &str| variable_name(key).is_some();
        let unread = |mistake: &Mistake| mistake.message.starts_with(UNREADABLE);
        Self::usage(error.to_string()).hint(match &error.0[..] {
            mistakes if mistakes.iter().any(unread) => {
                "set an existing file with --config FILE (or SWITCHBOARD_CONFIG), or none; no configuration is required".to_owned()
            }
            [Mistake { key, .. }] if plain(key) => format!("run `switchboard config explain {key}` to see its meaning"),
            _ => "run `switchboard config explain` to list all keys".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_brief(at: &str, expected: &str) {
        let now = "2026-11-16T06:00:00Z".parse::<jiff::Timestamp>().unwrap();
        let at = at.parse::<jiff::Timestamp>().unwrap();
        assert_eq!(brief(at, now), expected);
    }

    #[test]
    fn a_time_says_no_more_than_it_takes() {
        check_brief("2026-11-16T05:04:03.9Z", "05:04:03");
        check_brief("2026-11-15T05:04:03Z", "Nov 15 05:04");
        check_brief("2025-11-16T05:04:03Z", "2025-11-16");
    }

    #[track_caller]
    fn check_advice(text: &str, room: Option<usize>, expected: &[&str]) {
        assert_eq!(advice(text, room), expected, "{text}");
    }

    #[test]
    fn advice_goes_on_in_the_next_line_and_commands_do_not() {
        let text = "start the server again; or: switchboard plugin disable weather --json; then look once more";
        check_advice(text, None, &[text]);
        check_advice(text, Some(200), &[text]);
        let lines = [
            "start the server",
            "again; or:",
            "switchboard plugin disable weather --json;",
            "then look once",
            "more",
        ];
        check_advice(text, Some(16), &lines);
        check_advice(
            "run `switchboard plugin disable weather --json` and look again",
            Some(16),
            &["run", "`switchboard plugin disable weather --json`", "and look again"],
        );
        check_advice(
            "see /a/path/that/is/long here",
            Some(10),
            &["see", "/a/path/that/is/long", "here"],
        );
    }

    #[track_caller]
    fn check_pretty(json: &str, expected: &str) {
        assert_eq!(pretty(json), expected);
        assert_eq!(pretty(expected), expected, "it is laid out already");
    }

    #[test]
    fn json_is_laid_out_and_says_what_it_said() {
        let value = serde_json::json!({ "a": [], "b": {}, "c": [1, [2.5, null], { "d": "x, y: {z} \"\\" }], "e": true });
        check_pretty(&value.to_string(), &format!("{value:#}"));
        check_pretty(
            " [ 1e999 , 123456789012345678901234567890,-0.0]",
            "[\n  1e999,\n  123456789012345678901234567890,\n  -0.0\n]",
        );
        check_pretty(r#"{"a":1,"a":2}"#, "{\n  \"a\": 1,\n  \"a\": 2\n}");
        check_pretty(r#""caf\u00e9 \u001b[2J \u009b \n""#, r#""café \u001b[2J \u009b \n""#);
        check_pretty(r#""\ud800""#, r#""\ud800""#);
        check_pretty("\"\u{e0067}\u{1d173}\"", r#""\udb40\udc67\ud834\udd73""#);
        check_pretty("7", "7");
    }

    proptest::proptest! {
        #[test]
        fn laid_out_json_is_the_same_json(text: String, hidden in sa_hostile::text(&["\u{e0067}", "\u{1bca0}", "\u{200b}", "\"", "\\", "\n"])) {
            let value = serde_json::json!({ hidden: [text] });
            for shown in [pretty(&value.to_string()), laid_out(&value.to_string())] {
                proptest::prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value.clone());
            }
        }
    }

    #[test]
    fn what_goes_to_a_program_has_its_texts_as_they_were_written() {
        assert_eq!(laid_out("[\"caf\\u00e9 \u{202e}\"]"), "[\n  \"caf\\u00e9 \u{202e}\"\n]");
    }

    #[track_caller]
    fn check_harmless(text: &str, expected: &str) {
        let mut open = false;
        assert_eq!(harmless(text, &mut open), expected);
    }

    #[test]
    fn a_text_of_many_lines_moves_the_terminal_to_the_next_one_and_no_further() {
        check_harmless("a\tb\nc\r\nd", "a\tb\nc\nd");
        check_harmless("a\r\r\nb", "a\nb");
        check_harmless("10%\r20%\r30%\n", "10%\n20%\n30%\n");
        check_harmless("\u{1b}[2Jx\u{7}\u{202e}", "\\u{1b}[2Jx\\u{7}\\u{202e}");
        // A line break that is split over two chunks counts once.
        let mut open = false;
        assert_eq!(harmless("a\r", &mut open), "a");
        assert_eq!(harmless("\nb\r", &mut open), "\nb");
        assert_eq!(harmless("c", &mut open), "\nc");
    }
}
