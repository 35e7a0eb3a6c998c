//! Edit replaces exactly the requested text, once or everywhere, and loses no concurrent change.

use std::sync::Arc;

use sa_node_sdk::ErrorKind;
use serde_json::json;

use crate::Place;

#[tokio::test]
async fn text_is_replaced() {
    let place = Place::new();
    place.file("a.txt", "one two\r\none\r\n");
    let edited =
        place.ok("Edit", json!({ "path": "a.txt", "oldString": "two", "newString": "2" })).await;
    assert_eq!(edited, json!({ "path": place.shown("a.txt"), "replacements": 1 }));
    let all = json!({ "path": "a.txt", "oldString": "one", "newString": "", "replaceAll": true });
    assert_eq!(place.ok("Edit", all).await["replacements"], 2);
    assert_eq!(place.text("a.txt"), " 2\r\n\r\n");
}

#[tokio::test]
async fn matches_are_counted_in_errors() {
    let place = Place::new();
    place.file("a.txt", "x x x");
    let args = json!({ "path": "a.txt", "oldString": "x", "newString": "y" });
    let message = place.fails("Edit", args, ErrorKind::Failed).await;
    assert!(message.contains('3') && message.contains("replaceAll: true"), "{message}");
    let args = json!({ "path": "a.txt", "oldString": "z", "newString": "y" });
    place.fails("Edit", args, ErrorKind::Failed).await;
    assert_eq!(place.text("a.txt"), "x x x");
}

#[tokio::test]
async fn what_is_wrong_is_said_and_nothing_changes() {
    let place = Place::new();
    place.file("a.txt", "a\r\nb\r\n");
    place.file("latin.txt", b"caf\xe9");
    for (old, new) in [("", "x"), ("a", "a")] {
        let args = json!({ "path": "a.txt", "oldString": old, "newString": new });
        place.fails("Edit", args, ErrorKind::InvalidArgs).await;
    }
    let message = place
        .fails(
            "Edit",
            json!({ "path": "a.txt", "oldString": "a\nb", "newString": "x" }),
            ErrorKind::Failed,
        )
        .await;
    assert!(message.contains("\\r\\n"), "{message}");
    place
        .fails(
            "Edit",
            json!({ "path": "latin.txt", "oldString": "caf", "newString": "x" }),
            ErrorKind::Failed,
        )
        .await;
    place
        .fails(
            "Edit",
            json!({ "path": "none.txt", "oldString": "a", "newString": "x" }),
            ErrorKind::NotFound,
        )
        .await;
    place
        .fails(
            "Edit",
            json!({ "path": ".", "oldString": "a", "newString": "x" }),
            ErrorKind::Failed,
        )
        .await;
    let args = json!({ "path": "a.txt", "oldString": "a", "newString": "x", "replaceAll": "yes" });
    place.fails("Edit", args, ErrorKind::InvalidArgs).await;
    assert_eq!(place.text("a.txt"), "a\r\nb\r\n");
    assert_eq!(std::fs::read(place.path("latin.txt")).unwrap(), b"caf\xe9");
}

#[tokio::test]
async fn a_file_that_is_too_large_is_not_edited() {
    let place = Place::new();
    let path = place.file("huge.txt", "a");
    std::fs::File::options().write(true).open(path).unwrap().set_len(1 << 30).unwrap();
    place
        .fails(
            "Edit",
            json!({ "path": "huge.txt", "oldString": "a", "newString": "x" }),
            ErrorKind::Failed,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_at_the_same_time_are_all_kept() {
    let place = Arc::new(Place::new());
    let lines: Vec<_> = (0..32).map(|line| format!("<{line}>")).collect();
    place.file("a.txt", lines.join("\n"));
    std::os::unix::fs::symlink("a.txt", place.path("link")).unwrap();
    let edits = lines.iter().enumerate().map(|(at, line)| {
        let (place, line) = (Arc::clone(&place), line.clone());
        // Half of the edits use another name of the file.
        let path = if at % 2 == 0 { "a.txt" } else { "link" };
        tokio::spawn(async move {
            let args = json!({ "path": path, "oldString": line, "newString": format!("[{at}]") });
            place.ok("Edit", args).await;
        })
    });
    for edit in edits.collect::<Vec<_>>() {
        edit.await.unwrap();
    }
    let expected: Vec<_> = (0..32).map(|line| format!("[{line}]")).collect();
    assert_eq!(place.text("a.txt"), expected.join("\n"));
}
