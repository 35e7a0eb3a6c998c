//! What is known of one client for as long as its session lasts.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::{ErrorData, Peer, RoleServer};
use sa_core::{LogLevel, Watch};
use tokio_util::task::AbortOnDropHandle;

/// Documents that one client may watch at once.
pub(crate) const MOST_WATCHED: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct ClientState {
    level: Mutex<Option<LogLevel>>,
    /// The documents that it watches, by the names that it has for them.
    watched: Mutex<HashMap<String, AbortOnDropHandle<()>>>,
}

impl ClientState {
    /// From which level on it wants what tools log, if it ever said so.
    pub(crate) fn level(&self) -> Option<LogLevel> {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_level(&self, level: LogLevel) {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    /// Tells the client whenever the document changes.
    pub(crate) fn watch(&self, uri: String, mut watch: Watch, peer: Peer<RoleServer>) -> Result<(), ErrorData> {
        let mut watched = self.watched();
        if watched.len() >= MOST_WATCHED && !watched.contains_key(&uri) {
            let message = format!("you watch {MOST_WATCHED} resources already; unsubscribe from some first");
            return Err(ErrorData::invalid_request(message, None));
        }
        let told = uri.clone();
        let telling = tokio::spawn(async move {
            while watch.changed().await {
                if peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(told.clone())).await.is_err() {
                    return;
                }
            }
        });
        watched.insert(uri, AbortOnDropHandle::new(telling));
        Ok(())
    }

    pub(crate) fn unwatch(&self, uri: &str) {
        self.watched().remove(uri);
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<String, AbortOnDropHandle<()>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
