//! `Glob`: finds the files with matching paths, newest first.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ignore::DirEntry;
use parking_lot::Mutex;
use rustix::fs::FileType;
use rustix::io::Errno;
use sa_node_sdk::{NodeTool, ToolContext, ToolResult};
use sa_vault::secret_file;
use serde_json::{Value, json};

use super::args::{Args, optional};
use super::near::Near;
use super::pattern::Pattern;
use super::walk::{Search, Walk, check_base};
use super::watch::{Watch, watched};
use super::{Files, escaped_len, room};

pub(super) struct Glob(pub(super) Arc<Files>);

/// The maximum number of returned files. Further matches are only counted.
const MAX_MATCHES: usize = 10_000;

#[async_trait::async_trait]
impl NodeTool for Glob {
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult {
        let mut args = Args::new(args)?;
        let (text, path) = (args.path("pattern")?, args.optional_path("path")?);
        let pattern = Pattern::parse(&text)?;
        let files = Arc::clone(&self.0);
        let room = room(&ctx);
        watched(&ctx, move |watch| {
            let base = if pattern.is_absolute() {
                pattern.start(Path::new("/"))
            } else {
                files.place.resolve(path.as_deref())
            };
            check_base(&files, &base)?;
            let start = pattern.start(&base);
            let found = if matches!(
                files.place.open_directory(&start),
                Err(Errno::NOENT | Errno::NOTDIR)
            ) {
                // The directory at the beginning of the pattern cannot exist.
                Found::default()
            } else {
                check_base(&files, &start)?;
                find(&files, pattern, &start, watch)
            };
            Ok(found.into_result(&text, &base, room))
        })
        .await
    }

    fn title(&self) -> Option<String> {
        Some("Find files".into())
    }

    fn description(&self) -> Option<String> {
        Some(
            "Finds files on this machine by a glob pattern, newest first. `*` matches within one name, `**` matches any \
             number of directories, `{a,b}` matches a or b. Hidden and ignored files are included, symbolic links are \
             followed. The matches are absolute paths."
                .into(),
        )
    }

    fn input_schema(&self) -> Option<Value> {
        Some(optional(json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "minLength": 1, "maxLength": 4096,
                    "description": "Glob pattern (e.g. \"**/*.md\", \"src/**/*.rs\"), relative to `path` or absolute." },
                "path": { "type": "string", "minLength": 1, "maxLength": 4096,
                    "description": "Directory to search in. Relative paths resolve against the node workspace, which is also the default." },
            },
            "required": ["pattern"],
        })))
    }

    fn output_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string" },
                "basePath": { "type": "string", "description": "The resolved search directory." },
                "matches": { "type": "array", "items": { "type": "string" }, "description": "Absolute paths, newest first." },
                "count": { "type": "integer", "description": "Number of matching files." },
                "truncated": { "const": true, "description": "Set if `matches` contains only the newest files." },
                "unreadable": { "type": "integer", "description": "Number of directories that could not be read." },
            },
            "required": ["pattern", "basePath", "matches", "count"],
        }))
    }

    fn annotations(&self) -> Option<Value> {
        Some(json!({ "title": "Find files", "readOnlyHint": true, "openWorldHint": false }))
    }

    fn capabilities(&self) -> Vec<String> {
        vec!["filesystem.list".into()]
    }
}

/// A search below a directory. The directory's own path is the first `start_bytes` bytes of all
/// other paths.
struct Below {
    pattern: Pattern,
    start_bytes: usize,
}

impl Search for Below {
    fn enters(&self, directory: &DirEntry) -> bool {
        self.pattern.enters(Path::new(directory.file_name()), directory.depth())
    }

    fn wants(&self, file: &DirEntry) -> bool {
        let below = file.path().as_os_str().as_bytes().get(self.start_bytes..);
        below.is_some_and(|below| self.pattern.matches(Path::new(OsStr::from_bytes(below))))
    }
}

#[derive(Default)]
struct Found {
    files: Vec<(Time, PathBuf)>,
    count: u64,
    unreadable: u64,
}

/// Seconds and nanoseconds.
type Time = (i64, i64);

fn find(files: &Arc<Files>, pattern: Pattern, start: &Path, watch: Arc<Watch>) -> Found {
    let depth = pattern.depth;
    let walk = Walk::new(files, start, watch);
    // The count includes the slash after the directory. For the root, the path is the slash.
    let start_bytes = start.as_os_str().len() + usize::from(start.parent().is_some());
    let search = Arc::new(Below { pattern, start_bytes });
    let (all, count) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    walk.run(&search, depth, || {
        let mut mine = Mine { files: Vec::new(), all: &all };
        let (walk, count, mut near) = (Arc::clone(&walk), &count, Near::default());
        move |path: &Path| {
            let Ok((stat, is_link)) = near.look_at(&walk.files, path) else { return };
            let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            let hidden = || {
                walk.hidden.is(&stat)
                    || walk.hidden.covers(path)
                    || secret_file::is_marked_path(path)
                    // The walk has looked at the directories of its own path only.
                    || is_link && path.canonicalize().map_or(true, |real| walk.hidden.covers_file(&real))
            };
            if regular && !hidden() {
                count.fetch_add(1, Ordering::Relaxed);
                mine.push(((stat.st_mtime, stat.st_mtime_nsec as i64), path.to_owned()));
            }
        }
    });
    let mut files = all.into_inner();
    files.sort_unstable_by(newest_first);
    files.truncate(MAX_MATCHES);
    Found { files, count: count.into_inner(), unreadable: walk.unreadable() }
}

/// The files that one thread has found.
struct Mine<'a> {
    files: Vec<(Time, PathBuf)>,
    all: &'a Mutex<Vec<(Time, PathBuf)>>,
}

impl Mine<'_> {
    fn push(&mut self, file: (Time, PathBuf)) {
        self.files.push(file);
        // Files that cannot be among the newest are dropped.
        if self.files.len() >= 4 * MAX_MATCHES {
            self.files.select_nth_unstable_by(MAX_MATCHES, newest_first);
            self.files.truncate(MAX_MATCHES);
        }
    }
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        self.all.lock().append(&mut self.files);
    }
}

fn newest_first(one: &(Time, PathBuf), other: &(Time, PathBuf)) -> std::cmp::Ordering {
    other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1))
}

impl Found {
    fn into_result(self, pattern: &str, base: &Path, room: usize) -> Value {
        let base = base.to_string_lossy();
        let mut left = room.saturating_sub(escaped_len(pattern) + escaped_len(&base));
        let mut matches = Vec::new();
        for (_, path) in &self.files {
            let path = path.to_string_lossy();
            let Some(rest) = left.checked_sub(escaped_len(&path) + 3) else { break };
            left = rest;
            matches.push(Value::from(path));
        }
        let truncated = (matches.len() as u64) < self.count;
        let mut result = json!({ "pattern": pattern, "basePath": base, "matches": matches, "count": self.count });
        if truncated {
            result["truncated"] = json!(true);
        }
        if self.unreadable > 0 {
            result["unreadable"] = json!(self.unreadable);
        }
        result
    }
}
