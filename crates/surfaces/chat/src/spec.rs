//! The configuration of a model: its server, and the limits of its calls.

use std::collections::BTreeMap;
use std::env::VarError;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use sa_core::Pattern;
use sa_egress::http_url;
use sa_text::mask::{self, MASK};
use sa_vault::bounded;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize, Serializer};

const MAX_NAME: usize = 128;
const MAX_ITEM: usize = 8_192;
const MAX_ITEMS: usize = 64;
const LONGEST: u64 = 24 * 3_600_000;
/// Headers that only the gateway sets.
const RESERVED: [&str; 6] =
    ["authorization", "content-length", "content-type", "host", "transfer-encoding", "connection"];

/// The configuration of one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// The base URL of the server's API, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// The server's key, or a reference to it: `env:NAME` or `file:PATH`.
    pub api_key: ApiKey,
    /// The server's name for the model. By default the name of this entry.
    pub model: String,
    /// More headers for each request to the server. A value may be a reference, like `api_key`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, ApiKey>,
    /// The gateway's tools that the model is offered. `*` matches any characters.
    pub tools: Vec<String>,
    /// The maximum number of tools that the server accepts, including the client's.
    pub max_tools: usize,
    /// The maximum number of requests to the model for one answer.
    pub max_rounds: u32,
    /// The maximum number of calls that the gateway runs for one answer.
    pub max_tool_calls: usize,
    /// The maximum number of concurrent calls for one answer.
    pub max_parallel: usize,
    /// The token limit of one answer: after it is reached, no further round begins. 0 means no
    /// limit.
    pub max_total_tokens: u64,
    /// The time limit of one answer, including its calls.
    pub timeout_ms: u64,
    /// The idle timeout of the server.
    pub idle_timeout_ms: u64,
    /// The maximum size of a result that the model receives.
    pub max_result_bytes: usize,
    /// Whether the model supports images.
    pub images: bool,
    /// Whether the server supports only `functions` and `function_call`, the older form of calls.
    pub legacy_functions: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            base_url: String::new(),
            api_key: ApiKey::default(),
            model: String::new(),
            headers: BTreeMap::new(),
            tools: vec!["*".into()],
            max_tools: 128,
            max_rounds: 16,
            max_tool_calls: 128,
            max_parallel: 8,
            max_total_tokens: 0,
            timeout_ms: 600_000,
            idle_timeout_ms: 120_000,
            max_result_bytes: 256 * 1024,
            images: true,
            legacy_functions: false,
        }
    }
}

impl Spec {
    /// Checks the configuration. The error describes the first problem.
    pub fn check(&self, name: &str) -> Result<(), String> {
        if name.is_empty()
            || name.len() > MAX_NAME
            || name.chars().any(|c| c.is_control() || c.is_whitespace())
        {
            return Err(format!("the name must have 1 to {MAX_NAME} characters and no spaces"));
        }
        if self.base_url.is_empty() {
            return Err("needs a base_url, such as \"https://api.openai.com/v1\"".into());
        }
        let url = http_url(&self.base_url).map_err(|why| format!("base_url {why}"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("base_url must not contain a password: use api_key or headers".into());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("base_url must not contain ? or #: paths are appended to it".into());
        }
        if url.path().ends_with("/chat/completions") {
            return Err("base_url must not end with /chat/completions: it is appended".into());
        }
        if self.headers.len() > MAX_ITEMS || self.tools.len() > MAX_ITEMS {
            return Err(format!("headers and tools can have at most {MAX_ITEMS} items each"));
        }
        for header in self.headers.keys() {
            let reserved = RESERVED.contains(&&*header.to_ascii_lowercase());
            if reserved || reqwest::header::HeaderName::try_from(header).is_err() {
                return Err(format!("headers: \"{}\" cannot be set", mask::name(header)));
            }
        }
        let numbers = [
            ("max_tools", self.max_tools as u64, 4_096),
            ("max_rounds", self.max_rounds.into(), 1_000),
            ("max_tool_calls", self.max_tool_calls as u64, 100_000),
            ("max_parallel", self.max_parallel as u64, 256),
            ("timeout_ms", self.timeout_ms, LONGEST),
            ("idle_timeout_ms", self.idle_timeout_ms, LONGEST),
            ("max_result_bytes", self.max_result_bytes as u64, 64 << 20),
        ];
        match numbers.into_iter().find(|(_, value, most)| *value == 0 || value > most) {
            Some((key, _, most)) => Err(format!("{key} must be from 1 to {most}")),
            None => Ok(()),
        }
    }

    /// Returns the files that contain its keys.
    pub fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let keys = self.headers.values().chain([&self.api_key]);
        keys.filter_map(|key| key.0.strip_prefix("file:")).map(Path::new)
    }

    /// Returns the server's name for the model with this name.
    pub(crate) fn model<'a>(&'a self, name: &'a str) -> &'a str {
        if self.model.is_empty() { name } else { &self.model }
    }

    pub(crate) fn offers(&self, tool: &str) -> bool {
        self.tools.iter().any(|pattern| Pattern::new(pattern).matches(tool))
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms)
    }
}

