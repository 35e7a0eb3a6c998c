//! The certificates that a node trusts.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, RootCertStore};
use tokio_tungstenite::Connector;
use tokio_tungstenite::tungstenite::Error;

use crate::NodeSdkError;
use crate::builder::Config;
use crate::connect::connect_error;

/// Returns the TLS configuration. `None` selects the WebSocket library's default, which trusts the
/// system's certificates.
pub(crate) fn connector(config: &Config) -> Result<Option<Connector>, NodeSdkError> {
    use_some_crypto();
    if config.trusted.is_empty() {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    // Unreadable system certificates are skipped, as in the library: the added certificates may be
    // sufficient.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for certificate in &config.trusted {
        roots.add(certificate.clone()).map_err(|error| connect_error(config, &unusable(&error)))?;
    }
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(Some(Connector::Rustls(Arc::new(tls))))
}

/// Returns the certificates in a PEM text, and checks that each of them can be trusted.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, NodeSdkError> {
    let invalid = |why: String| NodeSdkError::Config(why);
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates =
        read.map_err(|error| invalid(format!("ca_pem is not valid PEM: {error}")))?;
    if certificates.is_empty() {
        return Err(invalid(
            "ca_pem contains no certificate; a certificate starts with a line BEGIN CERTIFICATE"
                .to_owned(),
        ));
    }
    let mut roots = RootCertStore::empty();
    let unusable = |error| invalid(unusable(&error));
    certificates
        .iter()
        .try_for_each(|certificate| roots.add(certificate.clone()))
        .map_err(unusable)?;
    Ok(certificates)
}

fn unusable(error: &rustls::Error) -> String {
    format!("a certificate in ca_pem is invalid: {error}")
}

/// Returns an error message for a gateway with an untrusted certificate. The library's own message
/// is not helpful.
pub(crate) fn in_words(error: &Error) -> Option<String> {
    let Error::Io(error) = error else { return None };
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            let why = "its certificate is not signed by an authority that this machine trusts (add one with NodeClientBuilder::ca_pem)";
            Some(why.to_owned())
        }
        _ => None,
    }
}

/// Installs the cryptography provider that TLS needs, unless the program has already chosen one.
fn use_some_crypto() {
    if CryptoProvider::get_default().is_none() {
        // This can only fail if another thread was faster.
        let _ = aws_lc_rs::default_provider().install_default();
    }
}
