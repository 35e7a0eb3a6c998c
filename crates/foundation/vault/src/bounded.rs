//! Bounded reading of files that a person has named. A file that is named by mistake may be
//! endless.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;

/// The maximum size of a file with a token or another secret, including whitespace added by an
/// editor.
pub const TOKEN: u64 = 64 * 1024;
/// The maximum size of certificates and keys. A bundle of all public authorities is a fraction of
/// it.
pub const PEM: u64 = 4 << 20;
/// The maximum size of a body sent to a gateway. No gateway can be configured to accept more.
pub const BODY: u64 = 1 << 30;

/// Reads the text of a file. A pipe works as well, since it is read once.
pub fn text(path: &Path, most: u64) -> io::Result<String> {
    text_of(File::open(path)?, most)
}

/// Reads text from any reader.
pub fn text_of(from: impl Read, most: u64) -> io::Result<String> {
    String::from_utf8(bytes_of(from, most)?)
        .map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Reads the bytes of a file.
pub fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bytes_of(File::open(path)?, most)
}

/// Reads the bytes of a regular file. Use it for a file that is read more than once, or where the
/// reader must not block. A pipe would be empty the second time, and reading it blocks until it is
/// written to.
pub fn bytes_of_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bytes_of(open_file(path)?, most)
}

/// Reads the text of a regular file.
pub fn text_of_file(path: &Path, most: u64) -> io::Result<String> {
    text_of(open_file(path)?, most)
}

/// Opens a regular file, and refuses everything else.
pub fn open_file(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "it is a directory, a pipe or a device, but must be a file",
        ));
    }
    File::open(path)
}

fn bytes_of(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let most = if most < 1 << 20 {
            format!("{} KiB", most >> 10)
        } else {
            format!("{} MiB", most >> 20)
        };
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
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        for path in [dir.path(), &pipe, Path::new("/dev/zero")] {
            assert_eq!(
                open_file(path).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{}",
                path.display()
            );
        }
        assert_eq!(open_file(&dir.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
