//! Rule: each value has the correct source, and invalid values are reported with it.

use super::*;
use crate::config::flags::FLAGS;

fn layers(
    file: &str,
    variables: &[(&str, &str)],
    flags: &[(&str, OsString)],
) -> Result<Layers, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("switchboard.toml");
    std::fs::write(&path, file).unwrap();
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    Layers::read(Some(&path), variables, flags)
}

#[track_caller]
fn check_mistake(file: &str, line: usize, words: &[&str]) {
    let error =
        layers(file, &[], &[]).and_then(|layers| Config::resolve(&layers)).unwrap_err().to_string();
    assert!(error.contains(&format!("switchboard.toml:{line}")), "{error}");
    for word in words {
        assert!(error.contains(word), "{error} should name {word}");
    }
}

#[test]
fn mistakes_name_file_line_and_key() {
    check_mistake("[server]\nlisten = 5\n", 2, &["listen", "string"]);
    check_mistake("\n[server]\nlisten = \"127.0.0.1:0\"\nlissten = 5\n", 4, &["lissten", "listen"]);
    check_mistake("[nope]\n", 1, &["nope", "server"]);
    check_mistake(
        "[limits]\n\npending_total = \"many\"\n",
        3,
        &["pending_total", "many", "a whole number"],
    );
    check_mistake("[limits]\npending_total = 0\n", 2, &["limits.pending_total"]);
    check_mistake("[server]\nlisten = \"0.0.0.0:3210\"\n", 2, &["server.listen", "--insecure"]);
    check_mistake("[server\n", 1, &[]);
    check_mistake("[journal]\nkeep_days = 9000000000000\n", 2, &["journal.keep_days", "36500"]);
    check_mistake("[journal]\n\nkeep_calls = 0\n", 3, &["journal.keep_calls"]);
    check_mistake("[server]\nmax_connections = 0\n", 2, &["server.max_connections"]);
    check_mistake(
        "[server]\nmax_connections = 9223372036854775807\n",
        2,
        &["server.max_connections"],
    );
    check_mistake(
        "[limits]\nmax_call_ms = 9223372036854775807\n",
        2,
        &["limits.max_call_ms", "milliseconds"],
    );
    check_mistake("[upstream.files]\n", 1, &["upstream.files", "command", "url"]);
    check_mistake("\n[upstream.web]\nurl = \"ftp://x\"\n", 3, &["upstream.web.url", "http"]);
    check_mistake("[models.gpt]\n", 1, &["models.gpt", "base_url"]);
    check_mistake(
        "\n[models.gpt]\nbase_url = \"http://a/v1\"\nmax_rounds = 0\n",
        4,
        &["models.gpt.max_rounds"],
    );
    check_mistake("[log]\nfilter = \"info,=nonsense=\"\n", 2, &["log.filter"]);
}

#[test]
fn what_cannot_work_is_told_with_its_line_and_what_to_write_instead() {
    let check = |section: &str, line: &str, words: &[&str]| {
        let (key, _) = line.split_once(" = ").unwrap();
        let words: Vec<&str> = words.iter().copied().chain([key]).collect();
        check_mistake(&format!("[{section}]\n\n{line}\n"), 3, &words);
    };
    check("telemetry", "otlp_endpoint = \"localhost:4318\"", &["write \"http://localhost:4318\""]);
    check("telemetry", "otlp_endpoint = \"http://a:4318/v1/traces\"", &["write \"http://a:4318\""]);
    check("telemetry", "service_name = \"\"", &["write a name"]);
    check("server", "public_url = \"gw.example.com\"", &["write \"https://gw.example.com\""]);
    check("server", "listen = \"here\"", &["127.0.0.1:3210", "here"]);
    check(
        "server",
        "allowed_hosts = [\"ok.example\", \"https://gw.example.com\"]",
        &["write \"gw.example.com\""],
    );
    check(
        "server",
        "allowed_origins = [\"https://a.example/x\"]",
        &["write \"https://a.example\""],
    );
    check("server", "tls_cert = \"a.pem\"", &["server.tls_key"]);
    check("server", "tls_key = \"a.pem\"", &["server.tls_cert"]);
    check("plugins", "allowed_origins = [\"*\"]", &["write each origin by itself"]);
    check("plugins", "allow_private = [\"localhost\"]", &["localhost:3400"]);
    check("plugins", "settings_headers = [\"a b\"]", &["a b"]);
    check("policy", "deny = [\" Bash\"]", &["write \"Bash\""]);
    check("skills", "dirs = [\"\"]", &["its path"]);
    check("nodes", "primary = \"laptop \"", &["switchboard nodes"]);
    check("nodes", "max_tools = 0", &["at least 1"]);
    check("limits", "max_frame_bytes = 1", &["at least 256"]);
    check("log", "filter = \"inof\"", &["did you mean \"info\"?"]);
    check("sessions", "default_agent = \"bot\"", &["[sessions.agents.bot]"]);
    check("sessions.agents.bot", "command = [\"\"]", &["my-agent"]);
    check("upstream.web", "url = \"localhost:1\"", &["http://"]);
    check("models.gpt", "base_url = \"http://a/v1?x=1\"", &["base_url"]);
}

