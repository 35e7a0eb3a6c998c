//! Checks a message before it is queued, and queues it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sa_core::call::CancelReason;
use sa_core::{Principal, clock};
use sa_limits::budget::{Permit, Refused};
use sa_protocol::channel::{AttachmentMeta, Envelope, encode_body, encode_message};
use sa_text::json::{MAX_DEPTH, is_too_deep, object, why};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use crate::authors::Verdict;
use crate::calls::{MADE_BEFORE, Running, Standing};
use crate::channel::Channel;
use crate::history::sender_of;
use crate::methods::MethodResult;
use crate::pipeline::Item;
use crate::usage::Reservation;
use crate::{GATEWAY, Rights, attachments};

/// The maximum length of a message's type, and of an id in a payload.
const MAX_ID: usize = 128;
const MAX_CLIENT_ID: usize = 128;
/// The approximate size of a stored message without its payload, its sender's metadata and its
/// attachments.
pub(crate) const AROUND: usize = 200;

/// A message to publish.
#[derive(Debug, Clone)]
pub struct Draft<'a> {
    pub kind: Cow<'a, str>,
    /// JSON.
    pub payload: &'a str,
    pub persist: bool,
    pub client_message_id: Option<Cow<'a, str>>,
    pub attachments: Vec<AttachmentMeta>,
    /// The bytes of all attachments.
    pub bytes: Bytes,
}

/// The sender of a message.
#[derive(Debug, Clone)]
pub struct Sender {
    pub principal: Arc<Principal>,
    pub rights: Rights,
}

/// The result of publishing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// `None` for a message that is not stored.
    pub id: Option<u64>,
    /// Whether it was already stored.
    pub duplicate: bool,
}

/// The error for a rejected message. Nothing of it is stored or sent to others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The error code for programs.
    pub code: &'static str,
    pub message: String,
    /// How to fix the problem.
    pub hint: Option<String>,
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self { code: "overloaded", message: refused.message, hint: Some(refused.hint) }
    }
}

impl Refusal {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    /// Returns a validation error. Deployed clients recognize it by the word "invalid".
    pub(crate) fn invalid(message: impl fmt::Display) -> Self {
        Self::new("validation-error", format!("invalid message: {message}"))
    }
}

/// A call that cannot be executed, and the error for its caller.
struct RefusedCall {
    item: Item,
    call: Running,
    code: &'static str,
    message: String,
}

