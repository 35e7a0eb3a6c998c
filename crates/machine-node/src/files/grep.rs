//! `Grep`: finds the lines that match.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use globset::GlobSet;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use ignore::DirEntry;
use parking_lot::Mutex;
use rustix::io::Errno;
use sa_node_sdk::{NodeTool, ToolContext, ToolError, ToolResult};
use serde_json::{Value, json};

use super::args::{Args, invalid, optional};
use super::near::Near;
use super::pattern::compile;
use super::walk::{Search, Walk, check_base};
use super::watch::{Watch, Watched, watched};
use super::{Files, escaped_len, room};

pub(super) struct Grep(pub(super) Arc<Files>);

const MAX_MATCHES: usize = 100;
const MAX_CHARACTERS: usize = 200;

/// The maximum length of the error for an invalid pattern, in bytes.
const MAX_WORDS: usize = 1_000;

/// The maximum length of a line. A line must fit into memory to be matched; a file with a longer
/// one is not searched.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

#[async_trait::async_trait]
impl NodeTool for Grep {
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult {
        let mut args = Args::new(args)?;
        let (pattern, path, include) =
            (args.text("pattern")?, args.optional_path("path")?, args.optional_path("include")?);
        let matcher = matcher(&pattern)?;
        if let Some(include) = include.as_ref().filter(|include| include.contains('/')) {
            return Err(invalid(format!(
                "`include` is matched against file names only, but {include} contains a `/`; use `path` for the directory"
            )));
        }
        let include = include.as_deref().map(compile).transpose()?;
        let files = Arc::clone(&self.0);
        let room = room(&ctx);
        watched(&ctx, move |watch| {
            let base = files.place.resolve(path.as_deref());
            let (found, unreadable) = find(&files, &base, matcher, include, watch)?;
            Ok(found.into_result(&pattern, &base, unreadable, room))
        })
        .await
    }

    fn title(&self) -> Option<String> {
        Some("Search in files".into())
    }

    fn description(&self) -> Option<String> {
        Some(
            "Searches files on this machine for lines that match a regular expression (Rust syntax, one line at a time). \
             Hidden and ignored files are included, symbolic links are followed, binary files are skipped. Returns the \
             first 100 matching lines, sorted by path, and `truncated` if there are more."
                .into(),
        )
    }

    fn input_schema(&self) -> Option<Value> {
        Some(optional(json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "description": "Regex pattern to search for (Rust `regex` crate syntax)." },
                "path": { "type": "string", "minLength": 1, "maxLength": 4096,
                    "description": "Directory or file to search in. Relative paths resolve against the node workspace, which is also the default." },
                "include": { "type": "string", "minLength": 1, "maxLength": 4096,
                    "description": "File name glob pattern to filter files (e.g. \"*.md\", \"*.{rs,ts}\"). Matched against file name only, not full path." },
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
                "matches": { "type": "array", "items": {
                    "type": "object",
                    "properties": {
                        "path": { "type": "string" },
                        "line": { "type": "integer", "description": "Line number, starting at 1." },
                        "content": { "type": "string", "description": "The line, or its first 200 characters." },
                    },
                    "required": ["path", "line", "content"],
                } },
                "count": { "type": "integer", "description": "Number of matching lines." },
                "truncated": { "const": true, "description": "Set instead of `count` if there are more matches." },
                "unreadable": { "type": "integer", "description": "Number of files and directories that could not be read." },
            },
            "required": ["pattern", "basePath", "matches"],
        }))
    }

    fn annotations(&self) -> Option<Value> {
        Some(json!({ "title": "Search in files", "readOnlyHint": true, "openWorldHint": false }))
    }

    fn capabilities(&self) -> Vec<String> {
        vec!["text.search".into()]
    }
}

fn matcher(pattern: &str) -> Result<RegexMatcher, ToolError> {
    // A line also ends before `\r\n`, for the pattern as well as in the result.
    let built = RegexMatcherBuilder::new()
        .multi_line(true)
        .line_terminator(Some(b'\n'))
        .crlf(true)
        .build(pattern);
    built.map_err(|error| {
        // A long pattern is not repeated: the last line of the error contains the reason.
        let said = error.to_string();
        let said = if said.len() <= MAX_WORDS {
            &said
        } else {
            said.lines().next_back().unwrap_or_default()
        };
        let said = &said[..said.floor_char_boundary(MAX_WORDS)];
        invalid(format!("`pattern` is not a valid regular expression for single lines: {said}"))
    })
}

