//! What peers say to each other when nothing is wrong, as the protocols' transcripts have it.

use std::path::Path;

use serde_json::Value;

/// A line of a transcript.
#[derive(Debug, Clone)]
pub struct Line {
    pub place: String,
    pub frame: Value,
    /// What the frame means, written in full.
    pub meaning: Value,
}

/// The lines of these transcripts that go in this direction, at least so many.
pub fn transcripts(files: &[&str], direction: &str, least: usize) -> Vec<Line> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/transcripts");
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
