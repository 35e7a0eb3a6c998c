//! Reads the configuration file. Reports all mistakes in it, each with its line and full key.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sa_text::closest;
use sa_vault::bounded;
use serde::Deserialize as _;
use toml::Spanned;
use toml::Table;
use toml::de::{DeTable, DeValue, Deserializer};

use super::keys::{KEYS, find};
use super::syntax::{MAX_SHOWN, line_ends, shortened};
use super::{MOST, Mistake, UNREADABLE, bounds, secrets, syntax};
use crate::assemble::Settings;
use sa_text::{plain_secret_toml, plain_toml};

/// The maximum size of the file. Larger files are not written by hand.
const MAX_FILE: u64 = 4 << 20;
/// The maximum number of values. Reporting each mistake takes a pass over all values.
const MAX_VALUES: usize = 10_000;

/// A configuration file, without the parts that are wrong.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) table: Table,
    /// The line of each key and each table.
    lines: BTreeMap<String, usize>,
}

impl File {
    /// Returns the line of a key, or of the table around it.
    pub(super) fn line_of(&self, key: &str) -> usize {
        let above = key.rsplit_once('.').map(|(above, _)| above);
        self.lines.get(key).copied().unwrap_or_else(|| above.map_or(1, |above| self.line_of(above)))
    }
}

/// Reads a file. Invalid parts are left out and reported as mistakes.
pub(super) fn read(path: &Path) -> Result<(File, Vec<Mistake>), Mistake> {
    let unreadable = |why: String| Mistake::new(path.display().to_string(), why);
    let text = text_of(path).map_err(unreadable)?;
    let mut mistakes = Vec::new();
    let mut file = File { path: path.to_owned(), table: Table::new(), lines: BTreeMap::new() };
    // A file with mistakes is not used. The remaining values are read to check them, too.
    if let Some(table) = understood(path, &text, &mut mistakes) {
        file.lines = lines(table.get_ref(), &text);
        match Table::deserialize(Deserializer::from(table)) {
            Ok(table) => file.table = table,
            Err(error) => mistakes.push(unreadable(plain_toml(error.message()))),
        }
    }
    Ok((file, mistakes))
}

/// Returns the text of a file, or the reason why it cannot be read.
fn text_of(path: &Path) -> Result<String, String> {
    // A pipe from shell process substitution, such as /dev/fd/63, has a writer. A named pipe may
    // have no writer, and reading it would block without a message.
    let of_a_shell = ["/dev", "/proc"].iter().any(|dir| path.starts_with(dir));
    let read = if of_a_shell { bounded::text } else { bounded::text_of_file };
    read(path, MAX_FILE).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge | ErrorKind::InvalidData => {
            format!("not a configuration file: {error}")
        }
        _ => format!("{UNREADABLE}: {error}"),
    })
}

