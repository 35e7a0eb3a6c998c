use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use crate::NodeSdkError;

/// The characters to percent-encode in a query: all but the unreserved characters of RFC 3986, so
/// that `+` and `&` in a token survive.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The path at which nodes connect to a gateway.
pub(crate) const PATH: &str = "/v1/nodes/ws";

/// Parses the gateway's URL. `http`, `https` and a URL without a path are corrected. The root of a
/// gateway serves other clients and would reject a node's token.
pub(crate) fn parse(url: &str) -> Result<Url, NodeSdkError> {
    let invalid = |why: &str| {
        NodeSdkError::Config(format!(
            "gateway_ws_url {why}; use a URL like ws://localhost:3210/v1/nodes/ws"
        ))
    };
    if url.trim().is_empty() {
        return Err(invalid("is empty"));
    }
    let mut url =
        Url::parse(url.trim()).map_err(|error| invalid(&format!("is not a URL ({error})")))?;
    let scheme = match url.scheme() {
        "ws" | "http" => "ws",
        "wss" | "https" => "wss",
        other => {
            return Err(invalid(&format!("has the scheme `{other}` instead of ws or wss")));
        }
    };
    // Both schemes are "special" schemes with a host, so the crate always allows the change.
    url.set_scheme(scheme).map_err(|()| invalid("is not a valid WebSocket URL"))?;
    if url.host_str().is_none_or(str::is_empty) {
        return Err(invalid("has no host"));
    }
    if matches!(url.path(), "" | "/") {
        url.set_path(PATH);
    }
    url.set_fragment(None);
    Ok(url)
}

/// Returns the URL with the token and the node id in its query. Other parameters are kept.
pub(crate) fn with_credentials(url: &Url, token: &Token, node_id: &str) -> Url {
    let ours = |pair: &&str| {
        let key = pair.split('=').next().unwrap_or_default();
        !pair.is_empty() && key != "node_id" && !(key == "token" && token.0.is_some())
    };
    let mut parts: Vec<String> =
        url.query().unwrap_or_default().split('&').filter(ours).map(str::to_owned).collect();
    if let Some(token) = &token.0 {
        parts.push(format!("token={}", utf8_percent_encode(token, QUERY)));
    }
    parts.push(format!("node_id={}", utf8_percent_encode(node_id, QUERY)));
    let mut url = url.clone();
    url.set_query(Some(&parts.join("&")));
    url
}

/// Returns the URL in a form that is safe to show: without the query, which may carry tokens, and
/// without user information, which may carry passwords.
pub(crate) fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// The node's token. Its `Debug` output is redacted.
#[derive(Clone, Default)]
pub(crate) struct Token(Option<String>);

impl Token {
    /// Creates a token. An empty token counts as none.
    pub(crate) fn new(token: String) -> Self {
        Self(Some(token).filter(|token| !token.is_empty()))
    }

    /// Removes the token from a text of another program, which may quote it, and shortens the text.
    pub(crate) fn redact(&self, text: &str) -> String {
        let mut text = sa_protocol::escaped_prefix(text.trim(), 512).to_owned();
        if let Some(token) = &self.0 {
            let encoded = utf8_percent_encode(token, QUERY).to_string();
            text = text.replace(&encoded, "[redacted]").replace(token.as_str(), "[redacted]");
        }
        text
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "[redacted]" } else { "none" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, token: &str, id: &str, expected: &str) {
        let url = with_credentials(&parse(url).unwrap(), &Token::new(token.into()), id);
        assert_eq!(url.as_str(), expected);
    }

    #[test]
    fn credentials_join_the_query() {
        check(
            "ws://gw:3210/v1/nodes/ws",
            "secret",
            "mac-01",
            "ws://gw:3210/v1/nodes/ws?token=secret&node_id=mac-01",
        );
        check("ws://gw/ws", "", "n", "ws://gw/ws?node_id=n");
        check("ws://gw/ws?a=1&b=%20", "t", "n", "ws://gw/ws?a=1&b=%20&token=t&node_id=n");
        check(
            "ws://gw/ws",
            "a&b=c d+/%é",
            "mac:é 1",
            "ws://gw/ws?token=a%26b%3Dc%20d%2B%2F%25%C3%A9&node_id=mac%3A%C3%A9%201",
        );
    }

    #[test]
    fn a_token_in_the_url_stays_unless_there_is_another() {
        check("ws://gw/ws?token=old", "", "n", "ws://gw/ws?token=old&node_id=n");
        check("ws://gw/ws?token=old&x=1", "new", "n", "ws://gw/ws?x=1&token=new&node_id=n");
    }

    #[test]
    fn http_is_understood() {
        check("https://gw/ws", "", "n", "wss://gw/ws?node_id=n");
        check("http://[::1]:80/ws#x", "", "n", "ws://[::1]/ws?node_id=n");
    }

    #[test]
    fn an_address_without_a_path_is_a_gateways() {
        check("ws://localhost:3210", "", "n", "ws://localhost:3210/v1/nodes/ws?node_id=n");
        check("https://gw/", "t", "n", "wss://gw/v1/nodes/ws?token=t&node_id=n");
        check("http://gw?x=1", "", "n", "ws://gw/v1/nodes/ws?x=1&node_id=n");
        check("ws://gw/behind/a/proxy/", "", "n", "ws://gw/behind/a/proxy/?node_id=n");
    }

    #[test]
    fn unusable_addresses() {
        for url in ["", "  ", "gateway", "ftp://gw/ws", "ws://"] {
            assert!(matches!(parse(url), Err(NodeSdkError::Config(_))), "{url:?}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let token = Token::new("s3cret&".into());
        assert_eq!(format!("{token:?}"), "[redacted]");
        assert_eq!(
            token.redact("no s3cret& or s3cret%26 here"),
            "no [redacted] or [redacted] here"
        );
        let url = with_credentials(&parse("ws://me:pw@gw:1/ws").unwrap(), &token, "n");
        assert_eq!(shown(&url), "ws://gw:1/ws");
    }
}
