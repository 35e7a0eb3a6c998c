//! Grep finds the first hundred matching lines in all text files, and returns the same ones every
//! time.

use std::os::unix::fs::symlink;

use sa_node_sdk::{ErrorKind, ToolContext};
use serde_json::{Value, json};

use crate::Place;

async fn check(place: &Place, args: Value, expected: &[(&str, u64, &str)]) {
    let found = place.ok("Grep", args.clone()).await;
    let line = |&(name, line, content): &(&str, u64, &str)| json!({ "path": place.shown(name), "line": line, "content": content });
    assert_eq!(found["matches"], Value::Array(expected.iter().map(line).collect()), "{args}");
    assert_eq!(found["count"], expected.len());
}

#[tokio::test]
async fn lines_are_found_in_the_order_of_their_paths() {
    let place = Place::new();
    place.file("b.rs", "fn one() {}\nfn two() {}\r\n");
    place.file("a/x.ts", "function one() {}\n");
    place.file(".hidden/z.rs", "fn one");
    place.file("target/ignored.md", "fn one\n");
    place.file(".gitignore", "target\n");
    check(&place, json!({ "pattern": "fn two" }), &[("b.rs", 2, "fn two() {}")]).await;
    check(
        &place,
        json!({ "pattern": r"\bone\b", "include": "*.{rs,ts}" }),
        &[
            (".hidden/z.rs", 1, "fn one"),
            ("a/x.ts", 1, "function one() {}"),
            ("b.rs", 1, "fn one() {}"),
        ],
    )
    .await;
    check(
        &place,
        json!({ "pattern": "^fn", "path": "b.rs" }),
        &[("b.rs", 1, "fn one() {}"), ("b.rs", 2, "fn two() {}")],
    )
    .await;
    check(
        &place,
        json!({ "pattern": "one", "path": "target" }),
        &[("target/ignored.md", 1, "fn one")],
    )
    .await;
    check(
        &place,
        json!({ "pattern": "one", "include": "x.*" }),
        &[("a/x.ts", 1, "function one() {}")],
    )
    .await;
    check(&place, json!({ "pattern": "three" }), &[]).await;
}

#[tokio::test]
async fn the_shape_is_exact() {
    let place = Place::new();
    place.file("a.txt", "needle\n");
    let base = place.path("").canonicalize().unwrap();
    let found = place.ok("Grep", json!({ "pattern": "needle" })).await;
    let lines = json!([{ "path": place.shown("a.txt"), "line": 1, "content": "needle" }]);
    assert_eq!(
        found,
        json!({ "pattern": "needle", "basePath": base, "matches": lines, "count": 1 })
    );
}

#[tokio::test]
async fn binary_files_are_skipped() {
    let place = Place::new();
    place.file("zero", b"needle\n\0\xff\n");
    place.file("late-zero", [&b"needle\n"[..], &b"x\n".repeat(200_000), b"\0\xff"].concat());
    place.file("latin", b"needle\ncaf\xe9\n");
    place.file("latin-line", b"needle caf\xe9\n");
    place.file("late-latin", [&b"needle\n"[..], &b"x\n".repeat(200_000), b"\xe9"].concat());
    place.file("text", ["needle é\n", &"é".repeat(100_000)].concat());
    check(&place, json!({ "pattern": "needle" }), &[("text", 1, "needle é")]).await;
}

#[tokio::test]
async fn long_lines_are_cut() {
    let place = Place::new();
    place.file("a.txt", format!("{}needle", "é".repeat(300)));
    check(&place, json!({ "pattern": "needle" }), &[("a.txt", 1, &"é".repeat(200))]).await;
}

#[tokio::test]
async fn a_hundred_are_all_and_more_are_cut() {
    let place = Place::new();
    place.file("b/100.txt", "needle\n".repeat(100));
    let found = place.ok("Grep", json!({ "pattern": "needle" })).await;
    assert_eq!((&found["count"], found.get("truncated")), (&json!(100), None));
    place.file("c.txt", "needle\n");
    let found = place.ok("Grep", json!({ "pattern": "needle" })).await;
    assert_eq!((found.get("count"), &found["truncated"]), (None, &json!(true)));
    assert_eq!(found["matches"].as_array().unwrap().len(), 100);
}

