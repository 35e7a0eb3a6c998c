//! Rewrites parser errors without Rust terms.

use crate::mask::addresses;

/// Rewrites `invalid type: string "x", expected usize` as `it must be a whole number from 0 up, and
/// is the string "x"`. A position at the end is kept.
pub fn plain(message: &str) -> String {
    in_words(message, "an object", false).unwrap_or_else(|| message.to_owned())
}

/// Rewrites an error about TOML, which has tables instead of objects.
pub fn plain_toml(message: &str) -> String {
    in_words(message, "a table", false).unwrap_or_else(|| message.to_owned())
}

/// Rewrites an error about a value that may be a secret. The type is included, the value is not.
pub fn plain_secret_toml(message: &str) -> String {
    in_words(message, "a table", true).unwrap_or_else(|| "it cannot be used".to_owned())
}

fn in_words(message: &str, object: &str, secret: bool) -> Option<String> {
    if let Some((before, rest)) = message.split_once("missing field `") {
        let (name, after) = rest.split_once('`')?;
        return Some(format!("{before}\"{name}\" is missing{after}"));
    }
    if let Some((before, rest)) = message.split_once("unknown variant `") {
        let (found, wanted) = rest.split_once("`, expected ")?;
        let (wanted, place) = without_place(wanted);
        let choices: Vec<String> =
            wanted.split('`').skip(1).step_by(2).map(|name| format!("\"{name}\"")).collect();
        let (last, others) = choices.split_last()?;
        let choices = if others.is_empty() {
            last.clone()
        } else {
            format!("{} or {last}", others.join(", "))
        };
        let found =
            if secret { "another text".to_owned() } else { format!("\"{}\"", addresses(found)) };
        return Some(format!("{before}it must be {choices}, and is {found}{place}"));
    }
    let (before, rest) =
        message.split_once("invalid type: ").or_else(|| message.split_once("invalid value: "))?;
    let (found, wanted) = rest.rsplit_once(", expected ")?;
    let (wanted, place) = without_place(wanted);
    let wanted =
        if wanted.starts_with("struct ") || wanted == "a map" { object } else { kind(wanted) };
    let found = match found.split_once(' ') {
        // Tables contain headers and variables, which may be secrets. A string in place of a table
        // is not repeated.
        Some(("string", _)) if secret || wanted == object => "a string".to_owned(),
        Some(("integer" | "floating", _)) if secret => "a number".to_owned(),
        Some(("integer", number)) => format!("the number {}", number.trim_matches('`')),
        Some(("floating", number)) => {
            format!("the number {}", number.trim_start_matches("point ").trim_matches('`'))
        }
        Some(("boolean", value)) => value.trim_matches('`').to_owned(),
        Some(("string", text)) => format!("the string \"{}\"", addresses(text.trim_matches('"'))),
        _ => match found {
            "map" => object.to_owned(),
            "sequence" => "a list".to_owned(),
            other => other.to_owned(),
        },
    };
    Some(format!("{before}it must be {wanted}, and is {found}{place}"))
}

fn without_place(wanted: &str) -> (&str, &str) {
    wanted
        .find(" at line ")
        .or_else(|| wanted.find(" in `"))
        .map_or((wanted, ""), |at| wanted.split_at(at))
}

fn kind(wanted: &str) -> &str {
    match wanted {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 up",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        wanted => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{excerpt, excerpt_of_ends};

    #[track_caller]
    fn check<T: serde::de::DeserializeOwned + std::fmt::Debug>(json: &str, expected: &str) {
        let error = serde_json::from_str::<T>(json).unwrap_err().to_string();
        assert_eq!(plain(&error), expected, "{error}");
    }

    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only its errors count")]
    struct Named {
        name: Choice,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Choice {
        This,
        That,
    }

    #[test]
    fn choices_and_what_is_missing_are_told_without_rust() {
        check::<Named>("{}", "\"name\" is missing at line 1 column 2");
        check::<Named>(
            r#"{"name":"x"}"#,
            "it must be \"this\" or \"that\", and is \"x\" at line 1 column 11",
        );
    }

    #[test]
    fn types_have_names_that_people_know() {
        check::<usize>(
            r#""x""#,
            "it must be a whole number from 0 up, and is the string \"x\" at line 1 column 3",
        );
        check::<u16>(
            "-1",
            "it must be a whole number from 0 to 65535, and is the number -1 at line 1 column 2",
        );
        check::<bool>("[1]", "it must be true or false, and is a list at line 1 column 0");
        check::<Vec<u8>>("1.5", "it must be a list, and is the number 1.5 at line 1 column 3");
        check::<String>("true", "it must be a string, and is true at line 1 column 4");
        check::<bool>(
            r#""ftp://me:x@a""#,
            "it must be true or false, and is the string \"ftp://***@a\" at line 1 column 14",
        );
        assert_eq!(plain("a key is missing"), "a key is missing");
        assert_eq!(plain("invalid type: nonsense"), "invalid type: nonsense");
    }

    proptest::proptest! {
        #[test]
        fn any_message_can_be_cut_and_put_in_other_words(
            head in "(invalid type: |invalid value: |unknown variant `|missing field `)?",
            text in "(\\PC|`|, expected | at line ){0,60}",
            again in 0_usize..30,
        ) {
            let message = head + &text.repeat(again);
            let (json, toml, secret) = (plain(&message), plain_toml(&message), plain_secret_toml(&message));
            for told in [excerpt_of_ends(json), excerpt_of_ends(toml), excerpt_of_ends(secret), excerpt_of_ends(message.clone())] {
                proptest::prop_assert!(told.chars().count() <= 481);
            }
            let short = excerpt(30, &message);
            proptest::prop_assert!(short == message || short.chars().count() == 31);
        }
    }
}
