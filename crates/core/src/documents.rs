//! Documents and prompts that some providers offer besides tools.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::call::UpdateSink;
use crate::client_capabilities::QuestionMode;
use crate::principal::Principal;
use crate::provider::ProviderId;
use sa_limits::received::Held;
use sa_text::json::RawJson;

/// The documents and prompts of one provider.
///
/// The core does not interpret them. All items, requests and responses are in the format of the
/// provider's protocol, for surfaces with the same protocol. Dropping a future cancels the request.
pub trait Documents: Send + Sync + 'static {
    /// Returns the format, see [`Passthrough`](crate::Passthrough).
    fn format(&self) -> &'static str;

    /// Returns all items of one kind, as last listed by the provider. A slow or offline provider
    /// does not delay the list: the cached one is returned.
    fn list(&self, listing: Listing) -> BoxFuture<'static, Vec<RawJson>>;

    /// Sends a request to the provider. The provider can ask the caller questions through `sink`,
    /// if there is one.
    fn ask(
        &self,
        method: &'static str,
        params: RawJson,
        requester: &Principal,
        sink: Option<Arc<dyn UpdateSink>>,
    ) -> BoxFuture<'static, Result<DocumentAnswer, DocumentError>>;

    /// Watches one document for `requester`, until the returned [`Watch`] is dropped.
    fn watch(
        &self,
        uri: &str,
        requester: &str,
        question_mode: QuestionMode,
    ) -> BoxFuture<'static, Result<Watch, DocumentError>>;
}

/// The documents of one provider, as one view sees them.
#[derive(Clone)]
pub struct DocumentsView {
    pub provider: ProviderId,
    pub documents: Arc<dyn Documents>,
    /// `false` while the provider is offline: its last list is still known, but the documents
    /// cannot be read.
    pub online: bool,
}

impl fmt::Debug for DocumentsView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentsView").field("provider", &self.provider).finish_non_exhaustive()
    }
}

/// A watched document. Dropping it ends the watch.
pub struct Watch {
    changes: watch::Receiver<u64>,
    _kept: Box<dyn Any + Send + Sync>,
}

impl Watch {
    /// `changes` signals each change; `kept` is dropped with the watch.
    pub fn new(changes: watch::Receiver<u64>, kept: impl Any + Send + Sync) -> Self {
        Self { changes, _kept: Box::new(kept) }
    }

    /// Waits until the document has changed. Returns `false` when changes can no longer be
    /// detected.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// The kinds of items that can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Listing {
    Resources,
    Templates,
    Prompts,
}

/// A provider's response, and its part of the budget for answers.
#[derive(Debug, Clone)]
pub struct DocumentAnswer {
    pub json: RawJson,
    pub held: Held,
}

/// The error of a provider, with the error code of its protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DocumentError {
    pub code: i32,
    pub message: String,
    pub data: Option<RawJson>,
    /// The request could not be delivered to the provider.
    pub undelivered: bool,
}
