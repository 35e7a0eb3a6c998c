//! The node's own token and configuration cannot be read through any path.

use std::os::unix::fs::symlink;

use sa_node_sdk::ErrorKind::{self, NotAllowed};
use sa_vault::secret_file;
use serde_json::json;

use crate::Place;

fn place() -> Place {
    let place = Place::with(|options, dir| {
        std::fs::write(dir.join("token"), "s3cret").unwrap();
        std::fs::create_dir(dir.join("private")).unwrap();
        std::fs::write(dir.join("private/key"), "s3cret").unwrap();
        options.hidden = vec![dir.join("token"), "private".into(), dir.join("not-there-yet")];
    });
    symlink("token", place.path("link")).unwrap();
    symlink("private", place.path("dir-link")).unwrap();
    std::fs::hard_link(place.path("token"), place.path("hard")).unwrap();
    place
}

#[tokio::test]
async fn no_name_reads_or_writes_it() {
    let place = place();
    let by_process = format!("/proc/self/cwd/../../../../../../../../..{}", place.shown("token"));
    for path in ["token", "link", "hard", "private/key", "dir-link/key", &by_process] {
        place.fails("Read", json!({ "path": path }), NotAllowed).await;
        place.fails("Write", json!({ "path": path, "content": "x" }), NotAllowed).await;
        place
            .fails("Edit", json!({ "path": path, "oldString": "s", "newString": "x" }), NotAllowed)
            .await;
    }
    place.fails("Write", json!({ "path": "not-there-yet", "content": "x" }), NotAllowed).await;
    place.fails("Write", json!({ "path": "private/new", "content": "x" }), NotAllowed).await;
    assert_eq!(place.text("token"), "s3cret");
}

#[tokio::test]
async fn no_search_finds_it() {
    let place = place();
    place.file("open", "s3cret");
    let found = place.ok("Glob", json!({ "pattern": "**" })).await;
    assert_eq!(found["matches"], json!([place.shown("open")]));
    let found = place.ok("Grep", json!({ "pattern": "s3cret" })).await;
    assert_eq!(found["count"], 1, "{found}");
    place.fails("Grep", json!({ "pattern": "s3cret", "path": "token" }), NotAllowed).await;
    for path in ["private", "dir-link"] {
        place.fails("Glob", json!({ "pattern": "*", "path": path }), NotAllowed).await;
        place.fails("Glob", json!({ "pattern": format!("{path}/*") }), NotAllowed).await;
        place.fails("Grep", json!({ "pattern": "s", "path": path }), NotAllowed).await;
    }
    let message = place.fails("Read", json!({ "path": "tokem" }), ErrorKind::NotFound).await;
    assert!(!message.contains("token"), "{message}");
}

/// The data directory of a gateway that this node does not know.
fn beside_a_gateway() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("data")).unwrap();
    std::fs::write(place.path("data/operator.token"), "s3cret").unwrap();
    std::fs::hard_link(place.path("data/operator.token"), place.path("hard")).unwrap();
    symlink("data/operator.token", place.path("link")).unwrap();
    secret_file::mark_directory(&place.path("data")).unwrap();
    place
}

#[tokio::test]
async fn the_secrets_of_any_gateway_are_refused_under_every_name() {
    let place = beside_a_gateway();
    for path in ["data/operator.token", "hard", "link"] {
        place.fails("Read", json!({ "path": path }), NotAllowed).await;
        place.fails("Write", json!({ "path": path, "content": "x" }), NotAllowed).await;
        place
            .fails("Edit", json!({ "path": path, "oldString": "s", "newString": "x" }), NotAllowed)
            .await;
        place.fails("Grep", json!({ "pattern": "s3cret", "path": path }), NotAllowed).await;
    }
    place.fails("Write", json!({ "path": "data/new", "content": "x" }), NotAllowed).await;
    place.fails("Glob", json!({ "pattern": "*", "path": "data" }), NotAllowed).await;
    place.fails("Grep", json!({ "pattern": "s", "path": "data" }), NotAllowed).await;
    place.file("open", "s3cret");
    assert_eq!(
        place.ok("Glob", json!({ "pattern": "**" })).await["matches"],
        json!([place.shown("open")])
    );
    assert_eq!(place.ok("Grep", json!({ "pattern": "s3cret" })).await["count"], 1);
    let message = place.fails("Read", json!({ "path": "harb" }), ErrorKind::NotFound).await;
    assert!(!message.contains("hard"), "{message}");
    assert_eq!(place.text("data/operator.token"), "s3cret");
}

/// A store's log, a copy and an attachment have no mark of their own.
#[tokio::test]
async fn what_is_made_below_a_marked_directory_is_refused() {
    let place = beside_a_gateway();
    place.file("data/store.db-wal", "s3cret");
    place.file("data/attachments/deep/one", "s3cret");
    symlink("data/store.db-wal", place.path("log")).unwrap();
    symlink("data/attachments", place.path("dir-link")).unwrap();
    place.file("open", "s3cret");
    for path in ["data/store.db-wal", "log", "data/attachments/deep/one", "dir-link/deep/one"] {
        place.fails("Read", json!({ "path": path }), NotAllowed).await;
        place.fails("Write", json!({ "path": path, "content": "x" }), NotAllowed).await;
        place
            .fails("Edit", json!({ "path": path, "oldString": "s", "newString": "x" }), NotAllowed)
            .await;
        place.fails("Grep", json!({ "pattern": "s3cret", "path": path }), NotAllowed).await;
    }
    for path in ["data/attachments", "data/attachments/deep", "dir-link", "dir-link/deep"] {
        place.fails("Glob", json!({ "pattern": "*", "path": path }), NotAllowed).await;
        place.fails("Glob", json!({ "pattern": format!("{path}/*") }), NotAllowed).await;
        place.fails("Grep", json!({ "pattern": "s", "path": path }), NotAllowed).await;
        let new = format!("{path}/new/file");
        place.fails("Write", json!({ "path": new, "content": "x" }), NotAllowed).await;
    }
    let message = place.fails("Read", json!({ "path": "data/store.db-wa" }), NotAllowed).await;
    assert!(!message.contains("wal"), "{message}");
    let found = place.ok("Glob", json!({ "pattern": "**" })).await;
    assert_eq!(found["matches"], json!([place.shown("open")]));
    assert_eq!(place.ok("Grep", json!({ "pattern": "s3cret" })).await["count"], 1);
    assert!(!place.path("data/attachments/new").exists());
}

