//! Error messages about paths, with advice for the caller.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags, Stat, openat};
use rustix::io::Errno;
use sa_node_sdk::ToolError;
use sa_vault::secret_file;

use super::hidden::real_path;
use super::place::Place;

/// The maximum number of names in a directory that are compared with a missing name.
const MAX_NAMES: usize = 10_000;

/// Converts the error of an open, a stat or a write into a message for the caller.
pub(super) fn explain(place: &Place, path: &Path, errno: Errno) -> ToolError {
    let shown = path.display();
    match errno {
        Errno::NOENT => missing(place, path),
        Errno::NOTDIR => ToolError::NotFound(format!(
            "{shown} does not exist: a part of the path is not a directory"
        )),
        Errno::XDEV if place.is_confined() => ToolError::NotAllowed(format!(
            "{shown} is outside the directories that this node may access; use a path below {}",
            place.roots()
        )),
        Errno::LOOP => ToolError::NotAllowed(format!(
            "{shown} contains a symbolic link that is not followed, or a loop of links"
        )),
        Errno::ACCESS | Errno::PERM => ToolError::NotAllowed(format!(
            "{shown}: permission denied for the user that runs the node"
        )),
        Errno::ROFS => ToolError::NotAllowed(format!("{shown} is on a read-only file system")),
        // Reads check for a directory before they open anything, so this is a write.
        Errno::ISDIR => directory(path, TO_WRITE),
        Errno::NOSPC | Errno::DQUOT => {
            ToolError::Failed(format!("{shown} cannot be written: the disk is full ({errno})"))
        }
        Errno::NAMETOOLONG => {
            ToolError::InvalidArgs(format!("`path` contains a name that is too long: {shown}"))
        }
        Errno::AGAIN => ToolError::Failed(format!(
            "{shown} has no data at the moment, and reading it would block"
        )),
        errno => ToolError::Failed(format!("{shown}: {errno}")),
    }
}

/// Advice for a path that is a directory instead of a file.
pub(super) const TO_READ: &str = "use Glob to list the files in it";
pub(super) const TO_WRITE: &str = "give the path of a file in it";

/// Returns an error unless this is a regular file. Any other file could block, have effects, or be
/// endless.
pub(super) fn regular(path: &Path, stat: &Stat, instead: &str) -> Result<(), ToolError> {
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => return Err(directory(path, instead)),
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "not a regular file",
    };
    Err(ToolError::Failed(format!(
        "{} is {what}; the file tools support only regular files",
        path.display()
    )))
}

fn directory(path: &Path, instead: &str) -> ToolError {
    ToolError::Failed(format!("{} is a directory; {instead}", path.display()))
}

pub(super) fn secret(path: &Path) -> ToolError {
    ToolError::NotAllowed(format!(
        "{} contains secrets of this node, its user or a gateway; tools must not read, write or list it",
        path.display()
    ))
}

fn missing(place: &Place, path: &Path) -> ToolError {
    let shown = path.display();
    let parent = path.parent().and_then(|parent| place.open_directory(parent).ok());
    let (Some(parent), Some(name)) = (parent, path.file_name()) else {
        return ToolError::NotFound(format!(
            "{shown} does not exist, and neither does its parent directory"
        ));
    };
    let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
    let hidden = place.hidden();
    if real_path(&parent).is_none_or(|real| hidden.covers_directory(&real)) {
        return secret(path);
    }
    let closest = names(&parent)
        .filter(|near| {
            let near = path.with_file_name(near);
            !hidden.covers(&near) && !secret_file::is_marked_path(&near)
        })
        .map(|near| (strsim::osa_distance(&name.to_lowercase(), &near.to_lowercase()), near))
        .filter(|(distance, near)| *distance <= (near.chars().count() / 4).max(1))
        .min();
    let hint =
        closest.map(|(_, near)| format!("; did you mean {}?", path.with_file_name(near).display()));
    ToolError::NotFound(format!("{shown} does not exist{}", hint.unwrap_or_default()))
}

fn names(directory: &impl std::os::fd::AsFd) -> impl Iterator<Item = String> {
    let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let entries =
        openat(directory, ".", readable, Mode::empty()).and_then(Dir::new).into_iter().flatten();
    entries
        .take(MAX_NAMES)
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str().ok()?.to_owned()))
        .filter(|name| name != "." && name != "..")
}
