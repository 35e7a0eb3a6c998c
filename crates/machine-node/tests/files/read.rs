//! Read returns the lines of a text with their numbers, images as images, and a description of
//! other files.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sa_node_sdk::{ErrorKind, MAX_TOOL_RESPONSE_BYTES};
use serde_json::{Value, json};

use crate::Place;

/// The smallest possible PNG: one pixel.
pub(crate) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

async fn check(content: &[u8], mut args: Value, expected: &str, lines: u64) {
    let place = Place::new();
    place.file("a.txt", content);
    args["path"] = json!("a.txt");
    let read = place.ok("Read", args.clone()).await;
    assert_eq!(read["path"], place.shown("a.txt"));
    assert_eq!(
        (read["content"].as_str(), read["lines"].as_u64()),
        (Some(expected), Some(lines)),
        "{args}"
    );
}

#[tokio::test]
async fn lines_have_numbers() {
    let text = b"one\ntwo\nthree\n";
    check(text, json!({}), "1\tone\n2\ttwo\n3\tthree", 3).await;
    check(text, json!({ "offset": 1 }), "2\ttwo\n3\tthree", 2).await;
    check(text, json!({ "offset": 1.0, "limit": 1.0 }), "2\ttwo", 1).await;
    check(text, json!({ "limit": 2 }), "1\tone\n2\ttwo", 2).await;
    check(text, json!({ "limit": 0 }), "", 0).await;
    check(text, json!({ "offset": 3 }), "", 0).await;
    check(text, json!({ "offset": 1_000_000 }), "", 0).await;
    check(b"no end", json!({}), "1\tno end", 1).await;
    check(b"", json!({}), "", 0).await;
    check(b"\n\n", json!({}), "1\t\n2\t", 2).await;
    check(b"a\r\nb\r\n", json!({}), "1\ta\n2\tb", 2).await;
    check("é\u{1F600}\n".as_bytes(), json!({}), "1\té\u{1F600}", 1).await;
}

#[tokio::test]
async fn the_shape_is_exact_unless_something_is_to_be_said() {
    let place = Place::new();
    place.file("a.txt", "x\n");
    let read = place.ok("Read", json!({ "path": "a.txt" })).await;
    assert_eq!(read, json!({ "path": place.shown("a.txt"), "content": "1\tx", "lines": 1 }));
    let beyond = place.ok("Read", json!({ "path": "a.txt", "offset": 9 })).await;
    assert_eq!(beyond["totalLines"], 1);
}

#[tokio::test]
async fn paths_are_relative_to_the_workspace_or_absolute() {
    let place = Place::new();
    let path = place.file("sub/a.txt", "x");
    for spelling in ["sub/a.txt", "./sub/../sub//a.txt", path.to_str().unwrap()] {
        assert_eq!(
            place.ok("Read", json!({ "path": spelling })).await["path"],
            place.shown("sub/a.txt")
        );
    }
}

#[tokio::test]
async fn what_does_not_fit_is_read_on() {
    let place = Place::new();
    let lines: Vec<_> =
        (0..200_000).map(|line| format!("line \"{line}\" of a long text")).collect();
    place.file("long.txt", lines.join("\n"));
    let (mut offset, mut lines) = (json!(0), 0);
    loop {
        let page = place.ok("Read", json!({ "path": "long.txt", "offset": offset })).await;
        assert!(page.to_string().len() < MAX_TOOL_RESPONSE_BYTES);
        lines += page["lines"].as_u64().unwrap();
        let last = page["content"].as_str().unwrap().lines().last().unwrap();
        assert_eq!(last, format!("{lines}\tline \"{}\" of a long text", lines - 1));
        if page.get("truncated").is_none() {
            break;
        }
        assert_eq!(page["totalLines"], 200_000);
        offset = page["nextOffset"].clone();
    }
    assert_eq!(lines, 200_000);
}

#[tokio::test]
async fn one_endless_line_is_cut_and_the_next_is_found() {
    let place = Place::new();
    let mut text = "x".repeat(50 * 1024 * 1024);
    text.push_str("\nnext\n");
    place.file("wide.txt", text);
    let page = place.ok("Read", json!({ "path": "wide.txt" })).await;
    assert_eq!(
        (&page["lines"], &page["truncated"], &page["totalLines"]),
        (&json!(1), &json!(true), &json!(2))
    );
    assert!(page.to_string().len() < MAX_TOOL_RESPONSE_BYTES);
    let next = place.ok("Read", json!({ "path": "wide.txt", "offset": page["nextOffset"] })).await;
    assert_eq!(next["content"], "2\tnext");
}