#[test]
fn marker_files_count_where_attributes_are_not_supported() {
    sa_test_needs::run_without_attributes("hidden::without_attributes");
}

#[tokio::test]
#[ignore = "runs on the file system that the other test mounts"]
async fn without_attributes() {
    if sa_test_needs::small_disk().is_none() {
        return;
    }
    let place = Place::new();
    place.file("data/operator.token", "s3cret");
    secret_file::mark_directory(&place.path("data")).unwrap();
    assert!(place.path("data/.switchboard-secret").exists());
    place.file("data/store.db-wal", "s3cret");
    place.file("data/attachments/deep/one", "s3cret");
    symlink("data/operator.token", place.path("link")).unwrap();
    place.file("open", "s3cret");
    for path in ["data/operator.token", "data/store.db-wal", "data/attachments/deep/one", "link"] {
        place.fails("Read", json!({ "path": path }), NotAllowed).await;
        place.fails("Write", json!({ "path": path, "content": "x" }), NotAllowed).await;
        place
            .fails("Edit", json!({ "path": path, "oldString": "s", "newString": "x" }), NotAllowed)
            .await;
        place.fails("Grep", json!({ "pattern": "s3cret", "path": path }), NotAllowed).await;
    }
    for path in ["data", "data/attachments/deep"] {
        place.fails("Glob", json!({ "pattern": "*", "path": path }), NotAllowed).await;
        place.fails("Grep", json!({ "pattern": "s", "path": path }), NotAllowed).await;
        let new = format!("{path}/new");
        place.fails("Write", json!({ "path": new, "content": "x" }), NotAllowed).await;
    }
    let found = place.ok("Glob", json!({ "pattern": "**" })).await;
    assert_eq!(found["matches"], json!([place.shown("open")]));
    assert_eq!(place.ok("Grep", json!({ "pattern": "s3cret" })).await["count"], 1);
}

#[tokio::test]
async fn a_bind_mount_of_a_gateways_secret_is_refused() {
    let place = beside_a_gateway();
    place.file("elsewhere", "");
    let (from, to) = (place.path("data/operator.token"), place.path("elsewhere"));
    if let Err(errno) = rustix::mount::mount_bind(&from, &to) {
        return sa_test_needs::missing("mount", &format!("a bind mount needs root: {errno}"));
    }
    let outcome = place.call("Read", json!({ "path": "elsewhere" })).await;
    rustix::mount::unmount(&to, rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(outcome.unwrap_err().kind(), NotAllowed);
}

#[tokio::test]
async fn a_new_file_of_the_name_is_hidden_as_well() {
    let place = place();
    std::fs::write(place.path("other"), "s4cret").unwrap();
    std::fs::rename(place.path("other"), place.path("token")).unwrap();
    std::fs::hard_link(place.path("token"), place.path("harder")).unwrap();
    place.fails("Read", json!({ "path": "harder" }), NotAllowed).await;
}

#[tokio::test]
async fn the_nodes_environment_and_memory_are_not_readable() {
    let place = Place::new();
    let own = std::process::id();
    symlink("/proc/self/environ", place.path("link")).unwrap();
    for path in [
        "/proc/self/environ".to_owned(),
        "/proc/thread-self/environ".to_owned(),
        format!("/proc/{own}/environ"),
        format!("/proc/{own}/task/{own}/environ"),
        format!("/proc/{own}/mem"),
        format!("/proc/{own}/maps"),
        "/proc/1/environ".to_owned(),
        "link".to_owned(),
    ] {
        place.fails("Read", json!({ "path": path }), NotAllowed).await;
    }
    let found = place.ok("Grep", json!({ "pattern": "PATH" })).await;
    assert_eq!(found["count"], 0, "{found}");
    let found = place
        .ok(
            "Grep",
            json!({ "pattern": "PATH", "path": format!("/proc/{own}"), "include": "environ" }),
        )
        .await;
    assert_eq!(found["count"], 0, "{found}");
}

#[tokio::test]
async fn a_refused_write_makes_no_directory() {
    let place = place();
    std::fs::create_dir(place.path("data")).unwrap();
    secret_file::mark_directory(&place.path("data")).unwrap();
    symlink("data/new/target", place.path("away")).unwrap();
    for path in
        ["data/new/file", "data/new/deep/file", "away", "private/new/file", "dir-link/new/file"]
    {
        place.fails("Write", json!({ "path": path, "content": "x" }), NotAllowed).await;
    }
    for made in ["data/new", "private/new"] {
        assert!(!place.path(made).exists(), "{made}");
    }
}

#[test]
fn all_of_this_holds_for_an_unprivileged_user() {
    sa_test_needs::repeat_as_nobody(module_path!(), &[]);
}
