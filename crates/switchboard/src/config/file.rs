//! The configuration file: what it says, and everything that is wrong in it, each with its line and its whole key.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use toml::Spanned;
use toml::Table;
use toml::de::{DeTable, DeValue, Deserializer};

use super::Mistake;
use super::settings::Settings;
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
            let place = format!("{}:{}", path.display(), line(&error.span().unwrap_or_default()));
            mistakes.push(Mistake::new(place, plain(&error.message().replace('\n', " "))));
            return None;
        }
    };
    while let Err(error) = Settings::deserialize(Deserializer::from(table.clone())) {
        let span = error.span().unwrap_or_default();
        let keys = key_at(table.get_ref(), &span);
        let message = plain(&error.message().replace('\n', " "));
        let (place, key) = (format!("{}:{}", path.display(), line(&span)), keys.join("."));
        if keys.is_empty() {
            mistakes.push(Mistake::new(place, message));
            return None;
        }
        mistakes.push(Mistake { place: format!("{place}: {key}"), message, key });
        if mistakes.len() == MOST {
            mistakes.push(Mistake::new(path.display().to_string(), "more may be wrong, beyond this".to_owned()));
            return None;
        }
        remove(table.get_mut(), &keys);
    }
    Some(table)
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
