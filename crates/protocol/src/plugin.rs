//! The plugin gateway's wire: what hosts ask, what errors look like, what an index lists.
//!
//! A manifest itself is read by whoever uses it, field by field: published ones are often incomplete, and what is wrong
//! with one is better named than refused.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Where plugin servers look for the user's settings. Any of them is accepted from a host.
pub const SETTINGS_HEADERS: [&str; 4] =
    ["x-sperax-plugin-settings", "sperax-plugin-settings", "speraxos-plugin-settings", "x-lobe-plugin-settings"];

/// The paths at which hosts look for a plugin gateway.
pub const GATEWAY_PATHS: [&str; 5] =
    ["/api/gateway", "/api/gateway/", "/api/v1/runner", "/api/gateway/v1/runner", "/webapi/plugin/gateway"];

/// What a host posts to run a function of a plugin.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginRequestPayload<'a> {
    pub identifier: String,
    pub api_name: String,
    /// The arguments: a JSON text as a string, or, from some hosts, the JSON itself.
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    /// Where to look the plugin up.
    #[serde(default)]
    pub index_url: Option<String>,
    /// The whole manifest, from hosts that have it.
    #[serde(borrow, default)]
    pub manifest: Option<&'a RawValue>,
}

impl PluginRequestPayload<'_> {
    /// The arguments' JSON text. None, an empty text and `null` stand for no arguments.
    pub fn arguments_text(&self) -> Result<String, serde_json::Error> {
        let Some(raw) = self.arguments else { return Ok("{}".into()) };
        let text = if raw.get().starts_with('"') { serde_json::from_str(raw.get())? } else { raw.get().to_owned() };
        Ok(if text.trim().is_empty() || text.trim() == "null" { "{}".into() } else { text })
    }
}

/// A list of plugins and where their manifests are.
#[derive(Debug, Clone, Deserialize)]
pub struct PluginIndex {
    pub plugins: Vec<Value>,
}

/// One of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PluginIndexEntry {
    pub identifier: String,
    /// The manifest's URL, relative ones being relative to the index.
    pub manifest: String,
}

/// What can go wrong at the plugin gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginErrorType {
    MethodNotAllowed,
    PluginGatewayError,
    PluginServerError,
    PluginSettingsInvalid,
    PluginMarketIndexNotFound,
    PluginMarketIndexInvalid,
    PluginMetaNotFound,
    PluginMetaInvalid,
    PluginManifestNotFound,
    PluginManifestInvalid,
    PluginApiNotFound,
    PluginApiParamsError,
    PluginOpenApiInitError,
    /// A status that says it all: the plugin server's own, or one that HTTP has for the matter.
    Status(u16),
}

impl PluginErrorType {
    const NAMED: [Self; 13] = [
        Self::MethodNotAllowed,
        Self::PluginGatewayError,
        Self::PluginServerError,
        Self::PluginSettingsInvalid,
        Self::PluginMarketIndexNotFound,
        Self::PluginMarketIndexInvalid,
        Self::PluginMetaNotFound,
        Self::PluginMetaInvalid,
        Self::PluginManifestNotFound,
        Self::PluginManifestInvalid,
        Self::PluginApiNotFound,
        Self::PluginApiParamsError,
        Self::PluginOpenApiInitError,
    ];

    /// Reads an `errorType`: one of the names, or the status of a failure.
    pub fn parse(error_type: &Value) -> Option<Self> {
        match error_type {
            Value::Number(number) => {
                let status = number.as_u64().and_then(|status| u16::try_from(status).ok())?;
                (400..600).contains(&status).then_some(Self::Status(status))
            }
            name => Self::NAMED.into_iter().find(|known| known.to_json() == *name),
        }
    }

    /// The HTTP status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Self::MethodNotAllowed => 405,
            Self::PluginGatewayError => 502,
            Self::PluginServerError | Self::PluginOpenApiInitError => 500,
            Self::PluginSettingsInvalid => 400,
            Self::PluginMarketIndexNotFound
            | Self::PluginMetaNotFound
            | Self::PluginManifestNotFound
            | Self::PluginApiNotFound => 404,
            Self::PluginMarketIndexInvalid | Self::PluginMetaInvalid | Self::PluginManifestInvalid => 490,
            Self::PluginApiParamsError => 422,
            Self::Status(status) => status,
        }
    }

    /// The `errorType` of the body.
    pub fn to_json(self) -> Value {
        match self {
            Self::Status(status) => status.into(),
            named => format!("{named:?}").into(),
        }
    }
}

/// `{"body":…,"errorType":…}`
pub fn plugin_error(error_type: PluginErrorType, body: &Value) -> String {
    serde_json::json!({ "body": body, "errorType": error_type.to_json() }).to_string()
}

/// JSON for a header: on one line, in ASCII alone, so that nothing in it can end the header or be lost on the way.
pub fn ascii_json(value: &Value) -> String {
    let mut ascii = String::new();
    for c in value.to_string().chars() {
        if (' '..='~').contains(&c) {
            ascii.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_arguments(payload: &str, expected: &str) {
        let payload: PluginRequestPayload<'_> = serde_json::from_str(payload).unwrap();
        assert_eq!(payload.arguments_text().unwrap(), expected);
    }

    #[test]
    fn arguments_come_as_text_or_as_they_are() {
        check_arguments(r#"{"identifier":"a","apiName":"b","arguments":"{\"x\":1}"}"#, r#"{"x":1}"#);
        check_arguments(r#"{"identifier":"a","apiName":"b","arguments":{"x":1}}"#, r#"{"x":1}"#);
        check_arguments(r#"{"identifier":"a","apiName":"b","arguments":""}"#, "{}");
        check_arguments(r#"{"identifier":"a","apiName":"b","arguments":null}"#, "{}");
        check_arguments(r#"{"identifier":"a","apiName":"b","type":"default"}"#, "{}");
    }

    #[test]
    fn a_header_is_ascii_and_means_the_same() {
        let value = json!({ "key": "a\r\nX-Evil: 1\u{7f}", "name": "Zoë 🦀", "\u{0}": [1, true, null] });
        let header = ascii_json(&value);
        assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{header}");
        assert_eq!(serde_json::from_str::<Value>(&header).unwrap(), value);
    }

    #[test]
    fn errors_have_one_shape() {
        let body = plugin_error(PluginErrorType::PluginApiNotFound, &json!({ "message": "no" }));
        assert_eq!(body, r#"{"body":{"message":"no"},"errorType":"PluginApiNotFound"}"#);
        assert_eq!(plugin_error(PluginErrorType::Status(418), &json!("tea")), r#"{"body":"tea","errorType":418}"#);
        for known in PluginErrorType::NAMED.into_iter().chain([PluginErrorType::Status(490)]) {
            assert_eq!(PluginErrorType::parse(&known.to_json()), Some(known));
        }
        for unknown in [json!("Oops"), json!(200), json!(700), json!(4.5), json!(-400), json!(null), json!("404")] {
            assert_eq!(PluginErrorType::parse(&unknown), None, "{unknown}");
        }
    }
}
