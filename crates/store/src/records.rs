//! [`Records`] for the [`Store`].

use bytes::Bytes;
use sa_core::store::{Expect, Record, Records, StoreFuture};

use crate::op::{Op, Put};
use crate::{Store, check_body, check_name};

impl Records for Store {
    fn get(&self, bucket: &str, key: &str) -> StoreFuture<'_, Option<Record>> {
        let (bucket, key) = (self.inner.shared.directory.bucket(bucket), key.to_owned());
        Box::pin(async move {
            let Some(bucket) = bucket else {
                return self.nothing(None);
            };
            self.inner.readers.run(&self.inner.shared, move |view| view.record(bucket, &key)).await
        })
    }

    fn list(&self, bucket: &str) -> StoreFuture<'_, Vec<(String, Record)>> {
        let bucket = self.inner.shared.directory.bucket(bucket);
        Box::pin(async move {
            let Some(bucket) = bucket else {
                return self.nothing(Vec::new());
            };
            self.inner.readers.run(&self.inner.shared, move |view| view.list(bucket)).await
        })
    }

    fn sizes(&self, bucket: &str) -> StoreFuture<'_, Vec<(String, usize)>> {
        let bucket = self.inner.shared.directory.bucket(bucket);
        Box::pin(async move {
            let Some(bucket) = bucket else {
                return self.nothing(Vec::new());
            };
            self.inner.readers.run(&self.inner.shared, move |view| view.sizes(bucket)).await
        })
    }

    fn put(&self, bucket: &str, key: &str, value: Bytes, expect: Expect) -> StoreFuture<'_, u64> {
        let valid = check_name("bucket's name", bucket)
            .and_then(|()| check_name("document's key", key))
            .and_then(|()| check_body("document", value.len()));
        let (bucket, key) = (bucket.into(), key.into());
        Box::pin(async move {
            valid?;
            self.ask(|reply| Op::Put(Box::new(Put { bucket, key, value, expect, reply }))).await
        })
    }

    fn delete(&self, bucket: &str, key: &str) -> StoreFuture<'_, bool> {
        let (bucket, key) = (bucket.into(), key.into());
        Box::pin(self.ask(move |reply| Op::Delete { bucket, key, reply }))
    }
}
