//! Idempotency keys, on disk: what was run under each, and how it ended.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::BoxFuture;
use sa_core::idempotency::{Claim, KeyedCall, Ledger};
use sa_core::outcome::{Attachment, Output, weight};
use sa_core::store::{Expect, Records, StoreError, StoreErrorKind};
use sa_core::{CallError, CallErrorKind, CallId, Outcome, RawJson, aside, clock};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Who claimed a key, when, and whether the call has ended: small, because all of it is gone through to forget old keys.
const CLAIMS: &str = "idempotency";
/// How calls ended, under the keys of their claims.
const OUTCOMES: &str = "idempotency_outcomes";

/// How long a key is remembered.
const MEMORY_MS: i64 = 24 * 3_600 * 1_000;

pub struct StoreLedger {
    records: Arc<dyn Records>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    call_id: String,
    /// A digest of the arguments.
    args: String,
    at_ms: i64,
    /// Whether the call has ended, and its outcome is in the other bucket.
    #[serde(default)]
    ended: bool,
    /// The outcome itself, in claims that former versions wrote.
    #[serde(default, skip_serializing)]
    outcome: Option<Kept>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kept {
    Ok { content: Box<RawValue>, attachments: Vec<KeptAttachment> },
    Err { kind: String, message: String, hint: Option<String>, retryable: bool },
}

#[derive(Serialize, Deserialize)]
struct KeptAttachment {
    mime_type: String,
    name: Option<String>,
    /// Base64.
    data: String,
}

impl StoreLedger {
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self { records }
    }

    /// Forgets keys whose time is over.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        self.forget(clock::now_ms() - MEMORY_MS).await
    }

    async fn forget(&self, before_ms: i64) -> Result<(), StoreError> {
        for (key, record) in self.records.list(CLAIMS).await? {
            let entry: Option<Entry> = serde_json::from_slice(&record.value).ok();
            if entry.is_none_or(|entry| entry.at_ms < before_ms) {
                // The claim goes last: while it is there, the next round finds what this one left.
                self.records.delete(OUTCOMES, &key).await?;
                self.records.delete(CLAIMS, &key).await?;
            }
        }
        Ok(())
    }

    async fn write(&self, call: &KeyedCall, entry: &Entry, expect: Expect) -> Result<(), StoreError> {
        let value = serde_json::to_vec(entry).unwrap_or_default().into();
        self.records.put(CLAIMS, &place(call), value, expect).await.map(drop)
    }

    async fn outcome(&self, call: &KeyedCall) -> Result<Option<Kept>, StoreError> {
        let found = self.records.get(OUTCOMES, &place(call)).await?;
        let Some(record) = found else { return Ok(None) };
        Ok(aside::in_turn(record.value.len(), || serde_json::from_slice(&record.value).ok()).await)
    }
}

impl Ledger for StoreLedger {
    fn claim<'a>(&'a self, call: &'a KeyedCall, id: CallId) -> BoxFuture<'a, Result<Claim, CallError>> {
        Box::pin(async move {
            let entry = Entry {
                call_id: id.to_string(),
                args: digest(call),
                at_ms: clock::now_ms(),
                ended: false,
                outcome: None,
            };
            match self.write(call, &entry, Expect::Absent).await {
                Ok(()) => return Ok(Claim::Ours),
                Err(error) if error.kind == StoreErrorKind::Conflict => {}
                Err(error) => return Err(unavailable(&error)),
            }
            let found = self.records.get(CLAIMS, &place(call)).await.map_err(|error| unavailable(&error))?;
            let entry: Option<Entry> = found.and_then(|record| serde_json::from_slice(&record.value).ok());
            let Some(entry) = entry else {
                return Err(CallError::new(CallErrorKind::Failed, "the record of this idempotency key cannot be read"));
            };
            let first = entry.call_id.parse().unwrap_or(id);
            if entry.args != digest(call) {
                return Ok(Claim::Different { id: first });
            }
            let kept = match entry.outcome {
                None if entry.ended => self.outcome(call).await.map_err(|error| unavailable(&error))?,
                kept => kept,
            };
            Ok(match kept {
                Some(kept) => Claim::Ended { id: first, outcome: kept.restore() },
                None => Claim::Unknown { id: first },
            })
        })
    }

    fn settle<'a>(
        &'a self,
        call: &'a KeyedCall,
        id: CallId,
        outcome: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            // The outcome before the claim that says it is there: a crash in between leaves an open claim.
            let write = || serde_json::to_vec(&Kept::of(outcome)).unwrap_or_default();
            let kept = aside::in_turn(weight(outcome), write).await.into();
            let kept = self.records.put(OUTCOMES, &place(call), kept, Expect::Anything).await;
            kept.map_err(|error| unavailable(&error))?;
            let at_ms = clock::now_ms();
            let entry = Entry { call_id: id.to_string(), args: digest(call), at_ms, ended: true, outcome: None };
            self.write(call, &entry, Expect::Anything).await.map_err(|error| unavailable(&error))
        })
    }

    fn release<'a>(&'a self, call: &'a KeyedCall) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            self.records.delete(CLAIMS, &place(call)).await.map(drop).map_err(|error| unavailable(&error))
        })
    }
}

