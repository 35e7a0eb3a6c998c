//! What a method knows about the call that it runs for, and can say while it runs.

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
    /// Who asked.
    pub caller_id: String,
    /// Cancelled when the caller does not want the result any more, or cannot get it: when it cancels, when the call has
    /// ended otherwise, and when the client is closed. Some seconds later the method is dropped where it waits.
    pub signal: CancellationToken,
    pub(crate) shared: Arc<Shared>,
}

impl MethodContext {
    /// Sends a part of the result.
    pub async fn stream(&self, content: impl Serialize) -> Result<(), Error> {
        self.stream_with_attachments(content, Vec::new(), None).await
    }

    /// Sends a part of the result with bytes beside it.
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

    /// Says how far the method has come, in per cent. This is not stored: what matters is where it is now.
    pub async fn progress(&self, percent: f64) -> Result<(), Error> {
        let part = MethodResult { call_id: self.call_id.clone(), progress: Some(percent), ..MethodResult::default() };
        self.say(&part, Vec::new(), false).await
    }

    /// A result with bytes beside it, for the method to return.
    pub fn result_with_attachments(
        &self,
        content: impl Serialize,
        attachments: Vec<Attachment>,
    ) -> Result<MethodOutput, Error> {
        MethodOutput::new(content, attachments)
    }

    async fn say(&self, part: &MethodResult, attachments: Vec<Attachment>, persist: bool) -> Result<(), Error> {
        attachment::check(&attachments)?;
        let draft = Draft { attachments, ..Draft::new(MethodResult::KIND, part.write()?, persist) };
        // A part for somebody who does not wait for it any more would wait for a connection in vain.
        let sent = self.signal.run_until_cancelled(self.shared.publish(draft)).await;
        sent.unwrap_or_else(|| Err(Error::Cancelled("the call is over".into()))).map(drop)
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

/// What a method returns, with bytes beside it.
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

    /// The same with a type for its content.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }
}

/// What a method may return: anything that can be serialised, or a [`MethodOutput`].
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
