//! The context of a running method: the data of its call, and its means to report.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::payload::{MethodResult, Payload as _};
use crate::shared::{Draft, Shared};
use crate::{Attachment, Error, attachment};

/// The call that a method runs for.
#[derive(Clone)]
pub struct MethodContext {
    pub call_id: String,
    /// The participant that made the call.
    pub caller_id: String,
    /// Cancelled when the caller cancels, when the call has ended otherwise, and when the client is
    /// closed. If the method does not end within a few seconds, it is dropped.
    pub signal: CancellationToken,
    pub(crate) shared: Arc<Shared>,
}

impl MethodContext {
    /// Sends a part of the result.
    pub async fn stream(&self, content: impl Serialize) -> Result<(), Error> {
        self.stream_with_attachments(content, Vec::new(), None).await
    }

    /// Sends a part of the result with attachments.
    pub async fn stream_with_attachments(
        &self,
        content: impl Serialize,
        attachments: Vec<Attachment>,
        content_type: Option<&str>,
    ) -> Result<(), Error> {
        let content = Some(to_value(content)?);
        let part = MethodResult {
            call_id: self.call_id.clone(),
            content,
            content_type: content_type.map(Into::into),
            ..MethodResult::default()
        };
        self.say(&part, attachments, true).await
    }

    /// Reports the method's progress in per cent. Progress is not stored, because only the latest
    /// value matters.
    pub async fn progress(&self, percent: f64) -> Result<(), Error> {
        let part = MethodResult {
            call_id: self.call_id.clone(),
            progress: Some(percent),
            ..MethodResult::default()
        };
        self.say(&part, Vec::new(), false).await
    }

    /// Creates a result with attachments, for the method to return.
    pub fn result_with_attachments(
        &self,
        content: impl Serialize,
        attachments: Vec<Attachment>,
    ) -> Result<MethodOutput, Error> {
        MethodOutput::new(content, attachments)
    }

    async fn say(
        &self,
        part: &MethodResult,
        attachments: Vec<Attachment>,
        persist: bool,
    ) -> Result<(), Error> {
        attachment::check(&attachments)?;
        let draft = Draft { attachments, ..Draft::new(MethodResult::KIND, part.write()?, persist) };
        // If the call has ended, a part would wait for a connection in vain.
        let sent = self.signal.run_until_cancelled(self.shared.publish(draft)).await;
        sent.unwrap_or_else(|| Err(Error::Cancelled("the call has ended".into()))).map(drop)
    }
}

impl fmt::Debug for MethodContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MethodContext")
            .field("call_id", &self.call_id)
            .field("caller_id", &self.caller_id)
            .finish_non_exhaustive()
    }
}

/// The result of a method, with attachments.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodOutput {
    pub(crate) content: Value,
    pub(crate) content_type: Option<String>,
    pub(crate) attachments: Vec<Attachment>,
}

impl MethodOutput {
    pub fn new(content: impl Serialize, attachments: Vec<Attachment>) -> Result<Self, Error> {
        attachment::check(&attachments)?;
        Ok(Self { content: to_value(content)?, content_type: None, attachments })
    }

    /// Sets the content type.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }
}

/// A type that a method may return: anything that can be serialised, or a [`MethodOutput`].
pub trait IntoMethodOutput {
    fn into_output(self) -> Result<MethodOutput, Error>;
}

impl<T: Serialize> IntoMethodOutput for T {
    fn into_output(self) -> Result<MethodOutput, Error> {
        MethodOutput::new(self, Vec::new())
    }
}

impl IntoMethodOutput for MethodOutput {
    fn into_output(self) -> Result<MethodOutput, Error> {
        Ok(self)
    }
}

fn to_value(content: impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(content).map_err(|error| Error::sent("the content", error.to_string()))
}
