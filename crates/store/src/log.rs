//! [`Log`] for the [`Store`].

use futures_util::future::BoxFuture;
use sa_core::store::{
    Appended, Bounds, Entry, Found, Log, NewEntry, Retention, Search, StoreError, StoreFuture,
    Trimmed,
};
use tokio::sync::watch;

use crate::op::{Op, Trim};
use crate::read::Page;
use crate::{Store, check_body, check_name, error, heads, labels};

impl Log for Store {
    fn append(&self, entry: NewEntry) -> StoreFuture<'_, Appended> {
        Box::pin(async move {
            check(&entry.stream, entry.key.as_deref(), &entry.body)?;
            self.ask(|reply| Op::Append { entry, reply: Some(reply) }).await
        })
    }

    fn record(&self, stream: &str, key: Option<&str>, body: &[u8]) {
        let shared = &self.inner.shared;
        if let Err(error) = check(stream, key, body) {
            shared.lost(stream, key, &error);
        } else if !shared.queue.record(stream, key, body) {
            shared.lost(stream, key, &error::closed(&shared.options.path));
        }
    }

    fn backpressure(&self) -> Option<BoxFuture<'_, ()>> {
        let queue = &self.inner.shared.queue;
        queue.is_behind().then(|| Box::pin(queue.caught_up()) as BoxFuture<'_, ()>)
    }

    fn read(&self, stream: &str, after: u64, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        self.page(stream, Page::After(after), limit)
    }

    fn read_back(&self, stream: &str, before: u64, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        self.page(stream, Page::Before(before), limit)
    }

    fn find(&self, stream: &str, key: &str) -> StoreFuture<'_, Option<Entry>> {
        let (stream, key) = (self.inner.shared.directory.stream(stream), key.to_owned());
        Box::pin(async move {
            let Some(stream) = stream else {
                return self.nothing(None);
            };
            let find = move |view: crate::read::View<'_>| {
                let head = heads::read(view.conn, stream, view.path)?;
                view.find(&head, &key)
            };
            self.inner.readers.run(&self.inner.shared, find).await
        })
    }

    fn search(
        &self,
        stream: &str,
        search: Search,
        before: u64,
        limit: usize,
    ) -> StoreFuture<'_, Found> {
        let stream = self.inner.shared.directory.stream(stream);
        Box::pin(async move {
            let Some(stream) = stream else {
                return self.nothing(Found::default());
            };
            let find = move |view: crate::read::View<'_>| {
                let head = heads::read(view.conn, stream, view.path)?;
                labels::search(view, &head, &search, before, limit)
            };
            self.inner.readers.run(&self.inner.shared, find).await
        })
    }

    fn bounds(&self, stream: &str) -> StoreFuture<'_, Bounds> {
        let stream = self.inner.shared.directory.stream(stream);
        Box::pin(async move {
            let Some(stream) = stream else {
                return self.nothing(Bounds { first: 1, last: 0 });
            };
            self.inner.readers.run(&self.inner.shared, move |view| view.bounds(stream)).await
        })
    }

    fn follow(&self, stream: &str) -> watch::Receiver<u64> {
        self.inner.shared.directory.follow(stream)
    }

    fn trim(&self, stream: &str, keep: Retention) -> StoreFuture<'_, Trimmed> {
        let stream = stream.into();
        let done = Trimmed::default();
        Box::pin(self.ask(move |reply| Op::Trim(Box::new(Trim { stream, keep, done, reply }))))
    }
}

impl Store {
    fn page(&self, stream: &str, page: Page, limit: usize) -> StoreFuture<'_, Vec<Entry>> {
        let stream = self.inner.shared.directory.stream(stream);
        Box::pin(async move {
            let Some(stream) = stream else {
                return self.nothing(Vec::new());
            };
            self.inner
                .readers
                .run(&self.inner.shared, move |view| view.page(stream, page, limit))
                .await
        })
    }

    /// Returns the answer for a name that has never been committed, unless the store is closed.
    pub(crate) fn nothing<T>(&self, answer: T) -> Result<T, StoreError> {
        if self.inner.shared.directory.is_closed() {
            return Err(error::closed(&self.inner.shared.options.path));
        }
        Ok(answer)
    }
}

fn check(stream: &str, key: Option<&str>, body: &[u8]) -> Result<(), StoreError> {
    check_name("stream's name", stream)?;
    if let Some(key) = key {
        check_name("key", key)?;
    }
    check_body("log entry", body.len())
}
