//! The keys of named tables, such as `[upstream.files]`. They can only be set in the file.

/// Each key with its default and its meaning. A test compares this list with the structs.
pub const NAMED_KEYS: &[(&str, &str, &str)] = &[
    (
        "upstream.NAME.command",
        "[]",
        "Program and arguments of an MCP server that communicates over stdin and stdout.",
    ),
    (
        "upstream.NAME.env",
        "{}",
        "Additional environment variables for the program. A value may be a reference: env:NAME or file:PATH.",
    ),
    ("upstream.NAME.cwd", "\"\"", "Working directory of the program."),
    ("upstream.NAME.url", "\"\"", "URL of an MCP server, instead of a command."),
    (
        "upstream.NAME.bearer",
        "\"\"",
        "Reference to the server's bearer token: env:NAME or file:PATH.",
    ),
    (
        "upstream.NAME.headers",
        "{}",
        "Additional headers for each request. A value may be a reference, like bearer.",
    ),
    (
        "upstream.NAME.oauth",
        "",
        "OAuth settings for the server: { grant, client_id, client_secret, client_metadata_url, issuer, scopes }. grant is \"client_credentials\" for an account of the gateway itself, or \"authorization_code\" for a user who logs in. client_secret is a reference, like bearer.",
    ),
    ("upstream.NAME.enabled", "true", "Use the server."),
    (
        "upstream.NAME.timeout_ms",
        "",
        "Timeout of its tools, if the caller sets none. Default: limits.default_timeout_ms.",
    ),
    ("upstream.NAME.max_running", "50", "Maximum number of concurrent calls of the server."),
    (
        "upstream.NAME.isolate",
        "",
        "Use a separate connection or process for each calling token. Default: true for a url, false for a command.",
    ),
    (
        "models.NAME.base_url",
        "\"\"",
        "Base URL of the API of a model for chats, such as \"https://api.openai.com/v1\".",
    ),
    (
        "models.NAME.api_key",
        "\"\"",
        "API key of the server, or a reference to it: env:NAME or file:PATH.",
    ),
    ("models.NAME.model", "\"\"", "Name of the model on the server. Empty: NAME."),
    (
        "models.NAME.headers",
        "{}",
        "Additional headers for each request to the server. A value may be a reference, like api_key.",
    ),
    (
        "models.NAME.tools",
        "[\"*\"]",
        "Tools of the gateway that are offered to the model; * matches any characters.",
    ),
    (
        "models.NAME.max_tools",
        "128",
        "Maximum number of tools that the server accepts, including the client's tools.",
    ),
    ("models.NAME.max_rounds", "16", "Maximum number of requests to the model for one answer."),
    (
        "models.NAME.max_tool_calls",
        "128",
        "Maximum number of calls that the gateway runs for one answer.",
    ),
    (
        "models.NAME.max_parallel",
        "8",
        "Maximum number of concurrent calls that the gateway runs for one answer.",
    ),
    (
        "models.NAME.max_total_tokens",
        "0",
        "Number of tokens of one answer after which no new round starts. 0: no limit.",
    ),
    ("models.NAME.timeout_ms", "600000", "Timeout of one answer, including its calls."),
    ("models.NAME.idle_timeout_ms", "120000", "Maximum time without any data from the server."),
    (
        "models.NAME.max_result_bytes",
        "262144",
        "Maximum size of a call's result that is sent to the model.",
    ),
    ("models.NAME.images", "true", "The model accepts images."),
    (
        "models.NAME.legacy_functions",
        "false",
        "The server only supports functions and function_call, the older form of tool calls.",
    ),
    ("sessions.agents.NAME.command", "", "Program and arguments of an agent for sessions."),
    (
        "sessions.agents.NAME.sandbox",
        "false",
        "Run the agent in a sandbox that only contains the system's programs, its directory and the relay.",
    ),
    ("sessions.agents.NAME.network", "true", "Allow network access in the sandbox."),
    (
        "sessions.agents.NAME.input",
        "\"json\"",
        "How the agent gets messages: \"json\" sends each message as one line of JSON on its stdin, \"text\" sends one message as plain text and closes stdin.",
    ),
    ("sessions.agents.NAME.env", "{}", "Environment variables to set for the agent."),
    (
        "sessions.agents.NAME.pass_env",
        "[]",
        "Environment variables of the gateway to pass to the agent, in addition to the usual ones.",
    ),
    (
        "sessions.agents.NAME.dir",
        "\"\"",
        "Working directory of the agent. Empty: a directory of the session, which is deleted with it.",
    ),
    (
        "sessions.agents.NAME.read",
        "[]",
        "Paths that the agent may read in a sandbox, in addition to the system's programs.",
    ),
];

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;

    /// Returns the fields of a struct, taken from its error for an unknown field.
    fn fields<T: DeserializeOwned + std::fmt::Debug>(table: &str) -> Vec<String> {
        let error = toml::from_str::<T>("no_such_field = 1").unwrap_err();
        let expected = error.message().split_once("expected").unwrap().1.to_owned();
        expected.split('`').skip(1).step_by(2).map(|name| format!("{table}.{name}")).collect()
    }

    #[test]
    fn every_key_of_a_named_table_is_explained_and_no_other() {
        let known = [
            fields::<sa_upstream::Spec>("upstream.NAME"),
            fields::<sa_chat::Spec>("models.NAME"),
            fields::<sa_relay::AgentCommand>("sessions.agents.NAME"),
        ]
        .concat();
        let explained: Vec<&str> = NAMED_KEYS.iter().map(|(key, _, _)| *key).collect();
        assert_eq!(known, explained);
    }

    #[test]
    fn defaults_are_what_is_written_here() {
        let upstream = toml::Table::try_from(sa_upstream::Spec::default()).unwrap();
        let model = toml::Table::try_from(sa_chat::Spec::default()).unwrap();
        for (key, default, _) in NAMED_KEYS {
            let (table, field) = key.rsplit_once('.').unwrap();
            let defaults = match table {
                "upstream.NAME" => &upstream,
                "models.NAME" => &model,
                _ => continue,
            };
            // Empty values are not serialized.
            if let Some(value) = defaults.get(field) {
                assert_eq!(value.to_string(), *default, "{key}");
            }
        }
    }
}
