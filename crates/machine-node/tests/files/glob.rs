//! Glob finds all matching files, including hidden ones and those behind links, newest first and
//! each once.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::time::{Duration, UNIX_EPOCH};

use sa_node_sdk::ErrorKind;
use serde_json::{Value, json};

use crate::Place;

fn tree() -> Place {
    let place = Place::new();
    for (age, name) in
        ["src/main.rs", "src/deep/er/lib.rs", "README.md", ".hidden/x.rs", "target/y.rs"]
            .iter()
            .enumerate()
    {
        let path = place.file(name, "x");
        let time = UNIX_EPOCH + Duration::from_secs(1_000_000 - age as u64);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
    place.file(".gitignore", "target\n");
    place
}

async fn check(place: &Place, args: Value, expected: &[&str]) {
    let found = place.ok("Glob", args.clone()).await;
    let expected: Vec<_> = expected.iter().map(|name| place.shown(name)).collect();
    assert_eq!(found["matches"], json!(expected), "{args}");
    assert_eq!(found["count"], expected.len());
}

#[tokio::test]
async fn files_are_found_newest_first() {
    let place = tree();
    check(
        &place,
        json!({ "pattern": "**/*.rs" }),
        &["src/main.rs", "src/deep/er/lib.rs", ".hidden/x.rs", "target/y.rs"],
    )
    .await;
    check(&place, json!({ "pattern": "src/**/*.rs" }), &["src/main.rs", "src/deep/er/lib.rs"])
        .await;
    check(&place, json!({ "pattern": "*.md" }), &["README.md"]).await;
    check(&place, json!({ "pattern": "*/*.rs" }), &["src/main.rs", ".hidden/x.rs", "target/y.rs"])
        .await;
    check(&place, json!({ "pattern": "src/main.rs" }), &["src/main.rs"]).await;
    check(&place, json!({ "pattern": "{src,target}/*.{rs,md}" }), &["src/main.rs", "target/y.rs"])
        .await;
    check(&place, json!({ "pattern": "*.rs", "path": "src" }), &["src/main.rs"]).await;
    check(&place, json!({ "pattern": "../README.md", "path": "src" }), &["README.md"]).await;
    check(&place, json!({ "pattern": format!("{}/s*/*.rs", place.shown("")) }), &["src/main.rs"])
        .await;
    check(&place, json!({ "pattern": "none/**/*.rs" }), &[]).await;
    check(&place, json!({ "pattern": "sr" }), &[]).await;
    check(&place, json!({ "pattern": "src" }), &[]).await;
}

#[tokio::test]
async fn the_shape_is_exact() {
    let place = tree();
    let found = place.ok("Glob", json!({ "pattern": "*.md", "path": "." })).await;
    let base = place.path("").canonicalize().unwrap();
    let expected = json!({ "pattern": "*.md", "basePath": base, "matches": [place.shown("README.md")], "count": 1 });
    assert_eq!(found, expected);
}

#[tokio::test]
async fn links_are_followed_and_loops_are_not() {
    let place = Place::new();
    place.file("a/x.txt", "x");
    place.file("b/y.txt", "y");
    symlink("../b", place.path("a/to-b")).unwrap();
    symlink("../a", place.path("b/to-a")).unwrap();
    symlink(".", place.path("self")).unwrap();
    symlink("/", place.path("root")).unwrap();
    symlink("nowhere", place.path("broken.txt")).unwrap();
    symlink("a/x.txt", place.path("file.txt")).unwrap();
    let found = place.ok("Glob", json!({ "pattern": "**/*.txt" })).await;
    let mut matches: Vec<_> =
        found["matches"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    matches.sort_unstable();
    let expected = ["a/to-b/y.txt", "a/x.txt", "b/to-a/x.txt", "b/y.txt", "file.txt"];
    assert_eq!(matches, expected.map(|name| place.shown(name)));
}

#[tokio::test]
async fn too_many_are_counted_and_the_newest_returned() {
    let place = Place::new();
    std::fs::create_dir(place.path("many")).unwrap();
    for number in 0..10_050 {
        File::create(place.path(&format!("many/{number}"))).unwrap();
    }
    let newest = File::options().write(true).open(place.path("many/77")).unwrap();
    newest.set_modified(UNIX_EPOCH + Duration::from_secs(1 << 33)).unwrap();
    let found = place.ok("Glob", json!({ "pattern": "**" })).await;
    assert_eq!((&found["count"], &found["truncated"]), (&json!(10_050), &json!(true)));
    assert_eq!(found["matches"].as_array().unwrap().len(), 10_000);
    assert_eq!(found["matches"][0], place.shown("many/77"));
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let place = tree();
    for pattern in ["", "a[", "src/", "{a"] {
        place.fails("Glob", json!({ "pattern": pattern }), ErrorKind::InvalidArgs).await;
    }
    place.fails("Glob", json!({}), ErrorKind::InvalidArgs).await;
    place.fails("Glob", json!({ "pattern": "*", "path": "nowhere" }), ErrorKind::NotFound).await;
    place.fails("Glob", json!({ "pattern": "*", "path": "README.md" }), ErrorKind::Failed).await;
}
