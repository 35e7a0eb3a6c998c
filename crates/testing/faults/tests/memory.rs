//! Rule: the memory of SQLite is bounded, however large a store is.

use std::sync::Arc;

use bytes::Bytes;
use sa_core::store::{Log, NewEntry};
use sa_store::{OpenOptions, Store};
use sa_store_faults::sqlite_bytes;

/// The caches of the writer and of two readers, in bytes, and the rest of three connections.
const CACHES: u64 = (16_000 + 2 * 4_000) << 10;
const REST: u64 = 3 << 20;

/// In this process, no other test may use SQLite.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caches_have_the_same_limit_in_a_new_and_in_an_opened_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    for _ in 0..2 {
        let store = Store::open(OpenOptions::new(&path)).unwrap();
        let stream: Arc<str> = "stream".into();
        let mut at = 0;
        for _ in 0..50 {
            for _ in 0..20 {
                let body = Bytes::from(vec![b'x'; 50_000]);
                let entry = NewEntry { stream: Arc::clone(&stream), key: None, body };
                at = store.append(entry).await.unwrap().seq;
            }
            tokio::try_join!(
                store.read(&stream, at / 2, 40),
                store.read(&stream, at.saturating_sub(40), 40)
            )
            .unwrap();
        }
        let used = sqlite_bytes();
        // Smaller caches would make the test useless.
        assert!(used > CACHES / 2, "{used} bytes are in use, so the caches are not full");
        assert!(used < CACHES + REST, "{used} bytes are in use");
        store.shutdown().await.unwrap();
    }
}
