//! The messages that a connection receives before it becomes a regular reader: the roster, and
//! the missed messages.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use sa_core::store::StoreError;
use sa_protocol::channel::{Ready, encode_message, encode_ready};
use sa_protocol::close;
use sa_socket::{Close, Rejected};
use sa_text::json::push_string;

use super::Session;
use crate::channel::{Member, State, presence_body};
use crate::gateway::GatewayEntry;
use crate::options::LARGE;
use crate::{Entrance, GATEWAY, pipeline};

/// The number of stored messages to read at once, normally and when they are large.
const PAGE: usize = 512;
const SMALL_PAGE: usize = 16;
/// The approximate size of a roster entry without its id and metadata.
const ENTRY: usize = 200;

/// The participants that a reader knows, with the metadata that it has received.
type Known = BTreeMap<Arc<str>, Arc<str>>;

impl Session {
    /// Sends these messages and adds the connection as a reader. Returns `None` if the connection
    /// has ended meanwhile.
    pub(super) async fn catch_up(
        &self,
        entrance: &Entrance,
        gateway: Option<&GatewayEntry>,
    ) -> Result<Option<Arc<Member>>, StoreError> {
        let (channel, reads) = (&self.channel, self.sender.rights.read);
        let bounds = channel.bounds().await?;
        let (context, config) = channel.context().await;
        let same = entrance.epoch.as_deref().is_none_or(|epoch| epoch == &*channel.epoch);
        let recovered = entrance
            .since
            .map(|since| same && since.saturating_add(1) >= bounds.first && since <= bounds.last);
        let since = entrance.since.filter(|_| same && reads);
        let instance: Option<Arc<str>> = entrance.instance.as_deref().map(Into::into);
        let make = |seen| {
            let (participant, instance) = (Arc::clone(&self.participant), instance.clone());
            let (outbox, last) = (self.outbox.clone(), AtomicU64::new(seen));
            move |id| Member { id, participant, instance, outbox, reads, seen, last }
        };
        let pace = channel.hub.options.pace();
        // A roster that is too large for one document is sent as single messages, even if a
        // snapshot was requested.
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
        // Read before the roster is sent: all later arrivals and departures are in the messages
        // read below.
        let mut has = since.unwrap_or_else(|| channel.state().head);
        let mut known = Known::default();
        if !(entrance.snapshot && fits) {
            let _ = gateway.map(|gateway| self.outbox.send(gateway.here()));
            if self.name_everybody(&mut known, pace).await.is_err() {
                return Ok(None);
            }
        }
        let mut limit = PAGE;
        if self.outbox.emptied().await.is_err() {
            return Ok(None);
        }
        loop {
            // Read before the log: every message up to it is then in the log, or was deleted.
            let head = channel.state().head;
            let page = channel.after(has, limit).await?;
            if page.is_empty() {
                has = has.max(head);
            }
            let mut queued = 0;
            for stored in &page {
                match stored.presence_of() {
                    Some((id, Some(metadata))) => drop(known.insert(id.into(), metadata.into())),
                    Some((id, None)) => drop(known.remove(&*id)),
                    None => {}
                }
                // A client without `sinceId` needs no earlier messages, but must know the present
                // participants.
                let json = if since.is_some() { stored.json() } else { stored.presence() };
                // A client that reconnects executes the calls that it missed. For a new client
                // they are only history.
                let returns = entrance.since.is_some_and(|since| since > 0);
                let elsewhere = returns
                    && channel.runs_elsewhere(stored, &self.participant, instance.as_deref());
                let Some(json) = json.filter(|_| !elsewhere) else {
                    has = stored.id;
                    continue;
                };
                let bytes = channel.attached(stored).await;
                let len = json.len() + bytes.as_ref().map_or(0, Bytes::len);
                // Limits the queued bytes to what the reader can receive.
                if queued > 0 && queued + len > pace {
                    queued = 0;
                    if self.outbox.emptied().await.is_err() {
                        return Ok(None);
                    }
                }
                queued += len;
                let overrun = || {
                    Close::new(
                        close::TOO_SLOW,
                        format!("read too slowly; reconnect with sinceId={has}"),
                    )
                };
                if self.outbox.send_else(pipeline::frame(&json, bytes.as_ref()), overrun).is_err() {
                    return Ok(None);
                }
                has = stored.id;
            }
            limit = if page.iter().map(|stored| stored.body.len()).sum::<usize>() > 4 * LARGE {
                SMALL_PAGE
            } else {
                PAGE
            };
            if self.outbox.emptied().await.is_err() {
                return Ok(None);
            }
            // A stored presence message has no methods, and may be missing. The roster is
            // correct.
            let reconcile = !(entrance.snapshot && fits);
            if reconcile
                && has >= channel.state().head
                && self.name_everybody(&mut known, pace).await.is_err()
            {
                return Ok(None);
            }
            let first = |state: &State, member: &Member| {
                if reconcile {
                    for (id, presence) in &state.roster {
                        if known.get(id) != Some(&presence.metadata) {
                            let _ = self.outbox.send(here(id, &presence.metadata));
                        }
                    }
                    for id in known.keys().filter(|id| !state.roster.contains_key(*id)) {
                        let _ = self.outbox.send(gone(id));
                    }
                }
                ready(state, member);
            };
            if let Some(member) = channel.admit(make(has), Some(has), first) {
                return Ok(Some(member));
            }
        }
    }

    /// Sends the roster entries that the reader does not know yet, as fast as it reads.
    async fn name_everybody(&self, known: &mut Known, pace: usize) -> Result<(), Rejected> {
        let mut last: Option<Arc<str>> = None;
        self.outbox.emptied().await?;
        loop {
            let mut queued = 0;
            {
                let state = self.channel.state();
                let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let mut named = None;
                for (id, presence) in state.roster.range::<str, _>((from, Bound::Unbounded)) {
                    if known.get(id) == Some(&presence.metadata) {
                        continue;
                    }
                    let frame = here(id, &presence.metadata);
                    if queued > 0 && queued + frame.len() > pace {
                        break;
                    }
                    queued += frame.len();
                    self.outbox.send(frame)?;
                    named = Some(Arc::clone(id));
                    known.insert(Arc::clone(id), Arc::clone(&presence.metadata));
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

/// Returns a message that a participant is present. It has no id, so it does not change the
/// position to resume from.
fn here(id: &str, metadata: &str) -> String {
    encode_message("replay", None, &presence_body(id, "join", metadata, None), None, false)
}

/// Returns a message that a participant has left.
fn gone(id: &str) -> String {
    encode_message(
        "replay",
        None,
        &presence_body(id, "leave", "{}", Some("disconnect")),
        None,
        false,
    )
}

/// Returns the approximate size of all roster messages, each with its metadata as the payload's
/// and as the sender's.
fn roster_len(state: &State) -> usize {
    state.roster.iter().map(|(id, presence)| ENTRY + id.len() + 2 * presence.metadata.len()).sum()
}

/// Returns the roster as one document.
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
