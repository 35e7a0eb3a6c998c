//! Turns the methods that participants advertise into tools in the channel's scope.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sa_core::directory::{Attach, Registration};
use sa_core::link::{Link, LinkProvider};
use sa_core::{
    Call, CallError, CallErrorKind, CallId, CancelReason, Catalog, Grant, ProviderId, RawJson,
    Schema, Scope, Tool, Update, clock,
};
use sa_protocol::channel::{Envelope, encode_body, is_visible};
use sa_protocol::{CapabilityError, validate_tool_name};
use sa_text::json::ObjectWriter;
use sa_text::json::{object, why};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use tracing::warn;

use crate::calls::GATEWAY_METADATA;
use crate::channel::Channel;
use crate::pipeline::Item;
use crate::{KIND, PREFIX};

/// The maximum number of methods of one participant.
const MAX_METHODS: usize = 256;
const MAX_DESCRIPTION: usize = 8_192;

/// The fields of a participant's metadata that the gateway reads. The others pass through.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata<'a> {
    pub(crate) handle: Option<String>,
    /// `None` if the participant declares no list, which differs from an empty list.
    #[serde(borrow)]
    pub(crate) methods: Option<Vec<Method<'a>>>,
    /// The names of methods that are left out because their names are invalid.
    #[serde(skip)]
    pub(crate) left_out: Vec<(String, CapabilityError)>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Method<'a> {
    pub(crate) name: String,
    description: Option<String>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
    #[serde(borrow)]
    returns: Option<&'a RawValue>,
    /// In milliseconds.
    timeout: Option<f64>,
}

impl<'a> Metadata<'a> {
    pub(crate) fn read(json: &'a str) -> Result<Self, String> {
        let mut metadata: Self = object(json.as_bytes())
            .map_err(|error| format!("the metadata is invalid: {}", why(&error)))?;
        if metadata.methods().len() > MAX_METHODS {
            return Err(format!("a participant can advertise at most {MAX_METHODS} methods"));
        }
        // Two handles that look the same could be confused. Blanks and several scripts are allowed:
        // deployed clients have such handles, and the id of a participant is not its handle.
        let bad = |text: &String| text.is_empty() || text.len() > 128 || !is_visible(text);
        if metadata.handle.as_ref().is_some_and(bad) {
            return Err("a handle must have 1 to 128 bytes of visible text".into());
        }
        // Methods become tools of models, here or in a client.
        let Self { methods, left_out, .. } = &mut metadata;
        if let Some(methods) = methods {
            methods.retain(|Method { name, .. }| match validate_tool_name(name) {
                Ok(()) => true,
                Err(error) => {
                    left_out.push((name.clone(), error));
                    false
                }
            });
        }
        Ok(metadata)
    }

    pub(crate) fn methods(&self) -> &[Method<'a>] {
        self.methods.as_deref().unwrap_or_default()
    }
}

/// Removes the methods with invalid names from metadata that [`Metadata::read`] accepts.
pub(crate) fn with_valid_methods(metadata: &str) -> String {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
    }
    let is_valid = |method: &&RawValue| {
        let named = serde_json::from_str::<Named<'_>>(method.get());
        named.is_ok_and(|method| validate_tool_name(&method.name).is_ok())
    };
    let mut fields = fields(metadata);
    let methods = fields.get("methods").map_or("[]", |methods| methods.get());
    let mut methods: Vec<&RawValue> = serde_json::from_str(methods).unwrap_or_default();
    methods.retain(is_valid);
    let methods = to_raw_value(&methods).unwrap_or_default();
    fields.insert("methods".into(), &methods);
    serde_json::to_string(&fields).unwrap_or_default()
}

/// Removes methods that are `null`, which declare nothing. Returns `None` if there are none.
pub(crate) fn without_null_methods(metadata: &str) -> Option<String> {
    let mut fields = fields(metadata);
    fields.remove("methods").filter(|methods| methods.get() == "null")?;
    serde_json::to_string(&fields).ok()
}

fn fields(metadata: &str) -> BTreeMap<Cow<'_, str>, &RawValue> {
    serde_json::from_str(metadata).unwrap_or_default()
}

/// The methods that a participant offers.
pub(crate) struct Offer {
    provider: Arc<LinkProvider<MethodLink>>,
    registration: Option<Registration>,
}

