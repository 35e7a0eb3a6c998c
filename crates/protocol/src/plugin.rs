//! The wire types of the plugin gateway: requests of hosts, errors, and the plugin index.
//!
//! Each user of a manifest reads it field by field, not as one type. Published manifests are often
//! incomplete, and an error that names the invalid field is more useful than a rejection.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The headers in which plugin servers expect the user's settings. Any of them is accepted from a
/// host.
pub const SETTINGS_HEADERS: [&str; 4] = [
    "x-sperax-plugin-settings",
    "sperax-plugin-settings",
    "speraxos-plugin-settings",
    "x-lobe-plugin-settings",
];

/// The paths where hosts expect a plugin gateway.
pub const GATEWAY_PATHS: [&str; 5] = [
    "/api/gateway",
    "/api/gateway/",
    "/api/v1/runner",
    "/api/gateway/v1/runner",
    "/webapi/plugin/gateway",
];

/// The body that a host posts to run a function of a plugin.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginRequestPayload<'a> {
    pub identifier: String,
    pub api_name: String,
    /// The arguments: JSON text as a string, or the JSON itself from some hosts.
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    /// The URL of the index in which to look up the plugin.
    #[serde(default)]
    pub index_url: Option<String>,
    /// The whole manifest, from hosts that have it.
    #[serde(borrow, default)]
    pub manifest: Option<&'a RawValue>,
}

impl PluginRequestPayload<'_> {
    /// Returns the arguments as JSON text. Absent arguments, an empty text and `null` mean no
    /// arguments.
    pub fn arguments_text(&self) -> Result<String, serde_json::Error> {
        let Some(raw) = self.arguments else { return Ok("{}".into()) };
        let text = if raw.get().starts_with('"') {
            serde_json::from_str(raw.get())?
        } else {
            raw.get().to_owned()
        };
        Ok(if text.trim().is_empty() || text.trim() == "null" { "{}".into() } else { text })
    }
}

/// A list of plugins with the URLs of their manifests.
#[derive(Debug, Clone, Deserialize)]
pub struct PluginIndex {
    pub plugins: Vec<Value>,
}

/// One plugin of the index.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PluginIndexEntry {
    pub identifier: String,
    /// The manifest's URL. A relative URL is relative to the index.
    pub manifest: String,
}

/// The errors of the plugin gateway.
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
    /// An HTTP status without a name: the plugin server's own status, or a standard one.
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

    /// Reads an `errorType`: one of the names, or an HTTP status of 400 to 599.
    pub fn parse(error_type: &Value) -> Option<Self> {
        match error_type {
            Value::Number(number) => {
                let status = number.as_u64().and_then(|status| u16::try_from(status).ok())?;
                (400..600).contains(&status).then_some(Self::Status(status))
            }
            name => Self::NAMED.into_iter().find(|known| known.to_json() == *name),
        }
    }

    /// Returns the HTTP status of the response.
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
            Self::PluginMarketIndexInvalid
            | Self::PluginMetaInvalid
            | Self::PluginManifestInvalid => 490,
            Self::PluginApiParamsError => 422,
            Self::Status(status) => status,
        }
    }

    /// Returns the `errorType` of the body.
    pub fn to_json(self) -> Value {
        match self {
            Self::Status(status) => status.into(),
            named => format!("{named:?}").into(),
        }
    }
}

/// Returns the body `{"body":…,"errorType":…}`.
pub fn plugin_error(error_type: PluginErrorType, body: &Value) -> String {
    serde_json::json!({ "body": body, "errorType": error_type.to_json() }).to_string()
}

/// Writes JSON for a header: on one line and in ASCII only, so that no character can end the header
/// or be lost in transit.
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
        check_arguments(
            r#"{"identifier":"a","apiName":"b","arguments":"{\"x\":1}"}"#,
            r#"{"x":1}"#,
        );
        check_arguments(r#"{"identifier":"a","apiName":"b","arguments":{"x":1}}"#, r#"{"x":1}"#);
        check_arguments(r#"{"identifier":"a","apiName":"b","arguments":""}"#, "{}");
        check_arguments(r#"{"identifier":"a","apiName":"b","arguments":null}"#, "{}");
        check_arguments(r#"{"identifier":"a","apiName":"b","type":"default"}"#, "{}");
    }

    #[test]
    fn a_header_is_ascii_and_means_the_same() {
        let value =
            json!({ "key": "a\r\nX-Evil: 1\u{7f}", "name": "Zoë 🦀", "\u{0}": [1, true, null] });
        let header = ascii_json(&value);
        assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{header}");
        assert_eq!(serde_json::from_str::<Value>(&header).unwrap(), value);
    }

    #[test]
    fn errors_have_one_shape() {
        let body = plugin_error(PluginErrorType::PluginApiNotFound, &json!({ "message": "no" }));
        assert_eq!(body, r#"{"body":{"message":"no"},"errorType":"PluginApiNotFound"}"#);
        assert_eq!(
            plugin_error(PluginErrorType::Status(418), &json!("tea")),
            r#"{"body":"tea","errorType":418}"#
        );
        for known in PluginErrorType::NAMED.into_iter().chain([PluginErrorType::Status(490)]) {
            assert_eq!(PluginErrorType::parse(&known.to_json()), Some(known));
        }
        for unknown in [
            json!("Oops"),
            json!(200),
            json!(700),
            json!(4.5),
            json!(-400),
            json!(null),
            json!("404"),
        ] {
            assert_eq!(PluginErrorType::parse(&unknown), None, "{unknown}");
        }
    }
}
