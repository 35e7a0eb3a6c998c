//! The routes of channels.

use std::sync::Arc;
use std::time::Duration;

use axum::routing::get;
use sa_channels::http::Routes;
use sa_channels::{ChannelOptions, Channels};
use sa_socket::Liveness;
use serde::Deserialize;

use crate::Parts;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Section {
    max_message_bytes: usize,
    max_attachment_bytes: usize,
    max_queue_bytes: usize,
    max_messages_per_second: u32,
    max_channels: usize,
    pending_bytes: usize,
    max_stored_bytes: usize,
    max_bytes_per_channel: usize,
    max_bytes_per_principal: usize,
    keep_messages: u64,
}

impl Default for Section {
    fn default() -> Self {
        Self {
            max_message_bytes: 1 << 20,
            max_attachment_bytes: 25 << 20,
            max_queue_bytes: 64 << 20,
            max_messages_per_second: 20_000,
            max_channels: 10_000,
            pending_bytes: 256 << 20,
            max_stored_bytes: 16 << 30,
            max_bytes_per_channel: 1 << 30,
            max_bytes_per_principal: 2 << 30,
            keep_messages: 1_000_000,
        }
    }
}

pub(crate) async fn open(parts: &Parts, liveness: Liveness) -> Arc<Channels> {
    let section: Section = parts.settings.section("channels");
    let options = ChannelOptions {
        liveness,
        max_message_bytes: section.max_message_bytes,
        max_attachment_bytes: section.max_attachment_bytes,
        max_queue_bytes: section.max_queue_bytes,
        max_rate: section.max_messages_per_second,
        max_channels: section.max_channels,
        max_stored_bytes: section.max_stored_bytes,
        max_bytes_per_channel: section.max_bytes_per_channel,
        max_bytes_per_principal: section.max_bytes_per_principal,
        pending_bytes: section.pending_bytes,
        keep_messages: section.keep_messages,
        keep: Duration::from_secs(365 * 86_400),
        trimmer: Arc::clone(&parts.trimmer),
        max_pending: parts.settings.limits().pending_per_node,
        attachments: parts.dir.path().join("attachments"),
    };
    let store = Arc::new(parts.store.clone());
    let router = Arc::clone(&parts.router);
    let channels =
        Channels::open(Arc::clone(&store) as _, store, router, options, parts.closing.clone());
    channels.await.unwrap()
}

pub(crate) fn routes(parts: &Parts, channels: Arc<Channels>) -> axum::Router {
    let state = Routes { http: parts.http(), channels, closing: parts.closing.clone() };
    // Clients may connect to the root path, too.
    let root = axum::Router::new().route("/", get(sa_channels::http::upgrade));
    axum::Router::from(sa_channels::http::router().with_state(state.clone()))
        .merge(root.with_state(state))
}