impl Offer {
    /// Offers the methods of a participant in its channel, and replaces its previous offer.
    pub(crate) fn make(
        before: Option<Self>,
        channel: &Arc<Channel>,
        participant: &Arc<str>,
        metadata: &Metadata<'_>,
    ) -> Option<Self> {
        if before.is_none() && metadata.methods().is_empty() {
            return None;
        }
        let catalog = catalog(participant, metadata);
        if let Some(Self { provider, registration: Some(registration) }) = before {
            registration.publish(catalog);
            return Some(Self { provider, registration: Some(registration) });
        }
        let link = MethodLink {
            channel: Arc::downgrade(channel),
            participant: Arc::clone(participant),
            callers: Mutex::default(),
        };
        let provider = Arc::new(LinkProvider::new(link));
        let attach = Attach {
            id: ProviderId::new(KIND, &format!("{}/{participant}", channel.name)),
            scope: Scope::Channel(Arc::clone(&channel.name)),
            // One grant for the whole channel: tokens have identified the participants, and the
            // directory resolves name conflicts.
            grant: Grant::token(&format!("channel:{}", channel.name)),
            provider: Arc::clone(&provider) as Arc<dyn sa_core::Provider>,
            catalog,
            max_running: channel.hub.options.max_pending,
            about: RawJson::empty_object(),
            may_take_over: true,
        };
        let registration = channel
            .hub
            .router
            .directory()
            .attach(attach)
            .inspect_err(
                |error| warn!(%participant, %error, "cannot offer the methods of a participant"),
            )
            .ok();
        Some(Self { provider, registration })
    }

    pub(crate) fn provider(&self) -> &Arc<LinkProvider<MethodLink>> {
        &self.provider
    }

    /// Withdraws the methods of a participant that has left, and fails its running calls at once.
    pub(crate) fn withdraw(self, participant: &str) {
        if let Some(registration) = self.registration {
            registration.withdraw();
        }
        self.provider.close(&format!("the participant \"{participant}\" left during the call"));
    }
}

fn catalog(participant: &str, metadata: &Metadata<'_>) -> Catalog {
    // A dotted name would claim a namespace. Such a method can only be called within the channel.
    let usable =
        metadata.methods().iter().filter(|method| sa_core::naming::is_exposable(&method.name));
    let tools = usable.map(|method| Tool {
        name: method.name.as_str().into(),
        preferred_name: format!("{PREFIX}_{participant}_{}", method.name),
        description: method
            .description
            .as_deref()
            .map(|text| text[..text.floor_char_boundary(MAX_DESCRIPTION)].into()),
        input: method.parameters.and_then(readable).map(Schema::new),
        output: method.returns.and_then(readable).map(Schema::new),
        timeout: method
            .timeout
            .filter(|ms| (1.0..1e10).contains(ms))
            .map(|ms| Duration::from_millis(ms as u64)),
        ..Tool::named(&method.name)
    });
    Catalog { tools: tools.collect(), ..Catalog::default() }
}

fn readable(raw: &RawValue) -> Option<RawJson> {
    let json = RawJson::part(raw).ok()?;
    json.to_value().ok().filter(serde_json::Value::is_object).map(|_| json)
}

/// Calls a participant with a message in its channel.
#[derive(Debug)]
pub(crate) struct MethodLink {
    channel: Weak<Channel>,
    participant: Arc<str>,
    /// The callers of pending calls.
    callers: Mutex<HashMap<CallId, Arc<str>>>,
}

impl MethodLink {
    /// Returns the caller of this pending call to the participant.
    pub(crate) fn caller(&self, call: &str) -> Option<Arc<str>> {
        let id = call.parse().ok()?;
        self.callers.lock().get(&id).cloned()
    }

    fn forget(&self, id: CallId) -> Option<Arc<str>> {
        self.callers.lock().remove(&id)
    }
}

impl Link for MethodLink {
    fn send_request(&self, call: &Call) -> Result<(), CallError> {
        let gone = || {
            CallError::undelivered(format!(
                "the participant \"{}\" is not in the channel",
                self.participant
            ))
        };
        let channel = self.channel.upgrade().ok_or_else(gone)?;
        let permit = channel.place_now().ok_or_else(|| {
            CallError::new(
                CallErrorKind::Overloaded,
                format!("the queue of the channel \"{}\" is full", channel.name),
            )
        })?;
        let payload = ObjectWriter::with_capacity(call.args.len() + 160)
            .text("callId", &call.id.to_string())
            .text("methodName", &call.tool)
            .text("providerId", &self.participant)
            .raw("args", &call.args)
            .end();
        let caller = Arc::clone(&call.principal.name);
        let reserved =
            Some(channel.usage.reserve(&call.principal.holder_by_name(), payload.len())?);
        self.callers.lock().insert(call.id, Arc::clone(&caller));
        let body = message("method-call", &payload, &caller, &channel.metadata_of(&caller));
        let provider = Some(Arc::clone(&self.participant));
        channel.enqueue(Item { permit: Some(permit), provider, reserved, ..Item::new(body, true) });
        Ok(())
    }

