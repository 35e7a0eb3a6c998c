//! Prints and saves the result of a call: command output, texts, images and files.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::output::{self, Failure, duration, line, size};
use sa_text::printable;

/// The last event of a call. The result is kept as raw JSON.
#[derive(Deserialize)]
pub(super) struct Done<'a> {
    #[serde(borrow)]
    pub(super) result: &'a RawValue,
    #[serde(borrow, default)]
    blocks: Vec<&'a RawValue>,
    #[serde(default)]
    pub(super) attachments: Vec<Attachment>,
}

/// A content block of a result.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Block {
    Text {
        text: String,
    },
    Image {
        data: String,
        #[serde(rename = "mimeType", alias = "mime_type")]
        mime_type: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
pub(super) struct Attachment {
    mime_type: String,
    name: Option<String>,
    data: String,
}

/// The result of a shell command, which has the same form on every node.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Command {
    status: String,
    session_id: String,
    tail: String,
    output: Option<String>,
    exit_code: Option<i64>,
    signal: Option<String>,
    #[serde(default)]
    timed_out: bool,
    #[serde(default)]
    truncated: bool,
    duration_ms: Option<u64>,
}

impl Command {
    /// Returns the output, as far as it was kept.
    pub(super) fn output(&self) -> &str {
        self.output.as_deref().unwrap_or(&self.tail)
    }

    /// Returns the outcome of the command in one line.
    pub(super) fn facts(&self) -> String {
        if self.status == "running" {
            return format!("[running in the background; sessionId {}]", self.session_id);
        }
        let code = self.exit_code.map(|code| format!("exit code {code}"));
        let signal = self.signal.as_ref().map(|signal| format!("ended by {signal}"));
        let late = self.timed_out.then(|| "timed out".to_owned());
        let took = self.duration_ms.map(|ms| duration(ms.saturating_mul(1_000)));
        let cut = self.truncated.then(|| "only the end of the output was kept".to_owned());
        let facts: Vec<String> = [code, signal, late, took, cut].into_iter().flatten().collect();
        format!("[{}]", facts.join(", "))
    }
}

impl Done<'_> {
    /// Reports whether the blocks contain the full result in a printable form.
    pub(super) fn can_be_looked_at(&self) -> bool {
        !self.blocks.is_empty() && !self.blocks().iter().any(|block| matches!(block, Block::Other))
    }

    pub(super) fn blocks(&self) -> Vec<Block> {
        self.blocks
            .iter()
            .map(|block| serde_json::from_str(block.get()).unwrap_or(Block::Other))
            .collect()
    }

    /// Returns the base64 data of all images and attachments.
    pub(super) fn files(&self) -> Vec<String> {
        let images = self.blocks().into_iter().filter_map(|block| match block {
            Block::Image { data, .. } => Some(data),
            Block::Text { .. } | Block::Other => None,
        });
        images.chain(self.attachments.iter().map(|attached| attached.data.clone())).collect()
    }

    /// Saves images and attachments as binary files. If there are none, saves text as text and any
    /// other result as JSON. Returns whether the result still has to be printed.
    pub(super) fn save(&self, file: &Path) -> Result<bool, Failure> {
        let files = self.files();
        for (number, data) in files.iter().enumerate() {
            let bytes = BASE64_STANDARD.decode(data).map_err(|error| {
                Failure::other(format!(
                    "the result of the tool is not valid base64, and cannot be saved: {error}"
                ))
            })?;
            write(&numbered(file, number), &bytes)?;
        }
        if !files.is_empty() {
            return Ok(true);
        }
        let result = self.result.get();
        if let Ok(command) = serde_json::from_str::<Command>(result) {
            write(file, command.output().as_bytes())?;
            eprintln!("{}", printable(&command.facts()));
            return Ok(false);
        }
        match serde_json::from_str::<String>(result) {
            Ok(text) => write(file, text.as_bytes())?,
            Err(_) => write(file, result.as_bytes())?,
        }
        Ok(false)
    }
}

impl Block {
    pub(super) fn show(&self) -> Result<(), Failure> {
        match self {
            Self::Text { text } => output::lines(text),
            Self::Image { data, mime_type } => {
                line(&printable(&format!("[image {mime_type} {}]", decoded_size(data))))
            }
            Self::Other => Ok(()),
        }
    }
}

