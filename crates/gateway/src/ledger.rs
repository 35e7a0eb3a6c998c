//! The ledger of idempotency keys on disk: the call that ran under each key, and its outcome.

mod kept;
mod unsaved;

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use sa_core::idempotency::{Claim, KeyedCall, Ledger};
use sa_core::outcome::weight;
use sa_core::retention::round_limit;
use sa_core::store::{Expect, Record, Records, StoreError, StoreErrorKind, Trimmed};
use sa_core::{CallError, CallErrorKind, CallId, Outcome, Trimmer, clock};
use sa_limits::budget::{Holder, Limit, Permit, SharedBudget};
use sa_limits::offload;
use serde::{Deserialize, Serialize};

use self::kept::Kept;
use self::unsaved::{End, Unsaved};

/// The bucket of claims: principal, time and state of each key. Claims are small, because all of
/// them are read to delete old keys.
const CLAIMS: &str = "idempotency";
/// The bucket of call outcomes, with the same keys as the claims.
const OUTCOMES: &str = "idempotency_outcomes";

/// The lifetime of a key.
const MEMORY: Duration = Duration::from_secs(24 * 3_600);

pub struct StoreLedger {
    records: Arc<dyn Records>,
    unsaved: Unsaved,
    /// Serializes writes of remembered outcomes. A late write could otherwise overwrite a newer
    /// one.
    turn: tokio::sync::Mutex<()>,
    budget: Arc<SharedBudget>,
    /// The budget permits for the stored outcomes of each principal.
    stored: Mutex<HashMap<Holder, Permit>>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    call_id: String,
    /// A digest of the tool's name and the arguments.
    fingerprint: String,
    at_ms: i64,
    /// Whether the call has ended and its outcome is in the other bucket.
    #[serde(default)]
    ended: bool,
    /// Whether the call has ended and its outcome exceeded the budget.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    over_limit: bool,
    /// The principal that the outcome is charged to.
    principal: Arc<str>,
}

impl StoreLedger {
    /// Creates a ledger. `bytes` is the limit of all stored outcomes together.
    pub fn new(records: Arc<dyn Records>, bytes: usize) -> Self {
        let budget = SharedBudget::new(Limit {
            name: "idempotency_outcomes",
            what: "bytes of outcomes of calls with idempotency keys",
            key: "limits.idempotency_bytes",
            remedy: "request less at once, or wait until older outcomes are deleted (they are kept for a day)",
            total: bytes,
        });
        let (unsaved, turn) = (Unsaved::default(), tokio::sync::Mutex::default());
        Self { records, unsaved, turn, budget, stored: Mutex::default() }
    }

    /// Counts the outcomes that are already stored.
    pub async fn load(&self) -> Result<(), StoreError> {
        let sizes = self.sizes().await?;
        for (place, record) in self.records.list(CLAIMS).await? {
            let Some(size) = sizes.get(&place) else { continue };
            let entry: Option<Entry> = serde_json::from_slice(&record.value).ok();
            self.count(self.budget.charge(&holder(entry.as_ref()), *size));
        }
        Ok(())
    }

    /// Returns the budget of the stored outcomes.
    pub fn budget(&self) -> &Arc<SharedBudget> {
        &self.budget
    }

    /// Writes the remembered outcomes until a write fails.
    pub async fn catch_up(&self) {
        for place in self.unsaved.places() {
            if self.keep_after_all(&place).await.is_err() {
                return;
            }
        }
    }

    /// Writes the remembered outcome of a key. Returns whether there was one.
    async fn keep_after_all(&self, place: &str) -> Result<bool, StoreError> {
        if self.unsaved.get(place).is_none() {
            return Ok(false);
        }
        let _turn = self.turn.lock().await;
        // Another task may have written it in the meantime.
        let Some(end) = self.unsaved.get(place) else { return Ok(true) };
        self.keep(place, &end).await?;
        self.unsaved.forget(place);
        Ok(true)
    }

    async fn keep(&self, place: &str, end: &End) -> Result<(), StoreError> {
        let Some(outcome) = &end.outcome else {
            self.records.delete(CLAIMS, place).await?;
            return Ok(());
        };
        // The outcome is written before the claim that refers to it. After a crash in between, the
        // claim is still open.
        let write = || serde_json::to_vec(&Kept::of(outcome)).unwrap_or_default();
        let kept = offload::run_queued(weight(outcome), write).await.into();
        let permit = self.store_outcome(place, &end.principal, kept).await?;
        let entry = Entry {
            call_id: end.id.to_string(),
            fingerprint: end.fingerprint.clone(),
            at_ms: clock::now_ms(),
            ended: true,
            over_limit: permit.is_none(),
            principal: Arc::clone(&end.principal),
        };
        self.write(place, &entry, Expect::Anything).await?;
        if let Some(permit) = permit {
            self.count(permit);
        }
        Ok(())
    }

