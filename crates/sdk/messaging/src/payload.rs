//! The payloads of the protocol's messages. They are checked when sent and when received.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;

/// The maximum length of an id.
const MAX_ID: usize = 128;
/// The maximum length of a parse error.
const MAX_WORDS: usize = 512;

/// `message`: a message of a participant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewMessage {
    /// The id, chosen by the sender and unique in the channel.
    pub id: String,
    pub content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The id of the message that this one answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The recipients: ids or handles. Empty for a message to all.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<String>,
    /// Whether the message is known to be complete. Only set on messages that were merged from the
    /// channel's history.
    #[serde(skip)]
    pub complete: bool,
    /// The error that the sender has reported for the message. Only set on messages that were
    /// merged from the channel's history.
    #[serde(skip)]
    pub error: Option<String>,
}

/// `update-message`: a part that is appended to a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateMessage {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Whether this is the last part.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub complete: bool,
}

/// `error`: a message has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageError {
    pub id: String,
    pub error: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// `method-call`: asks a participant to run a method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MethodCallRequest {
    pub call_id: String,
    pub method_name: String,
    pub provider_id: String,
    #[serde(default)]
    pub args: Value,
}

/// `method-result`: output of a method; the last one has `complete`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MethodResult {
    pub call_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub complete: bool,
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_error: bool,
    /// The progress in per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
}

/// `method-cancel`: the caller no longer needs the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MethodCancel {
    pub call_id: String,
}

/// `execution-pause`: asks to pause, resume or cancel the work on a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionPause {
    pub message_id: String,
    pub status: PauseStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PauseStatus {
    Paused,
    Resumed,
    Cancelled,
}

/// A payload of the protocol.
pub(crate) trait Payload: Serialize + for<'a> Deserialize<'a> {
    const KIND: &'static str;

    fn check(&self) -> Result<(), String>;

    /// Corrects values that other implementations write differently, if the meaning is clear.
    fn mend(&mut self) {}

    /// Checks a payload and returns its JSON.
    fn write(&self) -> Result<String, Error> {
        let what = format!("the {}", Self::KIND);
        self.check().map_err(|why| Error::sent(&what, why))?;
        serde_json::to_string(self).map_err(|error| Error::sent(&what, error.to_string()))
    }

    /// Reads and checks a received payload.
    fn read(json: &str, sender: &str) -> Result<Self, Error> {
        let what = format!("a {} of \"{}\"", Self::KIND, sender.escape_debug());
        let mut read: Self = parse(json, &what)?;
        read.mend();
        read.check().map_err(|why| Error::received(&what, why))?;
        Ok(read)
    }
}

/// Parses JSON of another program. Parse errors repeat unexpected input, so they are truncated.
pub(crate) fn parse<T: for<'a> Deserialize<'a>>(json: &str, what: &str) -> Result<T, Error> {
    let short = |error: serde_json::Error| {
        sa_protocol::escaped_prefix(&error.to_string(), MAX_WORDS).to_owned()
    };
    sa_protocol::object(json).map_err(|error| Error::received(what, short(error)))
}

fn id(name: &str, id: &str) -> Result<(), String> {
    let usable = (1..=MAX_ID).contains(&id.len());
    if usable {
        Ok(())
    } else {
        Err(format!("{name} has {} bytes, but 1 to {MAX_ID} are allowed", id.len()))
    }
}

impl Payload for NewMessage {
    const KIND: &'static str = "message";

    fn check(&self) -> Result<(), String> {
        id("id", &self.id)?;
        self.reply_to.as_deref().map_or(Ok(()), |reply_to| id("replyTo", reply_to))
    }
}

impl Payload for UpdateMessage {
    const KIND: &'static str = "update-message";

    fn check(&self) -> Result<(), String> {
        id("id", &self.id)
    }
}

impl Payload for MessageError {
    const KIND: &'static str = "error";

    fn check(&self) -> Result<(), String> {
        id("id", &self.id)
    }
}

impl Payload for MethodCallRequest {
    const KIND: &'static str = "method-call";

    fn check(&self) -> Result<(), String> {
        id("callId", &self.call_id)?;
        id("methodName", &self.method_name)?;
        id("providerId", &self.provider_id)
    }
}

impl Payload for MethodResult {
    const KIND: &'static str = "method-result";

    /// Clamps the progress, so that a result is not lost because its progress is slightly above
    /// 100.
    fn mend(&mut self) {
        self.progress = self.progress.map(|progress| progress.clamp(0.0, 100.0));
    }