/// Parses the file and removes invalid values one after the other. Deserializing the settings only
/// reports the first mistake.
fn understood<'a>(
    path: &Path,
    text: &'a str,
    mistakes: &mut Vec<Mistake>,
) -> Option<Spanned<DeTable<'a>>> {
    let line = |span: &Range<usize>| line_at(text, span.start);
    if let Some(line) = syntax::too_deep(text) {
        let mistake = Mistake::new(
            format!("{}:{line}", path.display()),
            "its tables or lists are nested too deeply".to_owned(),
        );
        mistakes.push(Mistake { line: Some(line), ..mistake });
        return None;
    }
    let mut table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let line = line(&error.span().unwrap_or_default());
            let written = text.lines().nth(line - 1).unwrap_or_default();
            let mistake = Mistake::new(
                format!("{}:{line}", path.display()),
                syntax::wrong(written, error.message()),
            );
            mistakes.push(Mistake { line: Some(line), ..mistake });
            return None;
        }
    };
    let values = count(table.get_ref().values());
    if values > MAX_VALUES {
        let message = format!(
            "not a configuration file: it has {values} values, and the maximum is {MAX_VALUES}"
        );
        mistakes.push(Mistake::new(path.display().to_string(), message));
        return None;
    }
    for (keys, span, message) in beyond_reading(table.get_ref(), text) {
        let line = line(&span);
        let key = shortened(&secrets::key(&keys));
        mistakes.push(Mistake {
            place: format!("{}:{line}: {key}", path.display()),
            message,
            key,
            line: Some(line),
        });
        remove(table.get_mut(), &keys);
    }
    while let Err(error) = Settings::deserialize(Deserializer::from(table.clone())) {
        let span = error.span().unwrap_or_default();
        let mut keys = key_at(table.get_ref(), &span);
        // Keys below a value that should not be a table are not keys of their own.
        let is_value = |keys: &[String]| find(&keys.join(".")).is_some_and(|known| !known.is_table);
        let value = (1..keys.len()).find(|parts| is_value(&keys[..*parts]));
        keys.truncate(value.unwrap_or(keys.len()));
        let message = error.message().replace('\n', " ");
        let plain = if secrets::may_be(&keys) { plain_secret_toml } else { plain_toml };
        let message = unknown_key(&keys, &message)
            .unwrap_or_else(|| about(value_at(table.get_ref(), &keys), &span, plain(&message)));
        let (line, key) = (line(&span), shortened(&secrets::key(&keys)));
        let place = format!("{}:{line}", path.display());
        if keys.is_empty() {
            mistakes.push(Mistake { line: Some(line), ..Mistake::new(place, message) });
            return None;
        }
        mistakes.push(Mistake { place: format!("{place}: {key}"), message, key, line: Some(line) });
        if mistakes.len() >= MOST {
            mistakes.push(Mistake::and_more(Some(path)));
            return None;
        }
        remove(table.get_mut(), &keys);
    }
    Some(table)
}

/// Counts the values in all tables and lists.
fn count<'t, 'a: 't>(values: impl Iterator<Item = &'t Spanned<DeValue<'a>>>) -> usize {
    let below = |value: &'t Spanned<DeValue<'a>>| match value.get_ref() {
        DeValue::Table(table) => count(table.values()),
        DeValue::Array(items) => count(items.iter()),
        _ => 0,
    };
    values.map(|value| 1 + below(value)).sum()
}

/// Returns the line of an offset in a text. The end of the text counts as its last line.
fn line_at(text: &str, place: usize) -> usize {
    let text = text.strip_suffix('\n').unwrap_or(text).as_bytes();
    line_ends(&text[..place.min(text.len())]) + 1
}

/// Returns the line of each key and each table.
fn lines(table: &DeTable<'_>, text: &str) -> BTreeMap<String, usize> {
    fn search(table: &DeTable<'_>, above: &str, found: &mut Vec<(usize, String)>) {
        for (name, value) in table {
            let key = if above.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{above}.{}", name.get_ref())
            };
            if let DeValue::Table(below) = value.get_ref() {
                search(below, &key, found);
            }
            found.push((name.span().start, key));
        }
    }
    let mut places = Vec::new();
    search(table, "", &mut places);
    places.sort_unstable();
    let (mut line, mut counted) = (1, 0);
    let mut lines = BTreeMap::new();
    for (place, key) in places {
        let place = place.min(text.len());
        line += line_ends(&text.as_bytes()[counted..place]);
        counted = place;
        lines.entry(key).or_insert(line);
    }
    lines
}