    /// Stores an outcome and returns its budget permit. Returns `None` if the budget refused it.
    async fn store_outcome(
        &self,
        place: &str,
        principal: &Arc<str>,
        kept: Bytes,
    ) -> Result<Option<Permit>, StoreError> {
        match self.budget.acquire(&Holder::named(Arc::clone(principal)), kept.len()) {
            Ok(permit) => {
                self.records.put(OUTCOMES, place, kept, Expect::Anything).await?;
                Ok(Some(permit))
            }
            Err(refused) => {
                tracing::debug!(%refused, "the outcome of a call with an idempotency key is not stored");
                Ok(None)
            }
        }
    }

    fn count(&self, permit: Permit) {
        match self.stored().entry(permit.holder().clone()) {
            MapEntry::Occupied(mut counted) => counted.get_mut().merge(permit),
            MapEntry::Vacant(first) => drop(first.insert(permit)),
        }
    }

    /// Releases the budget of a deleted outcome.
    fn release_stored(&self, holder: Holder, size: usize) {
        if let MapEntry::Occupied(mut counted) = self.stored().entry(holder) {
            let left = counted.get().amount().saturating_sub(size);
            // Shrinking a permit is never refused.
            if left == 0 || counted.get_mut().resize(left).is_err() {
                counted.remove();
            }
        }
    }

    async fn sizes(&self) -> Result<HashMap<String, usize>, StoreError> {
        Ok(self.records.sizes(OUTCOMES).await?.into_iter().collect())
    }

    fn stored(&self) -> MutexGuard<'_, HashMap<Holder, Permit>> {
        self.stored.lock()
    }

    /// Writes the outcome of a call. If that fails, remembers the outcome and returns the error.
    async fn settle_or_remember(&self, place: String, end: End) -> Result<(), CallError> {
        let Err(error) = self.keep(&place, &end).await else { return Ok(()) };
        let (id, reached) = (end.id, end.outcome.is_some());
        // An outcome that the store will never accept is not remembered.
        let room = error.kind != StoreErrorKind::Invalid && self.unsaved.remember(place, end);
        let effect = if reached { "may have had an effect" } else { "did not reach its tool" };
        let message = format!(
            "the call {id} has ended and {effect}, but its outcome cannot be stored: {error}"
        );
        let hint = match (room, reached) {
            (true, _) => "fix the store, then retry with the same key: the call is not repeated",
            (false, true) => "check what the tool did, then use a new key",
            (false, false) => "fix the store, then use a new key",
        };
        Err(CallError::new(CallErrorKind::Store, message).hint(hint).retryable(room))
    }

    /// Deletes some of the expired keys while the clock is trusted. If a key were deleted too
    /// early, a retry would run the call again.
    pub async fn sweep(&self, trimmer: &Trimmer) -> Result<(), StoreError> {
        let Some(since_ms) = trimmer.since_ms(MEMORY) else { return Ok(()) };
        let aged = self.forget(since_ms).await?;
        trimmer.report("idempotency_key", Trimmed { over_limit: 0, aged });
        Ok(())
    }

    /// Deletes the oldest of these keys, at most the part of all keys that one round may delete.
    async fn forget(&self, before_ms: i64) -> Result<u64, StoreError> {
        let claims = self.records.list(CLAIMS).await?;
        let limit = round_limit(claims.len() as u64);
        let read = |(key, record): (String, Record)| {
            let entry: Option<Entry> = serde_json::from_slice(&record.value).ok();
            let at_ms = entry.as_ref().map_or(i64::MIN, |entry| entry.at_ms);
            (at_ms < before_ms).then(|| (at_ms, key, holder(entry.as_ref())))
        };
        let mut expired: Vec<_> = claims.into_iter().filter_map(read).collect();
        expired.sort_unstable_by_key(|(at_ms, ..)| *at_ms);
        expired.truncate(limit.try_into().unwrap_or(usize::MAX));
        let sizes = self.sizes().await?;
        let deleted = expired.len() as u64;
        for (_, key, holder) in expired {
            // The claim is deleted last, so that the next sweep finds anything this one has left.
            self.records.delete(OUTCOMES, &key).await?;
            if let Some(size) = sizes.get(&key) {
                self.release_stored(holder, *size);
            }
            self.records.delete(CLAIMS, &key).await?;
        }
        Ok(deleted)
    }

    async fn write(&self, place: &str, entry: &Entry, expect: Expect) -> Result<(), StoreError> {
        let value = serde_json::to_vec(entry).unwrap_or_default().into();
        self.records.put(CLAIMS, place, value, expect).await.map(drop)
    }

    async fn outcome(&self, place: &str) -> Result<Option<Kept>, StoreError> {
        let found = self.records.get(OUTCOMES, place).await?;
        let Some(record) = found else { return Ok(None) };
        Ok(offload::run_queued(record.value.len(), || serde_json::from_slice(&record.value).ok())
            .await)
    }

    async fn found(&self, call: &KeyedCall, place: &str, id: CallId) -> Result<Claim, CallError> {
        let found = self.records.get(CLAIMS, place).await.map_err(|error| unavailable(&error))?;
        let entry: Option<Entry> =
            found.and_then(|record| serde_json::from_slice(&record.value).ok());
        let Some(entry) = entry else {
            return Err(CallError::new(
                CallErrorKind::Failed,
                "the record of this idempotency key cannot be read",
            ));
        };
        let first = entry.call_id.parse().unwrap_or(id);
        if entry.fingerprint != fingerprint(call) {
            return Ok(Claim::Different { id: first });
        }
        if entry.over_limit {
            return Err(self.not_kept(first));
        }
        let kept = if entry.ended {
            self.outcome(place).await.map_err(|error| unavailable(&error))?
        } else {
            None
        };
        Ok(match kept {
            Some(kept) => Claim::Ended { id: first, outcome: kept.restore() },
            None => Claim::Unknown { id: first },
        })
    }

    fn not_kept(&self, first: CallId) -> CallError {
        let Limit { key, .. } = self.budget.limit();
        let message = format!(
            "the call {first} with this key has ended, but its outcome was not stored because {key} was used up; it may \
             have had an effect"
        );
        CallError::new(CallErrorKind::Conflict, message).hint(format!(
            "check what the tool did, then use a new key; the operator can raise {key}"
        ))
    }
}

