//! What somebody may have meant who wrote a name that is not there.

/// Names that are less alike than this are two names, and not one and its misspelling.
const ALIKE: f64 = 0.7;

/// Names that are longer, in bytes, are nobody's misspelling, and to compare two takes as much as both lengths multiplied.
const MAX_NAME: usize = 128;

/// The known name that is most like the one that was written, if any is like it at all. Capitals, and what stands between
/// words, do not count.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if written.len() > MAX_NAME {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
    let wanted = plain(written);
    let known = known.into_iter().filter(|name| name.len() <= MAX_NAME);
    let scored = known.map(|name| (strsim::normalized_damerau_levenshtein(&plain(name), &wanted), name));
    scored.filter(|(score, _)| *score >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// How many names are told to somebody who may have meant one of them.
const MOST: usize = 3;

/// The known names that somebody may have meant, best first: those that are much like the written one, and those that it
/// is a part of, or that are a part of it. Never the written one itself: whoever is told that it is not there did not mean it.
pub fn similar<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // A name that somebody made up has no end; neither may the comparison.
    let plain = |name: &str| -> String {
        name.chars().take(MAX_NAME).filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
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
        assert_eq!(nearest("api_key", known), Some("apiKey"));
        assert_eq!(nearest("apikye", known), Some("apiKey"));
        assert_eq!(nearest("paramaters", known), Some("parameters"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("parameters_for_model", known), None);
        assert_eq!(nearest("", known), None);
        // Compared, these would take a hundred times the memory of any machine.
        let endless = "x".repeat(10_000_000);
        assert_eq!(nearest(&endless, [endless.as_str()]), None);
        assert_eq!(nearest("apikey", [endless.as_str(), "apiKey"]), Some("apiKey"));
    }
}
