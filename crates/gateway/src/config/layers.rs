//! The layers of the configuration, and the source of each value.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use toml::{Table, Value};

use super::environment::{parse_like, readable, variable_name};
use super::file::{self, File};
use super::flags::flag_name;
use super::keys::{KEYS, tables_above};
use super::{Config, ConfigError, Mistake, bounds, secrets};
use crate::assemble::Settings;
use sa_text::plain_toml;

/// The layers of the configuration, lowest first: defaults, file, environment, flags.
#[derive(Debug, Clone)]
pub struct Layers {
    file: Option<File>,
    environment: Table,
    flags: Table,
    variables: BTreeMap<String, String>,
    /// The merged settings, cached on first use because commands usually look up all keys.
    whole: OnceLock<Option<Table>>,
}

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Default,
    File { path: PathBuf, line: usize },
    Environment(String),
    Flag(String),
}

impl Layers {
    /// Reads the file and the environment. `flags` contains keys and their typed values. Fails if
    /// any part of the configuration is wrong.
    pub fn read(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: &[(&str, OsString)],
    ) -> Result<Self, ConfigError> {
        match Self::read_despite_mistakes(file, environment, flags) {
            (layers, unreadable) if unreadable.is_empty() => Ok(layers),
            (layers, unreadable) => Err(ConfigError(layers.all_mistakes(unreadable))),
        }
    }

    /// Reads the configuration even if it has mistakes. Invalid parts are left out and reported.
    pub fn read_despite_mistakes(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: &[(&str, OsString)],
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
        for key in KEYS.iter().map(|known| known.key.as_str()) {
            let Some(name) = variable_name(key) else { continue };
            let Some(text) = variables.get(&name) else { continue };
            match parse_alone(&defaults, key, text) {
                Ok(value) => insert(&mut from_environment, key, value),
                Err(message) => {
                    let place = format!("the environment variable {name}");
                    mistakes.push(Mistake { place, message, key: key.to_owned(), line: None });
                }
            }
        }
        let mut from_flags = Table::new();
        for (key, typed) in flags {
            let value = match typed.to_str() {
                None => Err("its value is not valid UTF-8".to_owned()),
                // An empty flag is usually an unset variable of a script, not a request for the
                // default.
                Some("") => {
                    Err("its value is empty; leave the flag out to use the default".to_owned())
                }
                Some(text) => parse_alone(&defaults, key, text),
            };
            match value {
                Ok(value) => insert(&mut from_flags, key, value),
                Err(message) => {
                    let place = in_words(key, &flag_source(key));
                    mistakes.push(Mistake { place, message, key: (*key).to_owned(), line: None });
                }
            }
        }
        let layers = Self {
            file,
            environment: from_environment,
            flags: from_flags,
            variables,
            whole: OnceLock::new(),
        };
        (layers, mistakes)
    }

    /// Returns all mistakes, sorted by line: unreadable parts and invalid values. Mistakes that may
    /// be caused by a left-out key are not included.
    pub fn all_mistakes(&self, unreadable: Vec<Mistake>) -> Vec<Mistake> {
        let beside = |key: &str| {
            let section =
                |key: &str| key.rsplit_once('.').map_or(key, |(section, _)| section).to_owned();
            unreadable.iter().any(|known| {
                section(key).starts_with(&section(&known.key)) || known.key.starts_with(key)
            })
        };
        // A number out of range is wrong regardless of other keys.
        let numbers = self.settings().map(|settings| bounds::violations(&settings));
        let numbers: Vec<&str> =
            numbers.unwrap_or_default().into_iter().map(|(key, _)| key).collect();
        let rest = Config::resolve(self).err().map(|error| error.0).unwrap_or_default();
        let rest = rest
            .into_iter()
            .filter(|found| !beside(&found.key) || numbers.contains(&found.key.as_str()));
        let mut all: Vec<Mistake> = rest.collect();
        all.splice(0..0, unreadable);
        Mistake::sort(&mut all);
        all
    }

