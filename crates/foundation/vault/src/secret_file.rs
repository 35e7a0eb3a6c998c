//! Marks on files that hold a gateway's secrets, so that no tool on the same machine serves them.
//!
//! The mark is an extended attribute of the file. It belongs to the inode, so hard links and bind
//! mounts carry it. The reader does not need to know where a gateway stores its data. Some file
//! systems have no user attributes. There, a marker file in the same directory marks the files
//! beside it, but it does not cover a hard link elsewhere.

use std::collections::HashSet;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Dir, FileType, Mode, OFlags, Stat, XattrFlags, fgetxattr, fsetxattr, fstat, getxattr, open,
    openat, stat,
};
use rustix::io::Errno;

const ATTRIBUTE: &str = "user.switchboard.secret";
const MARKER: &str = ".switchboard-secret";
const EXPLANATION: &str = "The files in this directory hold secrets of a Switchboard gateway. Machine nodes do not hand \
them out while this file is here.\n";

/// The maximum depth of directories below a marked directory. A directory stays open until all
/// entries below it are marked.
const MAX_DEPTH: usize = 128;

/// Opens a file for marking. The call never waits: not for the other end of a pipe, and not for a
/// device.
const LOOK: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Marks a directory, and the directories and regular files below it. Links are not followed. A
/// file that cannot be marked does not prevent the others; the first error is returned.
pub fn mark_directory(directory: &Path) -> io::Result<()> {
    mark_directory_except(directory, &[])
}

/// Marks a directory like [`mark_directory`], but not the directories in `skipped`, nor anything
/// below them.
///
/// Another process may replace a file or a directory by a link, a pipe or a device at any moment.
/// Every entry is therefore opened relative to its open directory, and checked after it was
/// opened.
pub fn mark_directory_except(directory: &Path, skipped: &[PathBuf]) -> io::Result<()> {
    let skipped: HashSet<(u64, u64)> =
        skipped.iter().filter_map(|path| stat(path).ok()).map(|found| identity(&found)).collect();
    let root = open(directory, LOOK | OFlags::DIRECTORY, Mode::empty())?;
    let mut result = mark_open(&root, &root);
    let mut levels = Vec::from_iter(note(Level::new(root), &mut result));
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.entries.read() else {
            levels.pop();
            continue;
        };
        let opened = entry
            .map_err(io::Error::from)
            .and_then(|entry| open_entry(&level.handle, entry.file_name(), entry.file_type()));
        let Some((file, about)) = note(opened, &mut result).flatten() else { continue };
        let is_directory = FileType::from_raw_mode(about.st_mode).is_dir();
        if is_directory && skipped.contains(&identity(&about)) {
            continue;
        }
        let marker_in = if is_directory { &file } else { &level.handle };
        note(mark_open(&file, marker_in), &mut result);
        if is_directory {
            let deeper = if levels.len() < MAX_DEPTH {
                Level::new(file)
            } else {
                Err(io::Error::other(format!("more than {MAX_DEPTH} directories are nested")))
            };
            levels.extend(note(deeper, &mut result));
        }
    }
    result
}

/// An open directory whose entries are being marked.
struct Level {
    handle: OwnedFd,
    entries: Dir,
}

impl Level {
    fn new(handle: OwnedFd) -> io::Result<Self> {
        Ok(Self { entries: Dir::read_from(&handle)?, handle })
    }
}

/// Opens an entry of a directory if it is a regular file or a directory. `listed` is the type in
/// the listing, which may have changed since.
fn open_entry(
    directory: &OwnedFd,
    name: &CStr,
    listed: FileType,
) -> io::Result<Option<(OwnedFd, Stat)>> {
    let is_marked_type = |kind: FileType| kind.is_file() || kind.is_dir();
    // Opening a device can have an effect on it.
    if [c".", c".."].contains(&name) || !(is_marked_type(listed) || listed == FileType::Unknown) {
        return Ok(None);
    }
    let file = match openat(directory, name, LOOK | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(file) => file,
        // The entry is a link or a socket now.
        Err(Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let about = fstat(&file)?;
    Ok(is_marked_type(FileType::from_raw_mode(about.st_mode)).then_some((file, about)))
}

fn identity(about: &Stat) -> (u64, u64) {
    (about.st_dev, about.st_ino)
}

/// Notes the first error. A temporary file may be renamed or removed at any moment.
fn note<T>(done: io::Result<T>, result: &mut io::Result<()>) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(error) => {
            if result.is_ok() && error.kind() != io::ErrorKind::NotFound {
                *result = Err(error);
            }
            None
        }
    }
}

