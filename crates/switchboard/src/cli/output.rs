//! How commands print, and how they fail.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use crate::redact::{printable, steers};

/// Prints to stdout. A reader that has left (`| head`) is no failure.
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

/// JSON for people: indented on a terminal, as it came elsewhere.
pub(crate) fn json(text: &str) -> Result<(), Failure> {
    if std::io::stdout().is_terminal()
        && let Ok(value) = serde_json::from_str::<serde_json::Value>(text)
    {
        return line(&pretty(&value));
    }
    line(text)
}

/// Indented JSON. What a terminal would obey becomes an escape, which JSON has for everything.
pub(crate) fn pretty(value: &serde_json::Value) -> String {
    let escape = |c: char| if c != '\n' && steers(c) { format!("\\u{:04x}", c as u32) } else { c.to_string() };
    format!("{value:#}").chars().map(escape).collect()
}

/// A text of many lines, as it is, or made safe where it goes to a terminal.
pub(crate) fn lines(text: &str) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() {
        return line(text);
    }
    line(&text.split('\n').map(printable).collect::<Vec<_>>().join("\n"))
}

/// The widest cell of a table. A line that is longer helps nobody, and far beyond it text cannot even be padded.
const MAX_CELL: usize = 120;

/// A cell that is harmless and not too wide, whatever came from outside.
fn cell(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(MAX_CELL) {
        None => text.into_owned(),
        Some(_) => text.chars().take(MAX_CELL - 1).chain(['…']).collect(),
    }
}

/// Columns as wide as they need to be.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let print_row = |cells: &[&str]| {
        let mut text = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            text.push_str(&format!("{cell:width$}  "));
        }
        line(text.trim_end())
    };
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    if colour {
        print("\x1b[1m")?;
    }
    print_row(&head.iter().map(String::as_str).collect::<Vec<_>>())?;
    if colour {
        print("\x1b[0m")?;
    }
    for row in &rows {
        print_row(&row.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// `4 s`, `12 min`, `3 h`, `2 d`.
pub(crate) fn span(ms: u64) -> String {
    match ms / 1_000 {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3_600 => format!("{} min", s / 60),
        s @ 3_600..86_400 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    }
}

/// `350 µs`, `12.3 ms`, `4.50 s`.
pub(crate) fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

/// A time of day for people, in UTC.
pub(crate) fn clock(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms)
        .map_or_else(|_| at_ms.to_string(), |at| format!("{at:.3}").replace('T', " "))
}

/// Why a command failed: what, and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
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

    /// The exit code for a kind of problem that the gateway reports.
    pub(crate) fn of_kind(kind: &str, message: impl Into<String>) -> Self {
        let code = match kind {
            "unauthorized" | "not_allowed" => 4,
            "not_found" => 5,
            "invalid_args" | "bad_request" => 6,
            "timeout" => 7,
            "offline" | "overloaded" | "store" => 8,
            "conflict" => 9,
            "cancelled" => 130,
            _ => 1,
        };
        Self::new(code, message)
    }

    pub(crate) fn report(&self) -> ExitCode {
        let mut err = std::io::stderr().lock();
        let _ = writeln!(err, "error: {}", printable(&self.message));
        if let Some(hint) = &self.hint {
            let _ = writeln!(err, "  try: {}", printable(hint));
        }
        ExitCode::from(self.code)
    }
}

impl From<crate::config::ConfigError> for Failure {
    fn from(error: crate::config::ConfigError) -> Self {
        Self::usage(error.to_string()).hint("switchboard config explain lists every key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_of_any_length_can_be_shown() {
        let long = "ä".repeat(70_000);
        assert!(table(&["A", "B"], &[vec![long.clone(), "x".into()]]).is_ok());
        assert_eq!(cell(&long).chars().count(), MAX_CELL);
        assert!(cell(&long).ends_with('…'));
        let whole = "ä".repeat(MAX_CELL);
        assert_eq!(cell(&whole), whole);
    }
}
