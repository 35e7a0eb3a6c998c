//! Keeps the definitions of tools in the store, so that a change is noticed after a restart, too.

use std::fmt;
use std::sync::Arc;

use sa_core::directory::{Directory, OnChange, SavedDefinitions, SavedFinding, SavedTool};
use sa_core::store::{Expect, Records, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::warn;

const BUCKET: &str = "definitions";

pub(crate) struct DefinitionStore {
    directory: Arc<Directory>,
    records: Arc<dyn Records>,
    /// Two saves at once could leave the older state.
    saving: tokio::sync::Mutex<()>,
}

/// [`SavedDefinitions`] as a document.
#[derive(Serialize, Deserialize)]
struct Document {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
    tools: Vec<ToolDocument>,
}

#[derive(Serialize, Deserialize)]
struct ToolDocument {
    name: Arc<str>,
    definition: Box<RawValue>,
    #[serde(default, skip_serializing_if = "is_zero")]
    invisible: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finding: Option<FindingDocument>,
}

#[derive(Serialize, Deserialize)]
struct FindingDocument {
    revision: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proposed: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    invisible: usize,
}

impl DefinitionStore {
    /// Gives the directory what the last process has saved.
    pub(crate) async fn load(
        directory: Arc<Directory>,
        records: Arc<dyn Records>,
        on_change: OnChange,
    ) -> Result<Self, StoreError> {
        let saved = records.list(BUCKET).await?.into_iter().filter_map(|(key, record)| {
            match serde_json::from_slice::<Document>(&record.value) {
                Ok(document) => Some((key, document.into())),
                Err(error) => {
                    warn!(key, %error, "the saved definitions of a provider's tools cannot be read: its next list counts as the first");
                    None
                }
            }
        });
        directory.load_definitions(on_change, saved);
        Ok(Self { directory, records, saving: tokio::sync::Mutex::default() })
    }

    /// Saves every change up to now.
    pub(crate) async fn save(&self) -> Result<(), StoreError> {
        let _one = self.saving.lock().await;
        let mut result = Ok(());
        for (key, saved) in self.directory.take_unsaved_definitions() {
            let written = match saved.map(|saved| serde_json::to_vec(&Document::from(saved)).unwrap_or_default()) {
                Some(value) => self.records.put(BUCKET, &key, value.into(), Expect::Anything).await.map(drop),
                None => self.records.delete(BUCKET, &key).await.map(drop),
            };
            if let Err(error) = written {
                self.directory.keep_unsaved_definitions(key);
                result = Err(error);
            }
        }
        result
    }
}

impl fmt::Debug for DefinitionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefinitionStore").finish_non_exhaustive()
    }
}

impl From<SavedDefinitions> for Document {
    fn from(SavedDefinitions { pool, incomplete, tools }: SavedDefinitions) -> Self {
        let tools = tools.into_iter().map(|SavedTool { name, definition, invisible, finding }| ToolDocument {
            name,
            definition: raw(&definition),
            invisible,
            finding: finding.map(|SavedFinding { revision, before, proposed, invisible }| FindingDocument {
                revision,
                before: before.as_deref().map(raw),
                proposed: proposed.as_deref().map(raw),
                invisible,
            }),
        });
        Self { pool, incomplete, tools: tools.collect() }
    }
}

impl From<Document> for SavedDefinitions {
    fn from(Document { pool, incomplete, tools }: Document) -> Self {
        let text = |raw: Box<RawValue>| Arc::from(raw.get());
        let tools = tools.into_iter().map(|ToolDocument { name, definition, invisible, finding }| SavedTool {
            name,
            definition: text(definition),
            invisible,
            finding: finding.map(|FindingDocument { revision, before, proposed, invisible }| SavedFinding {
                revision,
                before: before.map(text),
                proposed: proposed.map(text),
                invisible,
            }),
        });
        Self { pool, incomplete, tools: tools.collect() }
    }
}

/// A definition is an object that the directory wrote.
fn raw(definition: &str) -> Box<RawValue> {
    RawValue::from_string(definition.to_owned()).unwrap_or_default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}