/// Marks exactly one file. Follows symbolic links, because certificate tools install keys as links.
/// Returns an error if the path is not a regular file, or if the file system has no user
/// attributes.
pub fn mark_file(path: &Path) -> io::Result<()> {
    let file = open(path, LOOK, Mode::empty())?;
    if !FileType::from_raw_mode(fstat(&file)?.st_mode).is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if is_marked(&file) {
        return Ok(());
    }
    Ok(fsetxattr(file, ATTRIBUTE, b"1", XattrFlags::empty())?)
}

/// Marks a file that the caller has just created at this path. The open file is marked, so no other
/// file is, even if the path has another file now.
pub fn mark_created(file: &File, path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    mark_open(file, open(directory, LOOK | OFlags::DIRECTORY, Mode::empty())?)
}

/// Marks an open file or directory. Without user attributes, a marker file is created in the given
/// directory, unless there is one.
fn mark_open(file: impl AsFd, directory: impl AsFd) -> io::Result<()> {
    if is_marked(&file) {
        return Ok(());
    }
    match fsetxattr(&file, ATTRIBUTE, b"1", XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => {}
        done => return Ok(done?),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match openat(directory, MARKER, flags, Mode::from_raw_mode(0o644)) {
        Ok(marker) => File::from(marker).write_all(EXPLANATION.as_bytes()),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns whether an open file or directory holds a gateway's secrets.
pub fn is_marked(file: impl AsFd) -> bool {
    match fgetxattr(&file, ATTRIBUTE, &mut [0_u8; 1]) {
        // A handle that was opened with O_PATH has no attributes of its own.
        Err(Errno::BADF) => is_marked_path(&link(&file)),
        read => by_attribute(read, || fs::read_link(link(&file)).ok()),
    }
}

/// Returns whether a path holds a gateway's secrets. Follows symbolic links.
pub fn is_marked_path(path: &Path) -> bool {
    by_attribute(getxattr(path, ATTRIBUTE, &mut [0_u8; 1]), || path.canonicalize().ok())
}

/// Whether a file or directory, or a directory above it, is marked. The path must have no symbolic
/// links. A gateway makes files after it marked the directory, and those have no mark of their own.
pub fn is_below_marked(real: &Path) -> bool {
    real.ancestors().any(is_marked_path)
}

fn by_attribute(read: Result<usize, Errno>, real: impl FnOnce() -> Option<PathBuf>) -> bool {
    match read {
        Ok(_) | Err(Errno::RANGE) => true,
        Err(Errno::OPNOTSUPP) => real().is_some_and(|real| has_marker(&real)),
        // The attribute does not exist, or this user cannot read the file.
        Err(_) => false,
    }
}

fn has_marker(real: &Path) -> bool {
    [Some(real), real.parent()]
        .into_iter()
        .flatten()
        .any(|directory| directory.join(MARKER).symlink_metadata().is_ok())
}

fn link(file: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    use super::*;

    /// The time limit of every wait in a test.
    const TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn every_file_of_a_marked_directory_is_marked_under_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir_all(data.join("nested")).unwrap();
        let (token, hard, soft) =
            (data.join("operator.token"), dir.path().join("hard"), dir.path().join("soft"));
        fs::write(&token, "secret").unwrap();
        let (nested, away) = (data.join("nested/attachment"), dir.path().join("away"));
        fs::write(&nested, "secret").unwrap();
        fs::hard_link(&nested, &away).unwrap();
        fs::write(dir.path().join("plain"), "no secret").unwrap();
        // What a link leads to is elsewhere.
        std::os::unix::fs::symlink(dir.path(), data.join("nested/link")).unwrap();
        mark_directory(&data).unwrap();
        fs::hard_link(&token, &hard).unwrap();
        std::os::unix::fs::symlink(&token, &soft).unwrap();
        for path in [&data, &token, &hard, &soft, &data.join("nested"), &nested, &away] {
            assert!(
                is_marked_path(path) && is_marked(File::open(path).unwrap()),
                "{}",
                path.display()
            );
            let by_path =
                rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
            assert!(is_marked(by_path), "{}", path.display());
        }
        for path in [dir.path().join("plain"), dir.path().to_owned()] {
            assert!(
                !is_marked_path(&path) && !is_marked(File::open(&path).unwrap()),
                "{}",
                path.display()
            );
        }
        assert!(!is_marked_path(&dir.path().join("missing")));
        // Whatever is made later is below the mark.
        let real = data.canonicalize().unwrap();
        for path in [real.clone(), real.join("nested/later"), real.join("missing/file")] {
            assert!(is_below_marked(&path), "{}", path.display());
        }
        assert!(!is_below_marked(&dir.path().canonicalize().unwrap().join("plain")));
        // Marking again changes nothing, and needs no marker file where attributes work.
        mark_directory(&data).unwrap();
        assert!(!data.join(MARKER).exists());
    }

    #[test]
    fn a_marker_file_counts_where_attributes_are_not_supported() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("token"), "secret").unwrap();
        let unsupported = |path: PathBuf| by_attribute(Err(Errno::OPNOTSUPP), || Some(path));
        assert!(!unsupported(data.join("token")));
        fs::write(data.join(MARKER), EXPLANATION).unwrap();
        assert!(unsupported(data.join("token")) && unsupported(data.clone()));
        assert!(!unsupported(dir.path().join("plain")));
    }

    /// A data directory in which an entry is exchanged again and again while it is marked.
    struct Exchanged {
        dir: tempfile::TempDir,
        data: PathBuf,
    }

    impl Exchanged {
        /// `prepare` creates the entry `data/entry` and its replacement `data/other`.
        fn new(prepare: impl FnOnce(&Path, &Path)) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let data = dir.path().join("data");
            fs::create_dir_all(data.join("before")).unwrap();
            fs::create_dir(dir.path().join("host")).unwrap();
            fs::write(dir.path().join("host/file"), "of the host").unwrap();
            prepare(dir.path(), &data);
            Self { dir, data }
        }

        /// Marks the directory until its entries were exchanged many times.
        fn mark(&self) {
            let (swaps, (ended, end)) = (Arc::new(AtomicU32::new(0)), mpsc::channel());
            let (data, exchanged) = (self.data.clone(), Arc::clone(&swaps));
            std::thread::spawn(move || {
                while exchanged.load(Ordering::Relaxed) < 50_000 {
                    mark_directory(&data).unwrap();
                }
                let _ = ended.send(());
            });
            let (one, two) = (self.data.join("entry"), self.data.join("other"));
            let until = Instant::now() + TIMEOUT;
            let marked = loop {
                match end.try_recv() {
                    Err(mpsc::TryRecvError::Empty) => {}
                    marked => break marked,
                }
                assert!(Instant::now() < until, "marking waits for a pipe");
                renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
            };
            assert_eq!(marked, Ok(()), "marking has failed");
        }

        fn check_host(&self) {
            for path in ["host", "host/file"] {
                assert!(!is_marked_path(&self.dir.path().join(path)), "{path}");
            }
            assert!(is_marked_path(&self.data.join("before")));
        }
    }

    #[test]
    fn a_directory_that_is_replaced_by_a_link_leads_nowhere() {
        let exchanged = Exchanged::new(|dir, data| {
            fs::create_dir(data.join("entry")).unwrap();
            symlink(dir.join("host"), data.join("other")).unwrap();
        });
        exchanged.mark();
        exchanged.check_host();
    }

    #[test]
    fn a_file_that_is_replaced_by_a_link_leads_nowhere() {
        let exchanged = Exchanged::new(|dir, data| {
            fs::write(data.join("entry"), "").unwrap();
            symlink(dir.join("host/file"), data.join("other")).unwrap();
        });
        exchanged.mark();
        exchanged.check_host();
    }

    #[test]
    fn a_file_that_is_replaced_by_a_pipe_does_not_block() {
        Exchanged::new(|_, data| {
            fs::write(data.join("entry"), "").unwrap();
            let pipe = data.join("other");
            rustix::fs::mknodat(CWD, pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        })
        .mark();
    }

    /// The listing of a directory may be older than its entries.
    #[test]
    fn an_entry_is_checked_after_it_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("directory")).unwrap();
        symlink("file", at("link")).unwrap();
        symlink("directory", at("directory-link")).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, mode, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let directory: OwnedFd = File::open(dir.path()).unwrap().into();
        for listed in [FileType::RegularFile, FileType::Directory, FileType::Unknown] {
            let opened = |name: &CStr| open_entry(&directory, name, listed).unwrap().is_some();
            assert!(opened(c"file") && opened(c"directory"), "{listed:?}");
            for name in [c"link", c"directory-link", c"pipe", c"socket", c".", c".."] {
                assert!(!opened(name), "{name:?} listed as {listed:?}");
            }
        }
        let missing = open_entry(&directory, c"missing", FileType::RegularFile);
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn skipped_directories_are_not_marked_by_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["data/relay/one.work", "data/agents/two", "data/others/three"] {
            fs::create_dir_all(at(name)).unwrap();
            fs::write(at(name).join("file"), "").unwrap();
        }
        symlink(at("data/agents"), at("link")).unwrap();
        let skipped = [at("data/relay"), at("link/two"), at("data/missing")];
        mark_directory_except(&at("data"), &skipped).unwrap();
        for name in ["data", "data/agents", "data/others/three", "data/others/three/file"] {
            assert!(is_marked_path(&at(name)), "{name}");
        }
        let skipped = ["relay", "relay/one.work", "relay/one.work/file", "agents/two"];
        for name in skipped.into_iter().chain(["agents/two/file"]) {
            assert!(!is_marked_path(&at("data").join(name)), "{name}");
        }
    }

    #[test]
    fn directories_that_are_nested_too_deeply_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", MAX_DEPTH - 1).collect();
        fs::create_dir_all(dir.path().join(&deep)).unwrap();
        mark_directory(dir.path()).unwrap();
        assert!(is_marked_path(&dir.path().join(&deep)));
        fs::create_dir_all(dir.path().join(&deep).join("d/d")).unwrap();
        mark_directory(dir.path()).unwrap_err();
    }

    #[test]
    fn only_a_regular_file_is_marked_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("key"), "").unwrap();
        symlink("key", at("link")).unwrap();
        mark_file(&at("link")).unwrap();
        assert!(is_marked_path(&at("key")));
        // Without a check, this waits for a writer.
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, mode, 0).unwrap();
        for name in ["pipe", "."] {
            assert_eq!(mark_file(&at(name)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        assert!(!is_marked_path(dir.path()));
    }

    #[test]
    fn a_created_file_is_marked_even_if_its_path_has_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("other"), "").unwrap();
        let created = File::create_new(at("draft")).unwrap();
        fs::rename(at("draft"), at("moved")).unwrap();
        symlink("other", at("draft")).unwrap();
        mark_created(&created, &at("draft")).unwrap();
        assert!(is_marked_path(&at("moved")) && !is_marked_path(&at("other")));
    }

    #[test]
    fn marker_files_replace_attributes() {
        sa_test_needs::run_without_attributes("secret_file::tests::without_attributes");
    }

    #[test]
    #[ignore = "runs on the file system that the other test mounts"]
    fn without_attributes() {
        if sa_test_needs::small_disk().is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("data/relay/one.work")).unwrap();
        fs::create_dir_all(at("data/attachments/channel")).unwrap();
        fs::write(at("data/attachments/channel/one"), "").unwrap();
        fs::write(at("host"), "of the host").unwrap();
        // A link with the marker's name must not be written through.
        symlink(at("host"), at("data/attachments").join(MARKER)).unwrap();
        for _ in 0..2 {
            mark_directory_except(&at("data"), &[at("data/relay")]).unwrap();
        }
        for name in ["data", "data/attachments", "data/attachments/channel/one"] {
            assert!(is_marked_path(&at(name)), "{name}");
        }
        assert!(!is_marked_path(&at("data/relay/one.work")));
        assert_eq!(fs::read_to_string(at("host")).unwrap(), "of the host");
        let created = File::create_new(at("token")).unwrap();
        mark_created(&created, &at("token")).unwrap();
        assert!(is_marked(&created) && dir.path().join(MARKER).exists());
    }

    #[test]
    fn all_of_this_holds_for_an_unprivileged_user() {
        sa_test_needs::repeat_as_nobody(module_path!(), &[]);
    }
}
