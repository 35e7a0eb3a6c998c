//! Read, Write, Edit, Glob and Grep.

mod args;
mod edit;
mod errors;
mod glob;
mod grep;
mod hidden;
mod lines;
mod locks;
mod near;
mod pattern;
mod place;
mod read;
mod replace;
mod walk;
mod watch;
mod write;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use sa_node_sdk::{MAX_TOOL_RESPONSE_BYTES, ToolContext, ToolError, ToolRegistry};

use self::locks::Locks;
use self::place::Place;
use crate::{Machine, Options, tolerant};

/// The state that the file tools share.
pub(crate) struct Files {
    place: Place,
    locks: Locks,
}

impl Files {
    /// Opens the roots that the options allow. The error names the root that cannot be used.
    pub(crate) fn open(
        options: &Options,
        hidden: &[PathBuf],
    ) -> Result<Arc<Self>, (PathBuf, io::Error)> {
        let place = Place::open(&options.workspace, &options.allow_roots, hidden)?;
        Ok(Arc::new(Self { place, locks: Locks::default() }))
    }
}

pub(crate) fn register(machine: &Machine, tools: &mut ToolRegistry) {
    let files = || Arc::clone(machine.files());
    tolerant::register(tools, "Read", read::Read(files()));
    tolerant::register(tools, "Glob", glob::Glob(files()));
    tolerant::register(tools, "Grep", grep::Grep(files()));
    if !machine.options().read_only {
        tolerant::register(tools, "Write", write::Write(files()));
        tolerant::register(tools, "Edit", edit::Edit(files()));
    }
}

/// Runs blocking disk access on the blocking thread pool.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    tokio::task::spawn_blocking(work).await?
}

/// Returns the budget for the text of a result, in bytes of JSON.
///
/// A gateway may accept more, as images require, but more text would not be useful.
fn room(ctx: &ToolContext) -> usize {
    room_for_images(ctx).min(MAX_TOOL_RESPONSE_BYTES)
}

/// Returns the budget for images: the whole result except field names, numbers, notes and metadata.
fn room_for_images(ctx: &ToolContext) -> usize {
    const AROUND: usize = 4096;
    ctx.max_response_bytes().saturating_sub(AROUND)
}

/// Returns the number of bytes of a text inside a JSON string.
fn escaped_len(text: &str) -> usize {
    let extra = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..0x20 => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(extra).sum::<usize>()
}
