//! What some providers have beside tools: documents to read, and prompts to start from.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::call::UpdateSink;
use crate::json::RawJson;
use crate::manner::Asking;
use crate::provider::ProviderId;

/// The documents and prompts of one provider.
///
/// The core takes no part in what they are: a surface that has a word for them asks in the words that the provider knows
/// (`resources/read`, `prompts/get`, … of MCP), and gets its answer in the same. Dropping a future takes the question back.
pub trait Documents: Send + Sync + 'static {
    /// Everything of one sort, as the provider last listed it. A provider that is slow or away delays no list: it answers
    /// with what is known.
    fn list(&self, listing: Listing) -> BoxFuture<'static, Vec<RawJson>>;

    /// Asks the provider. What it wants to know meanwhile, it asks through `sink`, where there is somebody to be asked.
    fn ask(
        &self,
        method: &'static str,
        params: RawJson,
        asker: &str,
        sink: Option<Arc<dyn UpdateSink>>,
    ) -> BoxFuture<'static, Result<RawJson, DocumentError>>;

    /// Watches one document for `asker`, for as long as the answer is kept.
    fn watch(&self, uri: &str, asker: &str, asking: Asking) -> BoxFuture<'static, Result<Watch, DocumentError>>;
}

/// The documents of one provider, as one view sees them.
#[derive(Clone)]
pub struct DocumentsView {
    pub provider: ProviderId,
    pub documents: Arc<dyn Documents>,
    /// `false` while the provider is away: what it listed last is still known, and nothing of it can be had.
    pub online: bool,
}

impl fmt::Debug for DocumentsView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentsView").field("provider", &self.provider).finish_non_exhaustive()
    }
}

/// A document that is watched. Dropping it ends that.
pub struct Watch {
    changes: watch::Receiver<u64>,
    _kept: Box<dyn Any + Send + Sync>,
}

impl Watch {
    /// `changes` tells of each change; `kept` is dropped when nobody watches any more.
    pub fn new(changes: watch::Receiver<u64>, kept: impl Any + Send + Sync) -> Self {
        Self { changes, _kept: Box::new(kept) }
    }

    /// Resolves when the document has changed. `false` when no change can be seen any more.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// What can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Listing {
    Resources,
    Templates,
    Prompts,
}

/// Why a provider had no answer, with the code that its protocol has for that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DocumentError {
    pub code: i32,
    pub message: String,
    pub data: Option<RawJson>,
    /// The provider was not there to be asked.
    pub undelivered: bool,
}
