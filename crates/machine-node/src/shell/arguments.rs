//! Numbers in arguments, in any JSON notation.

use sa_node_sdk::ToolError;
use serde_json::Number;

/// Reads a non-negative whole number. A fraction is dropped, and a number that is too large is
/// clamped.
pub(super) fn whole(name: &str, number: &Number) -> Result<u64, ToolError> {
    if let Some(whole) = number.as_u64() {
        return Ok(whole);
    }
    match number.as_f64() {
        Some(number) if number >= 0.0 => Ok(number as u64),
        _ => Err(ToolError::InvalidArgs(format!("{name} is {number}, but must not be negative"))),
    }
}

/// Reads a number like [`whole`], and clamps it to the given range.
pub(super) fn clamped(number: &Number, least: u64, most: u64) -> u64 {
    whole("", number).unwrap_or(least).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn numbers_are_read_in_any_spelling() {
        assert_eq!(whole("x", &number("200")), Ok(200));
        assert_eq!(whole("x", &number("2e2")), Ok(200));
        assert_eq!(whole("x", &number("1.9")), Ok(1));
        assert_eq!(whole("x", &number("1e300")), Ok(u64::MAX));
        assert!(whole("x", &number("-1")).unwrap_err().message().contains("x is -1"));
    }

    #[test]
    fn what_is_clamped_is_never_wrong() {
        for (text, expected) in
            [("-5", 10), ("0", 10), ("10", 10), ("500.5", 500), ("1e9", 120_000)]
        {
            assert_eq!(clamped(&number(text), 10, 120_000), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_number_is_a_count_or_is_refused(whole_number in proptest::prelude::any::<i64>(), fraction in proptest::num::f64::NORMAL) {
            for number in [Number::from(whole_number), Number::from_f64(fraction).unwrap()] {
                proptest::prop_assert_eq!(whole("x", &number).is_ok(), number.as_f64().unwrap() >= 0.0);
                proptest::prop_assert!((10..=500).contains(&clamped(&number, 10, 500)));
            }
        }
    }
}