impl Kept {
    fn of(outcome: &Outcome) -> Self {
        match outcome {
            Ok(output) => Self::Ok {
                content: RawValue::from_string(output.content.as_str().into())
                    .unwrap_or_else(|_| RawValue::NULL.to_owned()),
                attachments: output.attachments.iter().map(KeptAttachment::of).collect(),
            },
            Err(error) => Self::Err {
                kind: error.kind.as_str().into(),
                message: error.message.clone(),
                hint: error.hint.as_deref().map(Into::into),
                retryable: error.retryable,
            },
        }
    }

    fn restore(self) -> Outcome {
        match self {
            Self::Ok { content, attachments } => {
                let attachments = attachments.into_iter().filter_map(KeptAttachment::restore);
                let content = RawJson::part(&content).map_err(|error| {
                    let why = format!("the result of this call was kept, and cannot be read: {error}");
                    CallError::new(CallErrorKind::Failed, why)
                })?;
                Ok(Output::from_provider(content, attachments.collect()))
            }
            Self::Err { kind, message, hint, retryable } => {
                let kind = CallErrorKind::parse(&kind).unwrap_or(CallErrorKind::Failed);
                let error = CallError::new(kind, message).retryable(retryable);
                Err(match hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                })
            }
        }
    }
}

impl KeptAttachment {
    fn of(attachment: &Attachment) -> Self {
        let Attachment { mime_type, name, data } = attachment;
        Self { mime_type: mime_type.clone(), name: name.clone(), data: BASE64_STANDARD.encode(data) }
    }

    fn restore(self) -> Option<Attachment> {
        let data = BASE64_STANDARD.decode(self.data).ok()?.into();
        Some(Attachment { mime_type: self.mime_type, name: self.name, data })
    }
}

fn place(call: &KeyedCall) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [&call.principal, &call.tool, &call.key] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

fn digest(call: &KeyedCall) -> String {
    blake3::hash(call.args.as_str().as_bytes()).to_hex().to_string()
}

fn unavailable(error: &StoreError) -> CallError {
    CallError::new(CallErrorKind::Failed, format!("the record of idempotency keys cannot be used: {error}"))
        .hint("the call was not made, or its outcome could not be kept; mend the store, then retry with the same key")
        .retryable(true)
}

impl std::fmt::Debug for StoreLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreLedger").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::memory::MemoryRecords;

    fn keyed(key: &str) -> KeyedCall {
        KeyedCall { principal: "p".into(), tool: "t".into(), key: key.into(), args: RawJson::empty_object() }
    }

    #[tokio::test]
    async fn outcomes_are_kept_and_forgetting_does_not_read_them() {
        let records = Arc::new(MemoryRecords::default());
        let ledger = StoreLedger::new(Arc::clone(&records) as _);
        let call = keyed("k");
        let id = CallId::new();
        assert!(matches!(ledger.claim(&call, id).await.unwrap(), Claim::Ours));
        assert!(
            matches!(ledger.claim(&call, CallId::new()).await.unwrap(), Claim::Unknown { id: first } if first == id)
        );
        let large = RawJson::parse(&format!("\"{}\"", "x".repeat(100_000))).unwrap();
        ledger.settle(&call, id, &Ok(Output::json(large.clone()))).await.unwrap();
        let Claim::Ended { outcome, .. } = ledger.claim(&call, CallId::new()).await.unwrap() else { panic!() };
        assert_eq!(outcome.unwrap().content.as_str(), large.as_str());

        ledger.sweep().await.unwrap();
        assert_eq!(records.len(), 2, "it is not old yet");
        assert!(records.listed.load(Ordering::Relaxed) < 1_000, "the outcome was read");
        ledger.forget(i64::MAX).await.unwrap();
        assert_eq!(records.len(), 0);
    }

    #[tokio::test]
    async fn what_a_former_version_wrote_still_counts() {
        let records = Arc::new(MemoryRecords::default());
        let ledger = StoreLedger::new(Arc::clone(&records) as _);
        let (call, id) = (keyed("old"), CallId::new());
        let args = digest(&call);
        let old = format!(
            r#"{{"call_id":"{id}","args":"{args}","at_ms":1,"outcome":{{"ok":{{"content":5,"attachments":[]}}}}}}"#
        );
        records.put(CLAIMS, &place(&call), old.into(), Expect::Absent).await.unwrap();
        let Claim::Ended { outcome, .. } = ledger.claim(&call, CallId::new()).await.unwrap() else { panic!() };
        assert_eq!(outcome.unwrap().content.as_str(), "5");
    }
}
