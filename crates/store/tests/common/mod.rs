//! Helpers that the tests of the store share.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use sa_core::store::{Entry, Log, NewEntry};
use sa_store::{OpenOptions, Store};

pub(crate) fn db(dir: &Path) -> PathBuf {
    dir.join("store.db")
}

#[track_caller]
pub(crate) fn open(dir: &Path) -> Store {
    Store::open(OpenOptions::new(db(dir))).expect("the store opens")
}

pub(crate) fn entry(stream: &str, key: Option<&str>, body: impl Into<Bytes>) -> NewEntry {
    NewEntry { stream: stream.into(), key: key.map(Into::into), body: body.into() }
}

/// Reads all entries of a stream in small pages.
pub(crate) async fn all(store: &Store, stream: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let after = entries.last().map_or(0, |entry| entry.seq);
        let page = store.read(stream, after, 100).await.expect("the stream is readable");
        if page.is_empty() {
            return entries;
        }
        entries.extend(page);
    }
}

pub(crate) fn seqs(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.seq).collect()
}

/// Returns a number of rounds. An environment variable can raise it for long runs.
pub(crate) fn count(variable: &str, ordinary: u64) -> u64 {
    std::env::var(variable).map_or(ordinary, |n| n.parse().expect("a number"))
}

/// A small random number generator. The seed is enough to repeat a test.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}
