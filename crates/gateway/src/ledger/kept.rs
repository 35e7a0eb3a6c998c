//! The stored form of call outcomes.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sa_core::outcome::Attachment;
use sa_core::{CallError, CallErrorKind, Outcome, RawJson};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kept {
    Ok { content: Box<RawValue>, attachments: Vec<KeptAttachment> },
    Err { kind: String, message: String, hint: Option<String>, retryable: bool },
}

#[derive(Serialize, Deserialize)]
pub(super) struct KeptAttachment {
    mime_type: String,
    name: Option<String>,
    /// The data as base64.
    data: String,
}

impl Kept {
    pub(super) fn of(outcome: &Outcome) -> Self {
        match outcome {
            Ok(output) => Self::Ok {
                content: RawValue::from_string(output.content.as_str().into())
                    .unwrap_or_else(|_| RawValue::NULL.to_owned()),
                attachments: output.attachments.iter().map(KeptAttachment::of).collect(),
            },
            Err(error) => Self::Err {
                kind: error.kind.as_str().into(),
                message: error.message.clone(),
                hint: error.hint.as_deref().map(Into::into),
                retryable: error.retryable,
            },
        }
    }

    pub(super) fn restore(self) -> Outcome {
        match self {
            Self::Ok { content, attachments } => {
                let attachments = attachments.into_iter().filter_map(KeptAttachment::restore);
                let content = RawJson::part(&content).map_err(|error| {
                    let why = format!("the stored result of this call cannot be read: {error}");
                    CallError::new(CallErrorKind::Failed, why)
                })?;
                Ok(sa_http::blocks::output(content, attachments.collect()))
            }
            Self::Err { kind, message, hint, retryable } => {
                let kind = CallErrorKind::parse(&kind).unwrap_or(CallErrorKind::Failed);
                let error = CallError::new(kind, message).retryable(retryable);
                Err(match hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                })
            }
        }
    }
}

impl KeptAttachment {
    fn of(attachment: &Attachment) -> Self {
        let Attachment { mime_type, name, data } = attachment;
        Self {
            mime_type: mime_type.clone(),
            name: name.clone(),
            data: BASE64_STANDARD.encode(data),
        }
    }

    fn restore(self) -> Option<Attachment> {
        let data = BASE64_STANDARD.decode(self.data).ok()?.into();
        Some(Attachment { mime_type: self.mime_type, name: self.name, data })
    }
}
