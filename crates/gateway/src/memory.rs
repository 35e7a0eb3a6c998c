//! Records in memory, for tests: they can refuse to write, and say what was listed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use sa_core::store::{Expect, Record, Records, StoreError, StoreErrorKind, StoreFuture};

#[derive(Default)]
pub(crate) struct MemoryRecords {
    documents: Mutex<BTreeMap<(String, String), Bytes>>,
    pub(crate) full: AtomicBool,
    /// What cannot be written under one key, and why.
    failing: Mutex<Option<(String, StoreErrorKind)>>,
    /// Bytes of all that was ever listed.
    pub(crate) listed: AtomicUsize,
}

impl MemoryRecords {
    /// Lets nothing be written or deleted under this key any more, or any other one again.
    pub(crate) fn fail_at(&self, key: Option<String>, kind: StoreErrorKind) {
        *self.failing.lock().unwrap() = key.map(|key| (key, kind));
    }

    fn failure(&self, key: &str) -> Option<StoreError> {
        let failing = self.failing.lock().unwrap();
        let (_, kind) = failing.as_ref().filter(|(failing, _)| failing == key)?;
        Some(StoreError { kind: *kind, message: "it cannot be written".into() })
    }

    pub(crate) fn len(&self) -> usize {
        self.documents.lock().unwrap().len()
    }
}

impl Records for MemoryRecords {
    fn get(&self, bucket: &str, key: &str) -> StoreFuture<'_, Option<Record>> {
        let found = self.documents.lock().unwrap().get(&(bucket.into(), key.into())).cloned();
        Box::pin(async { Ok(found.map(|value| Record { value, revision: 1 })) })
    }

    fn list(&self, bucket: &str) -> StoreFuture<'_, Vec<(String, Record)>> {
        let documents = self.documents.lock().unwrap();
        let found: Vec<_> = documents
            .iter()
            .filter(|((found, _), _)| found == bucket)
            .map(|((_, key), value)| (key.clone(), Record { value: value.clone(), revision: 1 }))
            .collect();
        self.listed.fetch_add(found.iter().map(|(_, record)| record.value.len()).sum(), Ordering::Relaxed);
        Box::pin(async { Ok(found) })
    }

    fn sizes(&self, bucket: &str) -> StoreFuture<'_, Vec<(String, usize)>> {
        let documents = self.documents.lock().unwrap();
        let found = documents.iter().filter(|((found, _), _)| found == bucket);
        let found = found.map(|((_, key), value)| (key.clone(), value.len())).collect();
        Box::pin(async { Ok(found) })
    }

    fn put(&self, bucket: &str, key: &str, value: Bytes, expect: Expect) -> StoreFuture<'_, u64> {
        let refuse = |kind| Box::pin(async move { Err(StoreError { kind, message: "no room left".into() }) });
        if self.full.load(Ordering::Relaxed) {
            return refuse(StoreErrorKind::Full);
        }
        if let Some(error) = self.failure(key) {
            return Box::pin(async { Err(error) });
        }
        let mut documents = self.documents.lock().unwrap();
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
        let gone = self.documents.lock().unwrap().remove(&(bucket.into(), key.into())).is_some();
        Box::pin(async move { Ok(gone) })
    }
}
