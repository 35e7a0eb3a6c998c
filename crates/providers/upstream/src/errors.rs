//! Error messages for an operator when a server is not available. Each is one plain sentence with
//! what happened, why, and what to do.

use std::error::Error;
use std::io;

use reqwest::StatusCode;
use rmcp::service::ClientInitializeError;
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

/// For a connection that worked before.
pub(crate) const CONNECTION_LOST: &str =
    "it no longer responds or was restarted; the gateway reconnects";
/// For a server without a supported login.
pub(crate) const NO_AUTHORITY: &str =
    "the server names no OAuth authority; if it requires a token, set one with --bearer";
/// The maximum number of characters of a server's message that are shown.
const MAX_WORDS: usize = 200;

/// Returns the message for a server that does not become ready after its start.
pub(crate) fn too_slow(name: &str) -> String {
    let advice = "start it manually to find the cause, then run";
    format!("it was not ready within a minute; {advice} `switchboard upstream restart {name}`")
}

/// Returns a URL without its query and fragment, which may contain a secret.
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

/// Returns why connecting to the server at `place` failed.
pub(crate) fn of_handshake(error: &ClientInitializeError, place: &str) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => of_transport(&*error.error, place),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            of_handshake(fallback, place)
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("{place} refused the connection: {}", excerpt(&error.message))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions: Vec<&str> =
                server_supported.iter().map(rmcp::model::ProtocolVersion::as_str).collect();
            let versions =
                if versions.is_empty() { "none".to_owned() } else { excerpt(&versions.join(", ")) };
            format!(
                "{place} supports no MCP version that the gateway supports (it offers {versions}); update it"
            )
        }
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled => {
            format!("{place} closed the connection during the handshake; check its log")
        }
        _ => format!("{place} returned a response that is not MCP; check that it is an MCP server"),
    }
}

/// Returns whether a server, or its authorization server, requires a login before the handshake.
pub(crate) fn wants_login(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::TransportError { error, .. } => is_login_wanted(&*error.error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => wants_login(fallback),
        _ => false,
    }
}

/// Returns whether the server rejected the token, with or without a challenge.
pub(crate) fn is_unauthorized(error: &StreamableHttpError<reqwest::Error>) -> bool {
    let status = match error {
        StreamableHttpError::AuthRequired(_) => Some(StatusCode::UNAUTHORIZED),
        StreamableHttpError::Client(error) => error.status(),
        StreamableHttpError::UnexpectedServerResponse(message) => {
            status_in(message).map(|(status, _)| status)
        }
        _ => None,
    };
    status == Some(StatusCode::UNAUTHORIZED)
}

/// Returns whether the error of a request means that a login is required.
pub(crate) fn is_login_wanted(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(
            StreamableHttpError::AuthRequired(_)
            | StreamableHttpError::Auth(AuthError::AuthorizationRequired),
        ) => true,
        // The authorization server no longer knows the client; a login registers it again. rmcp
        // has no variant for this.
        Some(StreamableHttpError::Auth(AuthError::TokenRefreshFailed(message))) => {
            message.contains("invalid_client") || message.contains("unauthorized_client")
        }
        _ => false,
    }
}

