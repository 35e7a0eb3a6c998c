//! Converts a plugin server's answer to the gateway's model.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sa_core::{Attachment, Block, CallError, CallErrorKind, Output, RawJson};
use sa_egress::{EgressError, EgressErrorKind};
use sa_protocol::plugin::PluginErrorType;
use serde_json::Value;

use crate::call_extensions::{Answer, Fault};
use crate::plugin::Plugin;
use crate::scrub::Hidden;

const EXCERPT: usize = 300;

/// Converts an answer, from which secrets were removed. JSON is passed on as it is, text as text,
/// an image as an image.
pub(crate) fn outcome(plugin: &str, answer: &Answer) -> Result<Output, Fault> {
    // An invalid HTTP status must not be forwarded: hosts and proxies treat it differently.
    if !(200..=599).contains(&answer.status) {
        let status = answer.status;
        let why = format!(
            "the server of the plugin \"{plugin}\" returned the status {status}, which is not a valid final status"
        );
        return Err(Fault::new(
            PluginErrorType::PluginGatewayError,
            CallError::new(CallErrorKind::Failed, why),
        ));
    }
    if !(200..300).contains(&answer.status) {
        return Err(refusal(plugin, answer));
    }
    let content_type = answer.content_type.as_deref().unwrap_or_default();
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media.starts_with("image/") && media != "image/svg+xml" {
        let (data, bytes) = (BASE64_STANDARD.encode(&answer.body), answer.body.len());
        let content = RawJson::of(&serde_json::json!({ "mimeType": media, "bytes": bytes }));
        let blocks = vec![Block::Image { data, mime_type: media }];
        return Ok(Output { blocks, ..Output::json(content) });
    }
    let Ok(text) = std::str::from_utf8(&answer.body) else {
        let content =
            RawJson::of(&serde_json::json!({ "mimeType": media, "bytes": answer.body.len() }));
        let mime_type = if media.is_empty() { "application/octet-stream".into() } else { media };
        let attachments = vec![Attachment { mime_type, name: None, data: answer.body.clone() }];
        return Ok(Output { attachments, ..Output::json(content) });
    };
    if text.trim().is_empty() {
        return Ok(Output::json(RawJson::null()));
    }
    let says_json = media == "application/json" || media.ends_with("+json");
    match RawJson::parse(text) {
        // `new Response(JSON.stringify(…))` has the content type of plain text.
        Ok(json) if says_json || text.trim_start().starts_with(['{', '[']) => {
            Ok(sa_http::blocks::output(json, Vec::new()))
        }
        Err(error) if says_json => {
            let why = format!(
                "the server of the plugin \"{plugin}\" returned {media} that is not valid JSON: {error}"
            );
            Err(Fault::new(
                PluginErrorType::PluginServerError,
                CallError::new(CallErrorKind::Failed, why),
            ))
        }
        _ => {
            let content = RawJson::of(&Value::from(text));
            Ok(Output { blocks: vec![Block::Text(text.to_owned())], ..Output::json(content) })
        }
    }
}

/// Converts an error response. The host receives its status and text, or the whole response if
/// that is an error of the plugin protocol. Other surfaces receive an error message.
fn refusal(plugin: &str, answer: &Answer) -> Fault {
    let text = String::from_utf8_lossy(&answer.body);
    let status = answer.status;
    let parsed: Value = serde_json::from_str(&text).unwrap_or_default();
    // SDKs omit a body that is undefined.
    let known = parsed.get("errorType").and_then(PluginErrorType::parse);
    if !(400..600).contains(&status) && known.is_none() {
        let why = format!(
            "the server of the plugin \"{plugin}\" returned the status {status}, which is not valid for a call"
        );
        return Fault::new(
            PluginErrorType::PluginServerError,
            CallError::new(CallErrorKind::Failed, why),
        );
    }
    let said = ["/body/message", "/message", "/error/message", "/error", "/body"];
    let said = said.iter().find_map(|path| parsed.pointer(path)?.as_str()).unwrap_or(&text);
    let said: String = said.chars().filter(|c| !c.is_control()).take(EXCERPT).collect();
    let kind = if status == 429 { CallErrorKind::Overloaded } else { CallErrorKind::Failed };
    let mut error = CallError::new(
        kind,
        format!("the server of the plugin \"{plugin}\" returned {status}: {said}"),
    );
    if known == Some(PluginErrorType::PluginSettingsInvalid) || status == 401 || status == 403 {
        error =
            error.hint(format!("run `switchboard plugin settings {plugin}` to check its settings"));
    }
    let error = error.retryable(status == 429 || status >= 502);
    let error_type = known.unwrap_or(PluginErrorType::Status(status));
    let fault = Fault::with_body(error_type, Value::String(text.into_owned()), error);
    Fault { answer: known.map(|_| answer.clone()), ..fault }
}

