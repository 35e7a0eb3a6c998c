//! The client of a model's server, with limits on size and time. Errors never contain the key.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use sa_limits::offload;
use sa_sse::Reader;
use sa_text::json::{parse_value, parsed_bytes};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use crate::answers::Answers;
use crate::error::{ChatError, quoted};
use crate::spec::Spec;

/// The maximum size of an answer.
pub(crate) const MAX_ANSWER: usize = 64 << 20;
/// The maximum size of an event of a stream. An image in base64 fits.
const MAX_EVENT: usize = 32 << 20;
/// The maximum size of an error's body that is read.
const MAX_ERROR_BYTES: usize = 64 * 1024;
const CONNECT: Duration = Duration::from_secs(10);

/// Creates the HTTP client for all servers. It uses no proxy of the environment and follows no
/// redirects, because either would receive the key.
pub(crate) fn client() -> Result<Client, String> {
    let agent = concat!("switchboard/", env!("CARGO_PKG_VERSION"));
    let client =
        Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).user_agent(agent);
    client
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .build()
        .map_err(|error| format!("cannot set up HTTP: {error}"))
}

/// The server of one model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server<'a> {
    pub(crate) http: &'a Client,
    pub(crate) name: &'a str,
    pub(crate) spec: &'a Spec,
}

/// An answer that has begun.
#[derive(Debug)]
pub(crate) struct StartedAnswer {
    response: Response,
    idle: Duration,
    name: String,
    secrets: Vec<SecretString>,
    events: Reader,
    ended: bool,
}

impl Server<'_> {
    /// Sends a request and waits for the head of the answer. A server sends nothing before a whole
    /// answer is complete, so only streaming detects a dead server early.
    pub(crate) async fn ask(
        &self,
        body: Vec<u8>,
        stream: bool,
    ) -> Result<StartedAnswer, ChatError> {
        let unusable = |why: String| {
            let message = format!("the key of the model \"{}\" cannot be used: {why}", self.name);
            ChatError::new(500, "server_error", "model_misconfigured", message).retry(false)
        };
        let key = self.spec.api_key.resolve().map_err(unusable)?;
        let url = format!("{}/chat/completions", self.spec.base_url.trim_end_matches('/'));
        let mut request = self.http.post(url).header("content-type", "application/json").body(body);
        let mut secrets = Vec::new();
        for (header, value) in &self.spec.headers {
            if let Some(value) = value.resolve().map_err(unusable)? {
                request = request.header(header, value.expose_secret());
                secrets.push(value);
            }
        }
        if let Some(key) = key {
            request = request.bearer_auth(key.expose_secret());
            secrets.push(key);
        }
        let timeout = if stream { self.spec.idle_timeout() } else { self.spec.timeout() };
        let sent = tokio::time::timeout(timeout, request.send())
            .await
            .map_err(|_| self.silent(timeout))?;
        let response = sent.map_err(|error| self.unreachable(error))?;
        if response.status() != StatusCode::OK {
            return Err(self.refused(response, &secrets).await);
        }
        Ok(StartedAnswer {
            response,
            idle: timeout,
            name: self.name.to_owned(),
            secrets,
            events: Reader::new(MAX_EVENT),
            ended: false,
        })
    }

    fn silent(&self, timeout: Duration) -> ChatError {
        silent(self.name, timeout)
    }

    fn unreachable(&self, error: reqwest::Error) -> ChatError {
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        // Only the origin is shown, because the rest of the URL may be a secret.
        let place =
            reqwest::Url::parse(&self.spec.base_url).map(|url| url.origin().ascii_serialization());
        let place = place.map(|origin| format!(" at {origin}")).unwrap_or_default();
        let name = self.name;
        let message = format!(
            "the server of the model \"{name}\"{place} cannot be reached: {cause}; start it, or fix base_url in [models.{name}] of the gateway's configuration"
        );
        ChatError::server(502, "upstream_unreachable", message)
    }

    /// Converts a server's rejection into an error for the client.
    async fn refused(&self, mut response: Response, secrets: &[SecretString]) -> ChatError {
        let status = response.status();
        let retry_after = retry_after(response.headers());
        let body = async {
            let mut body = Vec::new();
            while let Ok(Some(bytes)) = response.chunk().await {
                body.extend_from_slice(&bytes);
                if body.len() > MAX_ERROR_BYTES {
                    break;
                }
            }
            body
        };
        let body = tokio::time::timeout(self.spec.idle_timeout(), body).await.unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let of = |field: &str| {
            body["error"][field].as_str().map(|message| without_secrets(message, secrets))
        };
        let message = of("message")
            .or_else(|| body["error"].as_str().map(|message| without_secrets(message, secrets)));
        let name = self.name;
        let with = |what: &str| match &message {
            Some(message) => format!("the server of the model \"{name}\" {what}: {message}"),
            None => format!("the server of the model \"{name}\" {what} ({})", status.as_u16()),
        };
        match status.as_u16() {
            // The server's own message may contain the key.
            401 | 403 => {
                let message = format!(
                    "the server of the model \"{name}\" refused the gateway's key ({}); an operator must fix api_key in [models.{name}]",
                    status.as_u16()
                );
                ChatError::server(502, "upstream_unauthorized", message).retry(false)
            }
            429 => {
                let code = of("code").unwrap_or_else(|| "rate_limit_exceeded".into());
                let error = ChatError::new(429, "rate_limit_error", &code, with("refused the request because of a rate limit"));
                ChatError { retry_after, ..error }
            }
            503 | 529 => {
                let error = ChatError::server(503, "upstream_overloaded", with("is overloaded"));
                ChatError { retry_after, ..error }
            }
            408 | 504 => ChatError::server(504, "upstream_timeout", with("timed out")),
            500..=599 => ChatError::server(502, "upstream_failed", with("failed")),
            400..=499 => {
                let kind = of("type").unwrap_or_else(|| "invalid_request_error".into());
                let code = of("code").unwrap_or_else(|| "upstream_refused".into());
                let error = ChatError::new(status.as_u16(), &kind, &code, with("refused the request"));
                ChatError { param: of("param"), ..error }
            }
            300..=399 => ChatError::server(
                502,
                "upstream_redirected",
                format!("the server of the model \"{name}\" returned a redirect, which is not followed to protect the key; set base_url to the target"),
            )
            .retry(false),
            other => ChatError::server(502, "upstream_bad_answer", with(&format!("returned the status {other}"))),
        }
    }
}