fn find(
    files: &Arc<Files>,
    base: &Path,
    matcher: RegexMatcher,
    include: Option<GlobSet>,
    watch: Arc<Watch>,
) -> Result<(Found, u64), ToolError> {
    let found = Arc::new(Found::default());
    let named = Arc::new(Named { include, found: Arc::clone(&found) });
    let walk = Walk::new(files, base, watch);
    if matches!(files.place.open_directory(base), Err(Errno::NOTDIR)) {
        // The base may also be a single file.
        let (file, _) = files.place.open_file(base)?;
        if named.matches(Path::new(base.file_name().unwrap_or_default())) {
            Lines::new(&matcher).search(base, &file, &walk, &found);
        }
    } else {
        check_base(files, base)?;
        walk.run(&named, None, || {
            let (mut lines, mut near) = (Lines::new(&matcher), Near::default());
            let (walk, found) = (Arc::clone(&walk), Arc::clone(&found));
            move |path: &Path| match near.open(&walk.files, path, &walk.hidden) {
                Ok(file) => lines.search(path, &file, &walk, &found),
                Err(Errno::ACCESS) => walk.count_unreadable(),
                // The file was deleted, or it is not a file that may be read.
                Err(_) => {}
            }
        });
    }
    drop(named);
    let unreadable = walk.unreadable();
    drop(walk);
    Ok((Arc::into_inner(found).unwrap_or_default(), unreadable))
}

/// Selects files by their names, as long as they can still be among the first matches.
struct Named {
    include: Option<GlobSet>,
    found: Arc<Found>,
}

impl Named {
    fn matches(&self, name: &Path) -> bool {
        self.include.as_ref().is_none_or(|include| include.is_match(name))
    }
}

impl Search for Named {
    fn enters(&self, directory: &DirEntry) -> bool {
        !self.found.is_past(directory.path())
    }

    fn wants(&self, file: &DirEntry) -> bool {
        self.matches(Path::new(file.file_name())) && !self.found.is_past(file.path())
    }
}

struct Line {
    number: u64,
    content: String,
}

/// The first matches in the order of their paths, independent of the order in which threads find
/// them. Two searches of the same tree return the same result.
///
/// As soon as there are enough matches, paths after the last one in that order need not be
/// searched.
#[derive(Default)]
struct Found {
    first: Mutex<First>,
    enough: AtomicBool,
}

#[derive(Default)]
struct First {
    files: BTreeMap<PathBuf, Vec<Line>>,
    lines: usize,
}

impl Found {
    fn add(&self, path: &Path, lines: Vec<Line>) {
        let mut first = self.first.lock();
        first.lines += lines.len();
        first.files.insert(path.to_owned(), lines);
        while let Some(last) = first.files.last_entry().map(|last| last.get().len())
            && first.lines - last > MAX_MATCHES
        {
            first.files.pop_last();
            first.lines -= last;
        }
        if first.lines > MAX_MATCHES {
            self.enough.store(true, Ordering::Release);
        }
    }

    fn is_past(&self, path: &Path) -> bool {
        self.enough.load(Ordering::Acquire) && {
            let first = self.first.lock();
            first.files.last_key_value().is_some_and(|(last, _)| path > last.as_path())
        }
    }

    fn into_result(self, pattern: &str, base: &Path, unreadable: u64, room: usize) -> Value {
        let first = self.first.into_inner();
        let base = base.to_string_lossy();
        let mut left = room.saturating_sub(escaped_len(pattern) + escaped_len(&base));
        let mut matches = Vec::new();
        let lines =
            first.files.iter().flat_map(|(path, lines)| lines.iter().map(move |line| (path, line)));
        for (path, line) in lines.take(MAX_MATCHES) {
            let path = path.to_string_lossy();
            let Some(rest) = left.checked_sub(escaped_len(&path) + escaped_len(&line.content) + 64)
            else {
                break;
            };
            left = rest;
            matches.push(json!({ "path": path, "line": line.number, "content": line.content }));
        }
        let truncated = matches.len() < first.lines;
        let mut result = json!({ "pattern": pattern, "basePath": base, "matches": matches });
        if truncated {
            result["truncated"] = json!(true);
        } else {
            result["count"] = json!(first.lines);
        }
        if unreadable > 0 {
            result["unreadable"] = json!(unreadable);
        }
        result
    }
}

/// The state of one searching thread.
struct Lines {
    matcher: RegexMatcher,
    searcher: Searcher,
    /// The searcher for files that contain zero bytes.
    thorough: Searcher,
}

