//! Where each value of the configuration came from.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::environment::{parse_like, readable, variable_name};
use super::file::{self, File};
use super::settings::{KEYS, Settings};
use super::{Config, ConfigError, Mistake, bounds};
use crate::wording::plain_toml;

/// The layers of the configuration, lowest first: defaults, file, environment, flags.
#[derive(Debug, Clone)]
pub struct Layers {
    file: Option<File>,
    environment: Table,
    flags: Table,
    variables: BTreeMap<String, String>,
}

/// Who set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Default,
    File { path: PathBuf, line: usize },
    Environment(String),
    Flag(String),
}

impl Layers {
    /// Reads the file, and takes from the environment what is for us. `flags` are keys with their values. Nothing is used
    /// of a configuration in which anything is wrong.
    pub fn read(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: &[(&str, Value)],
    ) -> Result<Self, ConfigError> {
        match Self::read_despite_mistakes(file, environment, flags) {
            (layers, unreadable) if unreadable.is_empty() => Ok(layers),
            (layers, unreadable) => Err(ConfigError(layers.all_mistakes(unreadable))),
        }
    }

    /// The same for somebody who wants to know about the rest: with what cannot be read left out, and told.
    pub fn read_despite_mistakes(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: &[(&str, Value)],
    ) -> (Self, Vec<Mistake>) {
        let mut mistakes = Vec::new();
        let file = file.and_then(|path| match file::read(path) {
            Ok((file, wrong)) => {
                mistakes.extend(wrong);
                Some(file)
            }
            Err(unreadable) => {
                mistakes.push(unreadable);
                None
            }
        });
        let (variables, no_text) = readable(environment);
        mistakes.extend(no_text);
        let defaults = defaults();
        let mut from_environment = Table::new();
        for (key, _) in KEYS {
            let Some(name) = variable_name(key) else { continue };
            let Some(text) = variables.get(&name) else { continue };
            // On its own, so that a value that no setting can have is known to be this one.
            let fits = |value: Value| {
                let mut alone = Table::new();
                insert(&mut alone, key, value.clone());
                alone.try_into::<Settings>().map(|_| value).map_err(|error| plain_toml(error.message()))
            };
            match parse_like(lookup(&defaults, key), text).and_then(fits) {
                Ok(value) => insert(&mut from_environment, key, value),
                Err(message) => {
                    let place = format!("the environment variable {name}");
                    mistakes.push(Mistake { place, message, key: (*key).to_owned(), line: None });
                }
            }
        }
        let mut from_flags = Table::new();
        for (key, value) in flags {
            insert(&mut from_flags, key, value.clone());
        }
        let layers = Self { file, environment: from_environment, flags: from_flags, variables };
        (layers, mistakes)
    }

    /// Everything that is wrong, in the order of the file's lines: what could not be read, and what is wrong with the rest, but
    /// for what goes with a key that was left out.
    pub fn all_mistakes(&self, unreadable: Vec<Mistake>) -> Vec<Mistake> {
        let beside = |key: &str| {
            let section = |key: &str| key.rsplit_once('.').map_or(key, |(section, _)| section).to_owned();
            unreadable.iter().any(|known| section(key).starts_with(&section(&known.key)) || known.key.starts_with(key))
        };
        // A number that is out of its bounds is wrong whatever else there is.
        let numbers = self.settings().map(|settings| bounds::violations(&settings).map(|(key, _)| key).collect());
        let numbers: Vec<&str> = numbers.unwrap_or_default();
        let rest = Config::resolve(self).err().map(|error| error.0).unwrap_or_default();
        let rest = rest.into_iter().filter(|found| !beside(&found.key) || numbers.contains(&found.key.as_str()));
        let mut all: Vec<Mistake> = rest.collect();
        all.splice(0..0, unreadable);
        Mistake::sort(&mut all);
        all
    }

    /// The file that was read.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }

