//! What an operator is told when a server cannot be had: one plain sentence with what happened, why, and what to do.

use std::error::Error;
use std::io;

use reqwest::StatusCode;
use rmcp::service::ClientInitializeError;
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

/// Of a connection that was good before.
pub(crate) const GONE: &str = "it does not answer any more, or was started anew; the gateway connects to it again";
/// Of a server that one cannot log in to.
pub(crate) const NO_AUTHORITY: &str =
    "the server names no OAuth authority; if it wants a token, give it one with --bearer";
/// How much of a server's own words is shown.
const MAX_WORDS: usize = 200;

/// Of a server that says nothing when it is started.
pub(crate) fn too_slow(name: &str) -> String {
    let advice = "start it by hand to see what it waits for, then";
    format!("it was not ready within a minute; {advice}: switchboard upstream restart {name}")
}

/// Where a URL leads to, without what may be a secret in it.
pub(crate) fn place(url: &str) -> String {
    url::Url::parse(url).map_or_else(
        |_| url.to_owned(),
        |mut url| {
            url.set_query(None);
            url.set_fragment(None);
            url.to_string()
        },
    )
}

/// Why the server at `place` was not connected to.
pub(crate) fn of_handshake(error: &ClientInitializeError, place: &str) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => of_transport(&*error.error, place),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => of_handshake(fallback, place),
        ClientInitializeError::JsonRpcError(error) => {
            format!("{place} refused to be connected to: {}", words(&error.message))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions: Vec<&str> = server_supported.iter().map(rmcp::model::ProtocolVersion::as_str).collect();
            let versions = if versions.is_empty() { "none".to_owned() } else { words(&versions.join(", ")) };
            format!("{place} speaks no version of MCP that the gateway knows (it offers {versions}); update it")
        }
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled => {
            format!("{place} ended the connection before it had said that it is ready; look at its own log")
        }
        _ => format!("{place} answered with something that is not MCP; check that it is an MCP server"),
    }
}

/// Whether a server, or its authority, wants to see somebody's login before it says anything.
pub(crate) fn wants_login(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::TransportError { error, .. } => is_login_wanted(&*error.error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => wants_login(fallback),
        _ => false,
    }
}

/// Whether the answer is that the token is not good, with or without a word of what would be.
pub(crate) fn is_unauthorized(error: &StreamableHttpError<reqwest::Error>) -> bool {
    let status = match error {
        StreamableHttpError::AuthRequired(_) => Some(StatusCode::UNAUTHORIZED),
        StreamableHttpError::Client(error) => error.status(),
        StreamableHttpError::UnexpectedServerResponse(said) => status_in(said).map(|(status, _)| status),
        _ => None,
    };
    status == Some(StatusCode::UNAUTHORIZED)
}

/// The same of any request.
pub(crate) fn is_login_wanted(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::AuthRequired(_) | StreamableHttpError::Auth(AuthError::AuthorizationRequired)) => {
            true
        }
        // The authority does not know the gateway any more, to which a login introduces it anew. rmcp has no name for this.
        Some(StreamableHttpError::Auth(AuthError::TokenRefreshFailed(said))) => {
            said.contains("invalid_client") || said.contains("unauthorized_client")
        }
        _ => false,
    }
}