/// Returns values that are invalid for any setting: integers out of range and arrays of tables.
fn beyond_reading(table: &DeTable<'_>, text: &str) -> Vec<(Vec<String>, Range<usize>, String)> {
    fn search(
        table: &DeTable<'_>,
        above: &[String],
        text: &str,
        found: &mut Vec<(Vec<String>, Range<usize>, String)>,
    ) {
        for (name, value) in table {
            if found.len() == MOST {
                return;
            }
            let keys: Vec<String> =
                above.iter().cloned().chain([name.get_ref().to_string()]).collect();
            match value.get_ref() {
                DeValue::Integer(number)
                    if i64::from_str_radix(number.as_str(), number.radix()).is_err() =>
                {
                    let wanted = out_of_bounds(&keys.join("."));
                    found.push((keys, value.span(), wanted));
                }
                DeValue::Table(below) => search(below, &keys, text, found),
                DeValue::Array(items)
                    if items.iter().all(|item| item.get_ref().is_table())
                        && is_one_of_many(text, name) =>
                {
                    let key = shortened(&secrets::key(&keys));
                    let message = format!(
                        "it must be a single table, [{key}], and is an array of tables, [[{key}]]"
                    );
                    found.push((keys, name.span(), message));
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    search(table, &[], text, &mut found);
    found
}

/// Reports whether a table name is written in double brackets.
fn is_one_of_many(text: &str, name: &Spanned<std::borrow::Cow<'_, str>>) -> bool {
    let before = &text[..name.span().start.min(text.len())];
    before.lines().next_back().is_some_and(|line| line.trim_start().starts_with("[["))
}

fn out_of_bounds(key: &str) -> String {
    let unit = bounds::unit(key);
    match find(key).and_then(|known| known.bounds.as_ref()) {
        Some(bounds) => {
            format!("it must be a whole number from {} to {}{unit}", bounds.start(), bounds.end())
        }
        None => format!("it must be a whole number of at most {}{unit}", i64::MAX),
    }
}

/// Returns the message for an unknown key, with a suggestion or the list of known keys.
fn unknown_key(keys: &[String], message: &str) -> Option<String> {
    let expected = message.strip_prefix("unknown field ")?.split_once(", expected")?.1;
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let (last, above) = keys.split_last()?;
    let near = Some(last)
        .filter(|last| last.len() <= MAX_SHOWN)
        .and_then(|last| closest(last, known.iter().copied()));
    let near = near
        .map(|near| above.iter().map(String::as_str).chain([near]).collect::<Vec<_>>().join("."));
    // The key may exist in another section.
    let elsewhere =
        || KEYS.iter().map(|known| &known.key).find(|key| key.rsplit('.').next() == Some(last));
    Some(match near.or_else(|| elsewhere().cloned()) {
        Some(meant) => format!("unknown key; did you mean {meant}?"),
        None => format!("unknown key; the known keys are: {}", known.join(", ")),
    })
}

/// Adjusts the parser's message about a value, if the file contains more details than the parser.
fn about(value: Option<&Spanned<DeValue<'_>>>, place: &Range<usize>, told: String) -> String {
    match value.map(|value| (value.get_ref(), value.span() == *place)) {
        // The parser represents dates as tables.
        Some((DeValue::Datetime(_), _)) => told.replace("and is a table", "and is a date"),
        Some((DeValue::Array(_), false)) => {
            told.replacen("it must be", "each item must be", 1).replacen("and is", "and one is", 1)
        }
        _ => told,
    }
}

fn value_at<'t, 'a>(table: &'t DeTable<'a>, keys: &[String]) -> Option<&'t Spanned<DeValue<'a>>> {
    let (first, rest) = keys.split_first()?;
    let value = table.get(first.as_str())?;
    match value.get_ref() {
        _ if rest.is_empty() => Some(value),
        DeValue::Table(below) => value_at(below, rest),
        _ => None,
    }
}

/// Returns the key at a position of the file, or the key of the value there.
fn key_at(table: &DeTable<'_>, place: &Range<usize>) -> Vec<String> {
    fn search(
        table: &DeTable<'_>,
        above: &[String],
        place: &Range<usize>,
        best: &mut (usize, Vec<String>),
    ) {
        for (name, value) in table {
            let keys: Vec<String> =
                above.iter().cloned().chain([name.get_ref().to_string()]).collect();
            for span in [name.span(), value.span()] {
                // The smallest span contains the position most precisely. Of two equal spans, the
                // deeper key counts.
                if span.start <= place.start && place.end <= span.end && span.len() <= best.0 {
                    *best = (span.len(), keys.clone());
                }
            }
            if let DeValue::Table(below) = value.get_ref() {
                search(below, &keys, place, best);
            }
        }
    }
    let mut best = (usize::MAX, Vec::new());
    search(table, &[], place, &mut best);
    best.1
}

fn remove(table: &mut DeTable<'_>, keys: &[String]) {
    let Some((first, rest)) = keys.split_first() else { return };
    if rest.is_empty() {
        table.remove(first.as_str());
        return;
    }
    if let Some(DeValue::Table(below)) = table.get_mut(first.as_str()).map(Spanned::get_mut) {
        remove(below, rest);
    }
}

#[cfg(test)]
mod tests;