    fn send_cancel(&self, id: CallId, _: CancelReason) {
        if let (Some(channel), Some(caller)) = (self.channel.upgrade(), self.forget(id)) {
            let body = message(
                "method-cancel",
                &format!("{{\"callId\":\"{id}\"}}"),
                &caller,
                &channel.metadata_of(&caller),
            );
            channel.enqueue(Item { owner: Some(caller), ..Item::new(body, true) });
        }
    }
}

fn message(kind: &str, payload: &str, sender: &str, sender_metadata: &str) -> String {
    encode_body(&Envelope {
        kind,
        payload,
        sender,
        at_ms: clock::now_ms(),
        sender_metadata,
        attachments: &[],
    })
}

impl Channel {
    /// Returns the roster metadata of a participant, or the gateway's if the participant is
    /// absent.
    pub(crate) fn metadata_of(&self, participant: &str) -> Arc<str> {
        self.state()
            .roster
            .get(participant)
            .map_or_else(|| GATEWAY_METADATA.into(), |presence| Arc::clone(&presence.metadata))
    }
}

/// A result, as a participant sends it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MethodResult<'a> {
    pub(crate) call_id: String,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    complete: Option<bool>,
    is_error: Option<bool>,
    progress: Option<f64>,
}

impl MethodResult<'_> {
    /// Returns whether this is the last result. An error always ends a call.
    pub(crate) fn is_last(&self) -> bool {
        self.complete == Some(true) || self.is_error == Some(true)
    }

    /// Forwards the result to a caller on another surface. Returns `false` if no such call is
    /// pending.
    pub(crate) fn deliver(
        &self,
        provider: &LinkProvider<MethodLink>,
        attachments: Vec<sa_core::Attachment>,
    ) -> bool {
        let Ok(id) = self.call_id.parse::<CallId>() else { return false };
        let content = match self.content.map_or_else(|| Ok(RawJson::null()), RawJson::part) {
            Ok(content) => content,
            // The content is unreadable, and a result without it would be wrong.
            Err(error) => {
                let participant = provider.link().participant.escape_debug();
                let why = format!(
                    "the participant \"{participant}\" returned an invalid result: {error}"
                );
                provider.link().forget(id);
                return provider.complete(id, Err(CallError::new(CallErrorKind::Failed, why)));
            }
        };
        if self.is_last() {
            provider.link().forget(id);
            let outcome = match self.is_error {
                Some(true) => Err(failure(&content)),
                _ => Ok(sa_http::blocks::output(content, attachments)),
            };
            return provider.complete(id, outcome);
        }
        let mut known = true;
        if let Some(progress) = self.progress {
            known = provider
                .update(id, Update::Progress { progress, total: Some(100.0), message: None });
        }
        if self.content.is_some() || !attachments.is_empty() {
            known = provider.update(id, Update::Chunk { content, attachments });
        }
        known
    }
}

/// Converts an error that a participant sent.
fn failure(content: &RawJson) -> CallError {
    #[derive(Deserialize)]
    struct Shape {
        error: Option<String>,
        code: Option<String>,
    }
    let sent = object::<Shape>(content.as_str().as_bytes()).ok();
    let kind = match sent.as_ref().and_then(|sent| sent.code.as_deref()) {
        Some("validation-error") => CallErrorKind::InvalidArgs,
        Some("method-not-found" | "provider-not-found") => CallErrorKind::NotFound,
        Some("provider-offline") => CallErrorKind::Offline,
        Some("timeout") => CallErrorKind::Timeout,
        Some("cancelled") => CallErrorKind::Cancelled,
        _ => CallErrorKind::Failed,
    };
    let message = sent
        .and_then(|sent| sent.error)
        .unwrap_or_else(|| "the participant reported an error".into());
    CallError::new(kind, message)
}

