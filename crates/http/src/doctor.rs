//! The checks of the gateway's state for `switchboard doctor`. Each crate checks the answer of a
//! route of its own, and the command reports the findings of all of them.

use serde_json::Value;

/// The checks of one crate. Its settings implement them.
pub trait Doctor {
    /// The route whose answer is checked.
    fn route(&self) -> &'static str;

    /// The kinds of the audit events that are checked.
    fn events(&self) -> &'static [&'static str] {
        &[]
    }

    /// Where the answer lists the providers that an operator has installed. `None` if the crate
    /// has no such providers.
    fn installed(&self) -> Option<Installed> {
        None
    }

    fn check(&self, seen: &Seen<'_>, findings: &mut Vec<Finding>);
}

/// A list of installed providers in an answer.
#[derive(Debug, Clone, Copy)]
pub struct Installed {
    pub kind: &'static str,
    /// The field with the list.
    pub list: &'static str,
    /// The field of an entry with its id.
    pub id: &'static str,
}

impl Installed {
    pub fn of<'a>(&self, answer: &'a Value) -> &'a [Value] {
        answer[self.list].as_array().map(Vec::as_slice).unwrap_or_default()
    }
}

/// The state that is checked.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The answer of the route. `None` if it cannot be read.
    pub answer: Option<&'a Value>,
    /// The audit events of the last day, newest first.
    pub events: &'a [Value],
    pub now_ms: i64,
    /// The number of tools of all providers.
    pub tools: &'a Value,
    /// The number of installed providers of all crates.
    pub installed: usize,
}

/// One result of a check.
#[derive(Debug)]
pub struct Finding {
    pub what: String,
    /// The suggested fix. `None` if there is no problem.
    pub fix: Option<String>,
    /// Marks a note: not a problem, but possibly unexpected.
    pub note: bool,
}

impl Finding {
    pub fn good(what: impl Into<String>) -> Self {
        Self { what: what.into(), fix: None, note: false }
    }

    pub fn bad(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: Some(fix.into()), note: false }
    }

    pub fn note(what: impl Into<String>) -> Self {
        Self { note: true, ..Self::good(what) }
    }
}

/// Returns the text of a value. It is empty if the value is no text.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
