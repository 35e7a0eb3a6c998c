//! `Read`: returns the lines of a text, or an image as an image.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::io::Errno;
use sa_node_sdk::{NodeTool, ToolContext, ToolError, ToolResult};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::args::{Args, optional};
use super::lines::{End, NoPage, Page, Wanted, page, skip_lines};
use super::{Files, blocking, errors, escaped_len, room, room_for_images};

pub(super) struct Read(pub(super) Arc<Files>);

const MAX_IMAGE_BYTES: u64 = 10 * 1024 * 1024;

/// The maximum size of a file that is read to its end only to count its lines.
const MAX_COUNTED_BYTES: i64 = 64 * 1024 * 1024;

/// The size of the first block, which is checked before all else to distinguish text from other
/// files.
const FIRST_BLOCK: usize = 64 * 1024;

#[async_trait::async_trait]
impl NodeTool for Read {
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult {
        let mut args = Args::new(args)?;
        let path = args.path("path")?;
        let (offset, limit) =
            (args.count("offset")?.unwrap_or(0), args.count("limit")?.unwrap_or(u64::MAX));
        let files = Arc::clone(&self.0);
        blocking(move || {
            let path = files.place.resolve(Some(&path));
            let (file, stat) = files.place.open_file(&path)?;
            let room = room(&ctx).saturating_sub(escaped_len(&path.to_string_lossy()));
            let reading = Reading { path: &path, size: stat.st_size, room: room_for_images(&ctx) };
            let wanted = Wanted { offset, limit, room };
            reading.read(file, &wanted, &ctx.cancel).map_err(|error| match error {
                NoPage::Io(error) if error.kind() == io::ErrorKind::TimedOut => cancelled(),
                NoPage::Io(error) => errors::explain(
                    &files.place,
                    &path,
                    Errno::from_io_error(&error).unwrap_or(Errno::IO),
                ),
                NoPage::NotText => {
                    ToolError::Failed(format!("{} changed while it was being read", path.display()))
                }
            })?
        })
        .await
    }

    fn title(&self) -> Option<String> {
        Some("Read a file".into())
    }

    fn description(&self) -> Option<String> {
        Some(
            "Reads a file on this machine. Text is returned as lines, each with its number and a tab before it; \
             `offset` and `limit` select a range of lines. Images (up to 10 MB) are returned as images. Lines that do not \
             fit into the result are left out, and `truncated` and `nextOffset` are set."
                .into(),
        )
    }

    fn input_schema(&self) -> Option<Value> {
        Some(optional(json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "maxLength": 4096,
                    "description": "Path to the file. Relative paths resolve against the node workspace." },
                "offset": { "type": "number", "minimum": 0, "default": 0,
                    "description": "Line number to start reading from (0-based). Ignored for image files." },
                "limit": { "type": "number", "minimum": 0,
                    "description": "Maximum number of lines to read. Default: all lines. Ignored for image files." },
            },
            "required": ["path"],
        })))
    }

    fn output_schema(&self) -> Option<Value> {
        let text = json!({
            "properties": {
                "path": { "type": "string", "description": "The resolved absolute path." },
                "content": { "type": "string", "description": "The lines, each as `number<tab>line`." },
                "lines": { "type": "integer", "description": "Number of returned lines." },
                "truncated": { "const": true, "description": "Set if not all requested lines fit into the result." },
                "nextOffset": { "type": "integer", "description": "The offset to continue from." },
                "totalLines": { "type": "integer", "description": "Number of lines in the file, if known." },
                "note": { "type": "string" },
            },
            "required": ["path", "content", "lines"],
        });
        let image = json!({
            "properties": {
                "path": { "type": "string", "description": "The resolved absolute path." },
                "mimeType": { "type": "string", "description": "MIME type of the image, such as image/png." },
                "bytes": { "type": "integer", "description": "Size of the image in bytes." },
                "content": { "type": "array", "items": { "type": "object" }, "description": "The image as content blocks." },
            },
            "required": ["path", "mimeType", "bytes"],
        });
        Some(json!({ "type": "object", "anyOf": [text, image] }))
    }

    fn annotations(&self) -> Option<Value> {
        Some(json!({ "title": "Read a file", "readOnlyHint": true, "openWorldHint": false }))
    }

    fn capabilities(&self) -> Vec<String> {
        vec!["filesystem.read".into()]
    }
}

/// A file that is being read.
struct Reading<'a> {
    path: &'a Path,
    /// The size that the system reports; files of processes report 0.
    size: i64,
    room: usize,
}