impl Attachment {
    pub(super) fn show(&self) -> Result<(), Failure> {
        let name = self.name.as_deref().unwrap_or("attachment");
        line(&printable(&format!("[{name} {} {}]", self.mime_type, decoded_size(&self.data))))
    }
}

/// Prints the members of an object with their original number and string forms. Strings with
/// several lines are printed as text, because JSON would put them on one line.
pub(super) fn show_object(members: &Map<String, Value>, written: &str) -> Result<(), Failure> {
    let all: BTreeMap<String, &RawValue> = serde_json::from_str(written).unwrap_or_default();
    let long = |value: &Value| value.as_str().is_some_and(|text| text.contains('\n'));
    if !members.values().any(long)
        || members.values().any(|value| value.is_object() || value.is_array())
    {
        if all.len() == members.len() {
            return line(&output::pretty(written));
        }
        let kept: BTreeMap<_, _> =
            all.iter().filter(|(name, _)| members.contains_key(*name)).collect();
        return line(&output::pretty(&serde_json::to_string(&kept).unwrap_or_default()));
    }
    let (texts, facts): (Vec<_>, Vec<_>) = members.iter().partition(|(_, value)| long(value));
    for (name, value) in facts {
        let value = value.as_str().or_else(|| Some(all.get(name)?.get())).unwrap_or_default();
        line(&printable(&format!("{name}: {value}")))?;
    }
    for (name, text) in texts {
        line(&printable(&format!("{name}:")))?;
        output::lines(text.as_str().unwrap_or_default())?;
    }
    Ok(())
}

/// Returns the decoded size of base64 data.
fn decoded_size(data: &str) -> String {
    size(data.trim_end_matches('=').len() * 3 / 4)
}

/// Returns the file name for a number: `plot.png`, `plot-2.png`, `plot-3.png`.
fn numbered(file: &Path, number: usize) -> std::path::PathBuf {
    if number == 0 {
        return file.to_owned();
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let extension =
        file.extension().map(|end| format!(".{}", end.to_string_lossy())).unwrap_or_default();
    file.with_file_name(format!("{stem}-{}{extension}", number + 1))
}

/// Checks that a file can be written before running the call that produces it. Leaves no file
/// behind.
pub(super) fn check_writable(file: &Path) -> Result<(), Failure> {
    let opened = match std::fs::metadata(file) {
        // Opening a pipe would block until there is a reader.
        Ok(there) if !there.is_file() && !there.is_dir() => return Ok(()),
        Ok(_) => std::fs::OpenOptions::new().append(true).open(file).map(drop),
        // `create_new` fails on a link to a missing file, so links are not checked.
        Err(_) if file.is_symlink() => return Ok(()),
        Err(_) => std::fs::File::create_new(file).and_then(|_| std::fs::remove_file(file)),
    };
    opened.map_err(|error| cannot_write(file, &error))
}

fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    Failure::other(format!("cannot write {}: {error}", file.display()))
}

pub(super) fn write(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(file, bytes).map_err(|error| cannot_write(file, &error))?;
    eprintln!("saved {} to {}", size(bytes.len()), file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_facts(result: Value, expected: &str) {
        let mut whole = json!({ "sessionId": "s1", "tail": "", "startedAt": 1, "workdir": "/w" });
        whole.as_object_mut().unwrap().extend(result.as_object().unwrap().clone());
        assert_eq!(serde_json::from_value::<Command>(whole).unwrap().facts(), expected);
    }

    #[test]
    fn a_command_is_summed_up_in_a_line() {
        check_facts(
            json!({ "status": "completed", "exitCode": 0, "signal": null, "durationMs": 12 }),
            "[exit code 0, 12.0 ms]",
        );
        check_facts(
            json!({ "status": "failed", "exitCode": null, "signal": "SIGKILL", "timedOut": true, "truncated": true }),
            "[ended by SIGKILL, timed out, only the end of the output was kept]",
        );
        check_facts(json!({ "status": "running" }), "[running in the background; sessionId s1]");
    }

    #[test]
    fn several_images_have_a_file_each() {
        assert_eq!(numbered(Path::new("a/plot.png"), 0), Path::new("a/plot.png"));
        assert_eq!(numbered(Path::new("a/plot.png"), 1), Path::new("a/plot-2.png"));
        assert_eq!(numbered(Path::new("plot"), 2), Path::new("plot-3"));
    }
}
