//! The metadata of a participant: its roster entry, its handle and its methods.

use std::borrow::Cow;
use std::sync::Arc;

use sa_core::RawJson;
use sa_protocol::channel::{encode_error, encode_message, handle_key};

use crate::GATEWAY;
use crate::calls::GATEWAY_METADATA;
use crate::channel::{Channel, Member, presence_body};
use crate::declared::{methods_in, with_methods};
use crate::gateway::GatewayEntry;
use crate::methods::{Metadata, with_valid_methods, without_null_methods};
use crate::pipeline::Item;
use crate::publish::{AROUND, Refusal, Sender};

const MAX_METADATA: usize = 64 << 10;

impl Channel {
    /// Replaces the roster entry of a participant, and its offered methods.
    pub(crate) fn update_metadata(
        self: &Arc<Self>,
        sender: &Sender,
        metadata: &str,
        (member, reference): (&Member, Option<i64>),
    ) -> Result<(), Refusal> {
        let participant = &sender.principal.name;
        check_size(metadata)?;
        RawJson::parse(metadata).map_err(|error| {
            Refusal::invalid(format!("the metadata is not valid JSON: {error}"))
        })?;
        let sent = Metadata::read(metadata).map_err(Refusal::invalid)?;
        for (name, error) in &sent.left_out {
            let name: String = name.escape_debug().take(140).collect();
            let why = format!("the method \"{name}\" is not offered: {error}");
            let _ = member.outbox.send(encode_error(&why, "validation-error", None));
            self.hub.router.journal().count("channel", "bad_method");
        }
        let declares = sent.methods.is_some();
        let usable = if declares {
            (!sent.left_out.is_empty()).then(|| with_valid_methods(metadata))
        } else {
            without_null_methods(metadata)
        };
        let metadata = usable.as_deref().unwrap_or(metadata);
        // Metadata without methods declares nothing: the earlier declaration of this program
        // stays valid.
        let before = if declares { None } else { self.state().declared.get(member).cloned() };
        let whole = before
            .map_or(Cow::Borrowed(metadata), |methods| with_methods(metadata, &methods).into());
        let metadata = &*whole;
        check_size(metadata)?;
        let read = Metadata::read(metadata).map_err(Refusal::invalid)?;
        if !read.methods().is_empty() && !sender.rights.publish {
            let why = "the token is not allowed to publish in this channel, so it cannot answer calls; offer no methods";
            return Err(Refusal::new("not-allowed", why));
        }
        let reserved =
            self.usage.reserve(&sender.principal.holder_by_name(), 2 * metadata.len() + AROUND)?;
        let gateway = read.handle.as_deref().filter(|handle| handle_key(handle) == GATEWAY);
        let gateway = gateway.map(|_| {
            let entry = GatewayEntry::of(&self.hub, sender);
            entry.map_or_else(|| GATEWAY_METADATA.to_owned(), |entry| entry.metadata)
        });
        let mut state = self.state();
        if let Some(handle) = &read.handle {
            let holder =
                state.roster.iter().find(|(id, other)| *id != participant && other.claims(handle));
            let holder = holder.map(|(id, holder)| (&**id, &*holder.metadata));
            let gateway = gateway.as_deref().map(|metadata| (GATEWAY, metadata));
            if let Some((holder, metadata)) = holder.or(gateway) {
                let _ = member.outbox.send(conflict(holder, metadata, handle));
                let message =
                    format!("the handle \"{handle}\" is taken by \"{holder}\"; choose another one");
                return Err(Refusal::new("handle-conflict", message));
            }
        }
        let declared = methods_in(metadata).map(|methods| state.declared.set(member, methods));
        let Some(presence) = state.roster.get_mut(participant) else { return Ok(()) };
        presence.set_metadata(member, metadata, read.handle.as_ref());
        presence.declare(self, participant, &read);
        let body = presence_body(participant, "update", metadata, None);
        self.enqueue(Item {
            from: Some((member.id, reference)),
            reserved: Some(reserved),
            declared: declared.unwrap_or_default(),
            ..Item::new(body, true)
        });
        Ok(())
    }
}

/// Returns the message by which deployed clients recognize a conflict: a presence of the handle's
/// owner, with the handle in the client's spelling.
fn conflict(holder: &str, metadata: &str, handle: &str) -> String {
    let mut metadata: serde_json::Value = serde_json::from_str(metadata).unwrap_or_default();
    metadata["handle"] = handle.into();
    encode_message(
        "ephemeral",
        None,
        &presence_body(holder, "update", &metadata.to_string(), None),
        None,
        false,
    )
}

fn check_size(metadata: &str) -> Result<(), Refusal> {
    let len = metadata.len();
    if len > MAX_METADATA {
        return Err(Refusal::invalid(format!(
            "the metadata has {len} bytes; the maximum is {MAX_METADATA}"
        )));
    }
    Ok(())
}