impl StartedAnswer {
    /// Reads the whole of an answer that is not a stream.
    pub(crate) async fn whole(
        mut self,
        answers: &mut Answers,
    ) -> Result<Map<String, Value>, ChatError> {
        // If the length is known, the budget refuses the answer before it is received.
        let length = self.response.content_length().unwrap_or_default();
        answers.receive(usize::try_from(length).unwrap_or(MAX_ANSWER).min(MAX_ANSWER))?;
        let mut body = Vec::new();
        while let Some(bytes) = self.bytes().await? {
            answers.receive(body.len() + bytes.len())?;
            body.extend_from_slice(&bytes);
            if body.len() > MAX_ANSWER {
                return Err(self.invalid("its answer is too large"));
            }
        }
        // The parsed values are counted first: many small ones take far more memory than their
        // text.
        let mut parsed = body.len();
        let read = || {
            if body.len() >= offload::LARGE {
                parsed = parsed_bytes(&body);
                answers.receive(parsed)?;
            }
            Ok::<_, ChatError>(parse_value(&body))
        };
        let read = offload::run_queued(body.len(), read).await?;
        answers.keep(parsed);
        match read {
            Ok(Value::Object(answer))
                if answer.contains_key("error") && !answer.contains_key("choices") =>
            {
                Err(self.error_of(&Value::Object(answer)))
            }
            Ok(Value::Object(answer)) if has_choice(&answer) => Ok(answer),
            Ok(_) => Err(self.invalid("its answer has no choices")),
            Err(error) => Err(self.invalid(&format!("its answer is not valid JSON: {error}"))),
        }
    }

    /// Returns whether the server answers in one piece instead of a stream: some do, mostly to
    /// report an error.
    pub(crate) fn is_whole(&self) -> bool {
        let kind = self
            .response
            .headers()
            .get(reqwest::header::CONTENT_TYPE)
            .map(reqwest::header::HeaderValue::as_bytes);
        kind.is_some_and(|kind| kind.starts_with(b"application/json"))
    }

    /// Returns such an answer as the only piece of a stream.
    pub(crate) async fn into_chunk(
        self,
        answers: &mut Answers,
    ) -> Result<Map<String, Value>, ChatError> {
        self.whole(answers).await.map(as_chunk)
    }

    /// Returns the data of the next event, or `None` at the end of the stream. The event counts
    /// until the caller keeps a part of it, or nothing.
    pub(crate) async fn event(
        &mut self,
        answers: &mut Answers,
    ) -> Result<Option<String>, ChatError> {
        let mut pending = 0;
        loop {
            let event = self.events.next_event();
            match event.map_err(|too_long| self.invalid(&format!("in its stream, {too_long}")))? {
                // Some servers send empty events as keep-alives.
                Some(event) if event.data.is_empty() => {}
                Some(event) => return Ok(Some(event.data)),
                None if self.ended => return Ok(None),
                None => {
                    if let Some(bytes) = self.bytes().await? {
                        pending += bytes.len();
                        answers.receive(pending)?;
                        self.events.push(&bytes);
                    } else {
                        self.ended = true;
                        // Some servers omit the last empty line.
                        self.events.end();
                    }
                }
            }
        }
    }

