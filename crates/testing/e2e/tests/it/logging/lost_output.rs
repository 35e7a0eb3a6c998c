//! A log that cannot be written or is not read only loses lines: calls and records continue. Once
//! the log is writable again, it reports the number of lost lines.

use std::fs::{File, OpenOptions};
use std::io::PipeReader;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sa_gateway_kit::{Gateway, Hello, Setup, eventually, soon};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe::Receiver;

use crate::SWITCHBOARD;

/// A gateway with the most verbose log.
fn talkative() -> Setup {
    Setup::new().config("[log]\nfilter = \"trace\"")
}

/// Performs some of each operation that is logged and recorded.
async fn works(gateway: &Gateway) {
    let _node = Hello::new("n").tool("a.b").connect(gateway).await.echo();
    let operator = gateway.operator();
    for key in ["one", "two", "one"] {
        let reply = operator
            .call_with("a.b", json!({ "args": { "text": key }, "idempotency_key": key }))
            .await;
        assert_eq!(reply.result()["text"], key);
    }
    gateway.token(json!({ "name": "t", "role": "agent" })).await;
    assert_eq!(operator.get("/readyz").await.status, 200);
    let calls = eventually("the records", || async {
        let calls = operator.get("/v1/calls").await.body["calls"].as_array().unwrap().len();
        (calls >= 2).then_some(calls)
    })
    .await;
    assert_eq!(calls, 2);
}

async fn lost_lines(gateway: &Gateway) -> u64 {
    gateway.metric("switchboard_log_lost_total").await
}

/// Returns the log line that reports the lost lines.
async fn told(log: Receiver) -> String {
    let mut lines = BufReader::new(log).lines();
    soon(async {
        loop {
            let line = lines.next_line().await.unwrap().expect("the log has ended");
            if line.contains("log lines were lost") {
                return line;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_log_on_a_full_disk_is_all_that_is_lost() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let gateway = talkative().log_to(full).spawn(SWITCHBOARD).await;
    works(&gateway).await;
    assert!(lost_lines(&gateway).await > 0);
    gateway.stop().await;
}

/// Creates a named pipe, so that the reader can close and reopen it.
fn pipe_without_reader(path: &Path) -> File {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    // Opening one end waits for the other, except when it is opened for both.
    let _reader = OpenOptions::new().read(true).write(true).open(path).unwrap();
    OpenOptions::new().write(true).open(path).unwrap()
}

#[tokio::test]
async fn a_reader_that_comes_back_is_told_what_it_has_missed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let gateway = talkative().log_to(pipe_without_reader(&path)).spawn(SWITCHBOARD).await;
    works(&gateway).await;
    assert!(lost_lines(&gateway).await > 0);
    let log = tokio::net::unix::pipe::OpenOptions::new().open_receiver(&path).unwrap();
    let told = tokio::spawn(told(log));
    let _node = Hello::new("m").connect(&gateway).await;
    assert!(told.await.unwrap().contains("lost: they could not be written (Broken pipe"));
    gateway.stop().await;
}

/// Starts a gateway with an unread log, and returns once lines have been lost.
async fn unread() -> (Gateway, PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let gateway = talkative().log_to(writer).spawn(SWITCHBOARD).await;
    let _node = Hello::new("m").tool("c.d").connect(&gateway).await.echo();
    let operator = gateway.operator();
    while lost_lines(&gateway).await == 0 {
        let calls: Vec<_> =
            (0..20).map(|_| operator.call_later("c.d", json!({ "args": {} }))).collect();
        for call in calls {
            assert_eq!(soon(call).await.unwrap().status, 200);
        }
    }
    (gateway, reader)
}

#[tokio::test]
async fn a_log_that_nobody_reads_holds_up_nothing() {
    let (gateway, _reader) = unread().await;
    gateway.token(json!({ "name": "t", "role": "agent" })).await;
    assert_eq!(gateway.operator().get("/readyz").await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn a_log_that_is_read_again_says_what_it_lacks() {
    let (gateway, reader) = unread().await;
    let told = told(Receiver::from_owned_fd(OwnedFd::from(reader)).unwrap());
    let told = soon(told).await;
    assert!(told.contains("lost: the log was not read fast enough"), "{told}");
    assert!(told.contains("\"level\":\"WARN\""), "it is a line as any other: {told}");
    drop(gateway);
}
