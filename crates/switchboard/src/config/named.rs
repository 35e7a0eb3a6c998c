//! The keys of tables that have names of their own, such as `[upstream.files]`. Only the file can have them.

/// A key, with what counts where it is not written, and what it means. A test keeps this list and the structs that are
/// read the same.
pub const NAMED_KEYS: &[(&str, &str, &str)] = &[
    (
        "upstream.NAME.command",
        "[]",
        "An MCP server: the program and its arguments, which speaks over stdin and stdout.",
    ),
    ("upstream.NAME.env", "{}", "More variables for the program. A value may be a reference: env:NAME or file:PATH."),
    ("upstream.NAME.cwd", "\"\"", "Where the program runs."),
    ("upstream.NAME.url", "\"\"", "An MCP server: its address, in place of a command."),
    ("upstream.NAME.bearer", "\"\"", "Where the server's bearer token is: env:NAME or file:PATH."),
    ("upstream.NAME.headers", "{}", "More headers for each request. A value may be a reference, like bearer."),
    (
        "upstream.NAME.oauth",
        "",
        "{ grant, client_id, client_secret, client_metadata_url, issuer, scopes }: tokens of the server's OAuth authority. grant is \"client_credentials\", the gateway's own account, or \"authorization_code\", somebody who logs in. client_secret is a reference, like bearer.",
    ),
    ("upstream.NAME.enabled", "true", "Whether the server is used."),
    (
        "upstream.NAME.timeout_ms",
        "",
        "Time limit of its tools, where the caller sets none. Not written: limits.default_timeout_ms.",
    ),
    ("upstream.NAME.max_running", "50", "Calls that it may be given at once."),
    (
        "upstream.NAME.isolate",
        "",
        "Whether each token that calls gets a connection of its own. Not written: true for a url, false for a command, which would be a process for each.",
    ),
    (
        "models.NAME.base_url",
        "\"\"",
        "A model for chats: where its server's API begins, such as \"https://api.openai.com/v1\".",
    ),
    ("models.NAME.api_key", "\"\"", "The server's key: itself, or where it is, env:NAME or file:PATH."),
    ("models.NAME.model", "\"\"", "What the server calls the model. Empty: NAME."),
    (
        "models.NAME.headers",
        "{}",
        "More headers for each request to the server. A value may be a reference, like api_key.",
    ),
    ("models.NAME.tools", "[\"*\"]", "The gateway's tools that the model is offered; * stands for any characters."),
    ("models.NAME.max_tools", "128", "The most tools that the server takes, the client's included."),
    ("models.NAME.max_rounds", "16", "How often the model is asked for one answer."),
    ("models.NAME.max_tool_calls", "128", "How many calls the gateway runs for one answer."),
    ("models.NAME.max_parallel", "8", "How many calls the gateway runs at once for one answer."),
    (
        "models.NAME.max_total_tokens",
        "0",
        "No round is begun once the rounds before it have used so many tokens; 0 is no limit.",
    ),
    ("models.NAME.timeout_ms", "600000", "How long one answer may take, its calls included."),
    ("models.NAME.idle_timeout_ms", "120000", "How long the server may be silent."),
    ("models.NAME.max_result_bytes", "262144", "How much of a result the model is shown."),
    ("models.NAME.images", "true", "Whether the model can look at images."),
    (
        "models.NAME.legacy_functions",
        "false",
        "Whether the server knows only functions and function_call, the older form of calls.",
    ),
    ("sessions.agents.NAME.command", "", "An agent for sessions: the program and its arguments."),
    (
        "sessions.agents.NAME.sandbox",
        "false",
        "Run it in a sandbox: it sees the system's programs, its directory and the relay.",
    ),
    ("sessions.agents.NAME.network", "true", "Whether a sandbox has the network."),
    (
        "sessions.agents.NAME.input",
        "\"json\"",
        "How it gets messages: \"json\", each as one line of JSON on its stdin, or \"text\", one as it is and then the end.",
    ),
    ("sessions.agents.NAME.env", "{}", "Variables that are set for it."),
    ("sessions.agents.NAME.pass_env", "[]", "Variables of the gateway's that it gets, beside the usual ones."),
    (
        "sessions.agents.NAME.dir",
        "\"\"",
        "Where it works. Empty: a directory of the session's own, which is gone with it.",
    ),
    ("sessions.agents.NAME.read", "[]", "What it may read in a sandbox, beside the system's programs."),
];

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;

    /// What a struct can be read from, in its own words for what it does not know.
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
            // What is empty is not written.
            if let Some(value) = defaults.get(field) {
                assert_eq!(value.to_string(), *default, "{key}");
            }
        }
    }
}