/// Why a request could not be delivered.
pub(crate) fn of_request(error: &(dyn Error + Send + Sync + 'static)) -> String {
    of_transport(error, "the server")
}

/// Why there is no token for a server.
pub(crate) fn of_authority(error: &AuthError) -> String {
    let why = match error {
        AuthError::HttpError(error) => unreachable(error),
        AuthError::NoAuthorizationSupport => "the server does not say who grants tokens for it".into(),
        AuthError::MetadataError(why) => format!("who grants them cannot be found out: {}", cause(why)),
        AuthError::CredentialStoreError(why) => words(why),
        AuthError::AuthorizationRequired => "the authority wants somebody to sign in".into(),
        error => words(&error.to_string()),
    };
    format!("no token from the server's OAuth authority: {why}")
}

/// Why nobody can log in to a server.
pub(crate) fn of_login(error: &AuthError) -> String {
    match error {
        AuthError::HttpError(error) => format!("the server's OAuth authority cannot be asked: {}", unreachable(error)),
        AuthError::NoAuthorizationSupport | AuthError::AuthorizationRequired => {
            "the server does not say who grants tokens for it; check its url".into()
        }
        AuthError::MetadataError(why) => {
            format!("what the server says of its OAuth authority cannot be used: {}", cause(why))
        }
        AuthError::RegistrationFailed(why) => format!(
            "the OAuth authority does not register the gateway ({}); register it there by hand, and set oauth.client_id",
            words(why)
        ),
        AuthError::CredentialStoreError(why) => format!("the login was not kept: {}", words(why)),
        AuthError::TokenExchangeFailed(why) => format!("the OAuth authority did not grant a token: {}", words(why)),
        AuthError::AuthorizationServerMismatch { .. } | AuthError::AuthorizationServerMissingIssuer { .. } => {
            "the answer came from another authority than the one that was asked; nothing was kept".into()
        }
        error => words(&error.to_string()),
    }
}

fn of_transport(error: &(dyn Error + Send + Sync + 'static), place: &str) -> String {
    let Some(error) = error.downcast_ref::<StreamableHttpError<reqwest::Error>>() else {
        return format!("the connection to {place} broke: {}", words(&root(error).to_string()));
    };
    match error {
        StreamableHttpError::Client(error) => match error.status() {
            Some(status) => of_status(status, place, ""),
            None => format!("cannot reach {place}: {}; check that it runs, and its url", unreachable(error)),
        },
        StreamableHttpError::HttpStatus(error) => {
            of_status(StatusCode::from_u16(error.status).unwrap_or_default(), place, "")
        }
        StreamableHttpError::AuthRequired(_) => of_status(StatusCode::UNAUTHORIZED, place, ""),
        StreamableHttpError::InsufficientScope(_) => of_status(StatusCode::FORBIDDEN, place, ""),
        StreamableHttpError::Auth(error) => of_authority(error),
        StreamableHttpError::UnexpectedServerResponse(said) => match status_in(said) {
            Some((status, said)) => of_status(status, place, said),
            None => format!("{place} answered with something that is not MCP; check its url"),
        },
        StreamableHttpError::UnexpectedContentType(kind) => {
            let kind = words(kind.as_deref().unwrap_or("nothing"));
            format!("{place} answered with {kind} where MCP has JSON or an event stream; check its url")
        }
        StreamableHttpError::Deserialize(_) => {
            format!("{place} answered with something that is not MCP; check its url")
        }
        StreamableHttpError::ReservedHeaderConflict(name) => {
            format!("the header \"{name}\" is the protocol's own; take it out of headers")
        }
        other => format!("the connection to {place} broke: {}", words(&other.to_string())),
    }
}

fn of_status(status: StatusCode, place: &str, said: &str) -> String {
    let advice = match status {
        StatusCode::UNAUTHORIZED => "it wants a token, or another one; check bearer, headers or oauth",
        StatusCode::FORBIDDEN => "what the token allows is not enough; check bearer, headers or oauth.scopes",
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "no MCP server is at this path; check its url",
        StatusCode::TOO_MANY_REQUESTS => "it has enough of requests for now; the gateway tries again",
        status if status.is_redirection() => "it redirects, which is not followed; use the url that it leads to",
        status if status.is_server_error() => "it has a problem of its own; look at its log",
        _ => "it does not take the request; check its url and headers",
    };
    let said = if said.is_empty() { String::new() } else { format!(" (\"{}\")", words(said)) };
    format!("{place} answered {status}{said}: {advice}")
}

/// The status and the text of an answer that rmcp gives as one line, `HTTP 404 Not Found: …`.
fn status_in(said: &str) -> Option<(StatusCode, &str)> {
    let rest = said.strip_prefix("HTTP ")?;
    let status = StatusCode::from_bytes(rest.get(..3)?.as_bytes()).ok()?;
    Some((status, rest.split_once(": ").map_or("", |(_, said)| said.trim())))
}

/// Why nobody answered.
fn unreachable(error: &reqwest::Error) -> String {
    let root = root(error);
    if let Some(error) = root.downcast_ref::<io::Error>() {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => return "nothing listens there".into(),
            io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
                return "it ended the connection".into();
            }
            _ => {}
        }
    }
    let text = root.to_string();
    if error.is_timeout() {
        "it does not answer in time".into()
    } else if text.contains("lookup") || text.contains("resolve") || text.contains("Name or service") {
        "its host name is not known".into()
    } else {
        words(&text)
    }
}

/// The same of what rmcp tells with all its causes, each on a line of its own. What is before the last one may have an
/// address in it, and that a secret.
fn cause(why: &str) -> String {
    words(why.rsplit("Caused by: ").next().unwrap_or(why))
}

/// What was the first to go wrong: what is wrapped around it speaks of our own parts.
fn root<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost
}

/// What somebody else said, on one line and not too long.
pub(crate) fn words(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > MAX_WORDS {
        return line.chars().take(MAX_WORDS).chain(['…']).collect();
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_others_say_is_one_short_line(text in prop_oneof![sa_hostile::text(&["HTTP ", "404", ": ", "Caused by: ", "\n"]), sa_hostile::long()]) {
            let shown = words(&text);
            prop_assert!(shown.chars().count() <= MAX_WORDS + 1 && !shown.contains(['\n', '\r', '\t']));
            prop_assert!(cause(&text).chars().count() <= MAX_WORDS + 1);
            let said = StreamableHttpError::<reqwest::Error>::UnexpectedServerResponse(text.clone().into());
            prop_assert!(of_request(&said).len() < sa_hostile::SHORT);
            if let Some((status, said)) = status_in(&text) {
                prop_assert!(text.starts_with(&format!("HTTP {}", status.as_u16())) && text.contains(said), "the rule is broken");
            }
        }

        #[test]
        fn a_place_has_no_query(url in sa_hostile::text(&["http://", "a.example", "/", "?", "token=canary", "#", "canary", "@", ":80"])) {
            let shown = place(&url);
            if let Ok(shown) = url::Url::parse(&shown) {
                prop_assert!(shown.query().is_none() && shown.fragment().is_none(), "{shown}");
            }
        }
    }
}
