//! Subscriptions to documents of a server.
//!
//! Up to 2025-11-25, a client subscribes to and unsubscribes from each document. From 2026-07-28
//! on, each document has its own stream. In both cases there is one subscription per connection
//! and document, for any number of watchers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rmcp::model::{ErrorData, ServerNotification, SubscriptionFilter};
use sa_core::{CallError, QuestionMode, RawJson, Watch};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::connection::{Connection, Era, Failure};
use crate::server::Server;
use crate::table::Running;

/// How long to wait before a failed subscription is tried again.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The watched documents of one connection.
#[derive(Default)]
pub(crate) struct Subscriptions(Mutex<HashMap<String, Entry>>);

struct Entry {
    /// Distinguishes the entry from a later one for the same document.
    id: u64,
    watchers: usize,
    changes: watch::Sender<u64>,
    /// The task that follows the document's own stream, if it has one.
    following: Option<AbortOnDropHandle<()>>,
}

impl Subscriptions {
    pub(crate) fn changed(&self, uri: &str) {
        if let Some(entry) = self.table().get(uri) {
            entry.changes.send_modify(|revision| *revision += 1);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table().is_empty()
    }

    /// Adds a watcher. The first value is `true` if it is the first one.
    fn insert(&self, uri: &str) -> (bool, u64, watch::Receiver<u64>) {
        let mut table = self.table();
        let entry = table.entry(uri.to_owned()).or_insert_with(|| Entry {
            id: rand::random(),
            watchers: 0,
            changes: watch::Sender::new(0),
            following: None,
        });
        entry.watchers += 1;
        (entry.watchers == 1, entry.id, entry.changes.subscribe())
    }

    /// Removes an entry after the server has ended its subscription. The watchers are notified,
    /// and may subscribe again.
    fn end(&self, uri: &str, id: u64) {
        let mut table = self.table();
        if table.get(uri).is_some_and(|entry| entry.id == id) {
            table.remove(uri);
        }
    }

    /// Removes a watcher. Returns `true` if it was the last one.
    fn remove(&self, uri: &str, id: u64) -> bool {
        let mut table = self.table();
        let Some(entry) = table.get_mut(uri).filter(|entry| entry.id == id) else { return false };
        entry.watchers -= 1;
        let last = entry.watchers == 0;
        if last {
            table.remove(uri);
        }
        last
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock()
    }
}

/// One watcher of a document, on one connection.
struct Watcher {
    connection: Arc<Connection>,
    uri: String,
    entry: u64,
    changes: watch::Receiver<u64>,
}

impl Watcher {
    async fn new(connection: Arc<Connection>, uri: &str) -> Result<Self, Failure> {
        let (first, entry, changes) = connection.subscriptions.insert(uri);
        // From here on, dropping the watcher removes it again.
        let watcher = Self { connection, uri: uri.to_owned(), entry, changes };
        if first && let Err(failure) = watcher.subscribe().await {
            // Watchers that were added meanwhile assumed that the subscription exists.
            watcher.connection.subscriptions.end(uri, entry);
            return Err(failure);
        }
        Ok(watcher)
    }

    /// Waits for the next change. Returns `false` if there can be no more changes.
    async fn changed(&mut self) -> bool {
        tokio::select! {
            changed = self.changes.changed() => changed.is_ok(),
            () = self.connection.closed.cancelled() => false,
            () = self.connection.suspect.cancelled() => false,
        }
    }

    async fn subscribe(&self) -> Result<(), Failure> {
        if self.connection.era() == Era::Initialize {
            let params = RawJson::of(&json!({ "uri": self.uri }));
            return self
                .connection
                .request("resources/subscribe", &params, &Running::of_gateway())
                .await
                .map(drop);
        }
        let mut filter = SubscriptionFilter::new();
        filter.resource_subscriptions = Some(vec![self.uri.clone()]);
        let refused = |why: String| Failure::Answered(ErrorData::invalid_request(why, None));
        let mut stream = self
            .connection
            .peer
            .listen(filter)
            .await
            .map_err(|error| refused(error.to_string()))?;
        if stream.acknowledged().resource_subscriptions.is_none() {
            return Err(refused(format!("the server does not report changes of \"{}\"", self.uri)));
        }
        let (subscriptions, uri, entry) =
            (Arc::clone(&self.connection.subscriptions), self.uri.clone(), self.entry);
        let follow = tokio::spawn(async move {
            while let Ok(Some(notification)) = stream.next().await {
                if let ServerNotification::ResourceUpdatedNotification(_) = notification {
                    subscriptions.changed(&uri);
                }
            }
            subscriptions.end(&uri, entry);
        });
        let mut table = self.connection.subscriptions.table();
        if let Some(entry) = table.get_mut(&self.uri).filter(|entry| entry.id == self.entry) {
            entry.following = Some(AbortOnDropHandle::new(follow));
        }
        Ok(())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let last = self.connection.subscriptions.remove(&self.uri, self.entry);
        if !last || self.connection.era() != Era::Initialize {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (connection, params) =
            (Arc::clone(&self.connection), RawJson::of(&json!({ "uri": self.uri })));
        runtime.spawn(async move {
            connection
                .request("resources/unsubscribe", &params, &Running::of_gateway())
                .await
                .map(drop)
        });
    }
}

/// Watches a document for as long as the returned value is alive, across any number of restarts
/// of the server.
pub(crate) async fn watch_document(
    server: Arc<Server>,
    caller: String,
    uri: String,
    question_mode: QuestionMode,
) -> Result<Watch, Result<Failure, CallError>> {
    let mut now = match watcher(&server, &caller, &uri, question_mode).await {
        Ok(watcher) => Some(watcher),
        // A document that the server listed before it went offline is watched as soon as the
        // server is back.
        Err(Err(_)) if server.lists().has_resource(&uri) => None,
        Err(refused) => return Err(refused),
    };
    let (changes, seen) = watch::channel(0_u64);
    let following = tokio::spawn(async move {
        loop {
            if let Some(mut watcher) = now.take() {
                while watcher.changed().await {
                    changes.send_modify(|revision| *revision += 1);
                }
            }
            server.wait_until_available().await;
            if server.is_over() {
                return;
            }
            match watcher(&server, &caller, &uri, question_mode).await {
                Ok(watcher) => {
                    now = Some(watcher);
                    // The document may have changed while it was not watched.
                    changes.send_modify(|revision| *revision += 1);
                }
                Err(_) => tokio::time::sleep(MAX_WAIT).await,
            }
        }
    });
    Ok(Watch::new(seen, AbortOnDropHandle::new(following)))
}

async fn watcher(
    server: &Server,
    caller: &str,
    uri: &str,
    question_mode: QuestionMode,
) -> Result<Watcher, Result<Failure, CallError>> {
    let main = server.connection().await.map_err(Err)?;
    let connection = server.connections.of(caller, &main, Some(question_mode)).await;
    let connection = connection.map_err(|none| Err(none.into_error(&server.name)))?;
    Watcher::new(connection, uri).await.map_err(Ok)
}