/// Converts a request without an answer. Secrets are masked in parts from outside, such as the
/// target of a redirect.
pub(crate) fn unanswered(plugin: &Plugin, error: EgressError, secrets: &[String]) -> Fault {
    if let Some(refused) = error.refused {
        let error = CallError::answer_refused(refused);
        return Fault::new(PluginErrorType::Status(sa_http::status(&error)), error);
    }
    nothing_from(
        &format!("the plugin \"{}\" cannot be called", plugin.identifier()),
        &masked(plugin, error, secrets),
    )
}

/// Converts a token request without an answer.
pub(crate) fn no_token(plugin: &Plugin, error: EgressError, secrets: &[String]) -> Fault {
    let what = format!("cannot get a token for the plugin \"{}\"", plugin.identifier());
    nothing_from(&what, &masked(plugin, error, secrets))
}

/// Masks secrets in an error. The plugin's own servers are not masked: masking a part of a known
/// name would reveal the secret.
fn masked(plugin: &Plugin, error: EgressError, secrets: &[String]) -> EgressError {
    let own = |part: &str| {
        let host = |origin: &String| {
            url::Url::parse(origin).ok()?.host_str().map(|host| format!("\"{host}\""))
        };
        plugin.origins.iter().any(|origin| origin == part || host(origin).as_deref() == Some(part))
    };
    let hidden = Hidden::new(secrets);
    error.masked(|part| if own(part) { part.to_owned() } else { hidden.text(part).into_owned() })
}

