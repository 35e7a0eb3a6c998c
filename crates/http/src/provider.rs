//! Providers and their events in the JSON format of the APIs.

use sa_core::ProviderEvent;
use sa_text::json::ObjectWriter;
use sa_text::redact;
use serde::Serialize;

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ProviderDoc<'a> {
    pub kind: &'a str,
    pub id: &'a str,
}

/// Serializes an event that a provider sent outside of calls.
pub fn provider_event(event: &ProviderEvent) -> String {
    ObjectWriter::with_capacity(128 + event.data.len())
        .text("node", &event.provider.id)
        .text("event", &event.event)
        .maybe((!event.data.is_null()).then_some(&event.data), |object, data| {
            object.raw_text("data", &redact::mask_json(data.as_str()))
        })
        .plain("at_ms", event.at_ms)
        .end()
}