/// Returns the channel protocol's code for an error kind.
pub(crate) fn code(kind: CallErrorKind) -> &'static str {
    match kind {
        CallErrorKind::InvalidArgs => "validation-error",
        CallErrorKind::NotFound => "method-not-found",
        CallErrorKind::Timeout => "timeout",
        CallErrorKind::Cancelled => "cancelled",
        CallErrorKind::Offline => "provider-offline",
        CallErrorKind::NotAllowed
        | CallErrorKind::Failed
        | CallErrorKind::Overloaded
        | CallErrorKind::Conflict
        | CallErrorKind::Store => "execution-error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_what_it_looks_like() {
        for good in ["ann", "änn", "安", "🙂", "a b", "@ann"] {
            assert!(
                Metadata::read(&serde_json::json!({ "handle": good }).to_string()).is_ok(),
                "{good}"
            );
        }
        let long = "é".repeat(65);
        for bad in ["", " ann", "ann\n", "ann\u{200b}", "\u{202e}nna", "\u{feff}ann", &long] {
            assert!(
                Metadata::read(&serde_json::json!({ "handle": bad }).to_string()).is_err(),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn methods_with_invalid_names_are_left_out() {
        let long = "é".repeat(129);
        for bad in ["", "a b", "a\n", "a\u{200b}", "\u{202e}a", "p\u{430}y", &long] {
            let json = serde_json::json!({ "a": 1, "methods": [{ "name": "a" }, { "name": bad }] });
            let json = json.to_string();
            let read = Metadata::read(&json).unwrap();
            let names = |methods: &[Method<'_>]| {
                methods.iter().map(|method| method.name.clone()).collect::<Vec<_>>()
            };
            assert_eq!((names(read.methods()), &*read.left_out[0].0), (vec!["a".to_owned()], bad));
            assert_eq!(with_valid_methods(&json), r#"{"a":1,"methods":[{"name":"a"}]}"#);
        }
    }

    fn usual() -> serde_json::Value {
        serde_json::json!({ "handle": "ann", "methods": [
            { "name": "search", "description": "d", "parameters": { "type": "object" }, "returns": {}, "timeout": 5.0 },
        ] })
    }

    proptest::proptest! {
        #[test]
        fn what_a_participant_says_of_itself_keeps_to_the_rules_or_is_refused_in_few_words(
            nearly in sa_hostile::nearly(usual()), text in sa_hostile::text(&["{", "}", "[", "]", "\"handle\":", "\"a\"", ","]),
        ) {
            for json in [nearly, text] {
                match Metadata::read(&json) {
                    Ok(metadata) => {
                        proptest::prop_assert!(json.trim_start().starts_with('{') && metadata.methods().len() <= MAX_METHODS, "the rule is broken");
                        proptest::prop_assert!(metadata.handle.as_ref().is_none_or(|handle| (1..=128).contains(&handle.len()) && is_visible(handle)));
                        proptest::prop_assert!(metadata.methods().iter().all(|method| validate_tool_name(&method.name).is_ok()));
                        let rest = if metadata.left_out.is_empty() { json.clone() } else { with_valid_methods(&json) };
                        let rest = Metadata::read(&rest).expect("it is as valid as before");
                        proptest::prop_assert!(rest.left_out.is_empty() && rest.methods().len() == metadata.methods().len());
                        for tool in catalog("w", &metadata).tools {
                            proptest::prop_assert!(sa_core::naming::is_exposable(&tool.name));
                            proptest::prop_assert!(tool.description.is_none_or(|text| text.len() <= MAX_DESCRIPTION));
                            proptest::prop_assert!(tool.input.is_none_or(|schema| schema.raw().as_str().starts_with('{')), "the rule is broken");
                        }
                    }
                    Err(why) => proptest::prop_assert!(why.len() < sa_hostile::SHORT, "{} bytes", why.len()),
                }
            }
        }

        #[test]
        fn a_list_says_nothing_of_a_participant(list in sa_hostile::list(&["ann"])) {
            proptest::prop_assert!(Metadata::read(&list).is_err());
        }

        #[test]
        fn any_error_of_a_participant_is_an_error(text in sa_hostile::nearly(serde_json::json!({ "error": "e", "code": "timeout" }))) {
            if let Ok(content) = RawJson::parse(&text) {
                let kind = failure(&content).kind;
                proptest::prop_assert!(kind == CallErrorKind::Failed || text.contains("timeout"));
            }
        }
    }
}
