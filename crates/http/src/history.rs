//! The history of ended calls: a stream of the log, with labels for its index.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use sa_core::store::{Label, Log, Retention};
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};

/// The stream of ended calls.
pub const CALLS: &str = "calls";

/// The maximum number of entries per page of the history, and of the audit log.
pub const MAX_PAGE: usize = 500;

/// The timeout for pending writes before a read. They usually take milliseconds.
const PENDING_WRITES: Duration = Duration::from_secs(2);

/// Waits until all earlier writes to a stream can be read.
pub async fn settled(log: &dyn Log, stream: &str) {
    settled_within(PENDING_WRITES, log, stream).await;
}

/// Returns `false` if the earlier writes take longer than the timeout, in case the store is stuck.
/// An empty trim is queued behind them.
pub async fn settled_within(timeout: Duration, log: &dyn Log, stream: &str) -> bool {
    tokio::time::timeout(timeout, log.trim(stream, Retention::default())).await.is_ok()
}

/// The part of a stored call that is needed for access checks and filters.
#[derive(Debug, Deserialize)]
pub struct CallSummary<'a> {
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    #[serde(borrow)]
    pub tool: Cow<'a, str>,
    #[serde(borrow)]
    pub exposed: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub principal: PrincipalSummary<'a>,
    ok: bool,
    #[serde(borrow)]
    error: Option<ErrorSummary<'a>>,
}

#[derive(Debug, Deserialize)]
pub struct PrincipalSummary<'a> {
    #[serde(borrow)]
    pub id: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct ErrorSummary<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

impl CallSummary<'_> {
    /// Returns `ok` or the error kind.
    pub fn outcome(&self) -> &str {
        if self.ok { "ok" } else { self.error.as_ref().map_or("failed", |error| &error.kind) }
    }
}

/// Extracts the index labels of a stored call: tool, principal and outcome. This runs on the
/// store's only writer thread for every call.
pub fn labels(body: &[u8], labels: &mut Vec<Label>) {
    // Stopping early is reported as an error by serde, but the labels are complete.
    let _ = serde_json::Deserializer::from_slice(body).deserialize_map(Collect(labels));
}

/// Collects labels until all are known. Most calls are `ok`, which is stored before arguments and
/// results, so those are not parsed.
struct Collect<'a>(&'a mut Vec<Label>);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Tool,
    Exposed,
    Principal,
    Ok,
    Error,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for Collect<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stored call")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let labels = self.0;
        let (mut called, mut owned, mut ok, mut kind) = (false, false, false, None);
        while let Some(field) = map.next_key()? {
            match field {
                Field::Tool => {
                    labels.push(tool(&map.next_value::<Text<'de>>()?.0));
                    called = true;
                }
                Field::Exposed => labels.push(tool(&map.next_value::<Text<'de>>()?.0)),
                Field::Principal => {
                    labels.push(principal(&map.next_value::<PrincipalSummary<'de>>()?.id));
                    owned = true;
                }
                Field::Ok => {
                    ok = map.next_value()?;
                    if ok && called && owned {
                        labels.push(outcome("ok"));
                        return Err(A::Error::custom("the rest does not matter"));
                    }
                }
                Field::Error => kind = Some(map.next_value::<ErrorSummary<'de>>()?.kind),
                Field::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        labels.push(outcome(if ok { "ok" } else { kind.as_deref().unwrap_or("failed") }));
        Ok(())
    }
}

/// Returns the label for calls of a tool, by any of its names.
pub fn tool(name: &str) -> Label {
    Label::new("tool", name)
}

pub fn principal(id: &str) -> Label {
    Label::new("principal", id)
}

pub fn outcome(outcome: &str) -> Label {
    Label::new("outcome", outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(call: &str, expected: &[Label]) {
        let mut found = Vec::new();
        labels(call.as_bytes(), &mut found);
        found.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "{call}");
    }

    #[test]
    fn a_call_has_its_labels_in_whatever_order_it_is_stored() {
        let (a, b, p) = (tool("a.b"), tool("a_b"), principal("p"));
        let who = r#""principal":{"id":"p","name":"x","role":"agent"}"#;
        let args = r#""args":{"bytes":9,"json":{"tool":"x","ok":false,"error":{"kind":"y"}}}"#;
        check(
            &format!(r#"{{"id":"1","tool":"a.b","exposed":"a_b",{who},"ok":true,{args}}}"#),
            &[a, b, p, outcome("ok")],
        );
        check(
            &format!(r#"{{{args},"exposed":"a_b","ok":true,{who},"tool":"a.b"}}"#),
            &[a, b, p, outcome("ok")],
        );
        let error = r#""error":{"kind":"timeout","message":"m","retryable":true}"#;
        check(
            &format!(r#"{{"tool":"a.b",{who},"ok":false,{args},{error}}}"#),
            &[a, p, outcome("timeout")],
        );
        check(&format!(r#"{{"tool":"a.b",{who},{args},"ok":false}}"#), &[a, p, outcome("failed")]);
        check(&format!(r#"{{"tool":"a\u002eb",{who},"ok":true}}"#), &[a, p, outcome("ok")]);
        check("no call", &[]);
    }
}