    fn check(&self) -> Result<(), String> {
        id("callId", &self.call_id)?;
        match self.progress {
            Some(progress) if !(0.0..=100.0).contains(&progress) => {
                Err(format!("progress is {progress}, but must be a percentage from 0 to 100"))
            }
            _ => Ok(()),
        }
    }
}

impl Payload for MethodCancel {
    const KIND: &'static str = "method-cancel";

    fn check(&self) -> Result<(), String> {
        id("callId", &self.call_id)
    }
}

impl Payload for ExecutionPause {
    const KIND: &'static str = "execution-pause";

    fn check(&self) -> Result<(), String> {
        id("messageId", &self.message_id)
    }
}

/// Other implementations write `null` for absent fields.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_as_the_protocol_has_them() {
        let message =
            NewMessage::read(r#"{"id":"m","content":"hi","at":null,"replyTo":null,"x":1}"#, "ann")
                .unwrap();
        assert_eq!(message.write().unwrap(), r#"{"id":"m","content":"hi"}"#);
        let result =
            MethodResult { call_id: "c".into(), complete: true, ..MethodResult::default() };
        assert_eq!(result.write().unwrap(), r#"{"callId":"c","complete":true}"#);
        let pause = ExecutionPause::read(r#"{"messageId":"m","status":"paused"}"#, "ann").unwrap();
        assert_eq!(pause.status, PauseStatus::Paused);
    }

    #[test]
    fn bad_ones_are_refused_in_both_directions() {
        for bad in [
            r#"{"id":"","content":"x"}"#,
            r#"{"id":"m"}"#,
            r#"{"id":7,"content":"x"}"#,
            "null",
            "[]",
        ] {
            assert_eq!(
                NewMessage::read(bad, "eve").unwrap_err().code(),
                "validation-error",
                "{bad}"
            );
        }
        for progress in [f64::NAN, -1.0, 100.5] {
            let result = MethodResult {
                call_id: "c".into(),
                progress: Some(progress),
                ..MethodResult::default()
            };
            assert_eq!(result.write().unwrap_err().code(), "validation-error");
        }
        let result =
            MethodResult::read(r#"{"callId":"c","progress":100.1,"complete":true}"#, "eve")
                .unwrap();
        assert_eq!((result.progress, result.complete), (Some(100.0), true));
        assert!(
            MessageError { id: "x".repeat(129), error: String::new(), code: None }.write().is_err()
        );
        assert!(ExecutionPause::read(r#"{"messageId":"m","status":"gone"}"#, "eve").is_err());
    }

    fn check<P: Payload + std::fmt::Debug + PartialEq>(
        json: &str,
    ) -> Result<(), proptest::test_runner::TestCaseError> {
        match P::read(json, "eve") {
            // The gateway refuses these keys, because `serde_json` reads them in another way.
            Ok(_) if json.contains("$serde_json::private") => {}
            Ok(read) => {
                let written = read.write().expect("what may be read may be sent");
                proptest::prop_assert_eq!(P::read(&written, "eve").unwrap(), read, "{}", written);
            }
            Err(error) => {
                proptest::prop_assert_eq!(error.code(), "validation-error");
                proptest::prop_assert!(error.to_string().len() < sa_hostile::SHORT);
            }
        }
        Ok(())
    }

    fn usual() -> Value {
        serde_json::json!({
            "id": "m", "content": "hi", "contentType": "text/plain", "replyTo": "n", "at": ["ann"], "complete": true,
            "error": "e", "code": "c", "callId": "c", "methodName": "f", "providerId": "w", "args": {}, "isError": false,
            "progress": 50.0, "messageId": "m", "status": "paused", "reason": "r",
        })
    }

    proptest::proptest! {
        #[test]
        fn what_is_taken_of_others_can_be_said_again(
            nearly in sa_hostile::nearly(usual()), text in sa_hostile::text(&["{", "}", "[", "]", "\"id\":", "\"m\"", ",", "0"]),
        ) {
            for json in [nearly, text] {
                check::<NewMessage>(&json)?;
                check::<UpdateMessage>(&json)?;
                check::<MessageError>(&json)?;
                check::<MethodCallRequest>(&json)?;
                check::<MethodResult>(&json)?;
                check::<MethodCancel>(&json)?;
                check::<ExecutionPause>(&json)?;
            }
        }
    }

    #[test]
    fn a_list_is_no_payload() {
        assert_eq!(
            NewMessage::read(r#"["m","hi"]"#, "eve").unwrap_err().code(),
            "validation-error"
        );
    }
}
