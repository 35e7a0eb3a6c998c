//! What a connection is sent before it is a reader as the others are: who is here, and what it missed.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use sa_core::store::StoreError;
use sa_protocol::channel::{Ready, encode_message, encode_ready};
use sa_protocol::{close, push_string};
use sa_socket::{Close, Rejected};

use super::Session;
use crate::channel::{Member, State, presence_body};
use crate::gateway::GatewayEntry;
use crate::{Entrance, GATEWAY, pipeline};

/// How many stored messages are read at once, and how many when they are large.
const PAGE: usize = 512;
const SMALL_PAGE: usize = 16;
/// The most that is put together at a time, where the queue is large.
const LARGE: usize = 1 << 20;
/// What somebody in the roster takes beside their id and metadata.
const ENTRY: usize = 200;

impl Session {
    /// No more than this is put together for a connection at a time.
    pub(super) fn pace(&self) -> usize {
        LARGE.min(self.channel.hub.options.queue_bytes() / 2)
    }

    /// Sends all of it, and makes a reader of the connection; `None` when that has ended meanwhile.
    pub(super) async fn catch_up(
        &self,
        entrance: &Entrance,
        gateway: Option<&GatewayEntry>,
    ) -> Result<Option<Arc<Member>>, StoreError> {
        let (channel, reads) = (&self.channel, self.sender.rights.read);
        let bounds = channel.bounds().await?;
        let (context, config) = channel.context().await;
        let same = entrance.epoch.as_deref().is_none_or(|epoch| epoch == &*channel.epoch);
        let recovered =
            entrance.since.map(|since| same && since.saturating_add(1) >= bounds.first && since <= bounds.last);
        let since = entrance.since.filter(|_| same && reads);
        let instance: Option<Arc<str>> = entrance.instance.as_deref().map(Into::into);
        let make = |seen| {
            let (participant, instance) = (Arc::clone(&self.participant), instance.clone());
            let (outbox, last) = (self.outbox.clone(), AtomicU64::new(seen));
            move |id| Member { id, participant, instance, outbox, reads, seen, last }
        };
        let pace = self.pace();
        // A roster that is too large for one document is told one by one, whatever was asked for.
        let of_gateway = gateway.map_or(0, |gateway| gateway.metadata.len());
        let fits = !reads || roster_len(&channel.state()) + of_gateway <= pace;
        let ready = |state: &State, member: &Member| {
            let roster = (entrance.snapshot && reads && fits).then(|| roster(state, gateway));
            let ready = Ready {
                participant: &self.participant,
                epoch: &channel.epoch,
                last_id: state.head.max(member.seen),
                recovered,
                roster: roster.as_deref(),
                context: context.as_deref(),
                config: config.as_deref(),
            };
            let _ = self.outbox.send(encode_ready(&ready));
        };
        if since.is_none() && fits {
            let admitted = channel.admit(make(0), None, |state, member| {
                if reads && !entrance.snapshot {
                    let _ = gateway.map(|gateway| self.outbox.send(gateway.here()));
                    for (id, presence) in &state.roster {
                        let _ = self.outbox.send(here(id, &presence.metadata));
                    }
                }
                ready(state, member);
            });
            return Ok(admitted);
        }
        // Taken before anybody is named: whoever comes or goes meanwhile does so in what is read from here on.
        let mut has = since.unwrap_or_else(|| channel.state().head);
        if !(entrance.snapshot && fits) {
            let _ = gateway.map(|gateway| self.outbox.send(gateway.here()));
            if self.name_everybody(pace).await.is_err() {
                return Ok(None);
            }
        }
        let mut limit = PAGE;
        if self.outbox.emptied().await.is_err() {
            return Ok(None);
        }
        loop {
            // Taken before the log is read: all of it is in the log by now, or has been deleted.
            let head = channel.state().head;
            let page = channel.after(has, limit).await?;
            if page.is_empty() {
                has = has.max(head);
            }
            let mut queued = 0;
            for stored in &page {
                // Who wants nothing of what was said before still is to know who is here.
                let json = if since.is_some() { stored.json() } else { stored.presence() };
                // Who comes back takes calls that it missed for its own; for who comes new they are history.
                let returns = entrance.since.is_some_and(|since| since > 0);
                let elsewhere = returns && channel.runs_elsewhere(stored, &self.participant, instance.as_deref());
                let Some(json) = json.filter(|_| !elsewhere) else {
                    has = stored.id;
                    continue;
                };
                let bytes = channel.attached(stored).await;
                let len = json.len() + bytes.as_ref().map_or(0, Bytes::len);
                // At the reader's pace: no more is queued than it takes.
                if queued > 0 && queued + len > pace {
                    queued = 0;
                    if self.outbox.emptied().await.is_err() {
                        return Ok(None);
                    }
                }
                queued += len;
                let overrun = || Close::new(close::TOO_SLOW, format!("read too slowly; go on with sinceId={has}"));
                if self.outbox.send_else(pipeline::frame(&json, bytes.as_ref()), overrun).is_err() {
                    return Ok(None);
                }
                has = stored.id;
            }
            limit =
                if page.iter().map(|stored| stored.body.len()).sum::<usize>() > 4 * LARGE { SMALL_PAGE } else { PAGE };
            if self.outbox.emptied().await.is_err() {
                return Ok(None);
            }
            if let Some(member) = channel.admit(make(has), Some(has), ready) {
                return Ok(Some(member));
            }
        }
    }

    /// Says who is here, at the reader's pace.
    async fn name_everybody(&self, pace: usize) -> Result<(), Rejected> {
        let mut last: Option<Arc<str>> = None;
        self.outbox.emptied().await?;
        loop {
            let mut queued = 0;
            {
                let state = self.channel.state();
                let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let mut named = None;
                for (id, presence) in state.roster.range::<str, _>((from, Bound::Unbounded)) {
                    let frame = here(id, &presence.metadata);
                    if queued > 0 && queued + frame.len() > pace {
                        break;
                    }
                    queued += frame.len();
                    self.outbox.send(frame)?;
                    named = Some(Arc::clone(id));
                }
                if named.is_none() {
                    return Ok(());
                }
                last = named;
            }
            self.outbox.emptied().await?;
        }
    }
}

/// Says that somebody is here. It has no id: where to go on from is told by what comes after.
fn here(id: &str, metadata: &str) -> String {
    encode_message("replay", None, &presence_body(id, "join", metadata, None), None, false)
}

/// About how many bytes it takes to name everybody, each with their metadata as the message's and as the sender's.
fn roster_len(state: &State) -> usize {
    state.roster.iter().map(|(id, presence)| ENTRY + id.len() + 2 * presence.metadata.len()).sum()
}

/// Who is here, as one document.
fn roster(state: &State, gateway: Option<&GatewayEntry>) -> String {
    let mut out = String::from("{");
    let gateway = gateway.map(|gateway| (GATEWAY, &*gateway.metadata));
    let participants = state.roster.iter().map(|(id, presence)| (&**id, &*presence.metadata));
    for (at, (id, metadata)) in gateway.into_iter().chain(participants).enumerate() {
        if at > 0 {
            out.push(',');
        }
        push_string(&mut out, id);
        out.push_str(&format!(":{{\"metadata\":{metadata}}}"));
    }
    out.push('}');
    out
}
