//! Parses glob patterns, and derives where to search.

use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use sa_node_sdk::ToolError;

use super::args::invalid;

pub(super) struct Pattern {
    /// The directories at the beginning of the pattern, without wildcards. Absolute if the pattern
    /// is.
    pub(super) prefix: PathBuf,
    /// The maximum depth of a match below the prefix, if it is known.
    pub(super) depth: Option<usize>,
    /// The rest of the pattern, relative to the prefix.
    rest: GlobSet,
    /// The globs for the names of the first directories below the prefix.
    directories: Vec<GlobSet>,
}

impl Pattern {
    pub(super) fn parse(pattern: &str) -> Result<Self, ToolError> {
        let segments = segments(pattern);
        let (last, leading) =
            segments.split_last().ok_or_else(|| invalid("`pattern` is empty".into()))?;
        if matches!(*last, "" | "." | "..") {
            return Err(invalid(format!(
                "`pattern` names a directory: {pattern}; append `*` or `**` to match the files in it"
            )));
        }
        let plain = leading.iter().take_while(|segment| !has_wildcard(segment)).count();
        let mut prefix = PathBuf::from(if pattern.starts_with('/') { "/" } else { "" });
        prefix.extend(&segments[..plain]);
        let rest: Vec<_> = segments[plain..]
            .iter()
            .copied()
            .filter(|segment| !matches!(*segment, "" | "."))
            .collect();
        if rest.contains(&"..") {
            return Err(invalid(format!(
                "`pattern` has a `..` after a wildcard: {pattern}; put it at the beginning, or use `path`"
            )));
        }
        // A segment that contains a slash has it inside braces, and can match any number of names.
        let named =
            rest.iter().take_while(|segment| **segment != "**" && !segment.contains('/')).count();
        let depth = (named == rest.len()).then_some(named);
        let directories = rest[..named.min(rest.len() - 1)].iter().map(|segment| compile(segment));
        Ok(Self {
            prefix,
            depth,
            directories: directories.collect::<Result<_, _>>()?,
            rest: compile(&rest.join("/"))?,
        })
    }

    /// Returns whether a file matches, by its path below the prefix.
    pub(super) fn matches(&self, below: &Path) -> bool {
        self.rest.is_match(below)
    }

    /// Returns whether a match can be below the directory with this name and depth below the prefix
    /// (from 1).
    pub(super) fn enters(&self, name: &Path, depth: usize) -> bool {
        depth
            .checked_sub(1)
            .and_then(|at| self.directories.get(at))
            .is_none_or(|glob| glob.is_match(name))
    }

    /// Returns the directory of the prefix, relative to `base`.
    pub(super) fn start(&self, base: &Path) -> PathBuf {
        super::args::absolute(base, &self.prefix)
    }

    pub(super) fn is_absolute(&self) -> bool {
        self.prefix.components().next() == Some(Component::RootDir)
    }
}

/// Compiles a glob in which `*` matches within a name and `**` matches across directories.
pub(super) fn compile(glob: &str) -> Result<GlobSet, ToolError> {
    let built = GlobBuilder::new(glob).literal_separator(true).build();
    let set = built.and_then(|glob| GlobSetBuilder::new().add(glob).build());
    set.map_err(|error| invalid(format!("the glob `{glob}` is invalid: {}", error.kind())))
}

