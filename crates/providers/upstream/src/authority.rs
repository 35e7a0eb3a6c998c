//! Who grants tokens for a server: whom it names, within bounds.
//!
//! Whom rmcp asks on the way is bounded by what the server's own address is: only one on this machine or in a private
//! network can name an authority that is there, too.

use rmcp::transport::auth::{AuthError, AuthorizationManager};
use url::Url;

use crate::trouble;

/// An authority, as a server names it and as it describes itself.
pub(crate) struct Authority {
    /// Knows where to ask for tokens, and has none yet.
    pub(crate) manager: AuthorizationManager,
    /// Its name. Absent where it does not describe itself, and its addresses are a guess.
    pub(crate) issuer: Option<String>,
    /// Whether it takes a document's address for the id of a client.
    pub(crate) takes_documents: bool,
}

impl Authority {
    /// Asks the server at `url` for its authority. Where the operator has said which one that is, no other is taken: a server
    /// could name one that is there to get hold of the gateway's secret.
    pub(crate) async fn of(url: &str, expected: &str) -> Result<Self, AuthError> {
        let mut manager = AuthorizationManager::new(url).await?;
        let metadata = manager.resolve_metadata().await?.metadata;
        let named = metadata.issuer.as_deref().unwrap_or_default();
        if !expected.is_empty() && !is_same(expected, named) {
            let named = if named.is_empty() { "none".to_owned() } else { format!("\"{}\"", trouble::place(named)) };
            return Err(AuthError::MetadataError(format!(
                "it names {named} as its authority, and oauth.issuer is \"{expected}\""
            )));
        }
        let addresses =
            [metadata.issuer.as_ref(), Some(&metadata.token_endpoint), metadata.registration_endpoint.as_ref()];
        for address in addresses.into_iter().flatten() {
            check_address(url, address)?;
        }
        let takes_documents = metadata.additional_fields.get("client_id_metadata_document_supported");
        let takes_documents = takes_documents.is_some_and(|value| *value == true);
        let issuer = metadata.issuer.clone();
        manager.set_metadata(metadata);
        Ok(Self { manager, issuer, takes_documents })
    }
}

/// Whether secrets may go to this address, or somebody be sent there: the authority of a server that is reached with TLS is
/// reached with TLS, too.
pub(crate) fn check_address(server: &str, address: &str) -> Result<(), AuthError> {
    let plain = server.starts_with("http://");
    let allowed = |url: &Url| url.scheme() == "https" || (plain && url.scheme() == "http");
    if Url::parse(address).is_ok_and(|url| allowed(&url)) {
        return Ok(());
    }
    Err(AuthError::MetadataError(format!("\"{}\" is no https address", trouble::place(address))))
}

fn is_same(expected: &str, named: &str) -> bool {
    expected.trim_end_matches('/') == named.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reached_with_tls_has_an_authority_that_is() {
        let (secure, plain) = ("https://mcp.example.com/mcp", "http://127.0.0.1:3000/mcp");
        assert!(check_address(secure, "https://auth.example.com/token").is_ok());
        assert!(check_address(plain, "http://127.0.0.1:3001/token").is_ok());
        for address in ["http://auth.example.com/token", "javascript:alert(1)", "file:///etc/passwd", "nonsense", ""] {
            assert!(check_address(secure, address).is_err(), "{address}");
        }
        assert!(check_address(plain, "javascript:alert(1)").is_err());
    }
}
