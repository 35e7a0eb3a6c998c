//! Errors as HTTP problem details (RFC 9457), with a hint, and with the `error` member that
//! OpenAI's clients read.

use std::borrow::Cow;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sa_core::store::StoreError;
use sa_core::{CallError, CallErrorKind, CallId};
use sa_socket::NoUpgrade;
use serde::Serialize;

use crate::status::status;

/// OpenAI's clients check this header before the status.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The error format of most routes.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// `urn:switchboard:problem:` and the kind.
    #[serde(rename = "type")]
    type_uri: String,
    /// The status in words.
    title: &'static str,
    status: u16,
    /// The error in one sentence.
    detail: String,
    /// The error kind for programs, such as `not_found`.
    kind: &'static str,
    /// A more specific name than `kind`, if there is one. `settings_invalid` means that a plugin's
    /// settings must be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    hint: Option<Cow<'static, str>>,
    /// Whether the same request may succeed later.
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
    error: ProblemError,
}

/// The same failure in OpenAI's format: its clients show this member and ignore the others.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct ProblemError {
    /// The same as `detail`.
    message: String,
    /// Such as `invalid_request_error`.
    #[serde(rename = "type")]
    category: &'static str,
    /// Always null.
    param: Option<String>,
    /// The same as `kind`.
    code: &'static str,
}

impl ProblemError {
    fn new(status: u16, kind: &'static str, detail: &str) -> Self {
        let category = match status {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        Self { message: detail.to_owned(), category, param: None, code: kind }
    }
}

impl Problem {
    pub fn new(status: u16, kind: &'static str, detail: impl Into<String>) -> Self {
        let title = match status {
            499 => "Client Closed Request",
            _ => StatusCode::from_u16(status)
                .ok()
                .and_then(|code| code.canonical_reason())
                .unwrap_or("Error"),
        };
        let detail = detail.into();
        Self {
            type_uri: format!("urn:switchboard:problem:{kind}"),
            title,
            status,
            error: ProblemError::new(status, kind, &detail),
            detail,
            kind,
            reason: None,
            hint: None,
            retryable: false,
            call_id: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn retryable(self) -> Self {
        Self { retryable: true, ..self }
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    pub fn is_overload(&self) -> bool {
        self.kind == CallErrorKind::Overloaded.as_str()
    }

    /// Whether the same request may be sent again soon. It was refused for lack of budget, and
    /// nothing was done.
    pub fn passes_soon(&self) -> bool {
        self.is_overload() && self.retryable
    }

    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the remedy.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The detail often quotes the request, which may have megabytes. It is therefore shortened.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(400, "bad_request", sa_text::excerpt_of_ends(detail.into()))
    }

    /// Returns the error for a token that may not call in a channel.
    pub fn not_in_channel(channel: &str) -> Self {
        let name = sa_text::printable(channel);
        let detail = format!("the token may not call in the channel \"{name}\"");
        Self::new(403, "not_allowed", detail)
    }

    pub fn call(error: &CallError, id: CallId) -> Self {
        Self::from(error).of_call(id)
    }

    #[must_use]
    pub fn of_call(self, id: CallId) -> Self {
        Self { call_id: Some(id.to_string()), ..self }
    }
}

impl From<&CallError> for Problem {
    fn from(error: &CallError) -> Self {
        Self {
            hint: error.hint.clone(),
            reason: error.reason(),
            retryable: error.retryable,
            ..Self::new(status(error), error.kind.as_str(), error.message.clone())
        }
    }
}

impl From<NoUpgrade> for Problem {
    fn from(error: NoUpgrade) -> Self {
        match error {
            NoUpgrade::NotAsked(why) => Self::new(426, "upgrade_required", why),
            NoUpgrade::Malformed(why) => Self::bad_request(why),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        use sa_core::store::StoreErrorKind as Kind;
        let hint = match error.kind {
            Kind::Damaged => {
                "stop the gateway, then run `switchboard doctor --deep` to find all damage"
            }
            Kind::Full => "free some disk space; `switchboard doctor` shows the free space",
            Kind::Closed => "the gateway is shutting down; retry when it is running again",
            _ => "see the gateway's log; `switchboard doctor` shows the last error",
        };
        let retryable = error.kind != Kind::Damaged;
        Self { retryable, ..Self::new(503, "store", error.message) }.hint(hint)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, sa_text::json::to_json(&self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == 401 {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == 426 {
            headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        if self.passes_soon() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        } else if self.is_overload() {
            // OpenAI's clients would repeat a request that was carried out.
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::status::status_of_kind;

    /// Collects every `new(404, "not_found"` in the files below a folder.
    fn made_in(folder: &Path, found: &mut BTreeSet<(String, u16)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                made_in(&path, found);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            // Other types have a `new`, too.
            let own = if source.contains("for Problem {") { "Self::new(" } else { "Problem::new(" };
            let made = ["Problem::new(", own].into_iter().collect::<BTreeSet<_>>();
            for (made, _) in made.into_iter().flat_map(|made| source.match_indices(made)) {
                let mut words = source[made..].split_once('(').unwrap().1.split(',').map(str::trim);
                let status = words.next().and_then(|status| status.parse().ok());
                let kind = words.next().and_then(|kind| kind.strip_prefix('"')?.strip_suffix('"'));
                found.extend(status.zip(kind).map(|(status, kind)| (kind.to_owned(), status)));
            }
        }
    }

    #[test]
    fn a_problem_carries_the_error_member_of_openai() {
        for (status, kind, category) in [
            (400, "bad_request", "invalid_request_error"),
            (401, "unauthorized", "authentication_error"),
            (403, "not_allowed", "permission_error"),
            (404, "not_found", "invalid_request_error"),
            (429, "overloaded", "rate_limit_error"),
            (503, "store", "server_error"),
        ] {
            let body = serde_json::to_value(Problem::new(status, kind, "why").hint("do")).unwrap();
            let error = serde_json::json!({ "message": "why", "type": category, "param": null, "code": kind });
            assert_eq!((&body["error"], &body["status"]), (&error, &status.into()));
        }
    }

    #[test]
    fn every_kind_is_in_the_docs_with_its_status() {
        let mut kinds: BTreeSet<(String, u16)> = CallErrorKind::ALL
            .into_iter()
            .map(|kind| (kind.as_str().to_owned(), status_of_kind(kind)))
            .collect();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for folder in ["http", "gateway", "providers", "surfaces"] {
            made_in(&root.join("crates").join(folder), &mut kinds);
        }
        assert!(
            kinds.contains(&("upgrade_required".to_owned(), 426)),
            "the sources are read: {kinds:?}"
        );
        let docs = std::fs::read_to_string(root.join("docs/api.md")).unwrap();
        for (kind, status) in kinds {
            let row = docs.lines().find(|line| line.starts_with(&format!("| `{kind}` |")));
            let row = row
                .unwrap_or_else(|| panic!("{kind} ({status}) is not in the table of docs/api.md"));
            let statuses = row.split('|').nth(2).unwrap();
            assert!(statuses.contains(&status.to_string()), "{kind} is {status} as well: {row}");
        }
    }
}
