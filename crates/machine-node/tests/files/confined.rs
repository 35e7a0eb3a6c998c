//! With allowed roots, nothing outside of them is read, written or listed, even if links are
//! swapped at high speed.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sa_node_sdk::ErrorKind::{NotAllowed, NotFound};
use serde_json::json;

use crate::Place;

/// `open` and `open2` are allowed; `outside` with its secret is not.
fn place() -> Place {
    let place = Place::with(|options, dir| {
        for name in ["open/sub", "open2", "outside"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        options.allow_roots = vec![dir.join("open"), dir.join("open2")];
        options.workspace = dir.join("open");
    });
    place.file("open/a.txt", "inside");
    place.file("open/sub/b.txt", "inside");
    place.file("open2/c.txt", "inside");
    place.file("outside/secret.txt", "s3cret");
    place
}

#[tokio::test]
async fn what_is_inside_works() {
    let place = place();
    symlink("../a.txt", place.path("open/sub/up")).unwrap();
    symlink(place.path("open/sub"), place.path("open/absolute")).unwrap();
    symlink(place.path("open2"), place.path("open/other-root")).unwrap();
    for path in [
        "a.txt",
        "sub/b.txt",
        "sub/../a.txt",
        "sub/up",
        "absolute/b.txt",
        "other-root/c.txt",
        "../open2/c.txt",
    ] {
        assert_eq!(
            place.ok("Read", json!({ "path": path })).await["content"],
            "1\tinside",
            "{path}"
        );
    }
    for path in ["new/deep/x.txt", "absolute/y.txt", "sub/up", "../open2/z.txt"] {
        place.ok("Write", json!({ "path": path, "content": "written" })).await;
        place
            .ok("Edit", json!({ "path": path, "oldString": "written", "newString": "edited" }))
            .await;
    }
    assert_eq!(place.text("open/a.txt"), "edited");
    assert_eq!(place.text("open/sub/y.txt"), "edited");
    let found = place.ok("Grep", json!({ "pattern": "edited" })).await;
    let paths: Vec<_> = found["matches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| found["path"].as_str().unwrap())
        .collect();
    assert!(paths.contains(&&*place.shown("open/absolute/y.txt")), "{paths:?}");
    assert!(paths.contains(&&*place.shown("open/other-root/z.txt")), "{paths:?}");
}

#[tokio::test]
async fn what_is_outside_is_refused_with_the_roots() {
    let place = place();
    symlink("../outside", place.path("open/dir")).unwrap();
    symlink("../outside/secret.txt", place.path("open/link")).unwrap();
    symlink(place.path("outside/secret.txt"), place.path("open/absolute")).unwrap();
    symlink("../outside/new.txt", place.path("open/dangling")).unwrap();
    let direct = place.shown("outside/secret.txt");
    for path in [
        "link",
        "absolute",
        "dir/secret.txt",
        "../outside/secret.txt",
        &direct,
        "/etc/passwd",
        "sub/../../outside/secret.txt",
    ] {
        let message = place.fails("Read", json!({ "path": path }), NotAllowed).await;
        assert!(message.contains(&place.shown("open")), "{message}");
        place.fails("Write", json!({ "path": path, "content": "x" }), NotAllowed).await;
        place
            .fails("Edit", json!({ "path": path, "oldString": "s", "newString": "x" }), NotAllowed)
            .await;
        place.fails("Grep", json!({ "pattern": "s", "path": path }), NotAllowed).await;
    }
    for path in
        ["dangling", "dir/new.txt", "dir/deep/new.txt", "../outside/deep/new.txt", "../new/x"]
    {
        place.fails("Write", json!({ "path": path, "content": "x" }), NotAllowed).await;
    }
    for args in [
        json!({ "pattern": "*", "path": "/" }),
        json!({ "pattern": "/etc/*" }),
        json!({ "pattern": "../outside/*" }),
        json!({ "pattern": "dir/*" }),
        json!({ "pattern": "*", "path": "dir" }),
    ] {
        place.fails("Glob", args, NotAllowed).await;
    }
    place.fails("Read", json!({ "path": "nothing" }), NotFound).await;
    assert_eq!(place.text("outside/secret.txt"), "s3cret");
    assert_eq!(place.names("outside"), ["secret.txt"]);
    let found = place.ok("Glob", json!({ "pattern": "**" })).await;
    assert_eq!(found["count"], 2, "{found}");
    assert_eq!(place.ok("Grep", json!({ "pattern": "s3cret" })).await["count"], 0);
}

#[tokio::test]
async fn a_root_under_another_name_is_the_same_root() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("real")).unwrap();
    fs::write(dir.path().join("real/a.txt"), "inside").unwrap();
    symlink("real", dir.path().join("alias")).unwrap();
    let place = Place::with(|options, _| options.allow_roots = vec![dir.path().join("alias")]);
    let path = dir.path().join("alias/a.txt");
    assert_eq!(place.ok("Read", json!({ "path": path })).await["lines"], 1);
    place.ok("Write", json!({ "path": dir.path().join("alias/new/b.txt"), "content": "x" })).await;
    assert!(dir.path().join("real/new/b.txt").exists());
}

/// A thread swaps a directory and a file for links to the outside at full speed while the tools
/// run.
#[tokio::test(flavor = "multi_thread")]
async fn no_race_leads_outside() {
    let place = Arc::new(place());
    place.file("open/dir/secret.txt", "inside");
    place.file("open/file/secret.txt", "inside");
    symlink("../outside", place.path("open/dir-link")).unwrap();
    symlink("../../outside/secret.txt", place.path("open/file/link")).unwrap();
    let (stop, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let swapper = std::thread::spawn({
        let (place, stop, swaps) = (Arc::clone(&place), Arc::clone(&stop), Arc::clone(&swaps));
        move || {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            let pairs = [("open/dir", "open/dir-link"), ("open/file/secret.txt", "open/file/link")];
            let pairs = pairs.map(|(one, two)| (place.path(one), place.path(two)));
            while !stop.load(Ordering::Relaxed) {
                for (one, two) in &pairs {
                    // A file that is being replaced may be missing on either side for a moment.
                    if renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE).is_ok() {
                        swaps.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    });
    let mut inside = 0;
    while swaps.load(Ordering::Relaxed) < 100_000 || inside == 0 {
        for path in ["dir/secret.txt", "file/secret.txt"] {
            if let Ok(read) = place.call("Read", json!({ "path": path })).await {
                assert!(!read.to_string().contains("s3cret"), "{read}");
                inside += 1;
            }
            let _ = place.call("Write", json!({ "path": path, "content": "inside" })).await;
            let _ = place
                .call(
                    "Edit",
                    json!({ "path": path, "oldString": "inside", "newString": "inside!" }),
                )
                .await;
            let _ = place
                .call("Write", json!({ "path": "dir/deep/er.txt", "content": "inside" }))
                .await;
        }
        let found = place.ok("Grep", json!({ "pattern": "s3cret" })).await;
        assert_eq!(found["count"], 0, "{found}");
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert_eq!(place.text("outside/secret.txt"), "s3cret");
    assert_eq!(place.names("outside"), ["secret.txt"]);
}
