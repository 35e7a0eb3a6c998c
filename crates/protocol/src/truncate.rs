use sa_text::json::{ObjectWriter, escaped_len};

/// Replaces a result that is too large with an object that marks it as truncated and contains its
/// beginning.
///
/// `result` is JSON text. The object is `{"_truncated":true,"_original_bytes":N,"partial":"…"}`.
/// `partial` is the longest prefix of the text with which the whole object fits into `budget`
/// bytes; it never ends inside a character. If the budget is too small even for an empty `partial`,
/// the object has an empty one.
pub fn truncated_result(result: &str, budget: usize) -> String {
    let marked = |partial: &str| {
        ObjectWriter::with_capacity(budget.min(result.len() * 2 + 80))
            .plain("_truncated", true)
            .plain("_original_bytes", result.len())
            .text("partial", partial)
            .end()
    };
    marked(escaped_prefix(result, budget.saturating_sub(marked("").len())))
}

/// Returns the longest prefix of `text` that takes at most `budget` bytes inside a JSON string, cut
/// between characters.
pub fn escaped_prefix(text: &str, budget: usize) -> &str {
    let mut used = 0;
    for (at, character) in text.char_indices() {
        used += escaped_len(character);
        if used > budget {
            return &text[..at];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    proptest! {
        #[test]
        fn fits_and_is_a_beginning(text: String, budget in 60usize..400) {
            let result = serde_json::to_string(&text).unwrap();
            let cut = truncated_result(&result, budget);
            prop_assert!(cut.len() <= budget.max(80));
            let value: Value = serde_json::from_str(&cut).unwrap();
            prop_assert_eq!(&value["_truncated"], &Value::Bool(true));
            prop_assert_eq!(value["_original_bytes"].as_u64(), Some(result.len() as u64));
            prop_assert!(result.starts_with(value["partial"].as_str().unwrap()));
        }

        #[test]
        fn escaped_prefix_is_the_longest(text: String, budget in 0usize..100) {
            let cut = escaped_prefix(&text, budget);
            let len = |s: &str| serde_json::to_string(s).unwrap().len() - 2;
            prop_assert!(len(cut) <= budget);
            if let Some(next) = text[cut.len()..].chars().next() {
                prop_assert!(len(cut) + escaped_len(next) > budget);
            }
        }
    }
}
