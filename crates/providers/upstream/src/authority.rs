//! The authorization server of an upstream server, as the server names it and within limits.
//!
//! The addresses that rmcp contacts during discovery depend on the server's own address. Only a
//! server on this machine or in a private network can name an authorization server there, too.

use rmcp::transport::auth::{AuthError, AuthorizationManager};
use url::Url;

use crate::errors;

/// The metadata of an authorization server, as the upstream server names it and as it describes
/// itself.
pub(crate) struct Authority {
    /// Configured with the token endpoint; it has no token yet.
    pub(crate) manager: AuthorizationManager,
    /// The issuer's name. `None` if the authorization server has no metadata; its endpoints are
    /// then a guess.
    pub(crate) issuer: Option<String>,
    /// Whether it accepts the URL of a metadata document as a client id.
    pub(crate) takes_documents: bool,
}

impl Authority {
    /// Discovers the authorization server of the server at `url`. If the operator has configured
    /// an issuer, every other one is rejected: a server could name another one to obtain the
    /// gateway's client secret.
    pub(crate) async fn of(url: &str, expected: &str) -> Result<Self, AuthError> {
        let mut manager = AuthorizationManager::new(url).await?;
        let metadata = manager.resolve_metadata().await?.metadata;
        let named = metadata.issuer.as_deref().unwrap_or_default();
        if !expected.is_empty() && !is_same(expected, named) {
            let named = if named.is_empty() {
                "none".to_owned()
            } else {
                format!("\"{}\"", errors::place(named))
            };
            return Err(AuthError::MetadataError(format!(
                "it names {named} as its authority, but oauth.issuer is \"{expected}\""
            )));
        }
        let addresses = [
            metadata.issuer.as_ref(),
            Some(&metadata.token_endpoint),
            metadata.registration_endpoint.as_ref(),
        ];
        for address in addresses.into_iter().flatten() {
            check_address(url, address)?;
        }
        let takes_documents =
            metadata.additional_fields.get("client_id_metadata_document_supported");
        let takes_documents = takes_documents.is_some_and(|value| *value == true);
        let issuer = metadata.issuer.clone();
        manager.set_metadata(metadata);
        Ok(Self { manager, issuer, takes_documents })
    }
}

/// Checks that secrets may be sent to this address, or a browser redirected to it. If the server
/// is reached with TLS, its authorization server must be, too.
pub(crate) fn check_address(server: &str, address: &str) -> Result<(), AuthError> {
    let plain = server.starts_with("http://");
    let allowed = |url: &Url| url.scheme() == "https" || (plain && url.scheme() == "http");
    if Url::parse(address).is_ok_and(|url| allowed(&url)) {
        return Ok(());
    }
    Err(AuthError::MetadataError(format!("\"{}\" is not an https URL", errors::place(address))))
}

fn is_same(expected: &str, named: &str) -> bool {
    expected.trim_end_matches('/') == named.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_server_requires_a_tls_authority() {
        let (secure, plain) = ("https://mcp.example.com/mcp", "http://127.0.0.1:3000/mcp");
        assert!(check_address(secure, "https://auth.example.com/token").is_ok());
        assert!(check_address(plain, "http://127.0.0.1:3001/token").is_ok());
        for address in [
            "http://auth.example.com/token",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "nonsense",
            "",
        ] {
            assert!(check_address(secure, address).is_err(), "{address}");
        }
        assert!(check_address(plain, "javascript:alert(1)").is_err());
    }
}
