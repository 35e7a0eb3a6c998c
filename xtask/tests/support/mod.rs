//! Finds the files of the project.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Returns the project's files that git knows, including new ones.
pub(crate) fn tracked(patterns: &[&str]) -> Vec<PathBuf> {
    let root = root();
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--"])
        .args(patterns)
        .output()
        .unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    let files: Vec<PathBuf> =
        files.lines().map(|line| root.join(line)).filter(|file| file.exists()).collect();
    assert!(!files.is_empty(), "git lists no file for {patterns:?}");
    files
}