#[test]
fn a_variable_that_sets_no_key_and_cannot_be_used_is_named() {
    let check = |name: &str, text: &str, word: &str| {
        let error = Config::resolve(&layers("", &[(name, text)], &[]).unwrap()).unwrap_err();
        assert_eq!((error.0.len(), &*error.0[0].key), (1, name), "{error}");
        assert!(error.0[0].message.contains(word), "{error}");
        assert!(!error.to_string().contains("canary"), "{error}");
    };
    check("SWITCHBOARD_KEY", "canary", "at least 16");
    check("SWITCHBOARD_KEY", "canary that is long enough\n", "line break");
    check("SA_NODE_TOKEN", "canary\n", "line break");
    check("SA_NODE_TOKENS", "canary", "id:token");
}

#[test]
fn each_flag_goes_over_the_environment_which_goes_over_the_file() {
    for flag in FLAGS {
        let (section, name) = flag.key.split_once('.').unwrap();
        let variable = variable_name(flag.key).unwrap();
        // A flag without a value can only set `true`.
        let (in_file, in_environment, typed) = match flag.value {
            Some(_) => ("\"127.0.0.1:1\"", "127.0.0.1:2", "127.0.0.1:3"),
            None => ("true", "false", "true"),
        };
        let file = format!("[{section}]\n\n{name} = {in_file}\n");
        let check = |variables: &[(&str, &str)],
                     flags: &[(&str, OsString)],
                     value: &str,
                     expected: Option<Source>| {
            let layers = layers(&file, variables, flags).unwrap();
            assert_eq!(
                layers.value(flag.key).unwrap().to_string().trim_matches('"'),
                value,
                "{}",
                flag.key
            );
            match expected {
                Some(source) => assert_eq!(layers.source(flag.key), source),
                None => assert!(
                    matches!(layers.source(flag.key), Source::File { line: 3, .. }),
                    "{}",
                    flag.key
                ),
            }
        };
        let (set, given) = ([(&*variable, in_environment)], [(flag.key, typed.into())]);
        let by_flag = Source::Flag(format!("--{}", flag.long));
        check(&[], &[], in_file.trim_matches('"'), None);
        check(&set, &[], in_environment, Some(Source::Environment(variable.clone())));
        check(&set, &given, typed, Some(by_flag.clone()));
        check(&[], &given, typed, Some(by_flag));
    }
}

#[test]
fn each_variable_goes_over_the_file() {
    for key in KEYS.iter().map(|known| known.key.as_str()) {
        let Some(variable) = variable_name(key) else { continue };
        let (section, name) = key.split_once('.').unwrap();
        let (in_file, in_environment, value) = match lookup(&defaults(), key).unwrap() {
            Value::Boolean(_) => ("true", "false", "false"),
            Value::Integer(_) => ("5000", "6000", "6000"),
            Value::Array(_) => ("[\"a\"]", "b, c", "[\"b\", \"c\"]"),
            _ if key == "log.format" => ("\"human\"", "json", "\"json\""),
            _ if key == "trust.on_change" => ("\"hold\"", "allow", "\"allow\""),
            _ => ("\"a\"", "b", "\"b\""),
        };
        let file = format!("[{section}]\n{name} = {in_file}\n");
        let value_of = |variables: &[(&str, &str)]| {
            let layers = layers(&file, variables, &[]).unwrap();
            (layers.value(key).unwrap().to_string(), layers.source(key))
        };
        let (written, source) = value_of(&[]);
        assert_eq!(written, in_file, "{key}");
        assert!(matches!(source, Source::File { line: 2, .. }), "{key}: {source:?}");
        let set = value_of(&[(&variable, in_environment)]);
        assert_eq!(set, (value.to_owned(), Source::Environment(variable.clone())), "{key}");
    }
}

