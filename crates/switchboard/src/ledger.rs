//! Idempotency keys, on disk: what was run under each, and how it ended.

mod kept;
mod unkept;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, try_join_all};
use sa_core::idempotency::{Claim, KeyedCall, Ledger};
use sa_core::outcome::weight;
use sa_core::store::{Expect, Records, StoreError, StoreErrorKind, Trimmed};
use sa_core::{CallError, CallErrorKind, CallId, Outcome, Trimmer, aside, clock};
use serde::{Deserialize, Serialize};

use self::kept::Kept;
use self::unkept::{End, Unkept};

/// Who claimed a key, when, and whether the call has ended: small, because all of it is gone through to forget old keys.
const CLAIMS: &str = "idempotency";
/// How calls ended, under the keys of their claims.
const OUTCOMES: &str = "idempotency_outcomes";

/// How long a key is remembered.
const MEMORY: Duration = Duration::from_secs(24 * 3_600);

pub struct StoreLedger {
    records: Arc<dyn Records>,
    unkept: Unkept,
    /// Whoever writes what was unkept: one at a time, or a late one would undo what came after it.
    turn: tokio::sync::Mutex<()>,
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
    /// The place of the claim, where this is only what a tool's address leads to it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<String>,
    /// The outcome itself, in claims that former versions wrote.
    #[serde(default, skip_serializing)]
    outcome: Option<Kept>,
}

