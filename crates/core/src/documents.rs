//! What some providers have beside tools: documents to read, and prompts to start from.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call::UpdateSink;
use crate::json::RawJson;

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
}
