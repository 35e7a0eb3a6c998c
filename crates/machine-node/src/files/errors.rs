//! What went wrong with a path, and what to do about it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags, Stat, openat};
use rustix::io::Errno;
use sa_node_sdk::ToolError;
use sa_vault::secret_file;

use super::place::Place;

/// How many names of a directory are compared with one that is missing.
const MAX_NAMES: usize = 10_000;

/// The error of an open, a look or a write as the caller should read it.
pub(super) fn explain(place: &Place, path: &Path, errno: Errno) -> ToolError {
    let shown = path.display();
    match errno {
        Errno::NOENT => missing(place, path),
        Errno::NOTDIR => ToolError::NotFound(format!("{shown} does not exist: a part of the path is no directory")),
        Errno::XDEV if place.is_confined() => ToolError::NotAllowed(format!(
            "{shown} is outside of what this node may touch; use a path below {}",
            place.roots()
        )),
        Errno::LOOP => {
            ToolError::NotAllowed(format!("{shown} leads through a link that is not followed, or in circles"))
        }
        Errno::ACCESS | Errno::PERM => {
            ToolError::NotAllowed(format!("{shown}: permission denied for the user that the node runs as"))
        }
        Errno::ROFS => ToolError::NotAllowed(format!("{shown} is on a file system that is mounted read-only")),
        // Whoever reads is told before anything is opened.
        Errno::ISDIR => directory(path, TO_WRITE),
        Errno::NOSPC | Errno::DQUOT => {
            ToolError::Failed(format!("{shown} cannot be written: the disk is full ({errno})"))
        }
        Errno::NAMETOOLONG => ToolError::InvalidArgs(format!("`path` has a name in it that is too long: {shown}")),
        Errno::AGAIN => ToolError::Failed(format!("{shown} has nothing to read now, and reading it would wait")),
        errno => ToolError::Failed(format!("{shown}: {errno}")),
    }
}

/// What to do about a directory where a file is meant.
pub(super) const TO_READ: &str = "Glob lists the files in it";
pub(super) const TO_WRITE: &str = "give the name of a file in it";

/// Anything but a regular file would wait, do something, or have no end.
pub(super) fn regular(path: &Path, stat: &Stat, instead: &str) -> Result<(), ToolError> {
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => return Err(directory(path, instead)),
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "no regular file",
    };
    Err(ToolError::Failed(format!("{} is {what}; the file tools work on regular files only", path.display())))
}

fn directory(path: &Path, instead: &str) -> ToolError {
    ToolError::Failed(format!("{} is a directory; {instead}", path.display()))
}

pub(super) fn secret(path: &Path) -> ToolError {
    ToolError::NotAllowed(format!(
        "{} holds secrets of this node or of a gateway; no tool may read, write or list it",
        path.display()
    ))
}

fn missing(place: &Place, path: &Path) -> ToolError {
    let shown = path.display();
    let parent = path.parent().and_then(|parent| place.open_directory(parent).ok());
    let (Some(parent), Some(name)) = (parent, path.file_name()) else {
        return ToolError::NotFound(format!("{shown} does not exist, and neither does the directory it would be in"));
    };
    let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
    let hidden = place.hidden();
    let nearest = names(&parent)
        .filter(|near| {
            let near = path.with_file_name(near);
            !hidden.covers(&near) && !secret_file::is_marked_path(&near)
        })
        .map(|near| (strsim::osa_distance(&name.to_lowercase(), &near.to_lowercase()), near))
        .filter(|(distance, near)| *distance <= (near.chars().count() / 4).max(1))
        .min();
    let hint = nearest.map(|(_, near)| format!("; did you mean {}?", path.with_file_name(near).display()));
    ToolError::NotFound(format!("{shown} does not exist{}", hint.unwrap_or_default()))
}

fn names(directory: &impl std::os::fd::AsFd) -> impl Iterator<Item = String> {
    let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let entries = openat(directory, ".", readable, Mode::empty()).and_then(Dir::new).into_iter().flatten();
    entries
        .take(MAX_NAMES)
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str().ok()?.to_owned()))
        .filter(|name| name != "." && name != "..")
}