    /// Returns the path of the file that was read.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }

    /// Returns the keys of named tables in the file, such as `upstream.files.command`. Values that
    /// may be secret are masked.
    pub fn named(&self) -> Vec<(String, Value)> {
        let Some(file) = &self.file else { return Vec::new() };
        let mut found = Vec::new();
        for section in tables_above() {
            let tables =
                section.split('.').try_fold(&file.table, |table, name| table.get(name)?.as_table());
            for (name, table) in tables.into_iter().flatten() {
                let values = table.as_table().into_iter().flatten();
                let shown = |(key, value): (&String, _)| {
                    (format!("{section}.{name}.{key}"), secrets::without_secrets(key, value))
                };
                found.extend(values.map(shown));
            }
        }
        found
    }

    /// Merges all layers into the settings.
    pub fn settings(&self) -> Result<Settings, Mistake> {
        let mut merged = Table::new();
        for layer in
            [self.file.as_ref().map(|file| &file.table), Some(&self.environment), Some(&self.flags)]
                .into_iter()
                .flatten()
        {
            merge(&mut merged, layer);
        }
        merged.try_into().map_err(|error: toml::de::Error| {
            Mistake::new("the configuration".into(), plain_toml(error.message()))
        })
    }

    /// Returns an environment variable that is not a configuration key.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    /// Returns the source of a key's value.
    pub fn source(&self, key: &str) -> Source {
        if lookup(&self.flags, key).is_some() {
            return flag_source(key);
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

    /// Describes the source of a key's value, for error messages.
    pub fn place_of(&self, key: &str) -> String {
        in_words(key, &self.source(key))
    }

    /// Creates a mistake about the value of a key.
    pub(super) fn mistake(&self, key: &str, message: String) -> Mistake {
        let line = if let Source::File { line, .. } = self.source(key) { Some(line) } else { None };
        Mistake { place: self.place_of(key), message, key: key.to_owned(), line }
    }

    /// Returns the merged value of a key. Values that may be secret are masked.
    pub fn value(&self, key: &str) -> Option<Value> {
        let whole = || Table::try_from(self.settings().ok()?).ok();
        let value = lookup(self.whole.get_or_init(whole).as_ref()?, key)?;
        Some(secrets::without_secrets(key.rsplit('.').next().unwrap_or(key), value))
    }
}

fn in_words(key: &str, source: &Source) -> String {
    match source {
        Source::Default => format!("the default of {key}"),
        Source::File { path, line } => format!("{}:{line}: {key}", path.display()),
        Source::Environment(name) => format!("the environment variable {name}"),
        Source::Flag(flag) => format!("the flag {flag} ({key})"),
    }
}

fn flag_source(key: &str) -> Source {
    Source::Flag(flag_name(key).unwrap_or_default())
}

/// Parses the text of a variable or flag for a key. The value is deserialized alone, so that an
/// error is known to belong to it.
fn parse_alone(defaults: &Table, key: &str, text: &str) -> Result<Value, String> {
    let value = parse_like(lookup(defaults, key), text)?;
    let mut alone = Table::new();
    insert(&mut alone, key, value.clone());
    alone.try_into::<Settings>().map(|_| value).map_err(|error| plain_toml(error.message()))
}

pub(super) fn defaults() -> Table {
    Table::try_from(Settings::default()).unwrap_or_default()
}

/// Looks up a dotted key. Names may contain dots themselves, such as names of models.
pub(super) fn lookup<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let below =
        |(dot, _): (usize, &str)| lookup(table.get(&key[..dot])?.as_table()?, &key[dot + 1..]);
    table.get(key).or_else(|| key.match_indices('.').find_map(below))
}

fn insert(table: &mut Table, key: &str, value: Value) {
    if let Some((section, name)) = key.split_once('.')
        && let Value::Table(section) =
            table.entry(section).or_insert_with(|| Value::Table(Table::new()))
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
mod tests;
