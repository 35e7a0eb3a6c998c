//! Suggestions for misspelt names.

/// The minimum similarity at which one name counts as a misspelling of the other.
const ALIKE: f64 = 0.7;

/// The maximum length in bytes of a compared name. Longer names are not misspellings, and a
/// comparison costs the product of both lengths.
const MAX_NAME: usize = 128;

/// Returns the known name that is most similar to `written`, if one is similar enough. Case and
/// word separators do not count.
pub fn closest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if written.len() > MAX_NAME {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
    let wanted = plain(written);
    let known = known.into_iter().filter(|name| name.len() <= MAX_NAME);
    let scored =
        known.map(|name| (strsim::normalized_damerau_levenshtein(&plain(name), &wanted), name));
    scored
        .filter(|(score, _)| *score >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// The maximum number of suggestions.
const MOST: usize = 3;

/// Returns suggestions for an unknown name, best first. They are similar to `written`, contain it,
/// or are contained in it. `written` itself is never a suggestion, because the caller was just told
/// that it does not exist.
pub fn similar<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // A made-up name can have any length, so the comparison is bounded.
    let plain = |name: &str| -> String {
        name.chars()
            .take(MAX_NAME)
            .filter(|c| c.is_alphanumeric())
            .flat_map(char::to_lowercase)
            .collect()
    };
    let wanted = plain(written);
    if wanted.len() < 3 {
        return Vec::new();
    }
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .filter(|name| *name != written)
        .filter_map(|name| {
            let known = plain(name);
            let score = strsim::jaro_winkler(&known, &wanted);
            let within = known.contains(&wanted) || wanted.contains(&known);
            (!known.is_empty() && (within || score > 0.9)).then_some((score, name))
        })
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(MOST).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_comes_first() {
        let known = ["demo_add", "demo_echo", "session_end", "session_events", "session_list", "x"];
        assert_eq!(similar("demo_ecoh", known), ["demo_echo"]);
        assert_eq!(similar("echo", known), ["demo_echo"]);
        assert_eq!(similar("sesion_evnts", known)[0], "session_events");
        assert_eq!(similar("demo_add_all", known), ["demo_add"]);
        assert_eq!(similar("de", known), Vec::<&str>::new());
        assert_eq!(similar("colour", known), Vec::<&str>::new());
        assert_eq!(similar("session_end", known), ["session_events"], "and not what was written");
    }

    #[test]
    fn a_misspelling_is_near_and_another_word_is_not() {
        let known = ["apiKey", "endpoint", "parameters"];
        assert_eq!(closest("api_key", known), Some("apiKey"));
        assert_eq!(closest("apikye", known), Some("apiKey"));
        assert_eq!(closest("paramaters", known), Some("parameters"));
        assert_eq!(closest("colour", known), None);
        assert_eq!(closest("parameters_for_model", known), None);
        assert_eq!(closest("", known), None);
        // An unbounded comparison of these would need a hundred times the memory of any machine.
        let endless = "x".repeat(10_000_000);
        assert_eq!(closest(&endless, [endless.as_str()]), None);
        assert_eq!(closest("apikey", [endless.as_str(), "apiKey"]), Some("apiKey"));
    }
}
