//! Pipes, devices, sockets and the files of processes block no caller.

use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sa_node_sdk::ErrorKind;
use serde_json::json;

use crate::Place;

fn place() -> Place {
    let place = Place::new();
    mknodat(CWD, place.path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    // The listener is closed, but its name remains.
    UnixListener::bind(place.path("socket")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", place.path("zero")).unwrap();
    place.file("a.txt", "needle\n");
    place
}

#[tokio::test]
async fn what_is_no_file_is_not_read() {
    let place = place();
    for path in ["pipe", "socket", "zero", "/dev/null", "/dev/tty", "/proc", "/sys"] {
        place.fails("Read", json!({ "path": path }), ErrorKind::Failed).await;
        let args = json!({ "path": path, "oldString": "a", "newString": "b" });
        place.fails("Edit", args, ErrorKind::Failed).await;
    }
}

#[tokio::test]
async fn searches_pass_it_by() {
    let place = place();
    assert_eq!(
        place.ok("Glob", json!({ "pattern": "**" })).await["matches"],
        json!([place.shown("a.txt")])
    );
    assert_eq!(place.ok("Grep", json!({ "pattern": "" })).await["count"], 1);
    place.fails("Grep", json!({ "pattern": "", "path": "pipe" }), ErrorKind::Failed).await;
}

#[tokio::test]
async fn files_of_the_kernel_are_read_though_they_seem_empty() {
    let place = Place::new();
    let read = place.ok("Read", json!({ "path": "/proc/meminfo", "limit": 1 })).await;
    assert!(read["content"].as_str().unwrap().starts_with("1\tMemTotal:"), "{read}");
    let read =
        place.ok("Read", json!({ "path": "/sys/kernel/mm/transparent_hugepage/enabled" })).await;
    assert_eq!(read["lines"], 1);
    assert_eq!(
        place.ok("Grep", json!({ "pattern": "^MemTotal", "path": "/proc/meminfo" })).await["count"],
        1
    );
}

#[tokio::test]
async fn a_search_of_everything_stays_out_of_the_kernel() {
    let place = Place::new();
    std::os::unix::fs::symlink("/proc", place.path("link")).unwrap();
    assert_eq!(place.ok("Glob", json!({ "pattern": "**/status" })).await["count"], 0);
    let found = place.ok("Glob", json!({ "pattern": "*/meminfo", "path": "/" })).await;
    assert_eq!(found["count"], 0, "{found}");
    // They are included if the caller asks for them.
    let found = place.ok("Glob", json!({ "pattern": "mem*", "path": "/proc" })).await;
    assert_eq!(found["matches"], json!(["/proc/meminfo"]));
}
