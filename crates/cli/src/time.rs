//! Parses time spans of the command line.

/// Parses a time in milliseconds. A bare number means milliseconds.
pub(super) fn milliseconds(text: &str) -> Result<u64, String> {
    parse(text, 1).ok_or_else(|| {
        "must be a number of milliseconds, or a number with ms, s, m, h or d, such as 3s".to_owned()
    })
}

/// Parses a time in whole seconds. A bare number means seconds. Fractions of a second are rejected.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let time = parse(text, 1_000).filter(|_| !text.ends_with("ms")).map(|ms| ms / 1_000);
    time.ok_or_else(|| {
        "must be a number of seconds, or a number with s, m, h or d, such as 12h".to_owned()
    })
}

/// Formats a time in the largest unit that divides it.
pub(super) fn typed(ms: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let unit = units.into_iter().find(|(_, factor)| ms > 0 && ms.is_multiple_of(*factor));
    unit.map_or_else(|| format!("{ms}ms"), |(unit, factor)| format!("{}{unit}", ms / factor))
}

fn parse(text: &str, bare: u64) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim() {
        "" => bare,
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, in_ms: Option<u64>, in_seconds: Option<u64>) {
        assert_eq!((milliseconds(text).ok(), seconds(text).ok()), (in_ms, in_seconds), "{text}");
    }

    #[test]
    fn a_time_is_shown_as_it_could_be_typed() {
        for (ms, expected) in
            [(3_000, "3s"), (90_000, "90s"), (1_500, "1500ms"), (7_200_000, "2h"), (0, "0ms")]
        {
            assert_eq!(typed(ms), expected);
            assert_eq!(milliseconds(expected), Ok(ms));
        }
    }

    #[test]
    fn times_may_have_a_unit() {
        check("250", Some(250), Some(250));
        check("250ms", Some(250), None);
        check("3s", Some(3_000), Some(3));
        check("2 min", Some(120_000), Some(120));
        check("1h", Some(3_600_000), Some(3_600));
        check("2d", Some(172_800_000), Some(172_800));
        check("3w", None, None);
        check("-1", None, None);
        check("1.5s", None, None);
        check("", None, None);
        check("99999999999999999999", None, None);
    }
}