fn has_wildcard(segment: &str) -> bool {
    segment.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

/// Splits a pattern at slashes, except inside braces and brackets.
fn segments(pattern: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth, mut escaped) = (Vec::new(), 0, 0_usize, false);
    for (at, character) in pattern.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            '/' if depth == 0 => {
                parts.push(&pattern[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&pattern[begin..]);
    // The empty segment before a leading slash.
    if pattern.starts_with('/') {
        parts.remove(0);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, prefix: &str, depth: Option<usize>, matching: &[&str], other: &[&str]) {
        let parsed = Pattern::parse(pattern).unwrap();
        assert_eq!((parsed.prefix.to_str().unwrap(), parsed.depth), (prefix, depth), "{pattern}");
        for path in matching.iter().chain(other) {
            assert_eq!(
                parsed.matches(Path::new(path)),
                matching.contains(path),
                "{pattern} on {path}"
            );
        }
        // A directory on the path to a match is never skipped.
        for path in matching {
            for (at, name) in Path::new(path).parent().unwrap().iter().enumerate() {
                assert!(
                    parsed.enters(Path::new(name), at + 1),
                    "{pattern} enters {name:?} of {path}"
                );
            }
        }
    }

    #[test]
    fn patterns() {
        check("*.md", "", Some(1), &["a.md", ".a.md"], &["a/b.md", "a.mdx"]);
        check("**/*.md", "", None, &["a.md", "x/y/a.md"], &["a.rs"]);
        check("src/**/*.rs", "src", None, &["a.rs", "x/y/a.rs"], &["a.md"]);
        check("src/main.rs", "src", Some(1), &["main.rs"], &["x/main.rs"]);
        check("/etc/*/x.{a,b}", "/etc", Some(2), &["q/x.a", "q/x.b"], &["x.a", "q/x.c"]);
        check("{src,lib/x}/*.rs", "", None, &["src/a.rs", "lib/x/a.rs"], &["lib/a.rs"]);
        check("../a/*", "../a", Some(1), &["b"], &["b/c"]);
        check("a/*/c/**/d", "a", None, &["b/c/d", "b/c/x/y/d"], &["b/x/d"]);
        check("[ab]/?", "", Some(2), &["a/x", "b/y"], &["c/x", "a/xy"]);
        check("./x//y.txt", "./x/", Some(1), &["y.txt"], &[]);
        check("a\\*b/c", "", Some(2), &["a*b/c"], &["axb/c"]);
    }

    #[test]
    fn directories_that_cannot_match_are_not_entered() {
        let pattern = Pattern::parse("a/x*/b/**").unwrap();
        assert!(pattern.enters(Path::new("x1"), 1) && !pattern.enters(Path::new("y"), 1));
        assert!(pattern.enters(Path::new("b"), 2) && !pattern.enters(Path::new("c"), 2));
        assert!(pattern.enters(Path::new("anything"), 3));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for bad in ["", "a/", "/", "**/../x", "a[", "{a", "a/.."] {
            assert!(matches!(Pattern::parse(bad), Err(ToolError::InvalidArgs(_))), "{bad}");
        }
    }

    const WORDS: &[&str] =
        &["*", "**", "?", "[", "]", "{", "}", ",", "/", "\\", "a", "b", ".", "..", "!", "-", "^"];

    proptest::proptest! {
        #[test]
        fn a_directory_on_the_way_to_a_match_is_entered(
            pattern in proptest::collection::vec(proptest::sample::select(WORDS), 1..12), path in "[ab][ab.]?(/[ab][ab.]?){0,3}",
        ) {
            let pattern = pattern.concat();
            match Pattern::parse(&pattern) {
                Ok(parsed) if parsed.matches(Path::new(&path)) => {
                    let names: Vec<&str> = path.split('/').collect();
                    proptest::prop_assert!(parsed.depth.is_none_or(|depth| depth == names.len()), "{pattern} on {path}: {:?}", parsed.depth);
                    for (at, name) in names[..names.len() - 1].iter().enumerate() {
                        proptest::prop_assert!(parsed.enters(Path::new(name), at + 1), "{pattern} enters {name:?} of {path}");
                    }
                }
                Ok(_) => {}
                Err(error) => proptest::prop_assert!(matches!(error, ToolError::InvalidArgs(_)), "{error:?}"),
            }
        }

        #[test]
        fn no_text_breaks_the_reader_of_patterns(text in sa_hostile::text(WORDS)) {
            if let Ok(pattern) = Pattern::parse(&text) {
                proptest::prop_assert!(pattern.start(Path::new("/work")).is_absolute());
                let _ = (pattern.is_absolute(), pattern.matches(Path::new("a/b")), pattern.enters(Path::new("a"), 0));
            }
        }
    }
}