impl Entry {
    fn new(call: &KeyedCall, id: CallId) -> Self {
        Self {
            call_id: id.to_string(),
            fingerprint: fingerprint(call),
            at_ms: clock::now_ms(),
            ended: false,
            over_limit: false,
            principal: Arc::clone(&call.principal),
        }
    }
}

impl Ledger for StoreLedger {
    fn claim<'a>(
        &'a self,
        call: &'a KeyedCall,
        id: CallId,
    ) -> BoxFuture<'a, Result<Claim, CallError>> {
        Box::pin(async move {
            let place = place(call);
            // A caller that uses a key waits for its remembered outcome to be written. After that,
            // no late write can affect the new claim.
            self.keep_after_all(&place).await.map_err(|error| unavailable(&error))?;
            // Read first, because a retry must get its outcome also while nothing can be written.
            let known = self.records.get(CLAIMS, &place).await;
            if known.map_err(|error| unavailable(&error))?.is_some() {
                return self.found(call, &place, id).await;
            }
            match self.write(&place, &Entry::new(call, id), Expect::Absent).await {
                Ok(()) => Ok(Claim::Ours),
                Err(error) if error.kind == StoreErrorKind::Conflict => {
                    self.found(call, &place, id).await
                }
                Err(error) => Err(unavailable(&error)),
            }
        })
    }

    fn settle<'a>(
        &'a self,
        call: &'a KeyedCall,
        id: CallId,
        outcome: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(self.settle_or_remember(place(call), end(call, id, Some(outcome.clone()))))
    }

    fn release<'a>(
        &'a self,
        call: &'a KeyedCall,
        id: CallId,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(self.settle_or_remember(place(call), end(call, id, None)))
    }
}

/// Returns the budget holder that a claim's outcome is charged to.
fn holder(entry: Option<&Entry>) -> Holder {
    entry.map_or_else(Holder::anonymous, |entry| Holder::named(Arc::clone(&entry.principal)))
}

fn end(call: &KeyedCall, id: CallId, outcome: Option<Outcome>) -> End {
    End { id, principal: Arc::clone(&call.principal), fingerprint: fingerprint(call), outcome }
}

/// Returns the storage key of a claim.
fn place(call: &KeyedCall) -> String {
    hash(&[&call.principal, &call.key])
}

fn hash(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

fn fingerprint(call: &KeyedCall) -> String {
    hash(&[&call.tool, call.args.as_str()])
}

fn unavailable(error: &StoreError) -> CallError {
    CallError::new(
        CallErrorKind::Store,
        format!("the stored idempotency keys are unavailable: {error}"),
    )
    .hint("no tool was called; fix the store, then retry with the same key")
}

impl std::fmt::Debug for StoreLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreLedger").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
