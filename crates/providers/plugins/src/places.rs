//! Finds the lines of values in a JSON text.

use std::collections::BTreeMap;

pub(crate) use sa_text::json::difference::escape;
use sa_text::json::is_too_deep;

/// Returns the line, counted from 1, of the value at each JSON pointer, or of its closest
/// existing parent. An object's member is on the line of its name. A text that is not JSON has
/// one line.
///
/// Only requested parts are recorded: the pointer of each part may be as long as the text.
pub(crate) fn lines<'p>(text: &str, pointers: impl IntoIterator<Item = &'p str>) -> Vec<usize> {
    let mut wanted = Part { line: Some(1), parts: BTreeMap::new() };
    let pointers: Vec<&str> = pointers.into_iter().collect();
    for pointer in &pointers {
        pointer
            .split('/')
            .skip(1)
            .fold(&mut wanted, |part, name| part.parts.entry(name).or_default());
    }
    let is_json =
        || !is_too_deep(text) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    if !wanted.parts.is_empty() && is_json() {
        Scanner { bytes: text.as_bytes(), at: 0, line: 1 }.value(Some(&mut wanted));
    }
    pointers.iter().map(|pointer| wanted.line(pointer)).collect()
}

/// A requested part, or one that contains a requested part.
#[derive(Default)]
struct Part<'p> {
    /// The line on which it was found.
    line: Option<usize>,
    /// The inner parts by name, escaped as in a pointer.
    parts: BTreeMap<&'p str, Part<'p>>,
}

impl Part<'_> {
    fn line(&self, pointer: &str) -> usize {
        let (mut part, mut line) = (self, self.line);
        for name in pointer.split('/').skip(1) {
            let Some(inner) = part.parts.get(name).filter(|inner| inner.line.is_some()) else {
                break;
            };
            (part, line) = (inner, inner.line);
        }
        line.unwrap_or(1)
    }
}

/// Scans a text that is known to be valid JSON of limited depth.
struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
}

impl Scanner<'_> {
    fn value(&mut self, mut part: Option<&mut Part<'_>>) {
        self.space();
        if let Some(part) = &mut part {
            part.line.get_or_insert(self.line);
        }
        match self.bytes.get(self.at) {
            Some(b'{') => self.members(part, b'}'),
            Some(b'[') => self.members(part, b']'),
            Some(b'"') => self.string(),
            _ => {
                let rest = &self.bytes[self.at.min(self.bytes.len())..];
                self.at +=
                    rest.iter().position(|byte| b",]} \t\r\n".contains(byte)).unwrap_or(rest.len());
            }
        }
    }

    fn members(&mut self, mut part: Option<&mut Part<'_>>, end: u8) {
        self.at += 1;
        for index in 0_usize.. {
            self.space();
            match self.bytes.get(self.at) {
                None => return,
                Some(byte) if *byte == end => {
                    self.at += 1;
                    return;
                }
                Some(b',') => {
                    self.at += 1;
                    self.space();
                }
                Some(_) => {}
            }
            let (begin, line) = (self.at, self.line);
            if end == b'}' {
                self.string();
            }
            // Names are decoded only if the parent contains requested parts.
            let mut inner = part.as_mut().filter(|part| !part.parts.is_empty()).and_then(|part| {
                let name = if end == b'}' { self.name(begin) } else { index.to_string() };
                part.parts.get_mut(name.as_str())
            });
            if end == b'}' {
                self.space();
                self.at += 1; // the colon
            }
            // Of two members with the same name the last one counts.
            if let Some(inner) = &mut inner {
                inner.line = (end == b'}').then_some(line);
            }
            self.value(inner);
        }
    }

    /// Returns the name that begins at this position, escaped for a pointer.
    fn name(&self, begin: usize) -> String {
        let name: String = serde_json::from_slice(&self.bytes[begin..self.at]).unwrap_or_default();
        escape(&name)
    }

    fn string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.bytes.get(self.at) {
            self.at += if *byte == b'\\' { 2 } else { 1 };
            if *byte == b'"' {
                break;
            }
        }
        self.at = self.at.min(self.bytes.len());
    }

    fn space(&mut self) {
        while let Some(byte) = self.bytes.get(self.at).filter(|byte| b" \t\r\n".contains(byte)) {
            self.line += usize::from(*byte == b'\n');
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn each_part_has_its_line() {
        let text = "{\n \"a\": [1,\n  {\"b/c\": \"x\\\"}\\n\"}, 3],\n\n \"d\":\n true\n}";
        let expected = [
            ("", 1),
            ("/a", 2),
            ("/a/0", 2),
            ("/a/1", 3),
            ("/a/1/b~1c", 3),
            ("/a/2", 3),
            ("/d", 5),
            ("/a/1/missing", 3),
            ("/a/missing/deeper", 2),
            ("/missing", 1),
        ];
        let (pointers, found): (Vec<_>, Vec<_>) = expected.into_iter().unzip();
        assert_eq!(lines(text, pointers.iter().copied()), found);
        assert_eq!(lines("{\n\"a\": }", ["/a", ""]), [1, 1], "no JSON");
    }

    /// Each of its hundred thousand parts has a pointer of a quarter of a megabyte.
    #[test]
    fn a_long_name_around_many_parts_costs_no_more_than_the_text() {
        let name = "x".repeat(250_000);
        let text = format!("{{\"{name}\":\n[{}\n0]}}", "0,".repeat(100_000));
        let (outer, last) = (format!("/{name}"), format!("/{name}/100000"));
        assert_eq!(lines(&text, [outer.as_str(), &last, "/other"]), [1, 3, 1]);
    }

    /// Collects the pointers to all parts of a value.
    fn pointers(value: &Value, path: &str, found: &mut Vec<String>) {
        found.push(path.to_owned());
        match value {
            Value::Array(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(at, item)| pointers(item, &format!("{path}/{at}"), found));
            }
            Value::Object(fields) => {
                fields.iter().for_each(|(name, field)| {
                    pointers(field, &format!("{path}/{}", escape(name)), found);
                });
            }
            _ => {}
        }
    }

    proptest! {
        /// If each value is on its own line, the lines of all parts are in ascending order.
        #[test]
        fn the_parts_of_any_json_are_found(value in sa_hostile::json(&["a", "b/c", "~", "", "0"])) {
            let text = serde_json::to_string_pretty(&value).unwrap();
            let mut all = Vec::new();
            pointers(&value, "", &mut all);
            let found = lines(&text, all.iter().map(String::as_str));
            prop_assert!(found.is_sorted());
            prop_assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "each on a line of its own");
            prop_assert!(found.iter().all(|line| (1..=text.lines().count()).contains(line)));
        }

        #[test]
        fn no_text_and_no_pointer_breaks_it(
            text in sa_hostile::text(&["{", "}", "[", "]", "\"", ":", ",", "\"a\":", "1"]), pointer in sa_hostile::text(&["/", "a", "~1", "0"]),
        ) {
            let found = lines(&text, [pointer.as_str()]);
            prop_assert!((1..=text.split('\n').count()).contains(&found[0]));
        }
    }
}
