//! The server's URL, and the token, which must stay secret.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use crate::{Error, Position};

/// The characters to percent-encode in a query: all but the unreserved characters of RFC 3986, so
/// that `+` and `&` survive.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Parses the server's URL. `http` and `https` mean `ws` and `wss`.
pub(crate) fn parse(url: &str) -> Result<Url, Error> {
    let invalid = |why: &str| {
        Error::sent("the server's address", format!("it {why}; use a URL like ws://127.0.0.1:3210"))
    };
    let mut url =
        Url::parse(url.trim()).map_err(|error| invalid(&format!("is not a URL ({error})")))?;
    let scheme = match url.scheme() {
        "ws" | "http" => "ws",
        "wss" | "https" => "wss",
        other => return Err(invalid(&format!("has the scheme \"{other}\" instead of ws or wss"))),
    };
    url.set_scheme(scheme).map_err(|()| invalid("is not a valid WebSocket URL"))?;
    if url.host_str().is_none_or(str::is_empty) {
        return Err(invalid("has no host"));
    }
    url.set_fragment(None);
    Ok(url)
}

/// The parameters of all connections of a client.
#[derive(Clone, Copy)]
pub(crate) struct Address<'a> {
    pub(crate) url: &'a Url,
    pub(crate) token: &'a Token,
    pub(crate) channel: &'a str,
    pub(crate) instance: &'a str,
    pub(crate) context_id: Option<&'a str>,
    /// JSON.
    pub(crate) channel_config: Option<&'a str>,
}

/// Returns the URL of one connection, with the position from which to continue.
pub(crate) fn for_channel(address: Address<'_>, from: Option<&Position>) -> Url {
    let Address { url, token, channel, instance, context_id, channel_config } = address;
    let ours = |pair: &&str| {
        let key = pair.split('=').next().unwrap_or_default();
        !pair.is_empty()
            && !["token", "channel", "sinceId", "epoch", "roster", "instance"].contains(&key)
    };
    let mut parts: Vec<String> =
        url.query().unwrap_or_default().split('&').filter(ours).map(str::to_owned).collect();
    parts.push(format!("token={}", utf8_percent_encode(&token.0, QUERY)));
    parts.push(format!("channel={}", utf8_percent_encode(channel, QUERY)));
    for (key, value) in [("contextId", context_id), ("channelConfig", channel_config)] {
        parts.extend(value.map(|value| format!("{key}={}", utf8_percent_encode(value, QUERY))));
    }
    if let Some(from) = from {
        parts.push(format!("sinceId={}", from.last_id));
        if let Some(epoch) = &from.epoch {
            parts.push(format!("epoch={}", utf8_percent_encode(epoch, QUERY)));
        }
    }
    // A server that does not know these parameters sends the roster in its own way, and sends calls
    // to every program of the participant.
    parts.push("roster=snapshot".into());
    parts.push(format!("instance={instance}"));
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

/// The participant's token. Its `Debug` output is redacted.
#[derive(Clone, Default)]
pub(crate) struct Token(pub(crate) String);

impl Token {
    /// Removes the token from a text of another program, which may quote it, and shortens the text.
    pub(crate) fn redact(&self, text: &str) -> String {
        let text = sa_protocol::escaped_prefix(text.trim(), 512).to_owned();
        if self.0.is_empty() {
            return text;
        }
        let encoded = utf8_percent_encode(&self.0, QUERY).to_string();
        text.replace(&encoded, "[redacted]").replace(self.0.as_str(), "[redacted]")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address<'a>(url: &'a Url, token: &'a Token, channel: &'a str) -> Address<'a> {
        Address { url, token, channel, instance: "i1", context_id: None, channel_config: None }
    }

    #[test]
    fn the_query_says_where_to_go_on() {
        let url = parse("http://gw:3210/?a=1&token=old").unwrap();
        let token = Token("s&t".into());
        let first = for_channel(address(&url, &token, "team/röom"), None);
        let query = "a=1&token=s%26t&channel=team%2Fr%C3%B6om&roster=snapshot&instance=i1";
        assert_eq!(first.as_str(), format!("ws://gw:3210/?{query}"));
        let from = Position { epoch: Some("e 1".into()), last_id: 7 };
        let again = for_channel(address(&url, &token, "a"), Some(&from));
        let query = "a=1&token=s%26t&channel=a&sinceId=7&epoch=e%201&roster=snapshot&instance=i1";
        assert_eq!(again.query().unwrap(), query);
        assert_eq!(shown(&again), "ws://gw:3210/");
        assert_eq!(token.redact("s&t or s%26t"), "[redacted] or [redacted]");
        assert_eq!(format!("{token:?}"), "[redacted]");
    }

    #[test]
    fn unusable_addresses() {
        for url in ["", "gateway", "ftp://gw/ws", "ws://"] {
            assert_eq!(parse(url).unwrap_err().code(), "validation-error", "{url:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn an_address_that_is_taken_leads_to_one_server_and_shows_no_secret(
            text in sa_hostile::text(&["ws", "http", "s", "://", "//", ":", "@", "/", "?", "#", "token=canary", "canary:canary@", "gw", "[::1]", "3210"]),
            channel in ".{0,20}",
        ) {
            match parse(&text) {
                Ok(url) => {
                    proptest::prop_assert!(matches!(url.scheme(), "ws" | "wss") && url.host_str().is_some() && url.fragment().is_none());
                    let connection = for_channel(address(&url, &Token("s&t".into()), &channel), None);
                    proptest::prop_assert_eq!((connection.host_str(), connection.port()), (url.host_str(), url.port()));
                    let pairs: Vec<_> = connection.query_pairs().collect();
                    let named = |name: &str| pairs.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect::<Vec<_>>();
                    proptest::prop_assert_eq!(named("channel"), [channel.as_str()]);
                    proptest::prop_assert_eq!(named("token"), ["s&t"]);
                    proptest::prop_assert!(!shown(&connection).contains("s&t") && !shown(&connection).contains("s%26t"));
                }
                Err(error) => proptest::prop_assert!(error.code() == "validation-error" && error.to_string().len() < sa_hostile::SHORT),
            }
        }
    }
}
