//! Whom a node trusts to be its gateway.

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

/// What encrypts a connection. `None` is the WebSocket library's own way, which trusts whom the system trusts.
pub(crate) fn connector(config: &Config) -> Result<Option<Connector>, NodeSdkError> {
    use_some_crypto();
    if config.trusted.is_empty() {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    // What cannot be read of the system's is left out, as the library does it: what was added may be all that it takes.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for certificate in &config.trusted {
        roots.add(certificate.clone()).map_err(|error| connect_error(config, &unusable(&error)))?;
    }
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(Some(Connector::Rustls(Arc::new(tls))))
}

/// The certificates in a text, each of which can be trusted.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, NodeSdkError> {
    let invalid = |why: String| NodeSdkError::Config(why);
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = read.map_err(|error| invalid(format!("ca_pem cannot be read: {error}")))?;
    if certificates.is_empty() {
        return Err(invalid("ca_pem holds no certificate; one begins with a line BEGIN CERTIFICATE".to_owned()));
    }
    let mut roots = RootCertStore::empty();
    let unusable = |error| invalid(unusable(&error));
    certificates.iter().try_for_each(|certificate| roots.add(certificate.clone())).map_err(unusable)?;
    Ok(certificates)
}

fn unusable(error: &rustls::Error) -> String {
    format!("a certificate of ca_pem cannot be used: {error}")
}

/// What to say of a gateway that nobody whom we trust vouches for: the library has a name for it that helps nobody.
pub(crate) fn in_words(error: &Error) -> Option<String> {
    let Error::Io(error) = error else { return None };
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            let why = "its certificate is signed by nobody whom this machine trusts (NodeClientBuilder::ca_pem adds to these)";
            Some(why.to_owned())
        }
        _ => None,
    }
}

/// TLS needs a cryptography provider for the process. A program that has chosen one keeps it.
fn use_some_crypto() {
    if CryptoProvider::get_default().is_none() {
        // It can only fail because somebody else was faster.
        let _ = aws_lc_rs::default_provider().install_default();
    }
}
