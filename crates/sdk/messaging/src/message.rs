//! Sending messages.

use crate::payload::{
    ExecutionPause, MessageError, NewMessage, PauseStatus, Payload, UpdateMessage,
};
use crate::shared::Draft;
use crate::{Attachment, Client, Error};

/// Options of a message.
#[derive(Debug, Clone)]
pub struct SendOptions {
    /// The id of the message that this one answers.
    pub reply_to: Option<String>,
    /// The recipients: ids or handles.
    pub at: Vec<String>,
    /// Whether the message is stored. True by default.
    pub persist: bool,
    pub content_type: Option<String>,
    pub attachments: Vec<Attachment>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self {
            reply_to: None,
            at: Vec::new(),
            persist: true,
            content_type: None,
            attachments: Vec::new(),
        }
    }
}

/// A message that the server has acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The message's id, for updates and replies.
    pub message_id: String,
    /// The position in the channel's log; absent if the message is not stored.
    pub pubsub_id: Option<u64>,
}

impl Client {
    /// Sends a message, and waits until the server has acknowledged it.
    pub async fn send(
        &self,
        content: impl Into<String>,
        options: SendOptions,
    ) -> Result<Sent, Error> {
        let message_id = uuid::Uuid::new_v4().to_string();
        let message = NewMessage {
            id: message_id.clone(),
            content: content.into(),
            content_type: options.content_type,
            reply_to: options.reply_to,
            at: options.at,
            complete: false,
            error: None,
        };
        let subject = Some(message_id.clone());
        let (kind, payload, attachments) =
            (NewMessage::KIND, message.write()?, options.attachments);
        let draft = Draft { subject, attachments, ..Draft::new(kind, payload, options.persist) };
        Ok(Sent { message_id, pubsub_id: self.shared.publish(draft).await? })
    }

    /// Begins a message that is sent in parts.
    pub async fn begin(
        &self,
        content: impl Into<String>,
        options: SendOptions,
    ) -> Result<MessageHandle, Error> {
        let sent = self.send(content, options).await?;
        Ok(MessageHandle { client: self.clone(), message_id: sent.message_id })
    }

    /// Appends to one of this participant's messages. Returns the update's position in the
    /// channel's log.
    pub async fn update(
        &self,
        message_id: &str,
        content: impl Into<String>,
    ) -> Result<Option<u64>, Error> {
        self.update_with(message_id, content, true).await
    }

    /// Appends like [`update`](Self::update), stored or not.
    pub async fn update_with(
        &self,
        message_id: &str,
        content: impl Into<String>,
        persist: bool,
    ) -> Result<Option<u64>, Error> {
        let content = Some(content.into());
        let update =
            UpdateMessage { id: message_id.into(), content, content_type: None, complete: false };
        self.say(&update, persist).await
    }

    /// Marks one of this participant's messages as complete.
    pub async fn complete(&self, message_id: &str) -> Result<Option<u64>, Error> {
        let update = UpdateMessage {
            id: message_id.into(),
            content: None,
            content_type: None,
            complete: true,
        };
        self.say(&update, true).await
    }

    /// Marks one of this participant's messages as failed, with an error.
    pub async fn error(
        &self,
        message_id: &str,
        error: impl Into<String>,
        code: Option<&str>,
    ) -> Result<Option<u64>, Error> {
        let error =
            MessageError { id: message_id.into(), error: error.into(), code: code.map(Into::into) };
        self.say(&error, true).await
    }

    /// Asks the participant that works on a message to pause, to continue, or to stop for good.
    pub async fn pause_execution(
        &self,
        message_id: &str,
        status: PauseStatus,
        reason: Option<&str>,
    ) -> Result<Option<u64>, Error> {
        let pause = ExecutionPause {
            message_id: message_id.into(),
            status,
            reason: reason.map(Into::into),
        };
        self.say(&pause, true).await
    }

    async fn say<P: Payload>(&self, payload: &P, persist: bool) -> Result<Option<u64>, Error> {
        self.shared.publish(Draft::new(P::KIND, payload.write()?, persist)).await
    }
}

/// A message of this participant that is sent in parts.
#[derive(Debug, Clone)]
pub struct MessageHandle {
    client: Client,
    message_id: String,
}

impl MessageHandle {
    pub fn message_id(&self) -> &str {
        &self.message_id
    }

    /// Appends to the message.
    pub async fn update(&self, content: impl Into<String>) -> Result<Option<u64>, Error> {
        self.client.update(&self.message_id, content).await
    }

    /// Marks the message as complete.
    pub async fn complete(self) -> Result<Option<u64>, Error> {
        self.client.complete(&self.message_id).await
    }

    /// Marks the message as failed.
    pub async fn error(
        self,
        error: impl Into<String>,
        code: Option<&str>,
    ) -> Result<Option<u64>, Error> {
        self.client.error(&self.message_id, error, code).await
    }
}
