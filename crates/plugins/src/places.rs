//! On which line of a JSON text each of its parts stands.

use std::collections::HashMap;

/// Lines, from 1 on, by JSON pointer.
pub(crate) type Lines = HashMap<String, usize>;

/// A text that is known to be JSON. An object's member stands where its name does.
pub(crate) fn lines(text: &str) -> Lines {
    let mut scanner = Scanner { bytes: text.as_bytes(), at: 0, line: 1, lines: Lines::new() };
    scanner.value(&mut String::new());
    scanner.lines
}

/// The same for a text that may be something else than JSON, and then has no lines that could be told.
pub(crate) fn lines_of_json(text: &str) -> Lines {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() { lines(text) } else { Lines::new() }
}

/// The line of a part, or of the nearest one that contains it.
pub(crate) fn line_of(lines: &Lines, pointer: &str) -> usize {
    let mut pointer = pointer;
    loop {
        match (lines.get(pointer), pointer.rfind('/')) {
            (Some(line), _) => return *line,
            (None, Some(slash)) => pointer = &pointer[..slash],
            (None, None) => return 1,
        }
    }
}

/// A name as a part of a pointer.
pub(crate) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
    lines: Lines,
}

impl Scanner<'_> {
    /// Its depth is bounded by whoever has parsed the text before.
    fn value(&mut self, path: &mut String) {
        self.space();
        self.lines.entry(path.clone()).or_insert(self.line);
        match self.bytes.get(self.at) {
            Some(b'{') => self.members(path, b'}'),
            Some(b'[') => self.members(path, b']'),
            Some(b'"') => drop(self.string()),
            _ => {
                let rest = &self.bytes[self.at.min(self.bytes.len())..];
                self.at += rest.iter().position(|byte| b",]} \t\r\n".contains(byte)).unwrap_or(rest.len());
            }
        }
    }

    fn members(&mut self, path: &mut String, end: u8) {
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
            let length = path.len();
            path.push('/');
            if end == b'}' {
                let line = self.line;
                path.push_str(&escape(&self.string()));
                self.lines.insert(path.clone(), line);
                self.space();
                self.at += 1; // the colon
            } else {
                path.push_str(&index.to_string());
            }
            self.value(path);
            path.truncate(length);
        }
    }

    fn string(&mut self) -> String {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.bytes.get(self.at) {
            self.at += if *byte == b'\\' { 2 } else { 1 };
            if *byte == b'"' {
                break;
            }
        }
        let end = self.at.min(self.bytes.len());
        serde_json::from_slice(&self.bytes[start.min(end)..end]).unwrap_or_default()
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
    use super::*;

    #[test]
    fn each_part_has_its_line() {
        let text = "{\n \"a\": [1,\n  {\"b/c\": \"x\\\"}\\n\"}, 3],\n\n \"d\":\n true\n}";
        let lines = lines(text);
        for (pointer, line) in [("", 1), ("/a", 2), ("/a/0", 2), ("/a/1", 3), ("/a/1/b~1c", 3), ("/a/2", 3), ("/d", 5)]
        {
            assert_eq!(line_of(&lines, pointer), line, "{pointer}");
        }
        assert_eq!(line_of(&lines, "/a/1/missing"), 3, "where it would have to be");
        assert_eq!(line_of(&lines, "/missing"), 1);
    }
}