/// Returns why a request could not be delivered.
pub(crate) fn of_request(error: &(dyn Error + Send + Sync + 'static)) -> String {
    of_transport(error, "the server")
}

/// Returns why there is no token for a server.
pub(crate) fn of_authority(error: &AuthError) -> String {
    let why = match error {
        AuthError::HttpError(error) => unreachable(error),
        AuthError::NoAuthorizationSupport => "the server names no OAuth authority".into(),
        AuthError::MetadataError(why) => {
            format!("its metadata cannot be used: {}", cause(why))
        }
        AuthError::CredentialStoreError(why) => excerpt(why),
        AuthError::AuthorizationRequired => "the authority requires a user to log in".into(),
        error => excerpt(&error.to_string()),
    };
    format!("no token from the server's OAuth authority: {why}")
}

/// Returns why a login to a server failed.
pub(crate) fn of_login(error: &AuthError) -> String {
    match error {
        AuthError::HttpError(error) => {
            format!("cannot reach the server's OAuth authority: {}", unreachable(error))
        }
        AuthError::NoAuthorizationSupport | AuthError::AuthorizationRequired => {
            "the server names no OAuth authority; check its url".into()
        }
        AuthError::MetadataError(why) => {
            format!("the metadata of the server's OAuth authority cannot be used: {}", cause(why))
        }
        AuthError::RegistrationFailed(why) => format!(
            "the OAuth authority does not register the gateway ({}); register it there manually and set oauth.client_id",
            excerpt(why)
        ),
        AuthError::CredentialStoreError(why) => {
            format!("the login was not stored: {}", excerpt(why))
        }
        AuthError::TokenExchangeFailed(why) => {
            format!("the OAuth authority did not grant a token: {}", excerpt(why))
        }
        AuthError::AuthorizationServerMismatch { .. }
        | AuthError::AuthorizationServerMissingIssuer { .. } => {
            "the response came from an unexpected authority; nothing was stored".into()
        }
        error => excerpt(&error.to_string()),
    }
}

fn of_transport(error: &(dyn Error + Send + Sync + 'static), place: &str) -> String {
    let Some(error) = error.downcast_ref::<StreamableHttpError<reqwest::Error>>() else {
        return format!("the connection to {place} failed: {}", excerpt(&root(error).to_string()));
    };
    match error {
        StreamableHttpError::Client(error) => match error.status() {
            Some(status) => of_status(status, place, ""),
            None => format!(
                "cannot reach {place}: {}; check that it is running, and check its url",
                unreachable(error)
            ),
        },
        StreamableHttpError::HttpStatus(error) => {
            of_status(StatusCode::from_u16(error.status).unwrap_or_default(), place, "")
        }
        StreamableHttpError::AuthRequired(_) => of_status(StatusCode::UNAUTHORIZED, place, ""),
        StreamableHttpError::InsufficientScope(_) => of_status(StatusCode::FORBIDDEN, place, ""),
        StreamableHttpError::Auth(error) => of_authority(error),
        StreamableHttpError::UnexpectedServerResponse(message) => match status_in(message) {
            Some((status, message)) => of_status(status, place, message),
            None => format!("{place} returned a response that is not MCP; check its url"),
        },
        StreamableHttpError::UnexpectedContentType(kind) => {
            let kind = excerpt(kind.as_deref().unwrap_or("nothing"));
            format!("{place} returned {kind} instead of JSON or an event stream; check its url")
        }
        StreamableHttpError::Deserialize(_) => {
            format!("{place} returned a response that is not MCP; check its url")
        }
        StreamableHttpError::ReservedHeaderConflict(name) => {
            format!("the header \"{name}\" is reserved by the protocol; remove it from headers")
        }
        other => format!("the connection to {place} failed: {}", excerpt(&other.to_string())),
    }
}

fn of_status(status: StatusCode, place: &str, message: &str) -> String {
    let advice = match status {
        StatusCode::UNAUTHORIZED => "it requires a valid token; check bearer, headers or oauth",
        StatusCode::FORBIDDEN => {
            "the token does not have enough permissions; check bearer, headers or oauth.scopes"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            "no MCP server is at this path; check its url"
        }
        StatusCode::TOO_MANY_REQUESTS => "it received too many requests; the gateway retries later",
        status if status.is_redirection() => {
            "the gateway does not follow redirects; set url to the target"
        }
        status if status.is_server_error() => "the server failed; check its log",
        _ => "it rejected the request; check its url and headers",
    };
    let message =
        if message.is_empty() { String::new() } else { format!(" (\"{}\")", excerpt(message)) };
    format!("{place} answered {status}{message}: {advice}")
}

/// Parses the status and the text of a response that rmcp formats as one line, `HTTP 404 Not
/// Found: …`.
fn status_in(message: &str) -> Option<(StatusCode, &str)> {
    let rest = message.strip_prefix("HTTP ")?;
    let status = StatusCode::from_bytes(rest.get(..3)?.as_bytes()).ok()?;
    Some((status, rest.split_once(": ").map_or("", |(_, message)| message.trim())))
}

/// Returns why a request got no response.
fn unreachable(error: &reqwest::Error) -> String {
    let root = root(error);
    if let Some(error) = root.downcast_ref::<io::Error>() {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => return "connection refused".into(),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe => {
                return "it closed the connection".into();
            }
            _ => {}
        }
    }
    let text = root.to_string();
    if error.is_timeout() {
        "it did not respond in time".into()
    } else if text.contains("lookup")
        || text.contains("resolve")
        || text.contains("Name or service")
    {
        "its host name cannot be resolved".into()
    } else {
        excerpt(&text)
    }
}

/// Returns the last cause of an rmcp error, which lists each cause on its own line. The earlier
/// ones may contain a URL with a secret.
fn cause(why: &str) -> String {
    excerpt(why.rsplit("Caused by: ").next().unwrap_or(why))
}

/// Returns the innermost source of an error. The outer ones describe internal components.
fn root<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost
}

/// Returns an external message on one line, truncated.
pub(crate) fn excerpt(text: &str) -> String {
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
        fn external_text_is_one_short_line(text in prop_oneof![sa_hostile::text(&["HTTP ", "404", ": ", "Caused by: ", "\n"]), sa_hostile::long()]) {
            let excerpted = excerpt(&text);
            prop_assert!(excerpted.chars().count() <= MAX_WORDS + 1 && !excerpted.contains(['\n', '\r', '\t']));
            prop_assert!(cause(&text).chars().count() <= MAX_WORDS + 1);
            let message = StreamableHttpError::<reqwest::Error>::UnexpectedServerResponse(text.clone().into());
            prop_assert!(of_request(&message).len() < sa_hostile::SHORT);
            if let Some((status, message)) = status_in(&text) {
                prop_assert!(text.starts_with(&format!("HTTP {}", status.as_u16())) && text.contains(message), "the rule is broken");
            }
        }

        #[test]
        fn a_place_has_no_query(url in sa_hostile::text(&["http://", "a.example", "/", "?", "token=canary", "#", "canary", "@", ":80"])) {
            let excerpted = place(&url);
            if let Ok(excerpted) = url::Url::parse(&excerpted) {
                prop_assert!(excerpted.query().is_none() && excerpted.fragment().is_none(), "{excerpted}");
            }
        }
    }
}
