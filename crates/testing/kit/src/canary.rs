//! Searches for secrets that must not appear anywhere.

use std::path::{Path, PathBuf};

/// Returns the files below a directory that contain these bytes.
pub fn find_in_files(dir: &Path, needle: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(find_in_files(&path, needle));
        } else if std::fs::read(&path).is_ok_and(|bytes| holds(&bytes, needle)) {
            found.push(path);
        }
    }
    found
}

/// Fails when a text contains the needle.
#[track_caller]
pub fn assert_nowhere(needle: &str, texts: &[(&str, &str)]) {
    for (place, text) in texts {
        assert!(!text.contains(needle), "the canary is in {place}: {text}");
    }
}

fn holds(bytes: &[u8], needle: &str) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
}

/// Returns whether only the owner can use the file.
pub fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o077 == 0
}
