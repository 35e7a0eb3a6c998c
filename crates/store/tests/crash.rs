//! Rule: `kill -9` at any moment loses no acknowledged entry, duplicates none, and keeps the order.
//!
//! The test runs itself as a child process that appends and prints each acknowledgement. It kills
//! the child at random moments.

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{Dice, all, count, db, entry};
use sa_core::store::{Log, Retention};
use sa_store::{OpenOptions, Store};

const CHILD: &str = "SWITCHBOARD_CRASH_CHILD";

#[tokio::test]
async fn nothing_acknowledged_is_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut dice = Dice(count("SWITCHBOARD_CRASH_SEED", 1));
    let mut acknowledged: HashMap<String, u64> = HashMap::new();
    for kill in 0..count("SWITCHBOARD_CRASH_KILLS", 15) {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "child", "--nocapture", "--ignored"])
            .env(CHILD, dir.path())
            .env("SWITCHBOARD_CRASH_RUN", kill.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a child");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let timeout = dice.roll(3000);
        for line in lines.by_ref().take(timeout as usize) {
            note(&mut acknowledged, &line.expect("a line"));
        }
        child.kill().expect("killed");
        // All complete lines that the child printed before it died were acknowledged. The last line
        // may be torn.
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        for line in &rest[..rest.len().saturating_sub(1)] {
            note(&mut acknowledged, line);
        }
        child.wait().expect("ended");
        check(dir.path(), &acknowledged).await;
    }
    assert!(acknowledged.len() > 1000, "the children did append");
}

fn note(acknowledged: &mut HashMap<String, u64>, line: &str) {
    if let Some((key, seq)) = line.strip_prefix("ack ").and_then(|rest| rest.split_once(' ')) {
        let before = acknowledged.insert(key.to_owned(), seq.parse().expect("a number"));
        assert_eq!(before, None, "{key} was acknowledged twice");
    }
}

async fn check(dir: &std::path::Path, acknowledged: &HashMap<String, u64>) {
    let store = Store::open(OpenOptions::new(db(dir))).expect("it opens after a kill");
    let bounds = store.bounds("log").await.expect("bounds");
    let entries = all(&store, "log").await;
    assert_eq!(entries.len() as u64, bounds.last);
    let mut found: HashMap<&str, u64> = HashMap::new();
    for (n, e) in entries.iter().enumerate() {
        assert_eq!(e.seq, n as u64 + 1);
        let key = std::str::from_utf8(&e.body).expect("its key");
        assert_eq!(found.insert(key, e.seq), None, "{key} is there twice");
    }
    for (key, seq) in acknowledged {
        assert_eq!(found.get(key.as_str()), Some(seq), "{key} was acknowledged");
    }
    // The order of one writer's appends must be the order in the log.
    let mut last: HashMap<&str, (u64, u64)> = HashMap::new();
    for (key, seq) in &found {
        let (writer, n) = key.rsplit_once('-').expect("a writer and a number");
        let n: u64 = n.parse().expect("a number");
        let next = last.entry(writer).or_default();
        *next = (*next).max((n, *seq));
    }
    for (writer, (n, seq)) in last {
        for earlier in 0..n {
            let at = found[format!("{writer}-{earlier}").as_str()];
            assert!(at < seq, "{writer}: {earlier} before {n}");
        }
    }
    store.verify().await.expect("intact");
    store.shutdown().await.expect("a clean end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs as the child of the other test"]
async fn child() {
    let Ok(dir) = std::env::var(CHILD) else {
        return;
    };
    let run = std::env::var("SWITCHBOARD_CRASH_RUN").expect("a number");
    let store = Arc::new(Store::open(OpenOptions::new(db(dir.as_ref()))).expect("the store"));
    for writer in 0..16 {
        let (store, run) = (store.clone(), run.clone());
        tokio::spawn(async move {
            for n in 0_u64.. {
                let key = format!("{run}-{writer}-{n}");
                let appended =
                    store.append(entry("log", Some(&key), key.clone())).await.expect("kept");
                assert!(!appended.duplicate);
                println!("ack {key} {}", appended.seq);
                // Extra load: background entries and trims.
                store.record("noise", None, &[0; 700]);
                if n % 50 == 0 {
                    store
                        .trim("noise", Retention { entries: Some(100), ..Retention::default() })
                        .await
                        .expect("trimmed");
                }
            }
        });
    }
    std::future::pending::<()>().await;
}