/// The content of a message, as far as the channel must know it.
enum Subject<'a> {
    Plain,
    Message(String),
    Update(String),
    Call(MethodCall<'a>),
    Result(MethodResult<'a>),
    Cancel(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MethodCall<'a> {
    pub(crate) call_id: String,
    pub(crate) method_name: String,
    provider_id: String,
    #[serde(borrow)]
    pub(crate) args: Option<&'a RawValue>,
}

impl<'a> Subject<'a> {
    fn read(kind: &str, payload: &'a str) -> Result<Self, Refusal> {
        #[derive(Deserialize)]
        struct Id {
            id: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Message {
            id: String,
            reply_to: Option<String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Called {
            call_id: String,
        }
        fn parse<'a, T: Deserialize<'a>>(kind: &str, payload: &'a str) -> Result<T, Refusal> {
            object(payload.as_bytes()).map_err(|error| {
                Refusal::invalid(format!("the payload is not a valid {kind}: {}", why(&error)))
            })
        }
        let subject = match kind {
            "message" => {
                let Message { id, reply_to } = parse(kind, payload)?;
                check_uuid("id", &id)?;
                reply_to.as_deref().map_or(Ok(()), |id| check_uuid("replyTo", id))?;
                Self::Message(id)
            }
            "update-message" | "error" => Self::Update(parse::<Id>(kind, payload)?.id),
            "method-call" => Self::Call(parse(kind, payload)?),
            "method-result" => Self::Result(parse(kind, payload)?),
            "method-cancel" => Self::Cancel(parse::<Called>(kind, payload)?.call_id),
            _ => Self::Plain,
        };
        let id = match &subject {
            Self::Plain => return Ok(subject),
            Self::Message(id) | Self::Update(id) | Self::Cancel(id) => id,
            Self::Call(call) => &call.call_id,
            Self::Result(result) => &result.call_id,
        };
        if id.is_empty() || id.len() > MAX_ID {
            return Err(Refusal::invalid(format!("an id must have 1 to {MAX_ID} bytes")));
        }
        Ok(subject)
    }
}

/// Checks that an id is a UUID. Deployed clients drop other messages, so that only some readers
/// would see them.
fn check_uuid(field: &str, id: &str) -> Result<(), Refusal> {
    if id.len() == 36 && Uuid::try_parse(id).is_ok() {
        return Ok(());
    }
    let id = sa_protocol::escaped_prefix(id, 60);
    Err(Refusal::invalid(format!("\"{field}\" is \"{id}\", but must be a UUID")))
}

impl Channel {
    /// Publishes for a sender without a connection, and waits until the message is on disk.
    pub async fn publish(
        self: &Arc<Self>,
        sender: &Sender,
        draft: Draft<'_>,
    ) -> Result<Published, Refusal> {
        let (answer, stored) = oneshot::channel();
        let persist = draft.persist;
        self.submit(sender, draft, None, Some(answer)).await?;
        if !persist {
            return Ok(Published { id: None, duplicate: false });
        }
        match stored.await {
            Ok(Ok(appended)) => {
                Ok(Published { id: Some(appended.seq), duplicate: appended.duplicate })
            }
            Ok(Err(error)) if error.kind == sa_core::store::StoreErrorKind::Conflict => {
                Err(Refusal::new("conflict", error.message))
            }
            Ok(Err(error)) => Err(Refusal::new("store-error", error.message)),
            Err(_) => Err(Refusal::new("store-error", "the gateway is shutting down")),
        }
    }

    /// Checks a message and queues it. Waits while the queue is full.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        sender: &Sender,
        draft: Draft<'_>,
        from: Option<(u64, Option<i64>)>,
        answer: Option<
            oneshot::Sender<Result<sa_core::store::Appended, sa_core::store::StoreError>>,
        >,
    ) -> Result<(), Refusal> {
        let name = &sender.principal.name;
        let subject = self.check(sender, &draft).await?;
        let (mut reserved, pending) = self.reserve(sender, &draft)?;
        let (attached, described) = self.attach(&draft).await?;
        if let (Some(reserved), Some((_, file))) = (&mut reserved, &attached) {
            reserved.file =
                Some(attachments::path(&self.hub.options.attachments, &self.epoch, file));
        }
        let key = match &subject {
            Subject::Message(id) if draft.persist => Some(format!("m:{id}")),
            Subject::Call(call) if draft.persist => Some(format!("call:{}", call.call_id)),
            _ => draft.client_message_id.as_ref().map(|id| format!("c:{name}:{id}")),
        };
        let Some(permit) = self.place().await else {
            return Err(Refusal::new("store-error", "the channel is closed"));
        };

        let mut item = Item {
            attached,
            from,
            reserved,
            pending,
            permit: Some(permit),
            ..Item::new(String::new(), draft.persist)
        };
        item.key = key.filter(|_| draft.persist).map(Into::into);
        // A stored call of a tool waits for the log, which shows whether the call was made
        // before.
        let (tool_call, stored) = match &subject {
            Subject::Call(call) if call.provider_id == GATEWAY && draft.persist => {
                let (tell, stored) = oneshot::channel();
                item.answer = Some(tell);
                (Some(call), Some((stored, answer)))
            }
            Subject::Call(call) if call.provider_id == GATEWAY => (Some(call), None),
            _ => {
                item.answer = answer;
                (None, None)
            }
        };
        if let Some(refused) = self.enter(name, &draft, &subject, &described, item)? {
            return self.refuse_call(refused).await;
        }
        let Some(call) = tool_call else { return Ok(()) };
        let Some((stored, answer)) = stored else {
            self.run_tool(sender, call, false);
            return Ok(());
        };
        let Ok(stored) = stored.await else { return Ok(()) };
        match &stored {
            Ok(appended) if appended.duplicate => self.tool_called_again(sender, call),
            Ok(_) => self.run_tool(sender, call, true),
            Err(_) => {}
        }
        if let Some(answer) = answer {
            let _ = answer.send(stored);
        }
        Ok(())
    }

    /// Reserves the budgets that a message needs: storage and memory.
    fn reserve(
        &self,
        sender: &Sender,
        draft: &Draft<'_>,
    ) -> Result<(Option<Reservation>, Option<Permit>), Refusal> {
        let metadata = self
            .state()
            .roster
            .get(&sender.principal.name)
            .map_or(0, |presence| presence.metadata.len());
        let bytes = draft.payload.len() + draft.bytes.len() + metadata + AROUND;
        let pending = &self.hub.budgets.pending;
        let pending = pending.acquire(&sender.principal.holder(), bytes.min(pending.largest()))?;
        let holder = sender.principal.holder_by_name();
        let reserved = if draft.persist { Some(self.usage.reserve(&holder, bytes)?) } else { None };
        Ok((reserved, Some(pending)))
    }

    /// Rejects a call that cannot be executed. It is neither stored nor sent to others, because a
    /// provider executes each call that it receives.
    async fn refuse_call(&self, refused: RefusedCall) -> Result<(), Refusal> {
        let RefusedCall { item, call, code, message } = refused;
        // The client repeats a call after it lost the answer: the log has it, and the pipeline
        // answers.
        if let Some(key) = &item.key {
            let made = self.hub.log.find(&self.stream, key).await;
            if made.map_err(|error| Refusal::new("store-error", error.message))?.is_some() {
                self.enqueue(item);
                return Ok(());
            }
        }
        let Some((from, reference)) = item.from else { return Err(Refusal::new(code, message)) };
        self.tell(from, encode_message("ephemeral", None, &item.body, reference, false));
        self.tell(
            from,
            encode_message("ephemeral", None, &call.failure(code, &message).body, None, false),
        );
        Ok(())
    }

    /// Queues a message, if its sender is currently allowed to send it. Returns a call that must
    /// be rejected.
    fn enter(
        &self,
        name: &Arc<str>,
        draft: &Draft<'_>,
        subject: &Subject<'_>,
        described: &[AttachmentMeta],
        mut item: Item,
    ) -> Result<Option<RefusedCall>, Refusal> {
        let mut state = self.state();
        let metadata = state
            .roster
            .get(name)
            .map_or_else(|| "{}".into(), |presence| Arc::clone(&presence.metadata));
        item.body = encode_body(&Envelope {
            kind: &draft.kind,
            payload: draft.payload,
            sender: name,
            at_ms: clock::now_ms(),
            sender_metadata: &metadata,
            attachments: described,
        });
        match subject {
            Subject::Call(call)
                if state.offers().any(|link| link.caller(&call.call_id).is_some()) =>
            {
                // An answer would be matched with this call, and the caller of the first one
                // would wait in vain.
                return Err(Refusal::new(
                    "conflict",
                    "a call with this callId already exists; use a new callId",
                ));
            }
            Subject::Message(id) => {
                state.authors.begin(id, name, !draft.persist);
                item.message_id = Some(id.clone());
            }
            Subject::Call(call) => {
                item.call_id = Some(call.call_id.clone());
                item.provider = Some(call.provider_id.as_str().into());
                let running = Running {
                    id: call.call_id.clone(),
                    caller: Arc::clone(name),
                    provider: call.provider_id.as_str().into(),
                    persist: draft.persist,
                    since: Instant::now(),
                    routed: None,
                };
                let lacking = match state.roster.get(&*call.provider_id) {
                    _ if call.provider_id == GATEWAY => None,
                    None => Some((
                        "provider-not-found",
                        format!("the participant \"{}\" is not in the channel", call.provider_id),
                    )),
                    Some(presence) if presence.may_have(&call.method_name) => None,
                    Some(_) => Some((
                        "method-not-found",
                        format!("\"{}\" has no method \"{}\"", call.provider_id, call.method_name),
                    )),
                };
                match lacking {
                    Some((code, message)) => {
                        return Ok(Some(RefusedCall { item, call: running, code, message }));
                    }
                    // Without a log entry, a repeated call cannot be distinguished from another
                    // one.
                    None if call.provider_id == GATEWAY
                        && state.calls.is_known(&call.call_id)
                        && !(draft.persist && state.calls.was_made(&call.call_id, name)) =>
                    {
                        return Err(Refusal::new("conflict", MADE_BEFORE));
                    }
                    None if call.provider_id == GATEWAY => {}
                    // The client repeats a call after it lost the answer: the log has it, and the
                    // pipeline answers.
                    None if draft.persist && state.calls.was_made(&call.call_id, name) => {}
                    None => {
                        state.calls.begin(running).map_err(|why| Refusal::new("conflict", why))?;
                    }
                }
            }
            Subject::Result(result) => {
                let last = result.is_last();
                let end_key =
                    state.calls.end_key(&result.call_id).filter(|_| last && draft.persist);
                match state.calls.result(&result.call_id, name, last) {
                    Standing::Right => item.key = end_key.or(item.key),
                    Standing::Foreign => {
                        return Err(Refusal::new(
                            "not-allowed",
                            "only the provider of a call can send its result",
                        ));
                    }
                    Standing::Ended => {
                        return Err(Refusal::new("conflict", "this call has already ended"));
                    }
                    Standing::Unknown => {
                        let provider =
                            state.roster.get(name).and_then(|presence| presence.offer.as_ref());
                        let parts = parts(described, &draft.bytes);
                        let delivered =
                            provider.is_some_and(|offer| result.deliver(offer.provider(), parts));
                        if !delivered {
                            return Err(Refusal::new(
                                "not-allowed",
                                "this participant has no running call with this callId",
                            ));
                        }
                    }
                }
            }
            Subject::Cancel(call) => match state.calls.cancel(call, name) {
                (Standing::Right, Some(running)) => {
                    if let Some(id) = running.routed {
                        self.hub.router.cancel(id, CancelReason::Requested, |_| true);
                    }
                }
                (Standing::Foreign, _) => return Err(only_the_caller()),
                // A call from another surface is known only to its provider's link.
                (Standing::Unknown, _)
                    if state
                        .offers()
                        .any(|link| link.caller(call).is_some_and(|who| who != *name)) =>
                {
                    return Err(only_the_caller());
                }
                _ => {}
            },
            Subject::Plain | Subject::Update(_) => {}
        }
        self.enqueue(item);
        Ok(None)
    }

    /// Runs all checks that do not depend on the message's position in the order.
    async fn check<'a>(&self, sender: &Sender, draft: &Draft<'a>) -> Result<Subject<'a>, Refusal> {
        let (rights, kind) = (sender.rights, &*draft.kind);
        let allowed = match kind {
            "method-call" => rights.call,
            // A caller may also cancel its calls.
            "method-cancel" => rights.call || rights.publish,
            _ => rights.publish,
        };
        if !allowed {
            return Err(Refusal::new(
                "not-allowed",
                format!("the token is not allowed to send a {kind} in this channel"),
            ));
        }
        if kind.is_empty() || kind.len() > MAX_ID || kind.contains(char::is_control) {
            return Err(Refusal::invalid(format!(
                "a type must have 1 to {MAX_ID} bytes of visible text"
            )));
        }
        if kind == "presence" {
            return Err(Refusal::new("not-allowed", "only the server can send presence messages"));
        }
        let max = self.hub.options.max_message_bytes;
        if draft.payload.len() > max {
            return Err(Refusal::invalid(format!(
                "the payload has {} bytes; the maximum is {max}",
                draft.payload.len()
            )));
        }
        if is_too_deep(draft.payload) {
            return Err(Refusal::invalid(format!(
                "the payload is nested deeper than {MAX_DEPTH} levels"
            )));
        }
        if draft
            .client_message_id
            .as_ref()
            .is_some_and(|id| id.is_empty() || id.len() > MAX_CLIENT_ID)
        {
            return Err(Refusal::invalid(format!(
                "a clientMessageId must have 1 to {MAX_CLIENT_ID} bytes"
            )));
        }
        attachments::check(
            &draft.attachments,
            draft.bytes.len(),
            self.hub.options.max_attachment_bytes,
        )
        .map_err(Refusal::invalid)?;
        let subject = Subject::read(kind, draft.payload)?;
        match &subject {
            Subject::Update(id) => self.check_author(id, &sender.principal.name).await?,
            Subject::Message(id) => {
                let verdict = self.state().authors.verdict(id, &sender.principal.name);
                let foreign = match verdict {
                    Verdict::Foreign => true,
                    // The log rejects a stored duplicate, but does not see this message. Without
                    // this check, its sender would become the author.
                    Verdict::Unknown if !draft.persist => {
                        self.is_foreign(id, &sender.principal.name).await?
                    }
                    _ => false,
                };
                if foreign {
                    return Err(Refusal::new("conflict", "another participant has used this id"));
                }
            }
            Subject::Result(result) => self.remember_call(&result.call_id).await?,
            Subject::Cancel(call) => self.remember_call(call).await?,
            _ => {}
        }
        Ok(subject)
    }

    /// Checks that the sender of an update is the author. An update to an unknown message is
    /// harmless: the message was not stored, and the gateway has restarted since.
    async fn check_author(&self, message: &str, sender: &str) -> Result<(), Refusal> {
        let verdict = self.state().authors.verdict(message, sender);
        let foreign = match verdict {
            Verdict::Own => false,
            Verdict::Foreign => true,
            Verdict::Unknown => self.is_foreign(message, sender).await?,
        };
        if foreign {
            Err(Refusal::new("not-allowed", "only the author of a message can update it"))
        } else {
            Ok(())
        }
    }

    /// Returns whether the log has a message with this id from another author.
    async fn is_foreign(&self, message: &str, sender: &str) -> Result<bool, Refusal> {
        let found = self.hub.log.find(&self.stream, &format!("m:{message}")).await;
        let found = found.map_err(|error| Refusal::new("store-error", error.message))?;
        Ok(found.and_then(|entry| sender_of(&entry.body)).is_some_and(|author| author != sender))
    }

    /// Writes the attachments to disk, before the message is sent to readers.
    pub(crate) async fn attach(
        &self,
        draft: &Draft<'_>,
    ) -> Result<(Option<(Bytes, Arc<str>)>, Vec<AttachmentMeta>), Refusal> {
        if draft.attachments.is_empty() {
            return Ok((None, Vec::new()));
        }
        let failed = |what: String| {
            Refusal::new("store-error", format!("the attachments cannot be stored: {what}"))
        };
        let mut described = draft.attachments.clone();
        let unnamed = described.iter().filter(|meta| meta.id.is_none()).count() as u64;
        if unnamed > 0 {
            let mut next =
                self.number_attachments(unnamed).await.map_err(|error| failed(error.message))?;
            for meta in described.iter_mut().filter(|meta| meta.id.is_none()) {
                meta.id = Some(format!("img_{next}"));
                next += 1;
            }
        }
        let file = if draft.persist {
            let head = self.state().head;
            let bytes = draft.bytes.clone();
            let written =
                attachments::write(&self.hub.options.attachments, &self.epoch, head, bytes).await;
            written.map_err(|error| failed(error.to_string()))?
        } else {
            "".into()
        };
        Ok((Some((draft.bytes.clone(), file)), described))
    }
}

fn only_the_caller() -> Refusal {
    Refusal::new("not-allowed", "only the caller can cancel a call")
}

/// Splits the bytes into the attachments of the core's model.
fn parts(described: &[AttachmentMeta], bytes: &Bytes) -> Vec<sa_core::Attachment> {
    let mut at = 0;
    let part = |meta: &AttachmentMeta| {
        let end = at + meta.size as usize;
        let data = bytes.slice(at..end);
        at = end;
        sa_core::Attachment { mime_type: meta.mime_type.clone(), name: meta.name.clone(), data }
    };
    described.iter().map(part).collect()
}

#[cfg(test)]
mod tests;
