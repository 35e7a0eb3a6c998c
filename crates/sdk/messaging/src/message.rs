//! Saying something.

use crate::payload::{ExecutionPause, MessageError, NewMessage, PauseStatus, Payload, UpdateMessage};
use crate::shared::Draft;
use crate::{Attachment, Client, Error};

/// How to send a message.
#[derive(Debug, Clone)]
pub struct SendOptions {
    /// The id of the message that this one answers.
    pub reply_to: Option<String>,
    /// Whom it is for: ids or handles.
    pub at: Vec<String>,
    /// Whether it is stored. It is, unless told.
    pub persist: bool,
    pub content_type: Option<String>,
    pub attachments: Vec<Attachment>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self { reply_to: None, at: Vec::new(), persist: true, content_type: None, attachments: Vec::new() }
    }
}

/// A message that the server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Its id, for updates and replies.
    pub message_id: String,
    /// Its place in the channel's log; absent when it is not stored.
    pub pubsub_id: Option<u64>,
}

impl Client {
    /// Says something, and waits until the server has it.
    pub async fn send(&self, content: impl Into<String>, options: SendOptions) -> Result<Sent, Error> {
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
        let (kind, payload, attachments) = (NewMessage::KIND, message.write()?, options.attachments);
        let draft = Draft { subject, attachments, ..Draft::new(kind, payload, options.persist) };
        Ok(Sent { message_id, pubsub_id: self.shared.publish(draft).await? })
    }

    /// Begins a message that is said bit by bit.
    pub async fn begin(&self, content: impl Into<String>, options: SendOptions) -> Result<MessageHandle, Error> {
        let sent = self.send(content, options).await?;
        Ok(MessageHandle { client: self.clone(), message_id: sent.message_id })
    }

    /// Adds to the end of a message of one's own. Gives back the update's place in the channel's log.
    pub async fn update(&self, message_id: &str, content: impl Into<String>) -> Result<Option<u64>, Error> {
        self.update_with(message_id, content, true).await
    }

    /// As [`update`](Self::update), stored or not.
    pub async fn update_with(
        &self,
        message_id: &str,
        content: impl Into<String>,
        persist: bool,
    ) -> Result<Option<u64>, Error> {
        let content = Some(content.into());
        let update = UpdateMessage { id: message_id.into(), content, content_type: None, complete: false };
        self.say(&update, persist).await
    }

    /// Says that a message of one's own is all there.
    pub async fn complete(&self, message_id: &str) -> Result<Option<u64>, Error> {
        let update = UpdateMessage { id: message_id.into(), content: None, content_type: None, complete: true };
        self.say(&update, true).await
    }

    /// Says that a message of one's own will not be completed, and why.
    pub async fn error(
        &self,
        message_id: &str,
        error: impl Into<String>,
        code: Option<&str>,
    ) -> Result<Option<u64>, Error> {
        let error = MessageError { id: message_id.into(), error: error.into(), code: code.map(Into::into) };
        self.say(&error, true).await
    }

    /// Asks whoever works on a message to pause, to go on, or to stop for good.
    pub async fn pause_execution(
        &self,
        message_id: &str,
        status: PauseStatus,
        reason: Option<&str>,
    ) -> Result<Option<u64>, Error> {
        let pause = ExecutionPause { message_id: message_id.into(), status, reason: reason.map(Into::into) };
        self.say(&pause, true).await
    }

    async fn say<P: Payload>(&self, payload: &P, persist: bool) -> Result<Option<u64>, Error> {
        self.shared.publish(Draft::new(P::KIND, payload.write()?, persist)).await
    }
}

/// A message of one's own that is said bit by bit.
#[derive(Debug, Clone)]
pub struct MessageHandle {
    client: Client,
    message_id: String,
}

impl MessageHandle {
    pub fn message_id(&self) -> &str {
        &self.message_id
    }

    /// Adds to its end.
    pub async fn update(&self, content: impl Into<String>) -> Result<Option<u64>, Error> {
        self.client.update(&self.message_id, content).await
    }

    /// It is all there.
    pub async fn complete(self) -> Result<Option<u64>, Error> {
        self.client.complete(&self.message_id).await
    }

    /// It will not be completed.
    pub async fn error(self, error: impl Into<String>, code: Option<&str>) -> Result<Option<u64>, Error> {
        self.client.error(&self.message_id, error, code).await
    }
}
