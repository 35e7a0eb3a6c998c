//! Excerpts of texts of any length, and words for a shell.

use std::borrow::Cow;

/// Quotes a word for a shell.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Shortens a text to this number of characters.
pub fn excerpt(max: usize, text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Shortens a message that repeats untrusted text of any length. The start usually names the
/// problem, and the end often the position.
pub fn excerpt_of_ends(message: String) -> String {
    const HEAD: usize = 400;
    const TAIL: usize = 80;
    if message.chars().nth(HEAD + TAIL).is_none() {
        return message;
    }
    let tail = message.char_indices().rev().nth(TAIL - 1).map_or(0, |(start, _)| start);
    format!("{}{}", excerpt(HEAD, &message), &message[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_keeps_the_start_and_the_end() {
        let message = |found: &str| {
            format!("it must be a list, and is the string \"{found}\" at line 1 column 7")
        };
        assert_eq!(excerpt_of_ends(message("x")), message("x"));
        let told = excerpt_of_ends(message(&"é".repeat(5_000)));
        assert!(
            told.starts_with("it must be a list") && told.ends_with(" at line 1 column 7"),
            "{told}"
        );
        assert_eq!(told.chars().count(), 481);
    }
}
