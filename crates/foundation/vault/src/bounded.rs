//! Reading what somebody has named: within a bound, because some things that are named by mistake have no end.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;

/// What the file of a token, or of any other secret, may hold: that one, and what an editor leaves around it.
pub const TOKEN: u64 = 64 * 1024;
/// Certificates and keys: a bundle of all authorities that there are is a fraction of it.
pub const PEM: u64 = 4 << 20;
/// What is sent to a gateway: none can be configured to take more.
pub const BODY: u64 = 1 << 30;

/// The text in a file. A pipe is as good as a file, since it is read once.
pub fn text(path: &Path, most: u64) -> io::Result<String> {
    text_of(File::open(path)?, most)
}

/// The same of whatever can be read.
pub fn text_of(from: impl Read, most: u64) -> io::Result<String> {
    String::from_utf8(bytes_of(from, most)?).map_err(|_| Error::new(ErrorKind::InvalidData, "it is no text (UTF-8)"))
}

/// What a file holds.
pub fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bytes_of(File::open(path)?, most)
}

/// What a file holds that is read more than once, or by somebody who cannot wait: it must be a file indeed. A pipe would be
/// empty the second time, and one that nobody writes to would be waited for.
pub fn bytes_of_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bytes_of(open_file(path)?, most)
}

/// Its text.
pub fn text_of_file(path: &Path, most: u64) -> io::Result<String> {
    text_of(open_file(path)?, most)
}

/// Opens such a file.
pub fn open_file(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is a directory, a pipe or a device, and must be a file"));
    }
    File::open(path)
}

fn bytes_of(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let most = if most < 1 << 20 { format!("{} KiB", most >> 10) } else { format!("{} MiB", most >> 20) };
        return Err(Error::new(ErrorKind::FileTooLarge, format!("it is larger than {most}")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_not_read_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "four").unwrap();
        assert_eq!(text(&file, 4).unwrap(), "four");
        assert_eq!(bytes_of_file(&file, 4).unwrap(), b"four");
        let kind = |read: io::Result<Vec<u8>>| read.unwrap_err().kind();
        assert_eq!(kind(bytes(&file, 3)), ErrorKind::FileTooLarge);
        assert_eq!(kind(bytes(Path::new("/dev/zero"), 1 << 20)), ErrorKind::FileTooLarge);
        assert_eq!(text(Path::new("/dev/null"), 3).unwrap(), "");
        std::fs::write(&file, b"\xff").unwrap();
        assert_eq!(text(&file, 4).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for path in [dir.path(), &pipe, Path::new("/dev/zero")] {
            assert_eq!(open_file(path).unwrap_err().kind(), ErrorKind::InvalidInput, "{}", path.display());
        }
        assert_eq!(open_file(&dir.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