#[test]
fn a_flag_whose_value_cannot_be_used_is_named_with_its_key_and_what_is_allowed() {
    use std::os::unix::ffi::OsStringExt as _;
    for flag in FLAGS.iter().filter(|flag| flag.value.is_some()) {
        for (typed, told) in [(OsString::from_vec(vec![b'a', 0xff]), "UTF-8"), ("".into(), "empty")]
        {
            let error = layers("", &[], &[(flag.key, typed)]).unwrap_err();
            let place = format!("the flag --{} ({})", flag.long, flag.key);
            assert_eq!((error.0.len(), &*error.0[0].place), (1, &*place), "{error}");
            assert!(error.0[0].message.contains(told), "{error}");
        }
    }
    // Values that are only checked later are reported with the same source.
    let check = |key: &'static str, typed: &str, allowed: &str| {
        let error = Config::resolve(&layers("", &[], &[(key, typed.into())]).unwrap())
            .unwrap_err()
            .to_string();
        let flag = flag_name(key).unwrap();
        assert!(
            error.starts_with(&format!("the flag {flag} ({key}): ")) && error.contains(allowed),
            "{error}"
        );
    };
    check(
        "server.listen",
        "somewhere",
        "must be an address and a port, such as \"127.0.0.1:3210\"",
    );
    check("server.listen", "0.0.0.0:1", "--insecure");
    check("server.tls_cert", "a.pem", "server.tls_key");
    check("server.tls_key", "a.pem", "server.tls_cert");
}

#[test]
fn every_flag_sets_a_key_that_there_is() {
    for flag in FLAGS {
        let default = lookup(&defaults(), flag.key).cloned().unwrap();
        assert_eq!(flag.value.is_none(), default.is_bool(), "{}", flag.key);
        assert!(!flag.meaning().is_empty(), "{}", flag.key);
    }
}

#[test]
fn all_mistakes_are_told_at_once_each_with_its_whole_key() {
    let file = "[server]\nlisten = 5\ndrain_ms = \"x\"\n[limits]\npending_total = 0\n[models.\"gpt-5.1\"]\nbase = 1\n\
        [upstream.files]\ncommand = \"ls\"\n[sessions.agents.bot]\nsandbox = true\n[nope]\nx = 1\n";
    let error = layers(file, &[("SWITCHBOARD_JOURNAL_KEEP_DAYS", "x")], &[]).unwrap_err();
    let told: Vec<&str> = error
        .0
        .iter()
        .map(|mistake| mistake.place.rsplit('/').next().unwrap_or_default())
        .collect();
    assert_eq!(
        told,
        [
            "switchboard.toml:2: server.listen",
            "switchboard.toml:3: server.drain_ms",
            "switchboard.toml:5: limits.pending_total",
            "switchboard.toml:7: models.gpt-5.1.base",
            "switchboard.toml:9: upstream.files.command",
            "switchboard.toml:10: sessions.agents.bot",
            "switchboard.toml:12: nope",
            "the environment variable SWITCHBOARD_JOURNAL_KEEP_DAYS",
        ]
    );
    let file = "[server]\nlisten = \"0.0.0.0:1\"\n[limits]\npending_total = 0\nmax_call_ms = 0\n[log]\nfilter = \"=x=\"\n";
    let error = Config::resolve(&layers(file, &[], &[]).unwrap()).unwrap_err();
    assert_eq!(
        error.0.iter().map(|mistake| mistake.line).collect::<Vec<_>>(),
        [2, 4, 5, 7].map(Some),
        "{error}"
    );
    // An unknown key does not hide a number out of range.
    let file = "[log]\nfilter = \"=x=\"\n[limits]\nmax_call_ms = 0\npending = 1\n";
    let error = layers(file, &[], &[]).unwrap_err();
    assert_eq!(
        error.0.iter().map(|mistake| mistake.line).collect::<Vec<_>>(),
        [2, 4, 5].map(Some),
        "{error}"
    );
    let many = format!(
        "[server]\n{}",
        (0..100).map(|n| format!("wrong{n} = 1\n")).collect::<Vec<_>>().concat()
    );
    assert_eq!(
        layers(&many, &[], &[]).unwrap_err().0.len(),
        21,
        "the number of reported mistakes is limited"
    );
}

#[test]
fn a_misspelt_key_names_the_one_that_was_meant() {
    let check = |file: &str, expected: &str| {
        let error = layers(file, &[], &[]).unwrap_err();
        assert!(error.0[0].message.ends_with(expected), "{error}");
    };
    check("[server]\nlissten = \"x\"\n", "did you mean server.listen?");
    check("[serverr]\nlisten = \"x\"\n", "did you mean server?");
    check("[upstream.files]\ncomand = [\"x\"]\n", "did you mean upstream.files.command?");
    check(
        "[sessions.agents.bot]\ncommand = [\"x\"]\nsandbx = true\n",
        "did you mean sessions.agents.bot.sandbox?",
    );
    check("[server]\npending_total = 5\n", "did you mean limits.pending_total?");
    check("[data]\ncolour = 1\n", "unknown key; the known keys are: dir");
}

