//! `[channels]`: the settings of channels.

use std::path::Path;
use std::sync::Arc;

use sa_core::Trimmer;
use sa_settings::{
    Budget, Key, LEAST_MESSAGE, Limits, MAX_BYTES, MAX_COUNT, MAX_DAYS, MAX_MESSAGE, MAX_STORED,
    Section, days,
};
use sa_socket::Liveness;
use serde::{Deserialize, Serialize};

use crate::ChannelOptions;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub max_message_bytes: usize,
    pub max_attachment_bytes: usize,
    pub max_queue_bytes: usize,
    pub max_messages_per_second: u32,
    pub max_channels: usize,
    pub pending_bytes: usize,
    pub max_stored_bytes: usize,
    pub max_bytes_per_channel: usize,
    pub max_bytes_per_principal: usize,
    pub keep_messages: u64,
    pub keep_days: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_message_bytes: 1024 * 1024,
            max_attachment_bytes: 25 * 1024 * 1024,
            max_queue_bytes: 64 * 1024 * 1024,
            max_messages_per_second: 20_000,
            max_channels: 10_000,
            pending_bytes: 0,
            max_stored_bytes: 16 * 1024 * 1024 * 1024,
            max_bytes_per_channel: 1024 * 1024 * 1024,
            max_bytes_per_principal: 2 * 1024 * 1024 * 1024,
            keep_messages: 1_000_000,
            keep_days: 365,
        }
    }
}

impl Settings {
    pub fn options(
        &self,
        limits: &Limits,
        liveness: Liveness,
        data_dir: &Path,
        trimmer: &Arc<Trimmer>,
    ) -> ChannelOptions {
        ChannelOptions {
            liveness,
            max_message_bytes: self.max_message_bytes,
            max_attachment_bytes: self.max_attachment_bytes,
            max_queue_bytes: self.max_queue_bytes,
            max_rate: self.max_messages_per_second,
            max_channels: self.max_channels,
            max_stored_bytes: self.max_stored_bytes,
            max_bytes_per_channel: self.max_bytes_per_channel,
            max_bytes_per_principal: self.max_bytes_per_principal,
            pending_bytes: self.pending_bytes,
            keep_messages: self.keep_messages,
            keep: days(self.keep_days),
            trimmer: Arc::clone(trimmer),
            max_pending: limits.pending_per_node,
            attachments: data_dir.join("attachments"),
        }
    }
}

impl Section for Settings {
    fn keys(&self) -> &'static [Key] {
        KEYS
    }

    fn budgets(&mut self) -> Vec<Budget<'_>> {
        vec![Budget::in_memory(&mut self.pending_bytes, 2)]
    }
}

const KEYS: &[Key] = &[
    Key::number(
        "max_message_bytes",
        LEAST_MESSAGE..=16 << 20,
        "Maximum size of the payload of a channel message.",
    ),
    Key::number(
        "max_attachment_bytes",
        0..=MAX_MESSAGE,
        "Maximum total size of the attachments of one message.",
    ),
    Key::number(
        "max_queue_bytes",
        LEAST_MESSAGE..=MAX_BYTES,
        "Maximum size of the queue for a participant that reads slowly. When it is exceeded, the connection is closed; the participant can resume where it stopped.",
    ),
    Key::number(
        "max_messages_per_second",
        1..=MAX_COUNT,
        "Maximum number of messages that one connection may send per second.",
    ),
    Key::number("max_channels", 1..=MAX_COUNT, "Maximum number of channels."),
    Key::number(
        "pending_bytes",
        0..=MAX_BYTES,
        "Memory budget for channel messages that participants have not read yet. 0: 2/18 of limits.pending_bytes.",
    ),
    Key::number(
        "max_stored_bytes",
        LEAST_MESSAGE..=MAX_STORED,
        "Maximum total size of the stored messages and attachments of all channels, on disk.",
    ),
    Key::number(
        "max_bytes_per_channel",
        LEAST_MESSAGE..=MAX_STORED,
        "Maximum size of the stored messages and attachments of one channel.",
    ),
    Key::number(
        "max_bytes_per_principal",
        LEAST_MESSAGE..=MAX_STORED,
        "Maximum size of the stored messages and attachments of one token, in all channels together.",
    ),
    Key::number("keep_messages", 1..=u64::MAX >> 1, "Number of messages that each channel keeps."),
    Key::number("keep_days", 1..=MAX_DAYS, "Number of days that each channel keeps messages."),
];