fn nothing_from(what: &str, error: &EgressError) -> Fault {
    use EgressErrorKind as Kind;
    let (error_type, kind) = match error.kind {
        Kind::Forbidden | Kind::BadUrl | Kind::CrossOrigin => {
            (PluginErrorType::PluginGatewayError, CallErrorKind::Failed)
        }
        Kind::Unresolved | Kind::Unreachable => {
            (PluginErrorType::PluginServerError, CallErrorKind::Offline)
        }
        Kind::Timeout => (PluginErrorType::PluginServerError, CallErrorKind::Timeout),
        Kind::Broken | Kind::TooLarge | Kind::Refused | Kind::TooManyRedirects => {
            (PluginErrorType::PluginServerError, CallErrorKind::Failed)
        }
    };
    let failed = CallError::new(kind, format!("{what}: {error}"));
    let failed = match error.kind {
        Kind::Forbidden => failed
            .hint("if the plugin needs this address, an operator can add the plugin with `--allow-private HOST:PORT`"),
        Kind::TooLarge => failed.hint("request less data, or raise plugins.max_response_bytes"),
        Kind::Unresolved | Kind::Unreachable => failed.hint("check that its server is running, or try again later"),
        _ => failed,
    };
    Fault::new(error_type, failed)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sa_limits::received::Held;
    use serde_json::json;

    use super::*;

    fn answer(status: u16, content_type: &str, body: &[u8]) -> Result<Output, Fault> {
        let content_type = Some(content_type.to_owned()).filter(|text| !text.is_empty());
        let (body, held) = (Bytes::copy_from_slice(body), Held::default());
        outcome("p", &Answer { status, content_type, body, held })
    }

    #[test]
    fn answers_are_taken_for_what_they_are() {
        let content = |output: Output| output.content.to_value().unwrap();
        assert_eq!(
            content(answer(200, "application/json; charset=utf-8", b"{\"a\":1}").unwrap()),
            json!({ "a": 1 })
        );
        assert_eq!(content(answer(200, "text/plain;charset=UTF-8", b"[1]").unwrap()), json!([1]));
        let text = answer(200, "text/markdown", "## Title\n".as_bytes()).unwrap();
        assert_eq!(text.blocks, [Block::Text("## Title\n".into())]);
        assert_eq!(content(text), json!("## Title\n"));
        assert_eq!(content(answer(204, "", b"").unwrap()), json!(null));
        assert!(matches!(
            answer(200, "image/png", b"\x89PNG").unwrap().blocks[..],
            [Block::Image { .. }]
        ));
        assert_eq!(answer(200, "application/zip", b"\xff\xfe").unwrap().attachments.len(), 1);
        let rubbish = answer(200, "application/json", b"<html>").unwrap_err();
        assert_eq!(rubbish.error_type, PluginErrorType::PluginServerError);
    }

    #[test]
    fn a_refusal_keeps_its_status() {
        let fault = answer(418, "text/plain", b"no tea here").unwrap_err();
        assert_eq!(
            (fault.error_type, fault.body),
            (PluginErrorType::Status(418), json!("no tea here"))
        );
        assert!(fault.error.message.contains("418: no tea here"), "{}", fault.error.message);
        let sdk = br#"{"body":{"message":"API key required"},"errorType":"PluginSettingsInvalid"}"#;
        let fault = answer(400, "application/json", sdk).unwrap_err();
        assert!(
            fault.error.message.ends_with("400: API key required") && fault.error.hint.is_some()
        );
        assert_eq!(fault.error.reason(), Some("settings_invalid"));
        assert_eq!(
            answer(304, "", b"").unwrap_err().error_type,
            PluginErrorType::PluginServerError
        );
    }

    #[test]
    fn a_status_that_http_does_not_have_is_a_502() {
        for body in ["", r#"{"errorType":"PluginServerError","body":"x"}"#, r#"{"errorType":401}"#]
        {
            for status in [101, 600, 999] {
                let fault = answer(status, "application/json", body.as_bytes()).unwrap_err();
                assert!(fault.answer.is_none(), "{status} {body}");
                assert_eq!(fault.error_type.status(), 502);
                let why =
                    format!("returned the status {status}, which is not a valid final status");
                assert!(fault.error.message.ends_with(&why), "{}", fault.error.message);
                assert_eq!(fault.body, json!({ "message": fault.error.message }));
            }
        }
    }

    /// Returns the message about a server at this address, with this secret in the settings.
    fn about(address: &str, secret: &str) -> String {
        let manifest = r#"{"identifier":"p","api":[{"name":"a","description":"d","url":"http://10.0.0.1:80/"}]}"#;
        let plugin =
            Plugin::new(crate::manifest::read(manifest, None).manifest.unwrap(), None, true, "")
                .unwrap();
        let options =
            sa_egress::Options { allow_private: Vec::new(), max_redirects: 1, user_agent: "test" };
        let url = address.parse().unwrap();
        let error = sa_egress::Egress::new(&options)
            .unwrap()
            .check(&url, &sa_egress::Allowed::default())
            .unwrap_err();
        unanswered(&plugin, error, &[secret.to_owned()]).error.message
    }

    #[test]
    fn secrets_are_masked_in_what_others_chose_and_not_in_our_words() {
        let sentence = |host: &str| {
            format!(
                "the plugin \"p\" cannot be called: \"{host}\" is an address that is not public, which is not allowed"
            )
        };
        assert_eq!(about("http://10.0.0.2/", "plugin"), sentence("10.0.0.2"));
        assert_eq!(about("http://10.0.0.2/", "address"), sentence("10.0.0.2"));
        assert_eq!(about("http://10.0.0.2/", "10.0.0.2"), sentence("***"));
        assert_eq!(
            about("http://10.0.0.1/", "10.0.0.1"),
            sentence("10.0.0.1"),
            "anybody can read its manifest"
        );
    }

    #[track_caller]
    fn check_unchanged(status: u16, body: &str, unchanged: bool) {
        let fault = answer(status, "application/json", body.as_bytes()).unwrap_err();
        let kept = fault.answer.map(|answer| (answer.status, answer.body));
        let expected = unchanged.then(|| (status, Bytes::copy_from_slice(body.as_bytes())));
        assert_eq!(kept, expected, "{status} {body}");
    }

    #[test]
    fn an_error_of_the_plugin_protocol_is_kept_as_it_came() {
        check_unchanged(
            400,
            r#"{ "body": {"message":"key"}, "errorType": "PluginSettingsInvalid", "more": 1 }"#,
            true,
        );
        check_unchanged(500, r#"{"errorType":"PluginServerError","body":null}"#, true);
        check_unchanged(490, r#"{"errorType":401,"body":"x"}"#, true);
        check_unchanged(300, r#"{"errorType":"PluginServerError","body":"x"}"#, true);
        check_unchanged(500, r#"{"errorType":"Oops","body":"x"}"#, false);
        check_unchanged(500, r#"{"errorType":200,"body":"x"}"#, false);
        check_unchanged(405, r#"{"errorType":"MethodNotAllowed"}"#, true);
        check_unchanged(500, r#"["errorType","body"]"#, false);
        check_unchanged(418, "no tea here", false);
    }

    proptest::proptest! {
        #[test]
        fn any_answer_has_a_meaning(
            status in 100_u16..1_000, media in proptest::sample::select(&["", "application/json", "a/b+json; x=y", "text/plain", "image/png", "image/svg+xml", "/"][..]),
            noise in sa_hostile::noise(), nearly in sa_hostile::nearly(json!({ "body": { "message": "m" }, "errorType": "PluginSettingsInvalid" })),
        ) {
            for body in [noise, nearly.into_bytes()] {
                match answer(status, media, &body) {
                    Ok(output) => {
                        proptest::prop_assert!((200..300).contains(&status));
                        if let [Block::Image { data, .. }] = &output.blocks[..] {
                            proptest::prop_assert_eq!(BASE64_STANDARD.decode(data).unwrap(), body);
                        }
                    }
                    Err(fault) => {
                        proptest::prop_assert!(fault.error.message.len() < sa_hostile::SHORT);
                        proptest::prop_assert!(!fault.error.message.contains(['\n', '\r', '\u{1b}']), "the rule is broken");
                    }
                }
            }
        }
    }
}
