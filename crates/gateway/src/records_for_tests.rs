//! In-memory records for tests. Writes can be made to fail, and listed bytes are counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sa_core::store::{Expect, Record, Records, StoreError, StoreErrorKind, StoreFuture};

#[derive(Default)]
pub(crate) struct MemoryRecords {
    documents: Mutex<BTreeMap<(String, String), Bytes>>,
    pub(crate) full: AtomicBool,
    /// The key that cannot be written, with the error kind.
    failing: Mutex<Option<(String, StoreErrorKind)>>,
    /// The total bytes of all listings.
    pub(crate) listed: AtomicUsize,
}

impl MemoryRecords {
    /// Makes writes and deletes of this key fail, or of no key.
    pub(crate) fn fail_at(&self, key: Option<String>, kind: StoreErrorKind) {
        *self.failing.lock() = key.map(|key| (key, kind));
    }

    fn failure(&self, key: &str) -> Option<StoreError> {
        let failing = self.failing.lock();
        let (_, kind) = failing.as_ref().filter(|(failing, _)| failing == key)?;
        Some(StoreError { kind: *kind, message: "it cannot be written".into() })
    }

    pub(crate) fn len(&self) -> usize {
        self.documents.lock().len()
    }
}

impl Records for MemoryRecords {
    fn get(&self, bucket: &str, key: &str) -> StoreFuture<'_, Option<Record>> {
        let found = self.documents.lock().get(&(bucket.into(), key.into())).cloned();
        Box::pin(async { Ok(found.map(|value| Record { value, revision: 1 })) })
    }

    fn list(&self, bucket: &str) -> StoreFuture<'_, Vec<(String, Record)>> {
        let documents = self.documents.lock();
        let found: Vec<_> = documents
            .iter()
            .filter(|((found, _), _)| found == bucket)
            .map(|((_, key), value)| (key.clone(), Record { value: value.clone(), revision: 1 }))
            .collect();
        self.listed
            .fetch_add(found.iter().map(|(_, record)| record.value.len()).sum(), Ordering::Relaxed);
        Box::pin(async { Ok(found) })
    }

    fn sizes(&self, bucket: &str) -> StoreFuture<'_, Vec<(String, usize)>> {
        let documents = self.documents.lock();
        let found = documents.iter().filter(|((found, _), _)| found == bucket);
        let found = found.map(|((_, key), value)| (key.clone(), value.len())).collect();
        Box::pin(async { Ok(found) })
    }

    fn put(&self, bucket: &str, key: &str, value: Bytes, expect: Expect) -> StoreFuture<'_, u64> {
        let refuse = |kind| {
            Box::pin(async move { Err(StoreError { kind, message: "no room left".into() }) })
        };
        if self.full.load(Ordering::Relaxed) {
            return refuse(StoreErrorKind::Full);
        }
        if let Some(error) = self.failure(key) {
            return Box::pin(async { Err(error) });
        }
        let mut documents = self.documents.lock();
        let place = (bucket.to_owned(), key.to_owned());
        if expect == Expect::Absent && documents.contains_key(&place) {
            return refuse(StoreErrorKind::Conflict);
        }
        documents.insert(place, value);
        Box::pin(async { Ok(1) })
    }

    fn delete(&self, bucket: &str, key: &str) -> StoreFuture<'_, bool> {
        if let Some(error) = self.failure(key) {
            return Box::pin(async { Err(error) });
        }
        let gone = self.documents.lock().remove(&(bucket.into(), key.into())).is_some();
        Box::pin(async move { Ok(gone) })
    }
}