impl Lines {
    fn new(matcher: &RegexMatcher) -> Self {
        let searcher = |binary| {
            SearcherBuilder::new()
                .line_number(true)
                .line_terminator(LineTerminator::crlf())
                .bom_sniffing(false)
                .binary_detection(binary)
                .heap_limit(Some(MAX_LINE_BYTES))
                .build()
        };
        let thorough = searcher(BinaryDetection::none());
        Self { matcher: matcher.clone(), searcher: searcher(BinaryDetection::quit(0)), thorough }
    }

    fn search(&mut self, path: &Path, file: &File, walk: &Walk, found: &Found) {
        // A zero byte is valid in UTF-8, but nearly always the sign of a binary file. So the first
        // zero byte ends the search, and a file that turns out to be text is searched again.
        let hits = match hits(&mut self.searcher, &self.matcher, file, walk) {
            Ok(hits) if !hits.zeros => hits,
            Ok(_) if is_text(file, &walk.watch).unwrap_or(false) => {
                let mut file = file;
                match file
                    .rewind()
                    .and_then(|()| hits(&mut self.thorough, &self.matcher, file, walk))
                {
                    Ok(hits) => hits,
                    Err(_) => return walk.count_unreadable(),
                }
            }
            Ok(_) => return,
            // A line is too long, or a file of a process cannot be read at the moment.
            Err(_) => return walk.count_unreadable(),
        };
        if !hits.binary && !hits.lines.is_empty() && is_text(file, &walk.watch).unwrap_or(false) {
            found.add(path, hits.lines);
        }
    }
}

fn hits(
    searcher: &mut Searcher,
    matcher: &RegexMatcher,
    file: &File,
    walk: &Walk,
) -> io::Result<Hits> {
    let mut hits = Hits::default();
    searcher.search_reader(matcher, Watched { file, watch: &walk.watch }, &mut hits)?;
    Ok(hits)
}

/// Returns whether the whole file is UTF-8. Only files with matches or zero bytes are checked,
/// because they are then read twice.
fn is_text(mut file: &File, watch: &Watch) -> io::Result<bool> {
    file.rewind()?;
    let mut reader = Watched { file, watch };
    let mut buffer = vec![0; 64 * 1024];
    let mut kept = 0;
    loop {
        let read = reader.read(&mut buffer[kept..])?;
        if read == 0 {
            return Ok(kept == 0);
        }
        let filled = kept + read;
        match std::str::from_utf8(&buffer[..filled]) {
            Ok(_) => kept = 0,
            // The character continues in the next block.
            Err(error) if error.error_len().is_none() => {
                let whole = error.valid_up_to();
                buffer.copy_within(whole..filled, 0);
                kept = filled - whole;
            }
            Err(_) => return Ok(false),
        }
    }
}

#[derive(Default)]
struct Hits {
    lines: Vec<Line>,
    /// Whether a line is not UTF-8.
    binary: bool,
    /// Whether the search ended at a zero byte.
    zeros: bool,
}

impl Sink for Hits {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let line = found.bytes();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let Ok(line) = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)) else {
            self.binary = true;
            return Ok(false);
        };
        let content = line.chars().take(MAX_CHARACTERS).collect();
        self.lines.push(Line { number: found.line_number().unwrap_or(0), content });
        Ok(self.lines.len() <= MAX_MATCHES)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        self.zeros = finish.binary_byte_offset().is_some();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use grep_matcher::Matcher as _;
    use proptest::prelude::*;

    use super::*;

    const WORDS: &[&str] = &[
        "a", "b", ".", "*", "+", "?", "(", ")", "[", "]", "{", "}", "|", "^", "$", "\\", "\\n",
        "{1000}", "(?i)", "(?=", "\\1", "\\pL",
    ];

    proptest! {
        #[test]
        fn a_pattern_is_for_single_lines_or_is_refused_in_few_words(text in sa_hostile::text(WORDS), long in sa_hostile::long()) {
            for pattern in [text, format!("({long}"), format!("{long}[")] {
                match matcher(&pattern) {
                    Ok(matcher) => {
                        let found = matcher.find(b"ab\nab").unwrap();
                        prop_assert!(found.is_none_or(|found| !b"ab\nab"[found].contains(&b'\n')), "{pattern}");
                    }
                    Err(error) => prop_assert!(matches!(&error, ToolError::InvalidArgs(why) if why.len() < sa_hostile::SHORT), "{error:?}"),
                }
            }
        }
    }
}
