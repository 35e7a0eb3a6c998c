//! The outline of a JSON object that is too long to keep: its own fields without nested values.

/// The maximum size of the outline, and of each string in it.
const MAX_OUTLINE: usize = 4_096;
const MAX_TEXT: usize = 128;

#[derive(Default)]
pub(crate) struct Outline {
    text: Vec<u8>,
    /// The length of the part that is complete. The text after it may continue.
    sure: usize,
    depth: usize,
    /// The offset of the current string, if the reader is inside one.
    in_text: Option<usize>,
    is_escape: bool,
    /// Whether the outline is full and something was dropped. Later text would seem to follow the
    /// text before the gap.
    is_full: bool,
}

impl Outline {
    pub(crate) fn pass(&mut self, piece: &[u8]) {
        for &byte in piece {
            if let Some(begin) = self.in_text {
                self.pass_text(byte, begin);
                continue;
            }
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => continue,
                b'"' => self.in_text = Some(self.text.len()),
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth == 2 {
                        b"null".iter().for_each(|byte| self.keep(*byte));
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.settle();
                    }
                    continue;
                }
                b',' if self.depth == 1 => self.settle(),
                _ => {}
            }
            if self.depth == 1 {
                self.keep(byte);
            }
        }
    }

    /// Keeps a string as it is written.
    ///
    /// A string that is too long is dropped completely, because its beginning could match another
    /// string. No relevant name or id is that long.
    fn pass_text(&mut self, byte: u8, begin: usize) {
        let is_end = byte == b'"' && !self.is_escape;
        self.is_escape = byte == b'\\' && !self.is_escape;
        if is_end {
            self.in_text = None;
        }
        if self.depth != 1 {
            return;
        }
        if self.text.len() - begin <= MAX_TEXT {
            self.keep(byte);
        } else if is_end {
            self.text.truncate(begin);
            let stands_in: &[u8] = if self.text.ends_with(b":") { b"null" } else { b"\"\"" };
            for byte in stands_in {
                self.keep(*byte);
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        self.is_full |= self.text.len() >= MAX_OUTLINE;
        if !self.is_full {
            self.text.push(byte);
        }
    }

    /// Marks the outline as complete up to here, because a field has ended.
    fn settle(&mut self) {
        if !self.is_full {
            self.sure = self.text.len();
        }
    }

    /// Whether the object has a field of this name. Its value may follow later.
    pub(crate) fn has(&self, name: &str) -> bool {
        let field = format!("\"{name}\":");
        self.text.windows(field.len()).any(|window| window == field.as_bytes())
    }

    /// Returns the object as far as it is known, as JSON.
    pub(crate) fn so_far(&self) -> Vec<u8> {
        let mut object = self.text[..self.sure].to_vec();
        object.push(b'}');
        object
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn outline(text: &str) -> Option<Value> {
        let mut outline = Outline::default();
        text.as_bytes().iter().for_each(|byte| outline.pass(&[*byte]));
        serde_json::from_slice(&outline.so_far()).ok()
    }

    #[test]
    fn only_what_is_certain_of_the_object_itself_is_kept() {
        let whole = r#" {"jsonrpc":"2.0", "result":{"id":7,"x":["}",{"id":8}]},"text":"\"id\":9,","id":12}"#;
        let kept = json!({ "jsonrpc": "2.0", "result": null, "text": "\"id\":9,", "id": 12 });
        assert_eq!(outline(whole), Some(kept));
        assert_eq!(outline(r#"{"id":12,"result":{"content":["#), Some(json!({ "id": 12 })));
        assert_eq!(outline(r#"{"id":1"#), None, "it may go on");
        assert_eq!(
            outline(&format!(r#"{{"text":"{}","id":3}}"#, "x".repeat(100_000))).unwrap()["id"],
            3
        );
        assert_eq!(
            outline(r#"{"id\n":1,"id":2}"#),
            Some(json!({ "id\n": 1, "id": 2 })),
            "an escape is a part of a name"
        );
        let long = "x".repeat(MAX_TEXT);
        assert_eq!(
            outline(&format!(r#"{{"id":"{long}y","{long}":1}}"#)),
            Some(json!({ "id": null, "": 1 }))
        );
        let filler = format!(r#""{}":0,"#, "x".repeat(100)).repeat(38);
        for room in 0..200 {
            let id =
                outline(&format!(r#"{{{filler}"{}":0,"id":123456789,"z":0}}"#, "x".repeat(room)))
                    .and_then(|outline| outline["id"].as_u64());
            assert!(id.is_none_or(|id| id == 123_456_789), "{id:?} is a part of it");
        }
        let mut many = Outline::default();
        many.pass(r#"{"a":{},"b":"c","#.repeat(10_000).as_bytes());
        assert!(many.text.len() <= MAX_OUTLINE);
    }
}