    /// What the file has in tables with names of their own, such as `upstream.files.command`: each key with its value, which
    /// is masked where it may be a secret.
    pub fn named(&self) -> Vec<(String, String)> {
        let Some(file) = &self.file else { return Vec::new() };
        let mut found = Vec::new();
        for section in ["upstream", "models", "sessions.agents"] {
            let tables = section.split('.').try_fold(&file.table, |table, name| table.get(name)?.as_table());
            for (name, table) in tables.into_iter().flatten() {
                let values = table.as_table().into_iter().flatten();
                found.extend(values.map(|(key, value)| (format!("{section}.{name}.{key}"), shown(key, value))));
            }
        }
        found
    }

    /// What all layers add up to.
    pub fn settings(&self) -> Result<Settings, Mistake> {
        let mut merged = Table::new();
        for layer in [self.file.as_ref().map(|file| &file.table), Some(&self.environment), Some(&self.flags)]
            .into_iter()
            .flatten()
        {
            merge(&mut merged, layer);
        }
        merged
            .try_into()
            .map_err(|error: toml::de::Error| Mistake::new("the configuration".into(), plain_toml(error.message())))
    }

    /// A variable of the environment that is not a configuration key.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    /// Who set a key.
    pub fn source(&self, key: &str) -> Source {
        if lookup(&self.flags, key).is_some() {
            let flag = key.rsplit('.').next().unwrap_or(key).replace('_', "-");
            return Source::Flag(if key == "data.dir" { "--data-dir".into() } else { format!("--{flag}") });
        }
        if lookup(&self.environment, key).is_some() {
            return Source::Environment(variable_name(key).unwrap_or_default());
        }
        match &self.file {
            Some(file) if lookup(&file.table, key).is_some() => {
                Source::File { path: file.path.clone(), line: file.line_of(key) }
            }
            _ => Source::Default,
        }
    }

    /// The same in words, for an error.
    pub fn place_of(&self, key: &str) -> String {
        match self.source(key) {
            Source::Default => format!("the default of {key}"),
            Source::File { path, line } => format!("{}:{line}: {key}", path.display()),
            Source::Environment(name) => format!("the environment variable {name}"),
            Source::Flag(flag) => format!("the flag {flag}"),
        }
    }

    /// A mistake in the value of a key.
    pub(super) fn mistake(&self, key: &str, message: String) -> Mistake {
        let line = if let Source::File { line, .. } = self.source(key) { Some(line) } else { None };
        Mistake { place: self.place_of(key), message, key: key.to_owned(), line }
    }

    /// A key's value as the layers have it, written as TOML.
    pub fn value(&self, key: &str) -> Option<String> {
        let settings = Table::try_from(self.settings().ok()?).ok()?;
        lookup(&settings, key).map(ToString::to_string)
    }
}

/// A value for people to see. What may be a secret is shown only where it is a reference to one.
fn shown(key: &str, value: &Value) -> String {
    const MAY_BE_SECRET: [&str; 6] = ["api_key", "bearer", "client_secret", "env", "headers", "oauth"];
    fn masked(value: &Value) -> Value {
        match value {
            Value::String(text) if text.starts_with("env:") || text.starts_with("file:") => value.clone(),
            Value::Table(table) => {
                Value::Table(table.iter().map(|(key, value)| (key.clone(), masked(value))).collect())
            }
            Value::Array(values) => Value::Array(values.iter().map(masked).collect()),
            _ => Value::String(crate::redact::MASK.into()),
        }
    }
    if MAY_BE_SECRET.contains(&key) { masked(value).to_string() } else { value.to_string() }
}

pub(super) fn defaults() -> Table {
    Table::try_from(Settings::default()).unwrap_or_default()
}

/// What a key has. A name in it may have dots of its own, as those of models do.
fn lookup<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let below = |(dot, _): (usize, &str)| lookup(table.get(&key[..dot])?.as_table()?, &key[dot + 1..]);
    table.get(key).or_else(|| key.match_indices('.').find_map(below))
}

