//! The keys of all sections, with their meaning.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use sa_settings::Section;

use crate::assemble::Settings;

/// A key of the configuration.
#[derive(Debug)]
pub struct KnownKey {
    /// The key with its section. The name of a named table is `NAME`.
    pub key: String,
    pub meaning: &'static str,
    /// The allowed range of a number.
    pub bounds: Option<RangeInclusive<u64>>,
    /// The default of a key in a named table, in TOML. It is empty if it depends on another key.
    pub default: &'static str,
    /// Whether the value consists of named tables. It can only be set in the file, not by a
    /// variable.
    pub is_table: bool,
}

/// The keys with one value, section by section.
pub static KEYS: LazyLock<Vec<KnownKey>> = LazyLock::new(|| keys(false));

/// The keys of named tables, such as `[models.NAME]`. They can only be set in the file.
pub static NAMED_KEYS: LazyLock<Vec<KnownKey>> = LazyLock::new(|| keys(true));

fn keys(named: bool) -> Vec<KnownKey> {
    let settings = Settings::default();
    let keys = settings.sections().into_iter().flat_map(|(section, values)| {
        values.keys().iter().filter(|key| key.named_default.is_some() == named).map(move |key| {
            KnownKey {
                key: format!("{section}.{}", key.name),
                meaning: key.meaning,
                bounds: key.bounds.clone(),
                default: key.named_default.unwrap_or_default(),
                is_table: key.is_table,
            }
        })
    });
    keys.collect()
}

/// Returns a key with one value.
pub fn find(key: &str) -> Option<&'static KnownKey> {
    KEYS.iter().find(|known| known.key == key)
}

/// Returns the keys that hold named tables, such as `models`.
pub(super) fn tables_above() -> Vec<&'static str> {
    let mut above: Vec<&str> =
        NAMED_KEYS.iter().filter_map(|known| Some(known.key.split_once(".NAME.")?.0)).collect();
    above.dedup();
    above
}

/// Collects a list of names from all sections.
pub(super) fn names_of(
    names: impl Fn(&dyn Section) -> &'static [&'static str],
) -> Vec<&'static str> {
    let settings = Settings::default();
    settings.sections().into_iter().flat_map(|(_, section)| names(section)).copied().collect()
}

#[cfg(test)]
mod tests {
    use toml::Table;

    use super::*;
    use crate::config::layers::lookup;

    /// Returns the settings of a file with one named table.
    fn with_table(above: &str, line: &str) -> Result<Settings, toml::de::Error> {
        toml::from_str(&format!("[{above}.some]\n{line}\n"))
    }

    #[test]
    fn every_key_of_a_named_table_is_explained_and_no_other() {
        let mut known = Vec::new();
        for above in tables_above() {
            // The error for an unknown field lists all fields.
            let error = with_table(above, "no_such_field = 1").unwrap_err();
            let expected = error.message().split_once("expected").unwrap().1.to_owned();
            let fields = expected.split('`').skip(1).step_by(2);
            known.extend(fields.map(|name| format!("{above}.NAME.{name}")));
        }
        let explained: Vec<&str> = NAMED_KEYS.iter().map(|known| &*known.key).collect();
        assert_eq!(known, explained);
        assert!(known.len() > 30, "{known:?}");
    }

    #[test]
    fn defaults_of_named_tables_are_what_their_descriptions_say() {
        let mut compared = 0;
        for KnownKey { key, default, .. } in NAMED_KEYS.iter() {
            let above = key.split_once(".NAME.").unwrap().0;
            let defaults = Table::try_from(with_table(above, "").unwrap()).unwrap();
            // Empty values are not serialized. A required value has no default.
            let value = lookup(&defaults, &key.replace("NAME", "some"));
            if let Some(value) = value.filter(|_| !default.is_empty()) {
                assert_eq!(value.to_string(), *default, "{key}");
                compared += 1;
            }
        }
        assert!(compared > 20, "{compared}");
    }
}