impl StoreLedger {
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self { records, unkept: Unkept::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Writes what there was no room for, as far as there is some now.
    pub async fn catch_up(&self) {
        for place in self.unkept.places() {
            if self.keep_after_all(&place).await.is_err() {
                return;
            }
        }
    }

    /// Whether there was something to write.
    async fn keep_after_all(&self, place: &str) -> Result<bool, StoreError> {
        if self.unkept.get(place).is_none() {
            return Ok(false);
        }
        let _turn = self.turn.lock().await;
        // Somebody may have written it meanwhile, which is as good.
        let Some(end) = self.unkept.get(place) else { return Ok(true) };
        self.keep(place, &end).await?;
        self.unkept.forget(place);
        Ok(true)
    }

    async fn keep(&self, place: &str, end: &End) -> Result<(), StoreError> {
        let Some(outcome) = &end.outcome else {
            // What leads to a claim that is gone leads nowhere, so that it may stay for a moment.
            self.records.delete(CLAIMS, place).await?;
            for lead in &end.leads {
                self.records.delete(CLAIMS, lead).await?;
            }
            return Ok(());
        };
        // The outcome before the claim that says it is there: a crash in between leaves an open claim.
        let write = || serde_json::to_vec(&Kept::of(outcome)).unwrap_or_default();
        let kept = aside::in_turn(weight(outcome), write).await.into();
        self.records.put(OUTCOMES, place, kept, Expect::Anything).await?;
        let (call_id, args, at_ms) = (end.id.to_string(), end.args.clone(), clock::now_ms());
        let entry = Entry { call_id, args, at_ms, ended: true, of: None, outcome: None };
        self.write(place, &entry, Expect::Anything).await
    }

    /// Writes how a call ended, or remembers it and says why it could not be written.
    async fn settle_or_remember(&self, place: String, end: End) -> Result<(), CallError> {
        let Err(error) = self.keep(&place, &end).await else { return Ok(()) };
        let (id, reached) = (end.id, end.outcome.is_some());
        // What the store does not take now and will not take later is not worth its place.
        let room = error.kind != StoreErrorKind::Invalid && self.unkept.remember(place, end);
        let effect = if reached { "may have had an effect" } else { "reached nobody" };
        let message =
            format!("the call {id} has ended and {effect}, and the record of that cannot be written: {error}");
        let hint = match (room, reached) {
            (true, _) => "mend the store, then ask again with the same key: the call is not made twice",
            (false, true) => "check what the tool did, then use a new key",
            (false, false) => "mend the store, then use a new key",
        };
        Err(CallError::new(CallErrorKind::Store, message).hint(hint).retryable(room))
    }

    /// Deletes keys whose time is over, while the clock is trusted: without its key, a retry would run a call twice.
    pub async fn sweep(&self, trimmer: &Trimmer) -> Result<(), StoreError> {
        let Some(since_ms) = trimmer.since_ms(MEMORY) else { return Ok(()) };
        let aged = self.forget(since_ms).await?;
        trimmer.report("idempotency_key", Trimmed { over_limit: 0, aged });
        Ok(())
    }

    async fn forget(&self, before_ms: i64) -> Result<u64, StoreError> {
        let mut deleted = 0;
        for (key, record) in self.records.list(CLAIMS).await? {
            let entry: Option<Entry> = serde_json::from_slice(&record.value).ok();
            if entry.is_none_or(|entry| entry.at_ms < before_ms) {
                // The claim goes last: while it is there, the next round finds what this one left.
                self.records.delete(OUTCOMES, &key).await?;
                self.records.delete(CLAIMS, &key).await?;
                deleted += 1;
            }
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
        Ok(aside::in_turn(record.value.len(), || serde_json::from_slice(&record.value).ok()).await)
    }

    /// Where the key was claimed, if it was: under the name that counts here, or else for the tool under another one.
    async fn claimed(&self, call: &KeyedCall) -> Result<Option<String>, StoreError> {
        let own = place(call);
        if self.records.get(CLAIMS, &own).await?.is_some() {
            return Ok(Some(own));
        }
        for lead in leads(call) {
            let Some(record) = self.records.get(CLAIMS, &lead).await? else { continue };
            let entry: Option<Entry> = serde_json::from_slice(&record.value).ok();
            // It may lead to what is forgotten, or was never written.
            if let Some(claim) = entry.and_then(|entry| entry.of)
                && self.records.get(CLAIMS, &claim).await?.is_some()
            {
                return Ok(Some(claim));
            }
        }
        Ok(None)
    }

    /// Claims what nobody has claimed.
    async fn claim_anew(&self, call: &KeyedCall, id: CallId) -> Result<(), StoreError> {
        let own = place(call);
        let entry = Entry::new(call, id);
        let claim = self.write(&own, &entry, Expect::Absent);
        // All at once, because each waits for the disk. One without the others claims a key for a call that was never made,
        // or leads nowhere.
        let lead = Entry { of: Some(own.clone()), ..Entry::new(call, id) };
        let leads = leads(call);
        let led = try_join_all(leads.iter().map(|place| self.write(place, &lead, Expect::Anything)));
        let (claimed, led) = tokio::join!(claim, led);
        let led = led.map(drop);
        if claimed.is_ok() && led.is_err() {
            // Nobody is called: the key is as free as it was. If that cannot be written either, it will be.
            let _ = self.settle_or_remember(own, end(call, id, None)).await;
        }
        claimed.and(led)
    }

    async fn found(&self, call: &KeyedCall, place: &str, id: CallId) -> Result<Claim, CallError> {
        let found = self.records.get(CLAIMS, place).await.map_err(|error| unavailable(&error))?;
        let entry: Option<Entry> = found.and_then(|record| serde_json::from_slice(&record.value).ok());
        let Some(entry) = entry else {
            return Err(CallError::new(CallErrorKind::Failed, "the record of this idempotency key cannot be read"));
        };
        let first = entry.call_id.parse().unwrap_or(id);
        if entry.args != digest(call) {
            return Ok(Claim::Different { id: first });
        }
        let kept = match entry.outcome {
            None if entry.ended => self.outcome(place).await.map_err(|error| unavailable(&error))?,
            kept => kept,
        };
        Ok(match kept {
            Some(kept) => Claim::Ended { id: first, outcome: kept.restore() },
            None => Claim::Unknown { id: first },
        })
    }
}

impl Entry {
    fn new(call: &KeyedCall, id: CallId) -> Self {
        let (call_id, args) = (id.to_string(), digest(call));
        Self { call_id, args, at_ms: clock::now_ms(), ended: false, of: None, outcome: None }
    }
}

impl Ledger for StoreLedger {
    fn claim<'a>(&'a self, call: &'a KeyedCall, id: CallId) -> BoxFuture<'a, Result<Claim, CallError>> {
        Box::pin(async move {
            // Whoever asks about a call whose end waits to be written is the one who waits for it. Whatever the key was used for
            // before is over with that: no end that is written later is about a call before this one.
            self.keep_after_all(&place(call)).await.map_err(|error| unavailable(&error))?;
            let mut claimed = self.claimed(call).await.map_err(|error| unavailable(&error))?;
            if let Some(place) = &claimed
                && self.keep_after_all(place).await.map_err(|error| unavailable(&error))?
            {
                claimed = self.claimed(call).await.map_err(|error| unavailable(&error))?;
            }
            if let Some(place) = claimed {
                return self.found(call, &place, id).await;
            }
            match self.claim_anew(call, id).await {
                Ok(()) => Ok(Claim::Ours),
                Err(error) if error.kind == StoreErrorKind::Conflict => self.found(call, &place(call), id).await,
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

    fn release<'a>(&'a self, call: &'a KeyedCall, id: CallId) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(self.settle_or_remember(place(call), end(call, id, None)))
    }
}

fn end(call: &KeyedCall, id: CallId, outcome: Option<Outcome>) -> End {
    End { id, args: digest(call), outcome, leads: leads(call) }
}

/// Where a key is claimed: under the name that its tool was called by.
fn place(call: &KeyedCall) -> String {
    hash(&[&call.principal, &call.tool, &call.key])
}

/// Where the tool itself leads to the claim, by whatever it is known. These have a part more than a place, and so are none.
fn leads(call: &KeyedCall) -> Vec<String> {
    call.leads.iter().map(|lead| hash(&[&call.principal, lead, &call.key, "address"])).collect()
}

fn hash(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

fn digest(call: &KeyedCall) -> String {
    blake3::hash(call.args.as_str().as_bytes()).to_hex().to_string()
}

fn unavailable(error: &StoreError) -> CallError {
    CallError::new(CallErrorKind::Store, format!("the record of idempotency keys cannot be used: {error}"))
        .hint("nothing was called this time; mend the store, then ask again with the same key")
}

impl std::fmt::Debug for StoreLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreLedger").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use sa_core::retention::{Reading, TrustedClock};
    use sa_core::{Output, RawJson};

    use super::*;
    use crate::memory::MemoryRecords;

    fn keyed(key: &str) -> KeyedCall {
        at("t", "node/n/t", key)
    }

    fn at(tool: &str, address: &str, key: &str) -> KeyedCall {
        let (principal, args) = ("p".into(), RawJson::empty_object());
        KeyedCall { principal, tool: tool.into(), leads: vec![address.into()], key: key.into(), args }
    }

    #[tokio::test]
    async fn a_key_is_used_up_under_every_name_of_its_tool_and_wherever_its_name_leads() {
        let records = Arc::new(MemoryRecords::default());
        let ledger = StoreLedger::new(Arc::clone(&records) as _);
        let (call, id) = (at("a_b", "node/one/a.b", "k"), CallId::new());
        let other_name = at("a.b", "node/one/a.b", "k");
        assert!(matches!(ledger.claim(&call, id).await.unwrap(), Claim::Ours));
        assert!(
            matches!(ledger.claim(&other_name, CallId::new()).await.unwrap(), Claim::Unknown { id: first } if first == id)
        );
        ledger.settle(&call, id, &Ok(Output::json(RawJson::empty_object()))).await.unwrap();
        for again in [&call, &other_name, &at("a_b", "node/two/a.b", "k")] {
            let claim = ledger.claim(again, CallId::new()).await.unwrap();
            assert!(matches!(claim, Claim::Ended { id: first, .. } if first == id), "{again:?}");
        }
        let other_tool = at("a_b_1234abcd", "node/two/a.b", "k");
        assert!(matches!(ledger.claim(&other_tool, CallId::new()).await.unwrap(), Claim::Ours));

        let (call, other_name) = (at("a_b", "node/one/a.b", "free"), at("a.b", "node/one/a.b", "free"));
        assert!(matches!(ledger.claim(&call, CallId::new()).await.unwrap(), Claim::Ours));
        ledger.release(&call, CallId::new()).await.unwrap();
        assert!(matches!(ledger.claim(&other_name, CallId::new()).await.unwrap(), Claim::Ours), "it is free again");
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

        let later = AtomicI64::new(0);
        let trimmer = Trimmer::new(TrustedClock::new(None), move || Reading {
            wall_ms: clock::now_ms() + later.fetch_add(400 * 86_400_000, Ordering::Relaxed),
            uptime_ms: 0,
        });
        ledger.sweep(&trimmer).await.unwrap();
        assert_eq!(records.len(), 3, "it is not old yet");
        ledger.sweep(&trimmer).await.unwrap();
        assert_eq!(records.len(), 3, "the clock was set forward");
        assert!(records.listed.load(Ordering::Relaxed) < 1_000, "the outcome was read");
        ledger.forget(i64::MAX).await.unwrap();
        assert_eq!(records.len(), 0);
    }

    #[tokio::test]
    async fn an_outcome_that_finds_no_room_is_there_once_there_is_some() {
        let records = Arc::new(MemoryRecords::default());
        let ledger = StoreLedger::new(Arc::clone(&records) as _);
        let (call, id) = (keyed("k"), CallId::new());
        assert!(matches!(ledger.claim(&call, id).await.unwrap(), Claim::Ours));
        records.full.store(true, Ordering::Relaxed);
        let outcome = Ok(Output::json(RawJson::parse("5").unwrap()));
        let error = ledger.settle(&call, id, &outcome).await.unwrap_err();
        assert!(error.kind == CallErrorKind::Store && error.retryable && error.message.contains("effect"), "{error}");
        let error = ledger.claim(&call, CallId::new()).await.unwrap_err();
        assert!(error.kind == CallErrorKind::Store && error.retryable, "nobody relies on what is not on disk: {error}");
        records.full.store(false, Ordering::Relaxed);
        let other = KeyedCall { args: RawJson::parse("{\"a\":1}").unwrap(), ..call.clone() };
        assert!(matches!(ledger.claim(&other, CallId::new()).await.unwrap(), Claim::Different { .. }));
        let Claim::Ended { outcome, id: first } = ledger.claim(&call, CallId::new()).await.unwrap() else { panic!() };
        assert_eq!((outcome.unwrap().content.as_str(), first), ("5", id));
        assert_eq!(ledger.unkept.bytes(), 0);
    }

    #[tokio::test]
    async fn what_finds_no_room_for_long_is_written_by_itself_and_not_kept_without_bound() {
        let records = Arc::new(MemoryRecords::default());
        let ledger = StoreLedger::new(Arc::clone(&records) as _);
        records.full.store(true, Ordering::Relaxed);
        let half = RawJson::parse(&format!("\"{}\"", "x".repeat(unkept::MAX / 2 - 1_000))).unwrap();
        let outcome = Ok(Output::json(half));
        let mut kept = Vec::new();
        for key in ["a", "b", "c"] {
            kept.push(ledger.settle(&keyed(key), CallId::new(), &outcome).await.unwrap_err().retryable);
        }
        assert_eq!(kept, [true, true, false]);
        records.full.store(false, Ordering::Relaxed);
        ledger.catch_up().await;
        assert_eq!((records.len(), ledger.unkept.bytes()), (4, 0), "two claims and their outcomes");
    }

    #[tokio::test]
    async fn a_key_that_is_released_late_is_released_once() {
        let records = Arc::new(MemoryRecords::default());
        let ledger = StoreLedger::new(Arc::clone(&records) as _);
        let (call, id) = (keyed("k"), CallId::new());
        assert!(matches!(ledger.claim(&call, CallId::new()).await.unwrap(), Claim::Ours));
        records.fail_at(leads(&call).pop(), StoreErrorKind::Io);
        let error = ledger.release(&call, CallId::new()).await.unwrap_err();
        assert!(error.retryable, "{error}");
        records.fail_at(None, StoreErrorKind::Io);
        assert!(matches!(ledger.claim(&call, id).await.unwrap(), Claim::Ours));
        ledger.settle(&call, id, &Ok(Output::json(RawJson::empty_object()))).await.unwrap();
        ledger.catch_up().await;
        let claim = ledger.claim(&call, CallId::new()).await.unwrap();
        assert!(matches!(claim, Claim::Ended { id: first, .. } if first == id), "it would run twice: {claim:?}");
    }

    #[tokio::test]
    async fn a_key_that_could_not_be_claimed_whole_is_free() {
        let records = Arc::new(MemoryRecords::default());
        let ledger = StoreLedger::new(Arc::clone(&records) as _);
        let call = keyed("k");
        records.fail_at(leads(&call).pop(), StoreErrorKind::Full);
        ledger.claim(&call, CallId::new()).await.unwrap_err();
        records.fail_at(None, StoreErrorKind::Full);
        assert!(matches!(ledger.claim(&call, CallId::new()).await.unwrap(), Claim::Ours));
    }

    #[tokio::test]
    async fn what_can_never_be_written_is_not_remembered() {
        let records = Arc::new(MemoryRecords::default());
        let ledger = StoreLedger::new(Arc::clone(&records) as _);
        let (call, id) = (keyed("k"), CallId::new());
        assert!(matches!(ledger.claim(&call, id).await.unwrap(), Claim::Ours));
        records.fail_at(Some(place(&call)), StoreErrorKind::Invalid);
        let error = ledger.settle(&call, id, &Ok(Output::json(RawJson::empty_object()))).await.unwrap_err();
        assert!(!error.retryable && ledger.unkept.places().is_empty(), "{error}");
        assert!(
            matches!(ledger.claim(&call, CallId::new()).await.unwrap(), Claim::Unknown { id: first } if first == id)
        );
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