#[tokio::test]
async fn a_part_of_a_gigabyte_is_read_without_the_rest() {
    let place = Place::new();
    let path = place.file("huge.txt", "first\nsecond\n");
    std::fs::File::options().write(true).open(path).unwrap().set_len(1 << 30).unwrap();
    let page = place.ok("Read", json!({ "path": "huge.txt", "limit": 2 })).await;
    assert_eq!(page["content"], "1\tfirst\n2\tsecond");
    let zeros = place.ok("Read", json!({ "path": "huge.txt", "offset": 2 })).await;
    assert_eq!((&zeros["lines"], &zeros["truncated"]), (&json!(1), &json!(true)));
}

#[tokio::test]
async fn an_image_is_an_image() {
    let place = Place::new();
    let bytes = BASE64_STANDARD.decode(PNG).unwrap();
    place.file("photo.png", &bytes);
    let read = place.ok("Read", json!({ "path": "photo.png", "offset": 5, "limit": 1 })).await;
    let text = format!("Image file: photo.png (image/png, {} bytes)", bytes.len());
    assert_eq!(
        read,
        json!({
            "path": place.shown("photo.png"),
            "mimeType": "image/png",
            "bytes": bytes.len(),
            "content": [
                { "type": "text", "text": text },
                { "type": "image", "data": PNG, "mimeType": "image/png" },
            ],
        })
    );
    // The file's name does not matter.
    place.file("photo.txt", &bytes);
    assert_eq!(
        place.ok("Read", json!({ "path": "photo.txt" })).await["content"][1]["mimeType"],
        "image/png"
    );
}

#[tokio::test]
async fn drawings_that_are_text_are_text() {
    let place = Place::new();
    place.file("a.svg", "<svg/>\n");
    assert_eq!(place.ok("Read", json!({ "path": "a.svg" })).await["content"], "1\t<svg/>");
}

#[tokio::test]
async fn an_image_has_a_largest_size() {
    let place = Place::new();
    let path = place.file("big.png", BASE64_STANDARD.decode(PNG).unwrap());
    std::fs::File::options().write(true).open(path).unwrap().set_len(10 * 1024 * 1024 + 1).unwrap();
    let message = place.fails("Read", json!({ "path": "big.png" }), ErrorKind::Failed).await;
    assert!(message.contains("big.png") && message.contains("10 MB"), "{message}");
}

#[tokio::test]
async fn other_binary_files_are_named() {
    let place = Place::new();
    place.file("archive.tar.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03abc\xff");
    let message = place.fails("Read", json!({ "path": "archive.tar.gz" }), ErrorKind::Failed).await;
    assert_eq!(
        message,
        "Binary file: archive.tar.gz (application/gzip, 14 bytes) — not a text or image file"
    );
    place.file("latin.txt", b"caf\xe9\n");
    let message = place.fails("Read", json!({ "path": "latin.txt" }), ErrorKind::Failed).await;
    assert_eq!(
        message,
        "Binary file: latin.txt (application/octet-stream, 5 bytes) — not a text or image file"
    );
    // Invalid bytes may also appear late in the file.
    place.file("late.txt", [&b"text\n".repeat(50_000)[..], b"\xff\n"].concat());
    place.fails("Read", json!({ "path": "late.txt" }), ErrorKind::Failed).await;
    assert_eq!(place.ok("Read", json!({ "path": "late.txt", "limit": 1 })).await["lines"], 1);
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let place = Place::new();
    place.file("notes.txt", "x");
    let message = place.fails("Read", json!({ "path": "nots.txt" }), ErrorKind::NotFound).await;
    assert!(message.contains(&place.shown("notes.txt")), "{message}");
    place.file("home", "");
    let message = place.fails("Read", json!({ "path": "nope" }), ErrorKind::NotFound).await;
    assert!(!message.contains("did you mean"), "half of a short name is another name: {message}");
    place.fails("Read", json!({ "path": "no/such/dir/x" }), ErrorKind::NotFound).await;
    place.fails("Read", json!({ "path": "notes.txt/x" }), ErrorKind::NotFound).await;
    place.fails("Read", json!({ "path": "." }), ErrorKind::Failed).await;
    for args in [
        json!({}),
        json!({ "path": "" }),
        json!({ "path": 1 }),
        json!({ "path": "notes.txt", "offset": -1 }),
        json!({ "path": "notes.txt", "limit": 1.5 }),
        json!({ "path": "notes.txt", "limit": "many" }),
    ] {
        place.fails("Read", args, ErrorKind::InvalidArgs).await;
    }
}
