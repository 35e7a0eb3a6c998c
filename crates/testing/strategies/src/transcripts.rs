//! Valid messages between peers, from the protocol transcripts.

use std::path::Path;

use serde_json::Value;

/// One line of a transcript.
#[derive(Debug, Clone)]
pub struct Line {
    pub place: String,
    pub frame: Value,
    /// The meaning of the frame, written in full.
    pub meaning: Value,
}

/// Returns the lines of these transcripts in this direction. Fails if there are fewer than `least`.
pub fn transcripts(files: &[&str], direction: &str, least: usize) -> Vec<Line> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol/transcripts");
    let mut lines = Vec::new();
    for name in files {
        let text = std::fs::read_to_string(dir.join(name)).unwrap();
        for (number, line) in text.lines().enumerate() {
            let mut line: Value = serde_json::from_str(line).unwrap();
            if line["direction"] == direction {
                let frame = line["frame"].take();
                let meaning = line.get_mut("reads_as").map_or_else(|| frame.clone(), Value::take);
                lines.push(Line { place: format!("{name}:{}", number + 1), frame, meaning });
            }
        }
    }
    assert!(lines.len() >= least, "the transcripts are gone");
    lines
}