/// A key, or a reference to it. Neither `Debug` nor the displayed configuration contains the key
/// itself.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ApiKey(String);

impl ApiKey {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    fn is_reference(&self) -> bool {
        self.0.starts_with("env:") || self.0.starts_with("file:")
    }

    /// Returns the key, or `None` if there is none. It is read for each request, so that a key that
    /// was replaced in its file takes effect.
    pub(crate) fn resolve(&self) -> Result<Option<SecretString>, String> {
        let text = if let Some(name) = self.0.strip_prefix("env:") {
            std::env::var(name).map_err(|error| match error {
                VarError::NotPresent => format!("the environment variable {name} is not set"),
                VarError::NotUnicode(_) => {
                    format!("the environment variable {name} is not valid UTF-8")
                }
            })?
        } else if let Some(path) = self.0.strip_prefix("file:") {
            bounded::text_of_file(Path::new(path), bounded::TOKEN)
                .map_err(|error| format!("{path}: {error}"))?
        } else {
            self.0.clone()
        };
        let key = SecretString::from(text.trim().to_owned());
        drop(text);
        let rendered = key.expose_secret();
        if rendered.len() > MAX_ITEM || !rendered.chars().all(|c| c.is_ascii_graphic() || c == ' ')
        {
            return Err("the key contains a line break or another invalid character".into());
        }
        Ok((!rendered.is_empty()).then_some(key))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            _ if self.0.is_empty() => "none",
            _ if self.is_reference() => &self.0,
            _ => MASK,
        })
    }
}

impl Serialize for ApiKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.is_reference() || self.0.is_empty() {
            &self.0
        } else {
            MASK
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(base_url: &str) -> Spec {
        Spec { base_url: base_url.into(), ..Spec::default() }
    }

    #[track_caller]
    fn check(name: &str, spec: Spec, expected: &str) {
        match spec.check(name) {
            Ok(()) => assert_eq!(expected, "", "{spec:?} was accepted"),
            Err(error) => assert!(!expected.is_empty() && error.contains(expected), "{error}"),
        }
    }

    #[test]
    fn a_model_has_a_name_and_a_server() {
        check("gpt-5.1", at("https://api.openai.com/v1"), "");
        check("llama3.2:3b", at("http://127.0.0.1:11434/v1/"), "");
        check("a b", at("http://a/v1"), "name");
        check("", at("http://a/v1"), "name");
        check("m", Spec::default(), "base_url");
        check("m", at("http://a/v1?version=2"), "base_url");
        check("m", at("ftp://a/v1"), "http");
        check("m", at("api.openai.com/v1"), "write \"https://api.openai.com/v1\"");
        check("m", at("localhost:11434/v1"), "write \"http://localhost:11434/v1\"");
        check("m", at("https://me:secret@a/v1"), "password");
        check("m", at("http://a/v1/chat/completions"), "appended");
        check("m", Spec { max_rounds: 0, ..at("http://a") }, "max_rounds");
        check("m", Spec { timeout_ms: u64::MAX, ..at("http://a") }, "timeout_ms");
        let header = |name: &str| [(name.to_owned(), ApiKey::new("x"))].into();
        check("m", Spec { headers: header("Authorization"), ..at("http://a") }, "cannot be set");
        check("m", Spec { headers: header("OpenAI-Organization"), ..at("http://a") }, "");
    }

    #[test]
    fn a_key_is_not_shown_and_a_reference_is() {
        let spec = |key: &str| Spec { api_key: ApiKey::new(key), ..at("http://a") };
        let rendered = |spec: &Spec| format!("{spec:?} {}", serde_json::to_string(spec).unwrap());
        assert!(!rendered(&spec("sk-canary")).contains("canary"));
        assert!(rendered(&spec("env:OPENAI_API_KEY")).contains("env:OPENAI_API_KEY"));
        let misplaced = [("X-Key: canary".to_owned(), ApiKey::default())].into();
        let message = Spec { headers: misplaced, ..at("http://a") }.check("m").unwrap_err();
        assert!(!message.contains("canary"), "{message}");
    }

    #[test]
    fn references_are_followed_and_their_mistakes_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "sk-abc\n").unwrap();
        let key = |text: &str| {
            ApiKey::new(text).resolve().map(|key| key.map(|key| key.expose_secret().to_owned()))
        };
        assert_eq!(key(&format!("file:{}", file.display())), Ok(Some("sk-abc".into())));
        assert_eq!(key("plain"), Ok(Some("plain".into())));
        assert_eq!(key(""), Ok(None));
        assert!(key("env:NO_SUCH_VARIABLE_HERE").unwrap_err().contains("NO_SUCH_VARIABLE_HERE"));
        for none in ["file:/no/such/file", "file:/dev/zero", "file:/"] {
            assert!(key(none).unwrap_err().starts_with(&none["file:".len()..]), "{none}");
        }
        assert!(!key("sk-canary\r\nX-Evil: 1").unwrap_err().contains("canary"));
    }
}
