//! What somebody may have meant who wrote a name that is not there.

/// Names that are less alike than this are two names, and not one and its misspelling.
const ALIKE: f64 = 0.7;

/// The known name that is most like the one that was written, if any is like it at all. Capitals, and what stands between
/// words, do not count.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
    let wanted = plain(written);
    let scored = known.into_iter().map(|name| (strsim::normalized_damerau_levenshtein(&plain(name), &wanted), name));
    scored.filter(|(score, _)| *score >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_is_near_and_another_word_is_not() {
        let known = ["apiKey", "endpoint", "parameters"];
        assert_eq!(nearest("api_key", known), Some("apiKey"));
        assert_eq!(nearest("apikye", known), Some("apiKey"));
        assert_eq!(nearest("paramaters", known), Some("parameters"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("parameters_for_model", known), None);
        assert_eq!(nearest("", known), None);
    }
}
