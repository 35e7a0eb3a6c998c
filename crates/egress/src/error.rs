//! Why a request came to nothing.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;

use url::Url;

use crate::origin;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressErrorKind {
    /// No URL that is ever used.
    BadUrl,
    /// An address that nothing may reach.
    Forbidden,
    /// The name has no address.
    Unresolved,
    /// Nobody took the connection, or not in time.
    Unreachable,
    /// The connection was made, and then failed or spoke no HTTP.
    Broken,
    Timeout,
    TooLarge,
    TooManyRedirects,
    /// A redirect would have carried a secret elsewhere.
    CrossOrigin,
}

/// What happened, in one sentence that names no more of a URL than its origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EgressError {
    pub kind: EgressErrorKind,
    pub message: String,
}

impl EgressError {
    pub(crate) fn new(kind: EgressErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn forbidden(host: &str, address: IpAddr) -> Self {
        Forbidden { host: host.to_owned(), address: Some(address) }.into()
    }

    /// What the client says, in our words. Its own would name the whole URL.
    pub(crate) fn of(error: &reqwest::Error, url: &Url) -> Self {
        let place = origin(url);
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(one) = cause {
            if let Some(forbidden) = one.downcast_ref::<Forbidden>() {
                return forbidden.clone().into();
            }
            if let Some(Unresolved(why)) = one.downcast_ref::<Unresolved>() {
                let message = format!("the name of {place} cannot be resolved: {why}");
                return Self::new(EgressErrorKind::Unresolved, message);
            }
            cause = one.source();
        }
        if error.is_connect() {
            let why = if error.is_timeout() { "it took too long".into() } else { innermost(error) };
            return Self::new(EgressErrorKind::Unreachable, format!("{place} cannot be reached: {why}"));
        }
        Self::new(EgressErrorKind::Broken, format!("{place} gave no usable answer: {}", innermost(error)))
    }
}

pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// A name or a literal that leads to an address which is not public. Which address is not said where a name was asked:
/// it would tell what the inner network looks like.
#[derive(Debug, Clone)]
pub(crate) struct Forbidden {
    pub(crate) host: String,
    pub(crate) address: Option<IpAddr>,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leads = if self.address.is_some() { "is" } else { "leads to" };
        write!(f, "\"{}\" {leads} an address that is not public", self.host)
    }
}

impl Error for Forbidden {}

impl From<Forbidden> for EgressError {
    fn from(forbidden: Forbidden) -> Self {
        Self::new(EgressErrorKind::Forbidden, format!("{forbidden}, and is not allowed as a private one"))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Unresolved(pub(crate) String);

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Unresolved {}