    async fn bytes(&mut self) -> Result<Option<bytes::Bytes>, ChatError> {
        match tokio::time::timeout(self.idle, self.response.chunk()).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(_)) => Err(self.cut()),
            Err(_) => Err(silent(&self.name, self.idle)),
        }
    }

    pub(crate) fn cut(&self) -> ChatError {
        let message = format!(
            "the server of the model \"{}\" closed the connection before its answer was complete",
            self.name
        );
        ChatError::server(502, "upstream_cut_off", message)
    }

    pub(crate) fn invalid(&self, why: &str) -> ChatError {
        let message =
            format!("the server of the model \"{}\" returned an invalid answer: {why}", self.name);
        ChatError::server(502, "upstream_bad_answer", message)
    }

    /// Converts an error that the server reports after it began to answer.
    pub(crate) fn error_of(&self, body: &Value) -> ChatError {
        let message = body["error"]["message"]
            .as_str()
            .or_else(|| body["error"].as_str())
            .unwrap_or("it gave no reason");
        let message = without_secrets(message, &self.secrets);
        ChatError::server(
            502,
            "upstream_failed",
            format!("the server of the model \"{}\" failed: {message}", self.name),
        )
    }
}

fn has_choice(answer: &Map<String, Value>) -> bool {
    answer.get("choices").is_some_and(|choices| choices[0].is_object())
}

/// Converts a whole answer into the only piece of a stream.
fn as_chunk(mut answer: Map<String, Value>) -> Map<String, Value> {
    let choices = answer.get_mut("choices").and_then(Value::as_array_mut);
    for choice in choices.into_iter().flatten().filter_map(Value::as_object_mut) {
        let mut delta = choice.remove("message").unwrap_or_default();
        let calls = delta.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (index, call) in
            calls.into_iter().flatten().filter_map(Value::as_object_mut).enumerate()
        {
            call.insert("index".into(), json!(index));
        }
        choice.insert("delta".into(), delta);
    }
    answer.insert("object".into(), json!("chat.completion.chunk"));
    answer
}

fn silent(name: &str, timeout: Duration) -> ChatError {
    let message =
        format!("the server of the model \"{name}\" sent nothing for {} ms", timeout.as_millis());
    ChatError::server(504, "upstream_timeout", message)
}

fn without_secrets(message: &str, secrets: &[SecretString]) -> String {
    let secrets: Vec<&str> = secrets.iter().map(ExposeSecret::expose_secret).collect();
    quoted(message, &secrets)
}

fn retry_after(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    (text.len() <= 40).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::round::Round;

    const WORDS: &[&str] = &[
        "choices",
        "message",
        "delta",
        "tool_calls",
        "function_call",
        "function",
        "custom",
        "name",
        "arguments",
        "input",
        "index",
        "id",
        "content",
        "role",
        "usage",
        "finish_reason",
        "object",
    ];

    proptest! {
        #[test]
        fn every_answer_is_converted_to_a_chunk(choices in sa_hostile::json(WORDS), more in sa_hostile::json(WORDS)) {
            for choices in [choices.clone(), json!([choices]), json!([{ "message": choices }, more])] {
                let answer = Map::from_iter([("choices".to_owned(), choices)]);
                if has_choice(&answer) {
                    let whole = Round::of(&answer);
                    let piece = as_chunk(answer.clone());
                    let mut pieces = Round::default();
                    pieces.take(&piece);
                    pieces.end();
                    prop_assert_eq!(whole.text(), pieces.text());
                }
            }
        }
    }

    #[test]
    fn an_answer_without_an_object_for_a_choice_is_none() {
        for choices in
            [json!([]), json!([7]), json!(["x"]), json!([null]), json!({ "0": {} }), json!("x")]
        {
            assert!(
                !has_choice(&Map::from_iter([("choices".to_owned(), choices.clone())])),
                "{choices}"
            );
        }
        let odd =
            json!([{ "message": "hello" }, 7, { "message": { "tool_calls": [1, { "id": "a" }] } }]);
        let piece = as_chunk(Map::from_iter([("choices".to_owned(), odd)]));
        let calls = json!([1, { "id": "a", "index": 0 }]);
        assert_eq!(
            piece["choices"],
            json!([{ "delta": "hello" }, 7, { "delta": { "tool_calls": calls } }])
        );
    }
}
