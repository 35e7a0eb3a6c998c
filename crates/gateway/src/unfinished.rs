//! Recovers calls that were running when the gateway was killed.
//!
//! A call is recorded when it ends. A call that runs while the gateway is killed would leave no
//! record, although it may have had an effect. A call that runs for a while is therefore noted in
//! the store, and the note is deleted after it ends. At the next start, a remaining note becomes an
//! entry of the history. Short calls are not noted, because most end within milliseconds and would
//! be written twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use sa_core::store::{Expect, Log, NewEntry, Records, StoreError};
use sa_core::{CallError, CallErrorKind, CallId, Router};
use sa_http::call_json::{self, Failure};
use sa_http::history::CALLS;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use sa_text::json::to_json;

const BUCKET: &str = "unfinished_calls";
/// The age at which a call is noted, and the polling interval.
const MOMENT: Duration = Duration::from_millis(500);

/// Converts the notes of the last run into entries of the history.
pub(crate) async fn settle(records: &dyn Records, log: &dyn Log) -> Result<(), StoreError> {
    let error = CallError::new(
        CallErrorKind::Failed,
        "the gateway stopped before the call ended, so its outcome is unknown",
    )
    .hint("it may have had an effect; check before you repeat it");
    let failure = to_json(&Failure::from(&error));
    for (id, note) in records.list(BUCKET).await? {
        if let Some(note) =
            std::str::from_utf8(&note.value).ok().and_then(|note| note.strip_suffix('}'))
        {
            let body = Bytes::from(format!("{note},\"ok\":false,\"error\":{failure}}}"));
            // The key prevents a duplicate entry if the call's own record was already stored.
            log.append(NewEntry { stream: CALLS.into(), key: Some(id.as_str().into()), body })
                .await?;
        }
        records.delete(BUCKET, &id).await?;
    }
    Ok(())
}

/// Keeps notes of running calls until they end.
pub(crate) async fn keep_notes(
    router: Arc<Router>,
    records: Arc<dyn Records>,
    payload_bytes: usize,
    over: CancellationToken,
) {
    let mut noted: HashSet<CallId> = HashSet::new();
    while over.run_until_cancelled(tokio::time::sleep(MOMENT)).await.is_some() {
        if noted.is_empty() && router.running_count() == 0 {
            continue;
        }
        let running = router.running();
        let new: Vec<_> = running
            .iter()
            .filter(|call| call.started.elapsed() >= MOMENT && !noted.contains(&call.id))
            .map(|call| (call.id, Bytes::from(call_json::running(call, payload_bytes).end())))
            .collect();
        let ids: HashSet<CallId> = running.iter().map(|call| call.id).collect();
        let gone: Vec<CallId> = noted.iter().filter(|id| !ids.contains(id)).copied().collect();
        // Written concurrently, so that they share one sync. A call's own record is queued before
        // its note is deleted.
        let notes = join_all(new.into_iter().map(async |(id, note)| {
            (id, records.put(BUCKET, &id.to_string(), note, Expect::Anything).await)
        }));
        let ends = join_all(
            gone.iter().map(async |id| (*id, records.delete(BUCKET, &id.to_string()).await)),
        );
        let (notes, ends) = tokio::join!(notes, ends);
        for (id, result) in notes {
            match result {
                Ok(_) => drop(noted.insert(id)),
                Err(error) => {
                    warn!(%error, call_id = %id, "cannot save the note of a running call");
                }
            }
        }
        for (id, result) in ends {
            match result {
                Ok(_) => drop(noted.remove(&id)),
                Err(error) => {
                    warn!(%error, call_id = %id, "cannot delete the note of an ended call");
                }
            }
        }
    }
}
