//! Parsers' errors, in words for people who do not write Rust.

/// `invalid type: string "x", expected usize` as `it must be a whole number from 0 up, and is the string "x"`. Where a
/// place follows it, that stays.
pub(crate) fn plain(message: &str) -> String {
    let Some((before, rest)) = message.split_once("invalid type: ").or_else(|| message.split_once("invalid value: "))
    else {
        return message.to_owned();
    };
    let Some((found, wanted)) = rest.rsplit_once(", expected ") else { return message.to_owned() };
    let (wanted, place) = match wanted.find(" at line ").or_else(|| wanted.find(" in `")) {
        Some(at) => wanted.split_at(at),
        None => (wanted, ""),
    };
    let found = match found.split_once(' ') {
        Some(("integer", number)) => format!("the number {}", number.trim_matches('`')),
        Some(("floating", number)) => format!("the number {}", number.trim_start_matches("point ").trim_matches('`')),
        Some(("boolean", value)) => value.trim_matches('`').to_owned(),
        Some(("string", text)) => format!("the string {text}"),
        _ => match found {
            "map" => "an object".to_owned(),
            "sequence" => "a list".to_owned(),
            other => other.to_owned(),
        },
    };
    format!("{before}it must be {}, and is {found}{place}", kind(wanted))
}

fn kind(wanted: &str) -> &str {
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 up",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        wanted if wanted.starts_with("struct ") || wanted == "a map" => "an object",
        wanted => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: serde::de::DeserializeOwned + std::fmt::Debug>(json: &str, expected: &str) {
        let error = serde_json::from_str::<T>(json).unwrap_err().to_string();
        assert_eq!(plain(&error), expected, "{error}");
    }

    #[test]
    fn types_have_names_that_people_know() {
        check::<usize>(r#""x""#, "it must be a whole number from 0 up, and is the string \"x\" at line 1 column 3");
        check::<u16>("-1", "it must be a whole number from 0 up, and is the number -1 at line 1 column 2");
        check::<bool>("[1]", "it must be true or false, and is a list at line 1 column 0");
        check::<Vec<u8>>("1.5", "it must be a list, and is the number 1.5 at line 1 column 3");
        check::<String>("true", "it must be a string, and is true at line 1 column 4");
        assert_eq!(plain("a key is missing"), "a key is missing");
        assert_eq!(plain("invalid type: nonsense"), "invalid type: nonsense");
    }
}