#[tokio::test]
async fn what_is_returned_of_many_is_always_the_same() {
    let place = Place::new();
    for directory in 0..30 {
        for file in 0..30 {
            place.file(&format!("{directory:02}/{file:02}.txt"), "needle\nhay\nneedle\n");
        }
    }
    let first = place.ok("Grep", json!({ "pattern": "needle" })).await;
    let expected: Vec<_> = (0..50)
        .flat_map(|file| {
            let path = place.shown(&format!("{:02}/{:02}.txt", file / 30, file % 30));
            [1, 3].map(|line| json!({ "path": path, "line": line, "content": "needle" }))
        })
        .collect();
    assert_eq!(first["matches"], json!(expected));
    for _ in 0..10 {
        assert_eq!(place.ok("Grep", json!({ "pattern": "needle" })).await, first);
    }
}

#[tokio::test]
async fn links_are_followed() {
    let place = Place::new();
    place.file("a/x.txt", "needle");
    symlink("a", place.path("b")).unwrap();
    symlink(".", place.path("a/self")).unwrap();
    check(
        &place,
        json!({ "pattern": "needle" }),
        &[("a/x.txt", 1, "needle"), ("b/x.txt", 1, "needle")],
    )
    .await;
}

#[tokio::test]
async fn a_gigabyte_in_one_line_takes_no_memory() {
    let place = Place::new();
    let path = place.file("a.txt", "needle");
    std::fs::File::options().write(true).open(path).unwrap().set_len(1 << 30).unwrap();
    // Zero bytes mean a binary file.
    check(&place, json!({ "pattern": "needle" }), &[]).await;
    place.file("wide.txt", [&b"needle"[..], &b"x".repeat(20 << 20)].concat());
    place.file("b.txt", "needle");
    let found = place.ok("Grep", json!({ "pattern": "needle", "include": "[wb]*" })).await;
    assert_eq!((&found["count"], &found["unreadable"]), (&json!(1), &json!(1)), "{found}");
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let place = Place::new();
    place.file("a.txt", "x");
    for args in [
        json!({}),
        json!({ "pattern": "(" }),
        json!({ "pattern": "a\nb" }),
        json!({ "pattern": "x", "include": "src/*.rs" }),
        json!({ "pattern": "x", "include": "{a" }),
        json!({ "pattern": r"\w{1000}{1000}" }),
    ] {
        place.fails("Grep", args, ErrorKind::InvalidArgs).await;
    }
    place.fails("Grep", json!({ "pattern": "x", "path": "nowhere" }), ErrorKind::NotFound).await;
}

#[tokio::test]
async fn a_search_that_nobody_waits_for_ends() {
    let place = Place::new();
    for number in 0..2_000 {
        place.file(&format!("{number}/a.txt"), "hay");
    }
    for tool in ["Grep", "Glob"] {
        let ctx = ToolContext::for_test(tool);
        ctx.cancel.cancel();
        let error = place
            .tools
            .get(tool)
            .unwrap()
            .call(ctx, json!({ "pattern": "*needle*".trim_matches('*') }))
            .await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Cancelled);
    }
}

#[tokio::test]
async fn a_line_ends_before_its_end() {
    let place = Place::new();
    place.file("dos.txt", "bar foo\r\nfoo bar\r\n");
    check(&place, json!({ "pattern": "foo$" }), &[("dos.txt", 1, "bar foo")]).await;
    check(&place, json!({ "pattern": "^foo bar$" }), &[("dos.txt", 2, "foo bar")]).await;
}

#[tokio::test]
async fn zero_bytes_alone_make_no_binary_file() {
    let place = Place::new();
    place.file("zeros.txt", "one\nfoo\0x\nfoo again\n");
    place.file("late.txt", ["foo\n", &"x\n".repeat(200_000), "\0"].concat());
    let expected =
        [("late.txt", 1, "foo"), ("zeros.txt", 2, "foo\0x"), ("zeros.txt", 3, "foo again")];
    check(&place, json!({ "pattern": "foo" }), &expected).await;
}
