//! Logs have readable lines on a terminal and JSON elsewhere. External text cannot control the
//! terminal or start a forged log line.

use futures_util::{SinkExt as _, StreamExt as _};
use rustix::process::Signal;
use sa_gateway_kit::{Cli, Hello, Message, eventually, soon};
use sa_text::affects_display;
use serde_json::Value;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::SWITCHBOARD;

/// The node's close reason.
const LAST_WORDS: &str =
    "gone\u{1b}[31m\u{7}\r\n2026-01-01T00:00:00Z  INFO forged \u{202e}\u{9b}1m";

/// Output of an upstream server, which passes through another part of the gateway.
const CONFIG: &str = "[upstream.noisy]\ncommand = [\"sh\", \"-c\", \"printf 'noise \\u202e\\u001b[31m\\nnoise\\n' >&2; exit 1\"]";

fn gateway(dir: &std::path::Path) -> Cli {
    let file = dir.join("switchboard.toml");
    std::fs::write(&file, CONFIG).unwrap();
    let data = dir.join("data");
    let args =
        ["serve", "--listen", "127.0.0.1:0", "--config", file.to_str().unwrap(), "--data-dir"];
    Cli::new(SWITCHBOARD).args(&args).args(&[data.to_str().unwrap()])
}

/// Gets external text into the log of the gateway that printed its address.
async fn disturb(said: &str) {
    let address =
        said.lines().find_map(|line| line.trim_end().strip_prefix("listening on http://")).unwrap();
    let url = format!("ws://{address}/v1/nodes/ws");
    let (mut socket, _) = Box::pin(soon(tokio_tungstenite::connect_async(url))).await.unwrap();
    let hello = Hello::new("n").capability("a").frame().to_string();
    socket.send(Message::text(hello)).await.unwrap();
    soon(socket.next()).await.unwrap().unwrap();
    let goodbye = CloseFrame { code: 4321.into(), reason: LAST_WORDS.into() };
    socket.close(Some(goodbye)).await.unwrap();
    while soon(socket.next()).await.is_some_and(|message| message.is_ok()) {}
}

/// Returns whether the log is complete.
fn is_whole(log: &str) -> bool {
    log.contains("forged") && log.contains("noise") && log.contains("node disconnected")
}

#[tokio::test]
async fn elsewhere_than_on_a_terminal_each_line_is_json_and_steers_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path()).start();
    disturb(&gateway.says("listening on http://").await).await;
    eventually("the log", || async { is_whole(&gateway.warns("").await).then_some(()) }).await;
    gateway.signal(Signal::TERM);
    let ended = gateway.end().await;
    let log = &ended.assert_code(0).stderr;
    let mut reasons = Vec::new();
    for line in log.lines() {
        let told: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(told["level"].is_string() && told["timestamp"].is_string(), "{line}");
        assert!(!line.contains(affects_display), "{line:?}");
        reasons.extend(told["reason"].as_str().map(str::to_owned));
    }
    assert!(reasons.iter().any(|reason| reason.contains("forged")), "{log}");
}

/// Returns the lines that begin with a time, without colours.
fn lines(log: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = log;
    while let Some((before, escape)) = rest.split_once("\u{1b}[") {
        // Colours are the only escape sequences in the log.
        let (code, after) = escape.split_once('m').unwrap();
        assert!(code.chars().all(|c| c.is_ascii_digit() || c == ';') && code != "31", "{log:?}");
        plain.push_str(before);
        rest = after;
    }
    plain.push_str(rest);
    plain.lines().filter(|line| line.starts_with("20")).map(str::to_owned).collect()
}

#[tokio::test]
async fn on_a_terminal_each_line_is_for_people_and_in_colour_unless_they_want_none() {
    for coloured in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let gateway = gateway(dir.path());
        let gateway = if coloured { gateway } else { gateway.env("NO_COLOR", "1") };
        let gateway = gateway.start_on_terminal(80);
        disturb(&gateway.says("listening on http://").await).await;
        eventually("the log", || async { is_whole(&gateway.says("").await).then_some(()) }).await;
        gateway.signal(Signal::TERM);
        let ended = gateway.end().await;
        let log = &ended.assert_code(0).stdout;
        assert_eq!(log.contains("\u{1b}["), coloured, "{log:?}");
        let lines = lines(log);
        assert!(
            lines.iter().any(|line| line.contains(" INFO ") && line.contains("node connected")),
            "{log}"
        );
        for line in &lines {
            assert!(!line.contains(affects_display), "{line:?}");
            assert!(serde_json::from_str::<Value>(line).is_err(), "{line}");
        }
        let forged: Vec<&String> = lines.iter().filter(|line| line.contains("forged")).collect();
        assert!(
            !forged.is_empty() && forged.iter().all(|line| line.contains("node disconnected")),
            "{log}"
        );
    }
}

#[tokio::test]
async fn a_file_gets_no_colours_when_it_is_to_hold_lines_for_people() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = gateway(dir.path()).env("SWITCHBOARD_LOG_FORMAT", "human").start();
    disturb(&gateway.says("listening on http://").await).await;
    eventually("the log", || async { is_whole(&gateway.warns("").await).then_some(()) }).await;
    gateway.signal(Signal::TERM);
    let ended = gateway.end().await;
    let log = &ended.assert_code(0).stderr;
    assert!(
        log.lines().all(|line| line.starts_with("20") && !line.contains(affects_display)),
        "{log:?}"
    );
}
