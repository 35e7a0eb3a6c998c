//! The configuration file: what it says, and everything that is wrong in it, each with its line and its whole key.

use std::ops::Range;
use std::path::{Path, PathBuf};

use sa_core::nearest;
use serde::Deserialize as _;
use toml::Spanned;
use toml::Table;
use toml::de::{DeTable, DeValue, Deserializer};

use super::Mistake;
use super::settings::{KEYS, Settings};
use crate::wording::plain;

/// More than anybody mends at once.
const MOST: usize = 20;

/// A file that was read, without what is wrong in it.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) table: Table,
}

/// Reads a file. What cannot be used is left out, and told.
pub(super) fn read(path: &Path) -> Result<(File, Vec<Mistake>), Mistake> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Mistake::new(path.display().to_string(), format!("cannot be read: {error}")))?;
    let mut mistakes = Vec::new();
    let table = understood(path, &text, &mut mistakes);
    // A file in which anything is wrong is not used: this is for those who check the rest of it.
    let table = table.and_then(|table| Table::deserialize(Deserializer::from(table)).ok()).unwrap_or_default();
    Ok((File { path: path.to_owned(), text, table }, mistakes))
}

/// Takes out, one after the other, what the settings cannot be read from: they name only the first mistake that they meet.
fn understood<'a>(path: &Path, text: &'a str, mistakes: &mut Vec<Mistake>) -> Option<Spanned<DeTable<'a>>> {
    let line = |span: &Range<usize>| text[..span.start.min(text.len())].matches('\n').count() + 1;
    let mut table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let line = line(&error.span().unwrap_or_default());
            let mistake =
                Mistake::new(format!("{}:{line}", path.display()), plain(&error.message().replace('\n', " ")));
            mistakes.push(Mistake { line: Some(line), ..mistake });
            return None;
        }
    };
    while let Err(error) = Settings::deserialize(Deserializer::from(table.clone())) {
        let span = error.span().unwrap_or_default();
        let keys = key_at(table.get_ref(), &span);
        let message = error.message().replace('\n', " ");
        let message = unknown_key(&keys, &message).unwrap_or_else(|| plain(&message));
        let (line, key) = (line(&span), keys.join("."));
        let place = format!("{}:{line}", path.display());
        if keys.is_empty() {
            mistakes.push(Mistake { line: Some(line), ..Mistake::new(place, message) });
            return None;
        }
        mistakes.push(Mistake { place: format!("{place}: {key}"), message, key, line: Some(line) });
        if mistakes.len() == MOST {
            mistakes.push(Mistake::new(path.display().to_string(), "more may be wrong, beyond this".to_owned()));
            return None;
        }
        remove(table.get_mut(), &keys);
    }
    Some(table)
}

/// What to say of a key that is not known: the one that was probably meant, or else those that there are.
fn unknown_key(keys: &[String], message: &str) -> Option<String> {
    let expected = message.strip_prefix("unknown field ")?.split_once(", expected")?.1;
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let (last, above) = keys.split_last()?;
    let near = nearest(last, known.iter().copied());
    let near = near.map(|near| above.iter().map(String::as_str).chain([near]).collect::<Vec<_>>().join("."));
    // It may be in the wrong section.
    let elsewhere = || KEYS.iter().map(|(key, _)| *key).find(|key| key.rsplit('.').next() == Some(last));
    Some(match near.or_else(|| elsewhere().map(str::to_owned)) {
        Some(meant) => format!("there is no such key; did you mean {meant}?"),
        None => format!("there is no such key; there are: {}", known.join(", ")),
    })
}

/// The key that stands at a place of the file, or whose value does.
fn key_at(table: &DeTable<'_>, place: &Range<usize>) -> Vec<String> {
    fn search(table: &DeTable<'_>, above: &[String], place: &Range<usize>, best: &mut (usize, Vec<String>)) {
        for (name, value) in table {
            let keys: Vec<String> = above.iter().cloned().chain([name.get_ref().to_string()]).collect();
            for span in [name.span(), value.span()] {
                // The smallest thing there is what it is about; of two, the one further down.
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
