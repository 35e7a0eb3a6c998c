//! The state of one client during its session.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::{ErrorData, Peer, RoleServer};
use sa_core::{LogLevel, Watch};
use tokio_util::task::AbortOnDropHandle;

/// The maximum number of documents that one client may watch.
pub(crate) const MAX_WATCHED: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct ClientState {
    level: Mutex<Option<LogLevel>>,
    /// The watched documents, by the client's names for them.
    watched: Mutex<HashMap<String, AbortOnDropHandle<()>>>,
}

impl ClientState {
    /// Returns the minimum level of log messages that the client wants, if it has set one.
    pub(crate) fn level(&self) -> Option<LogLevel> {
        *self.level.lock()
    }

    pub(crate) fn set_level(&self, level: LogLevel) {
        *self.level.lock() = Some(level);
    }

    /// Notifies the client whenever the document changes.
    pub(crate) fn watch(
        &self,
        uri: String,
        mut watch: Watch,
        peer: Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut watched = self.watched();
        if watched.len() >= MAX_WATCHED && !watched.contains_key(&uri) {
            let message = format!(
                "the limit of {MAX_WATCHED} subscribed resources is reached; unsubscribe from some first"
            );
            return Err(ErrorData::invalid_request(message, None));
        }
        let rendered = uri.clone();
        let telling = tokio::spawn(async move {
            while watch.changed().await {
                if peer
                    .notify_resource_updated(ResourceUpdatedNotificationParam::new(
                        rendered.clone(),
                    ))
                    .await
                    .is_err()
                {
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
        self.watched.lock()
    }
}