impl Reading<'_> {
    /// Reads the file. The outer error is a read error; the inner error is about the content.
    fn read(
        &self,
        file: File,
        wanted: &Wanted,
        cancel: &CancellationToken,
    ) -> Result<ToolResult, NoPage> {
        let mut text = BufReader::with_capacity(FIRST_BLOCK, Watched { file, cancel });
        let first = text.fill_buf()?.to_vec();
        let page =
            if is_text_so_far(&first) { page(&mut text, wanted) } else { Err(NoPage::NotText) };
        match page {
            Ok(page) => Ok(Ok(self.lines(page, wanted, &mut text)?)),
            Err(NoPage::NotText) => {
                let mut file = text.into_inner().file;
                file.rewind()?;
                Ok(self.no_text(&file, &first)?)
            }
            Err(error) => Err(error),
        }
    }

    fn lines(
        &self,
        page: Page,
        wanted: &Wanted,
        text: &mut BufReader<Watched<'_>>,
    ) -> io::Result<Value> {
        let mut result = json!({
            "path": self.path.to_string_lossy(),
            "content": page.content,
            "lines": page.lines,
        });
        let next = wanted.offset + page.lines;
        match page.end {
            End::Limit => {}
            End::Text(total) if total < wanted.offset => {
                result["totalLines"] = json!(total);
                result["note"] = json!(format!(
                    "the file has {total} lines, so there is no line at offset {}",
                    wanted.offset
                ));
            }
            End::Text(_) => {}
            End::Room | End::InsideLine => {
                result["truncated"] = json!(true);
                result["nextOffset"] = json!(next);
                if self.size <= MAX_COUNTED_BYTES {
                    // The line that did not fit has already been consumed.
                    let consumed = next + u64::from(page.end == End::Room);
                    result["totalLines"] = json!(consumed + skip_lines(text, u64::MAX)?);
                }
                result["note"] = json!(if page.end == End::Room {
                    format!("not all lines fit into one result; continue with offset {next}")
                } else {
                    format!(
                        "line {next} does not fit into one result and is cut; the next line is at offset {next}"
                    )
                });
            }
        }
        Ok(result)
    }

    fn no_text(&self, file: &File, first: &[u8]) -> io::Result<ToolResult> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let mime = infer::get(first).map_or("application/octet-stream", |found| found.mime_type());
        let mut size = self.size.max(first.len() as i64) as u64;
        if !mime.starts_with("image/") {
            let message =
                format!("Binary file: {name} ({mime}, {size} bytes) — not a text or image file");
            return Ok(Err(ToolError::Failed(message)));
        }
        let too_large = |size, limit| {
            let message = format!(
                "Image file: {name} ({mime}, {size} bytes) is larger than {limit}; create a smaller copy and read that"
            );
            Ok(Err(ToolError::Failed(message)))
        };
        let limit = "the limit for images, 10 MB (10485760 bytes)";
        if size > MAX_IMAGE_BYTES {
            return too_large(size, limit);
        }
        let mut bytes = Vec::with_capacity(size as usize);
        file.take(MAX_IMAGE_BYTES + 1).read_to_end(&mut bytes)?;
        size = bytes.len() as u64;
        if size > MAX_IMAGE_BYTES {
            return too_large(size, limit);
        }
        let data = BASE64_STANDARD.encode(&bytes);
        if data.len() + name.len() + escaped_len(&self.path.to_string_lossy()) > self.room {
            return too_large(size, "the limit for one response of this node");
        }
        // MCP sends the content as content blocks and all other fields as structured content.
        Ok(Ok(json!({
            "path": self.path.to_string_lossy(),
            "mimeType": mime,
            "bytes": size,
            "content": [
                { "type": "text", "text": format!("Image file: {name} ({mime}, {size} bytes)") },
                { "type": "image", "data": data, "mimeType": mime },
            ],
        })))
    }
}

/// Returns whether a first block can be the beginning of a UTF-8 text. Its last character may be
/// incomplete.
fn is_text_so_far(first: &[u8]) -> bool {
    std::str::from_utf8(first).map_or_else(|error| error.error_len().is_none(), |_| true)
}

/// A file that stops reading when the call is cancelled.
struct Watched<'a> {
    file: File,
    cancel: &'a CancellationToken,
}

impl io::Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(buffer)
    }
}

fn cancelled() -> ToolError {
    ToolError::Cancelled("the read was cancelled".into())
}