fn insert(table: &mut Table, key: &str, value: Value) {
    if let Some((section, name)) = key.split_once('.')
        && let Value::Table(section) = table.entry(section).or_insert_with(|| Value::Table(Table::new()))
    {
        section.insert(name.into(), value);
    }
}

fn merge(into: &mut Table, layer: &Table) {
    for (section, values) in layer {
        if let (Value::Table(values), Value::Table(into)) =
            (values, into.entry(section.clone()).or_insert_with(|| Value::Table(Table::new())))
        {
            into.extend(values.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(file: &str, variables: &[(&str, &str)], flags: &[(&str, Value)]) -> Result<Layers, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("switchboard.toml");
        std::fs::write(&path, file).unwrap();
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        Layers::read(Some(&path), variables, flags)
    }

    #[track_caller]
    fn check_mistake(file: &str, line: usize, words: &[&str]) {
        let error = layers(file, &[], &[]).and_then(|layers| Config::resolve(&layers)).unwrap_err().to_string();
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
        check_mistake("[limits]\n\npending_total = \"many\"\n", 3, &["pending_total", "many", "a whole number"]);
        check_mistake("[limits]\npending_total = 0\n", 2, &["limits.pending_total"]);
        check_mistake("[server]\nlisten = \"0.0.0.0:3210\"\n", 2, &["server.listen", "--insecure"]);
        check_mistake("[server\n", 1, &[]);
        check_mistake("[journal]\nkeep_days = 9000000000000\n", 2, &["journal.keep_days", "36500"]);
        check_mistake("[journal]\n\nkeep_calls = 0\n", 3, &["journal.keep_calls"]);
        check_mistake("[server]\nmax_connections = 0\n", 2, &["server.max_connections"]);
        check_mistake("[server]\nmax_connections = 9223372036854775807\n", 2, &["server.max_connections"]);
        check_mistake("[limits]\nmax_call_ms = 9223372036854775807\n", 2, &["limits.max_call_ms", "milliseconds"]);
        check_mistake("[upstream.files]\n", 1, &["upstream.files", "command", "url"]);
        check_mistake("\n[upstream.web]\nurl = \"ftp://x\"\n", 2, &["upstream.web", "http"]);
        check_mistake("[models.gpt]\n", 1, &["models.gpt", "base_url"]);
        check_mistake("\n[models.gpt]\nbase_url = \"http://a/v1\"\nmax_rounds = 0\n", 2, &["models.gpt", "max_rounds"]);
        check_mistake("[log]\nfilter = \"info,=nonsense=\"\n", 2, &["log.filter"]);
    }

    #[test]
    fn all_mistakes_are_told_at_once_each_with_its_whole_key() {
        let file = "[server]\nlisten = 5\ndrain_ms = \"x\"\n[limits]\npending_total = 0\n[models.\"gpt-5.1\"]\nbase = 1\n\
            [upstream.files]\ncommand = \"ls\"\n[sessions.agents.bot]\nsandbox = true\n[nope]\nx = 1\n";
        let error = layers(file, &[("SWITCHBOARD_JOURNAL_KEEP_DAYS", "x")], &[]).unwrap_err();
        let told: Vec<&str> =
            error.0.iter().map(|mistake| mistake.place.rsplit('/').next().unwrap_or_default()).collect();
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
        let file =
            "[server]\nlisten = \"0.0.0.0:1\"\n[limits]\npending_total = 0\nmax_call_ms = 0\n[log]\nfilter = \"=x=\"\n";
        let error = Config::resolve(&layers(file, &[], &[]).unwrap()).unwrap_err();
        assert_eq!(error.0.iter().map(|mistake| mistake.line).collect::<Vec<_>>(), [2, 4, 5, 7].map(Some), "{error}");
        // Beside a key that is not known, a number that is too small is still one.
        let file = "[log]\nfilter = \"=x=\"\n[limits]\nmax_call_ms = 0\npending = 1\n";
        let error = layers(file, &[], &[]).unwrap_err();
        assert_eq!(error.0.iter().map(|mistake| mistake.line).collect::<Vec<_>>(), [2, 4, 5].map(Some), "{error}");
        let many = format!("[server]\n{}", (0..100).map(|n| format!("wrong{n} = 1\n")).collect::<Vec<_>>().concat());
        assert_eq!(layers(&many, &[], &[]).unwrap_err().0.len(), 21, "a screen of it will do");
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
        check("[sessions.agents.bot]\ncommand = [\"x\"]\nsandbx = true\n", "did you mean sessions.agents.bot.sandbox?");
        check("[server]\npending_total = 5\n", "did you mean limits.pending_total?");
        check("[data]\ncolour = 1\n", "there is no such key; there are: dir");
    }

    #[test]
    fn the_rest_of_a_file_with_mistakes_can_be_asked_about() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("switchboard.toml");
        std::fs::write(&path, "[limits]\npending_total = 7\npending = 1\n[journal]\nkeep_days = \"x\"\n").unwrap();
        let (layers, unreadable) = Layers::read_despite_mistakes(Some(&path), Vec::new(), &[]);
        assert_eq!(unreadable.len(), 2, "{unreadable:?}");
        assert_eq!(layers.value("limits.pending_total").as_deref(), Some("7"));
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
        assert!(!shown.contains("canary") && shown.contains("env:KEY") && shown.contains("file:/k"), "{shown}");
        let place = |key: &str| layers.place_of(key).rsplit('/').next().unwrap().to_owned();
        assert_eq!(place("upstream.web.bearer"), "switchboard.toml:3: upstream.web.bearer");
        assert_eq!(place("models.gpt-5.1.api_key"), "switchboard.toml:7: models.gpt-5.1.api_key");
        assert_eq!(place("sessions.agents.bot.command"), "switchboard.toml:9: sessions.agents.bot.command");
        assert_eq!(named.len(), 7, "{shown}");
    }

    #[test]
    fn later_layers_go_over_earlier_ones_and_are_remembered() {
        let file = "[server]\nlisten = \"127.0.0.1:1\"\ndrain_ms = 5\n[limits]\npending_total = 7\n";
        let flags = [("server.listen", Value::String("127.0.0.1:3".into()))];
        let layers =
            layers(file, &[("SWITCHBOARD_SERVER_LISTEN", "127.0.0.1:2"), ("SWITCHBOARD_SERVER_DRAIN_MS", "6")], &flags)
                .unwrap();
        let config = Config::resolve(&layers).unwrap();
        assert_eq!(config.listen.port(), 3);
        assert_eq!(config.settings.server.drain_ms, 6);
        assert_eq!(config.settings.limits.pending_total, 7);
        assert_eq!(layers.source("server.listen"), Source::Flag("--listen".into()));
        assert_eq!(layers.source("server.drain_ms"), Source::Environment("SWITCHBOARD_SERVER_DRAIN_MS".into()));
        assert!(matches!(layers.source("limits.pending_total"), Source::File { line: 5, .. }));
        assert_eq!(layers.source("log.filter"), Source::Default);
    }

    #[test]
    fn every_key_is_explained_and_every_explanation_has_its_key() {
        let mut keys: Vec<String> = Vec::new();
        for (section, values) in &defaults() {
            keys.extend(values.as_table().unwrap().keys().map(|name| format!("{section}.{name}")));
        }
        let mut explained: Vec<String> = KEYS.iter().map(|(key, _)| (*key).to_owned()).collect();
        keys.sort();
        explained.sort();
        assert_eq!(keys, explained);
    }

    #[test]
    fn a_key_that_only_the_file_can_set_has_no_variable() {
        for (key, _) in KEYS {
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
}
