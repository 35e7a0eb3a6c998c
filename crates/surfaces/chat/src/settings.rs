//! `[models.NAME]`: the configured models.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sa_settings::{Key, Section, key_of};
use serde::{Deserialize, Serialize};

use crate::Spec;

/// The models by name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(pub BTreeMap<String, Spec>);

impl Section for Settings {
    fn keys(&self) -> &'static [Key] {
        KEYS
    }

    fn check(&self, report: &mut dyn FnMut(&str, String)) {
        for (name, spec) in &self.0 {
            spec.check(name).unwrap_or_else(|why| report(&key_of(KEYS, "", name, &why), why));
        }
    }

    fn secrets(&self) -> &'static [&'static str] {
        &["api_key", "headers"]
    }

    fn addresses(&self) -> &'static [&'static str] {
        &["base_url"]
    }

    fn secret_files(&self) -> Vec<PathBuf> {
        self.0.values().flat_map(Spec::secret_files).map(Into::into).collect()
    }
}

const KEYS: &[Key] = &[
    Key::named(
        "NAME.base_url",
        "\"\"",
        "Base URL of the API of a model for chats, such as \"https://api.openai.com/v1\".",
    ),
    Key::named(
        "NAME.api_key",
        "\"\"",
        "API key of the server, or a reference to it: env:NAME or file:PATH.",
    ),
    Key::named("NAME.model", "\"\"", "Name of the model on the server. Empty: NAME."),
    Key::named(
        "NAME.headers",
        "{}",
        "Additional headers for each request to the server. A value may be a reference, like api_key.",
    ),
    Key::named(
        "NAME.tools",
        "[\"*\"]",
        "Tools of the gateway that are offered to the model; * matches any characters.",
    ),
    Key::named(
        "NAME.max_tools",
        "128",
        "Maximum number of tools that the server accepts, including the client's tools.",
    ),
    Key::named("NAME.max_rounds", "16", "Maximum number of requests to the model for one answer."),
    Key::named(
        "NAME.max_tool_calls",
        "128",
        "Maximum number of calls that the gateway runs for one answer.",
    ),
    Key::named(
        "NAME.max_parallel",
        "8",
        "Maximum number of concurrent calls that the gateway runs for one answer.",
    ),
    Key::named(
        "NAME.max_total_tokens",
        "0",
        "Number of tokens of one answer after which no new round starts. 0: no limit.",
    ),
    Key::named("NAME.timeout_ms", "600000", "Timeout of one answer, including its calls."),
    Key::named("NAME.idle_timeout_ms", "120000", "Maximum time without any data from the server."),
    Key::named(
        "NAME.max_result_bytes",
        "262144",
        "Maximum size of a call's result that is sent to the model.",
    ),
    Key::named("NAME.images", "true", "The model accepts images."),
    Key::named(
        "NAME.legacy_functions",
        "false",
        "The server only supports functions and function_call, the older form of tool calls.",
    ),
];
