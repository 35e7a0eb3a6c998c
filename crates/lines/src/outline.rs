//! The outline of a JSON object that is too long to be kept: its own fields, with nothing of what is inside them.

/// How much of it is kept in all, and of each text in it.
const MAX_OUTLINE: usize = 4_096;
const MAX_TEXT: usize = 128;

#[derive(Default)]
pub(crate) struct Outline {
    text: Vec<u8>,
    /// Up to where it is sure: what is behind may go on.
    sure: usize,
    depth: usize,
    /// How much of a text was seen, inside of one.
    in_text: Option<usize>,
    is_escape: bool,
}

impl Outline {
    pub(crate) fn pass(&mut self, piece: &[u8]) {
        for &byte in piece {
            if let Some(seen) = self.in_text {
                self.pass_text(byte, seen);
                continue;
            }
            match byte {
                b'"' => self.in_text = Some(0),
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth == 2 {
                        b"null".iter().for_each(|byte| self.keep(*byte));
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.sure = self.text.len();
                    }
                    continue;
                }
                b',' if self.depth == 1 => self.sure = self.text.len(),
                _ => {}
            }
            if self.depth == 1 {
                self.keep(byte);
            }
        }
    }

    fn pass_text(&mut self, byte: u8, seen: usize) {
        // No field that matters here has anything to escape.
        if self.is_escape || byte == b'\\' {
            self.is_escape = !self.is_escape;
            return;
        }
        self.in_text = if byte == b'"' { None } else { Some(seen + 1) };
        if self.depth == 1 && (byte == b'"' || seen < MAX_TEXT) {
            self.keep(byte);
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.text.len() < MAX_OUTLINE {
            self.text.push(byte);
        }
    }

    /// Whether it has a field of this name, or a text.
    pub(crate) fn has(&self, text: &[u8]) -> bool {
        self.text.windows(text.len()).any(|window| window == text)
    }

    /// The object as far as it is known, as JSON.
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
        let kept = json!({ "jsonrpc": "2.0", "result": null, "text": "id:9,", "id": 12 });
        assert_eq!(outline(whole), Some(kept));
        assert_eq!(outline(r#"{"id":12,"result":{"content":["#), Some(json!({ "id": 12 })));
        assert_eq!(outline(r#"{"id":1"#), None, "it may go on");
        assert_eq!(outline(&format!(r#"{{"text":"{}","id":3}}"#, "x".repeat(100_000))).unwrap()["id"], 3);
        let mut many = Outline::default();
        many.pass(r#"{"a":{},"b":"c","#.repeat(10_000).as_bytes());
        assert!(many.text.len() <= MAX_OUTLINE);
    }
}
