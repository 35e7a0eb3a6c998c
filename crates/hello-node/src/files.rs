//! Reads files below one directory, and nowhere else.
//!
//! Checking a path and then opening it leaves a moment in which a link can be swapped. So this
//! module does not check paths. Instead the kernel restricts each open to a directory that was
//! opened at the start (`openat2` with `RESOLVE_BENEATH`). Links work if their target is below it.
//! If the kernel has no `openat2`, the path is walked one name at a time, and links are refused.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use sa_protocol::{ErrorKind, MAX_TOOL_RESPONSE_BYTES, ToolResponseError, escaped_prefix};
use serde_json::{Value, json};

use crate::tools::fail;

/// An open handle to a directory. The kernel decides which files are below it, even if its path
/// changes its meaning.
pub(crate) struct AllowedDir {
    handle: OwnedFd,
    path: PathBuf,
}

/// The bytes of a response that are reserved for everything but the file's text.
const ENVELOPE: usize = 16 * 1024;

/// `NONBLOCK` prevents the reader from waiting on a pipe that has no writer.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

impl AllowedDir {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let handle = rustix::fs::open(
            &path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self { handle, path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a text file. Returns `{"path", "content"}`, and `_truncated` and `_original_bytes` if
    /// the file did not fit.
    pub(crate) fn read_text(&self, path: &str) -> Result<Value, ToolResponseError> {
        let relative = self.relative(Path::new(path))?;
        let file = self.open_below(&relative).map_err(|errno| explain(path, errno))?;
        let metadata = file
            .metadata()
            .map_err(|error| fail(ErrorKind::Failed, format!("`{path}`: {error}")))?;
        if !metadata.is_file() {
            return Err(fail(ErrorKind::Failed, format!("`{path}` is not a regular file")));
        }
        let shown = self.path.join(&relative).display().to_string();
        let (content, cut) = read_up_to_limit(file, path)?;
        let fitting = escaped_prefix(&content, MAX_TOOL_RESPONSE_BYTES - ENVELOPE);
        let mut result = json!({"path": shown, "content": fitting});
        if cut || fitting.len() < content.len() {
            result["_truncated"] = json!(true);
            result["_original_bytes"] = json!(metadata.len());
        }
        Ok(result)
    }

    /// Returns the path relative to the directory. An absolute path must begin with the directory.
    fn relative(&self, path: &Path) -> Result<PathBuf, ToolResponseError> {
        if path.as_os_str().is_empty() || path.as_os_str().len() > 4096 {
            return Err(fail(ErrorKind::InvalidArgs, "'path' is empty or longer than 4096 bytes"));
        }
        if !path.is_absolute() {
            return Ok(path.to_owned());
        }
        let below = path.strip_prefix(&self.path).map(Path::to_owned);
        below.map_err(|_| outside(&path.display().to_string()))
    }

    fn open_below(&self, path: &Path) -> Result<File, Errno> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{ResolveFlags, openat2};
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            for _ in 0..16 {
                match openat2(&self.handle, path, READ, Mode::empty(), resolve) {
                    Ok(handle) => return Ok(File::from(handle)),
                    // A rename happened during the lookup, so the kernel could not be sure. It asks
                    // the caller to try again.
                    Err(Errno::AGAIN) => {}
                    // The system call does not exist, or a sandbox does not allow it.
                    Err(Errno::NOSYS | Errno::PERM) => return self.walk(path),
                    Err(errno) => return Err(errno),
                }
            }
        }
        self.walk(path)
    }

    /// Opens one path component after the other, and refuses links.
    fn walk(&self, path: &Path) -> Result<File, Errno> {
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(name),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(Errno::XDEV);
                }
            }
        }
        let Some((file, directories)) = names.split_last() else {
            return Err(Errno::ISDIR);
        };
        let mut at = self
            .handle
            .try_clone()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        for name in directories {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            at = openat(&at, *name, flags, Mode::empty())?;
        }
        openat(&at, *file, READ | OFlags::NOFOLLOW, Mode::empty()).map(File::from)
    }
}

/// Reads as much as a response can hold, and returns whether the file has more.
///
/// If the limit cuts a character, its partial bytes are dropped. Text that is not UTF-8 is refused,
/// because a guess would be worse than an error.
fn read_up_to_limit(file: File, path: &str) -> Result<(String, bool), ToolResponseError> {
    let mut bytes = Vec::new();
    let limit = MAX_TOOL_RESPONSE_BYTES as u64;
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| fail(ErrorKind::Failed, format!("cannot read `{path}`: {error}")))?;
    let cut = bytes.len() as u64 > limit;
    match String::from_utf8(bytes) {
        Ok(text) => Ok((text, cut)),
        Err(error) if cut && error.utf8_error().error_len().is_none() => {
            let whole = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(whole);
            Ok((String::from_utf8(bytes).unwrap_or_default(), true))
        }
        Err(error) => Err(fail(
            ErrorKind::Failed,
            format!(
                "`{path}` is not UTF-8 text (the first invalid byte is at offset {})",
                error.utf8_error().valid_up_to()
            ),
        )),
    }
}

fn outside(path: &str) -> ToolResponseError {
    fail(ErrorKind::NotAllowed, format!("`{path}` is outside the allowed directory"))
}

fn explain(path: &str, errno: Errno) -> ToolResponseError {
    match errno {
        Errno::XDEV => outside(path),
        Errno::LOOP => fail(
            ErrorKind::NotAllowed,
            format!("`{path}` contains a symbolic link that is not followed"),
        ),
        Errno::ACCESS | Errno::PERM => {
            fail(ErrorKind::NotAllowed, format!("`{path}`: permission denied"))
        }
        Errno::NOENT | Errno::NOTDIR => {
            fail(ErrorKind::NotFound, format!("`{path}` does not exist"))
        }
        other => fail(ErrorKind::Failed, format!("cannot open `{path}`: {other}")),
    }
}

#[cfg(test)]
mod tests;