#[test]
fn the_rest_of_a_file_with_mistakes_can_be_asked_about() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("switchboard.toml");
    std::fs::write(
        &path,
        "[limits]\npending_total = 7\npending = 1\n[journal]\nkeep_days = \"x\"\n",
    )
    .unwrap();
    let (layers, unreadable) = Layers::read_despite_mistakes(Some(&path), Vec::new(), &[]);
    assert_eq!(unreadable.len(), 2, "{unreadable:?}");
    assert_eq!(layers.value("limits.pending_total"), Some(7.into()));
    assert!(matches!(layers.source("limits.pending_total"), Source::File { line: 2, .. }));
    assert_eq!(layers.source("journal.keep_days"), Source::Default);
}

#[test]
fn tables_with_names_are_known_with_their_lines_and_without_their_secrets() {
    let file = "[upstream.web]\nurl = \"https://a\"\nbearer = \"env:KEY\"\nheaders = { x = \"canary\", y = \"file:/k\" }\n\
        [models.\"gpt-5.1\"]\nbase_url = \"http://a/v1\"\napi_key = \"canary\"\n\
        [sessions.agents.bot]\ncommand = [\"bot\"]\nenv = { KEY = \"canary\" }\n";
    let layers = layers(file, &[], &[]).unwrap();
    let named = layers.named();
    let shown = format!("{named:?}");
    assert!(
        !shown.contains("canary") && shown.contains("env:KEY") && shown.contains("file:/k"),
        "{shown}"
    );
    let place = |key: &str| layers.place_of(key).rsplit('/').next().unwrap().to_owned();
    assert_eq!(place("upstream.web.bearer"), "switchboard.toml:3: upstream.web.bearer");
    assert_eq!(place("models.gpt-5.1.api_key"), "switchboard.toml:7: models.gpt-5.1.api_key");
    assert_eq!(
        place("sessions.agents.bot.command"),
        "switchboard.toml:9: sessions.agents.bot.command"
    );
    assert_eq!(named.len(), 7, "{shown}");
}

#[test]
fn later_layers_go_over_earlier_ones_and_are_remembered() {
    let file = "[server]\nlisten = \"127.0.0.1:1\"\ndrain_ms = 5\n[limits]\npending_total = 7\n";
    let flags = [("server.listen", "127.0.0.1:3".into())];
    let layers = layers(
        file,
        &[("SWITCHBOARD_SERVER_LISTEN", "127.0.0.1:2"), ("SWITCHBOARD_SERVER_DRAIN_MS", "6")],
        &flags,
    )
    .unwrap();
    let config = Config::resolve(&layers).unwrap();
    assert_eq!(config.listen.port(), 3);
    assert_eq!(config.settings.server.drain_ms, 6);
    assert_eq!(config.settings.limits.pending_total, 7);
    assert_eq!(layers.source("server.listen"), Source::Flag("--listen".into()));
    assert_eq!(
        layers.source("server.drain_ms"),
        Source::Environment("SWITCHBOARD_SERVER_DRAIN_MS".into())
    );
    assert!(matches!(layers.source("limits.pending_total"), Source::File { line: 5, .. }));
    assert_eq!(layers.source("log.filter"), Source::Default);
}

#[test]
fn every_key_is_explained_and_every_explanation_has_its_key() {
    let mut keys: Vec<String> = Vec::new();
    for (section, values) in &defaults() {
        keys.extend(values.as_table().unwrap().keys().map(|name| format!("{section}.{name}")));
    }
    let mut explained: Vec<String> = KEYS.iter().map(|known| known.key.clone()).collect();
    keys.sort();
    explained.sort();
    assert_eq!(keys, explained);
}

#[test]
fn a_key_that_only_the_file_can_set_has_no_variable() {
    for key in KEYS.iter().map(|known| &known.key) {
        let is_table = lookup(&defaults(), key).is_some_and(Value::is_table);
        assert_eq!(variable_name(key).is_none(), is_table, "{key}");
    }
    let ignored = layers("", &[("SWITCHBOARD_SESSIONS_AGENTS", "x")], &[]).unwrap();
    assert_eq!(ignored.source("sessions.agents"), Source::Default);
}

#[test]
fn a_variable_that_does_not_fit_is_named() {
    let check = |name: &str, text: &str, expected: &str| {
        let error = layers("", &[(name, text)], &[]).unwrap_err();
        assert_eq!(error.to_string(), format!("the environment variable {name}: {expected}"));
    };
    let wanted = "it must be a whole number from 0 up, and is \"lots\"";
    check("SWITCHBOARD_LIMITS_PENDING_TOTAL", "lots", wanted);
    check("SWITCHBOARD_SERVER_INSECURE", "maybe", "it must be true or false, and is \"maybe\"");
    let wanted = "it must be \"auto\", \"human\" or \"json\", and is \"xml\"";
    check("SWITCHBOARD_LOG_FORMAT", "xml", wanted);
}
