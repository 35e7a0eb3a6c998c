//! The allowed range of each numeric key. Larger values would overflow sums of times or allocate
//! impossible tables.

use toml::Table;

use super::keys::KEYS;
use super::layers::lookup;
use crate::assemble::Settings;

/// Returns the keys with a value out of range, each with the reason.
pub(super) fn violations(settings: &Settings) -> Vec<(&'static str, String)> {
    let values = Table::try_from(settings).unwrap_or_default();
    let wrong = KEYS.iter().filter_map(|known| {
        let (key, bounds) = (known.key.as_str(), known.bounds.as_ref()?);
        let value = u64::try_from(lookup(&values, key)?.as_integer()?).ok()?;
        let unit = unit(key);
        let message = if value < *bounds.start() {
            format!("must be at least {}{unit}", bounds.start())
        } else if value > *bounds.end() {
            format!("must be at most {}{unit}", bounds.end())
        } else {
            return None;
        };
        Some((key, message))
    });
    wrong.collect()
}

pub(super) fn unit(key: &str) -> &'static str {
    if key.ends_with("_ms") { " (milliseconds)" } else { "" }
}

#[cfg(test)]
mod tests {
    use crate::config::keys::find;
    use crate::config::layers::defaults;

    #[test]
    fn every_number_has_bounds_and_its_default_is_within_them() {
        for (section, values) in &defaults() {
            for (name, value) in values.as_table().unwrap() {
                let (key, Some(number)) = (format!("{section}.{name}"), value.as_integer()) else {
                    continue;
                };
                let bounds = find(&key).and_then(|known| known.bounds.as_ref());
                let bounds = bounds.unwrap_or_else(|| panic!("{key} has no bounds"));
                assert!(bounds.contains(&u64::try_from(number).unwrap()), "{key} = {number}");
            }
        }
    }
}
