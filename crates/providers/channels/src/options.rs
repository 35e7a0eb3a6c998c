//! The limits and timeouts of channels.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sa_core::Trimmer;
use sa_socket::Liveness;

/// The maximum number of bytes to queue at a time, even if the queue limit is larger.
pub(crate) const LARGE: usize = 1 << 20;

#[derive(Debug, Clone)]
pub struct ChannelOptions {
    pub liveness: Liveness,
    /// The maximum size of a message's JSON, in bytes.
    pub max_message_bytes: usize,
    /// The maximum size of all attachments of a message, in bytes.
    pub max_attachment_bytes: usize,
    /// The maximum number of bytes queued for a slow participant.
    pub max_queue_bytes: usize,
    /// The maximum number of messages per second from one connection.
    pub max_rate: u32,
    pub max_channels: usize,
    /// The maximum size of messages and attachments of all channels, on disk.
    pub max_stored_bytes: usize,
    /// The same limit for one channel.
    pub max_bytes_per_channel: usize,
    /// The same limit for one principal, in all channels.
    pub max_bytes_per_principal: usize,
    /// The maximum size of messages that participants have not read yet, in memory.
    pub pending_bytes: usize,
    /// The number of messages that each channel keeps.
    pub keep_messages: u64,
    /// How long each channel keeps messages.
    pub keep: Duration,
    /// Deletes expired messages.
    pub trimmer: Arc<Trimmer>,
    /// The maximum number of concurrent calls to one participant from the other surfaces.
    pub max_pending: usize,
    /// The directory of attachments.
    pub attachments: PathBuf,
}

impl ChannelOptions {
    /// Returns the queue limit of one participant. It is at most a fraction of the shared budget,
    /// so that slow readers are closed before publishers are rejected.
    pub(crate) fn queue_bytes(&self) -> usize {
        self.max_queue_bytes.min((self.pending_bytes / 8).max(self.max_message_bytes))
    }

    /// Returns the maximum number of bytes to queue for a connection at a time.
    pub(crate) fn pace(&self) -> usize {
        LARGE.min(self.queue_bytes() / 2)
    }

    /// Returns the maximum size of a frame from a participant.
    pub fn max_frame_bytes(&self) -> usize {
        self.max_message_bytes + self.max_attachment_bytes + sa_protocol::channel::binary::HEADER
    }
}
