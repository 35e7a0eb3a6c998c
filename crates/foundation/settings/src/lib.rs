//! The sections of the configuration. Each crate has a struct with the values of its section, and
//! describes its keys with [`Section`]. The gateway reads, merges and checks all of them.

pub mod address;
mod limits;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use limits::Limits;

/// The maximum of all time values: 30 days. Larger values would overflow sums of times.
pub const MAX_MS: u64 = 30 * 24 * 3_600 * 1_000;
/// The minimum of message sizes. With less, no node could register and no call could be made.
pub const LEAST_MESSAGE: u64 = 256;
/// The maximum of message sizes. A message or body is held in memory as a whole.
pub const MAX_MESSAGE: u64 = 1 << 30;
pub const MAX_BYTES: u64 = 1 << 40;
pub const MAX_STORED: u64 = 1 << 50;
pub const MAX_COUNT: u64 = 1_000_000;
pub const MAX_DAYS: u64 = 36_500;

/// A section of the configuration, such as `[limits]`. The names of keys are relative to it.
pub trait Section {
    /// Returns the keys, in the order of the documentation.
    fn keys(&self) -> &'static [Key];

    /// Reports each value that can be parsed but would not have the intended effect, with its key
    /// and a correction. Numbers have already been compared with the bounds of their keys.
    fn check(&self, _report: &mut dyn FnMut(&str, String)) {}

    /// Returns the byte budgets of the section.
    fn budgets(&mut self) -> Vec<Budget<'_>> {
        Vec::new()
    }

    /// Returns the names of keys with values that are secrets or contain secrets. They are masked
    /// in all sections, because a key can be written at the wrong place.
    fn secrets(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the names of keys with addresses. Their text is treated as an address even if it is
    /// invalid.
    fn addresses(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the files, named in the section, that contain secrets.
    fn secret_files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns the directories below the data directory whose files are not secret.
    fn open_directories(&self, _data_dir: &Path) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns the environment variables that the section reads, beside those of its keys.
    fn variables(&self) -> &'static [&'static str] {
        &[]
    }

    /// Reads these variables. An error is the name of the variable and the message.
    fn read_variables(&mut self, _variable: Variables<'_>) -> Result<(), (&'static str, String)> {
        Ok(())
    }
}

/// Returns the value of an environment variable.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A key of a section, and its meaning.
#[derive(Debug)]
pub struct Key {
    /// In a table with names that the user chooses, the name is `NAME.key`.
    pub name: &'static str,
    pub meaning: &'static str,
    /// The allowed range of a number.
    pub bounds: Option<RangeInclusive<u64>>,
    /// The default of a key in a named table, in TOML. `None` for other keys: their default is in
    /// the struct.
    pub named_default: Option<&'static str>,
    /// Whether the value is a table with names that the user chooses. It can only be set in the
    /// file.
    pub is_table: bool,
}

impl Key {
    /// Describes a key that is not a number.
    pub const fn new(name: &'static str, meaning: &'static str) -> Self {
        Self { name, meaning, bounds: None, named_default: None, is_table: false }
    }

    pub const fn number(
        name: &'static str,
        bounds: RangeInclusive<u64>,
        meaning: &'static str,
    ) -> Self {
        Self { bounds: Some(bounds), ..Self::new(name, meaning) }
    }

    /// Describes a key that holds named tables.
    pub const fn table(name: &'static str, meaning: &'static str) -> Self {
        Self { is_table: true, ..Self::new(name, meaning) }
    }

    /// Describes a key in a named table. The default is empty if it depends on another key.
    pub const fn named(name: &'static str, default: &'static str, meaning: &'static str) -> Self {
        Self { named_default: Some(default), ..Self::new(name, meaning) }
    }
}

/// A byte budget. If its size is 0, it gets a share of `limits.pending_bytes`.
#[derive(Debug)]
pub struct Budget<'a> {
    pub size: &'a mut usize,
    /// The number of shares.
    pub parts: u64,
    /// Whether the bytes are on disk, and not part of the total in memory.
    pub on_disk: bool,
}

impl<'a> Budget<'a> {
    pub fn in_memory(size: &'a mut usize, parts: u64) -> Self {
        Self { size, parts, on_disk: false }
    }

    pub fn on_disk(size: &'a mut usize, parts: u64) -> Self {
        Self { size, parts, on_disk: true }
    }
}

/// Returns the key of a named table that the message starts with. If there is none, returns the
/// table. `above` is the part of the key before the name, such as `agents.`.
pub fn key_of(keys: &[Key], above: &str, name: &str, message: &str) -> String {
    let first = message.split([' ', ':', '.']).next().unwrap_or_default();
    if keys.iter().any(|key| key.name == format!("{above}NAME.{first}")) {
        format!("{above}{name}.{first}")
    } else {
        format!("{above}{name}")
    }
}

/// Expands `~` in a path from the file, because no shell has expanded it.
pub fn from_home(path: &str) -> PathBuf {
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    path.strip_prefix("~/")
        .and_then(|below| Some(home()?.join(below)))
        .unwrap_or_else(|| path.into())
}

pub fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn days(days: u64) -> Duration {
    Duration::from_secs(days.saturating_mul(86_400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_a_named_table_belongs_to_the_key_it_starts_with() {
        const SERVERS: &[Key] =
            &[Key::named("NAME.url", "", ""), Key::named("NAME.headers", "", "")];
        const AGENTS: &[Key] = &[Key::table("agents", ""), Key::named("agents.NAME.dir", "", "")];
        let check = |keys, above, name, message, expected: &str| {
            assert_eq!(key_of(keys, above, name, message), expected);
        };
        check(SERVERS, "", "web", "url must begin with http://", "web.url");
        check(SERVERS, "", "web", "headers: \"x\" cannot be set", "web.headers");
        check(SERVERS, "", "gpt-5.1", "url.issuer must be", "gpt-5.1.url");
        check(SERVERS, "", "web", "needs a command or a url", "web");
        check(AGENTS, "agents.", "bot", "dir must exist", "agents.bot.dir");
        check(AGENTS, "agents.", "bot", "agents are", "agents.bot");
    }
}
