use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A directory `open` with some files, next to a secret file.
struct Place {
    root: tempfile::TempDir,
    allowed: AllowedDir,
}

fn place() -> Place {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("open/sub")).unwrap();
    fs::write(root.path().join("secret"), "secret").unwrap();
    fs::write(root.path().join("open/a.txt"), "héllo").unwrap();
    fs::write(root.path().join("open/sub/b.txt"), "below").unwrap();
    let allowed = AllowedDir::open(&root.path().join("open")).unwrap();
    Place { root, allowed }
}

impl Place {
    fn open(&self, name: &str) -> PathBuf {
        self.root.path().join("open").join(name)
    }

    /// Both ways to open a file must agree, except for links and `..` that stay below the
    /// directory.
    #[track_caller]
    fn check(&self, path: &str, expected: Result<&str, ErrorKind>) {
        let read = self.allowed.read_text(path);
        let content = read
            .as_ref()
            .map(|value| value["content"].as_str().unwrap())
            .map_err(|error| error.kind);
        assert_eq!(content, expected, "{path}");
    }

    #[track_caller]
    fn check_walk(&self, path: &str, expected: Result<(), Errno>) {
        assert_eq!(self.allowed.walk(Path::new(path)).map(drop), expected, "{path}");
    }
}

#[test]
fn files_below() {
    let place = place();
    place.check("a.txt", Ok("héllo"));
    place.check("./sub/b.txt", Ok("below"));
    place.check("sub/../a.txt", Ok("héllo"));
    let absolute = place.allowed.path().join("sub/b.txt").display().to_string();
    place.check(&absolute, Ok("below"));
    assert_eq!(place.allowed.read_text("sub/b.txt").unwrap()["path"], absolute);
    place.check("missing", Err(ErrorKind::NotFound));
    place.check("a.txt/x", Err(ErrorKind::NotFound));
    place.check("", Err(ErrorKind::InvalidArgs));
}

#[test]
fn traversal() {
    let place = place();
    place.check("../secret", Err(ErrorKind::NotAllowed));
    place.check("sub/../../secret", Err(ErrorKind::NotAllowed));
    place.check("/etc/passwd", Err(ErrorKind::NotAllowed));
    let around = format!("{}/../secret", place.allowed.path().display());
    place.check(&around, Err(ErrorKind::NotAllowed));
    place.check(&format!("{}-other", place.allowed.path().display()), Err(ErrorKind::NotAllowed));
    place.check_walk("../secret", Err(Errno::XDEV));
    place.check_walk("sub/../a.txt", Err(Errno::XDEV));
    place.check_walk("sub/b.txt", Ok(()));
}

#[test]
fn links() {
    let place = place();
    symlink("../secret", place.open("out")).unwrap();
    symlink("/etc", place.open("etc")).unwrap();
    symlink("/proc/self/root", place.open("magic")).unwrap();
    symlink("sub/b.txt", place.open("in")).unwrap();
    place.check("out", Err(ErrorKind::NotAllowed));
    place.check("etc/passwd", Err(ErrorKind::NotAllowed));
    place.check("magic/etc/passwd", Err(ErrorKind::NotAllowed));
    place.check("in", Ok("below"));
    place.check_walk("out", Err(Errno::LOOP));
    place.check_walk("etc/passwd", Err(Errno::NOTDIR));
    place.check_walk("in", Err(Errno::LOOP));
}

#[test]
fn a_link_that_is_swapped_never_leads_out() {
    let place = place();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (link, next) = (place.open("link"), place.open("next"));
            for round in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                symlink(if round % 2 == 0 { "a.txt" } else { "../secret" }, &next).unwrap();
                fs::rename(&next, &link).unwrap();
            }
        });
        for _ in 0..5000 {
            if let Ok(value) = place.allowed.read_text("link") {
                assert_eq!(value["content"], "héllo");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_is_not_a_file() {
    let place = place();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.open("pipe"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    place.check("pipe", Err(ErrorKind::Failed));
    place.check("sub", Err(ErrorKind::Failed));
    place.check(".", Err(ErrorKind::Failed));
}

#[test]
fn text_that_is_not_utf8() {
    let place = place();
    fs::write(place.open("latin1"), b"caf\xe9 au lait").unwrap();
    fs::write(place.open("short"), b"caf\xc3").unwrap();
    place.check("latin1", Err(ErrorKind::Failed));
    place.check("short", Err(ErrorKind::Failed));
}

#[test]
fn a_big_file_is_cut_between_characters() {
    let place = place();
    // The text starts with one extra byte, so that the limit falls inside a character.
    let text = format!("x{}", "é".repeat(MAX_TOOL_RESPONSE_BYTES));
    fs::write(place.open("big"), &text).unwrap();
    let value = place.allowed.read_text("big").unwrap();
    let content = value["content"].as_str().unwrap();
    assert!(text.starts_with(content));
    assert!(content.len() > MAX_TOOL_RESPONSE_BYTES - ENVELOPE - 4);
    assert!(value.to_string().len() < MAX_TOOL_RESPONSE_BYTES);
    assert_eq!(
        (&value["_truncated"], &value["_original_bytes"]),
        (&json!(true), &json!(text.len()))
    );

    // This file fits, but not with its escapes.
    fs::write(place.open("quotes"), "\"".repeat(MAX_TOOL_RESPONSE_BYTES - ENVELOPE)).unwrap();
    let value = place.allowed.read_text("quotes").unwrap();
    assert_eq!(value["_truncated"], true);
    assert!(value.to_string().len() < MAX_TOOL_RESPONSE_BYTES);
    assert!(place.allowed.read_text("a.txt").unwrap().get("_truncated").is_none());
}
