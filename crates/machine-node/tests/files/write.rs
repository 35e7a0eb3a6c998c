//! Write creates the file and its directories, replaces it atomically, and keeps its mode, owner
//! and links.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sa_node_sdk::ErrorKind;
use serde_json::json;

use crate::Place;

#[tokio::test]
async fn a_file_and_its_directories_are_made() {
    let place = Place::new();
    let written = place.ok("Write", json!({ "path": "a/b/c.txt", "content": "héllo\n" })).await;
    assert_eq!(written, json!({ "path": place.shown("a/b/c.txt"), "bytes": 7 }));
    assert_eq!(place.text("a/b/c.txt"), "héllo\n");
    place.ok("Write", json!({ "path": "a/b/c.txt", "content": "" })).await;
    assert_eq!(place.text("a/b/c.txt"), "");
    assert_eq!(place.names("a/b"), ["c.txt"]);
}

#[tokio::test]
async fn mode_owner_and_attributes_stay() {
    let place = Place::new();
    let path = place.file("run.sh", "old");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(4321), Some(4322)).unwrap();
    }
    let attribute =
        rustix::fs::setxattr(&path, "user.note", b"kept", rustix::fs::XattrFlags::empty());
    let before = std::fs::metadata(&path).unwrap();
    place.ok("Write", json!({ "path": "run.sh", "content": "new" })).await;
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!(
        (after.mode(), after.uid(), after.gid()),
        (before.mode(), before.uid(), before.gid())
    );
    assert_ne!(after.ino(), before.ino(), "it is a new file");
    if attribute.is_ok() {
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(&path, "user.note", &mut value).unwrap();
        assert_eq!(&value[..length], b"kept");
    }
}

#[tokio::test]
async fn a_link_is_written_through() {
    let place = Place::new();
    place.file("real/target.txt", "old");
    std::fs::create_dir(place.path("links")).unwrap();
    symlink("../real", place.path("links/dir")).unwrap();
    symlink("dir/target.txt", place.path("links/one")).unwrap();
    symlink(place.path("links/one"), place.path("two")).unwrap();
    place.ok("Write", json!({ "path": "two", "content": "new" })).await;
    assert_eq!(place.text("real/target.txt"), "new");
    assert!(place.path("two").is_symlink() && place.path("links/one").is_symlink());
    // Writing through a link to a missing file creates the file.
    symlink("real/fresh.txt", place.path("three")).unwrap();
    place.ok("Write", json!({ "path": "three", "content": "made" })).await;
    assert_eq!(place.text("real/fresh.txt"), "made");
    symlink("circle", place.path("circle")).unwrap();
    place.fails("Write", json!({ "path": "circle", "content": "x" }), ErrorKind::NotAllowed).await;
}

#[tokio::test]
async fn only_regular_files_are_written() {
    let place = Place::new();
    std::fs::create_dir(place.path("dir")).unwrap();
    mknodat(CWD, place.path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    place.fails("Write", json!({ "path": "dir", "content": "x" }), ErrorKind::Failed).await;
    place.fails("Write", json!({ "path": "pipe", "content": "x" }), ErrorKind::Failed).await;
    place.fails("Write", json!({ "path": "/dev/null", "content": "x" }), ErrorKind::Failed).await;
    place.fails("Write", json!({ "path": "/", "content": "x" }), ErrorKind::InvalidArgs).await;
    place.fails("Write", json!({ "path": "/.", "content": "x" }), ErrorKind::Failed).await;
    place.fails("Write", json!({ "path": "new/", "content": "x" }), ErrorKind::InvalidArgs).await;
    place.fails("Write", json!({ "path": "new" }), ErrorKind::InvalidArgs).await;
    place.file("file", "x");
    place
        .fails("Write", json!({ "path": "file/below", "content": "x" }), ErrorKind::NotFound)
        .await;
    assert_eq!(place.names("."), ["dir", "file", "pipe"]);
}

#[test]
fn a_full_disk_leaves_the_old_file_and_nothing_else() {
    sa_test_needs::run_on_small_disk("256k", "write::on_a_small_disk");
}

#[tokio::test]
#[ignore = "runs on the small disk that the other test makes"]
async fn on_a_small_disk() {
    if sa_test_needs::small_disk().is_none() {
        return;
    }
    let place = Place::new();
    place.file("a.txt", "old");
    let content = "x".repeat(1024 * 1024);
    place.fails("Write", json!({ "path": "a.txt", "content": content }), ErrorKind::Failed).await;
    place.fails("Write", json!({ "path": "b.txt", "content": content }), ErrorKind::Failed).await;
    place
        .fails(
            "Edit",
            json!({ "path": "a.txt", "oldString": "old", "newString": content }),
            ErrorKind::Failed,
        )
        .await;
    assert_eq!(place.text("a.txt"), "old");
    assert_eq!(place.names("."), ["a.txt"]);
    place.ok("Write", json!({ "path": "a.txt", "content": "new" })).await;
}

#[tokio::test]
async fn readers_see_the_old_or_the_new() {
    let place = std::sync::Arc::new(Place::new());
    let (one, two) = ("1".repeat(200_000), "2".repeat(300_000));
    let path = place.file("a.txt", &one);
    let writer = {
        let (place, one, two) = (place.clone(), one.clone(), two.clone());
        tokio::spawn(async move {
            for _ in 0..20 {
                place.ok("Write", json!({ "path": "a.txt", "content": two })).await;
                place.ok("Write", json!({ "path": "a.txt", "content": one })).await;
            }
        })
    };
    while !writer.is_finished() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text == one || text == two, "{} bytes", text.len());
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
    assert_eq!(place.names("."), ["a.txt"]);
}

#[tokio::test]
async fn nothing_is_written_where_nothing_may_be() {
    let place = Place::with(|options, _| options.read_only = true);
    assert_eq!(place.tools.tool_names(), ["Glob", "Grep", "Read"]);
}

#[tokio::test]
async fn new_content_does_not_run_as_its_owner() {
    let place = Place::new();
    let path = place.file("tool", "old");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o6755)).unwrap();
    place.ok("Write", json!({ "path": "tool", "content": "new" })).await;
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
}
