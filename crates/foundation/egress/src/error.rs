//! The reasons why a request fails.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;

use sa_limits::budget::Refused;
use url::Url;

use crate::origin;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressErrorKind {
    /// The URL is invalid or of a form that is never used.
    BadUrl,
    /// The address is not public and not allowed.
    Forbidden,
    /// The name has no address.
    Unresolved,
    /// The server refused the connection, or the connect timeout expired.
    Unreachable,
    /// The connection was made, and then failed or did not carry valid HTTP.
    Broken,
    Timeout,
    TooLarge,
    /// The budget for answers has no space for the response.
    Refused,
    TooManyRedirects,
    /// A redirect would have sent a secret to another origin.
    CrossOrigin,
}

/// One sentence that describes the failure. It contains no more of a URL than its origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EgressError {
    pub kind: EgressErrorKind,
    pub message: String,
    /// The parts of the message that come from outside: origins, hosts in quotes, and text that a
    /// library quotes from a certificate.
    outside: Vec<String>,
    /// The budget's own error, for [`EgressErrorKind::Refused`].
    pub refused: Option<Refused>,
}

impl EgressError {
    pub(crate) fn new(kind: EgressErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), outside: Vec::new(), refused: None }
    }

    pub(crate) fn refused(refused: Refused) -> Self {
        let message = format!("there is no budget for the response: {refused}");
        Self { refused: Some(refused), ..Self::new(EgressErrorKind::Refused, message) }
    }

    /// Marks parts of the message as coming from outside.
    pub(crate) fn outside<const N: usize>(self, outside: [&str; N]) -> Self {
        Self { outside: outside.map(str::to_owned).into(), ..self }
    }

    /// Returns this error with `mask` applied only to the parts of the message that come from
    /// outside.
    #[must_use]
    pub fn masked(mut self, mask: impl Fn(&str) -> String) -> Self {
        for part in &mut self.outside {
            let masked = mask(part);
            if masked != *part {
                self.message = self.message.replace(part.as_str(), &masked);
                *part = masked;
            }
        }
        self
    }

    pub(crate) fn forbidden(host: &str, address: IpAddr) -> Self {
        Forbidden { host: host.to_owned(), address: Some(address) }.into()
    }

    /// Describes an error of the HTTP client. The client's own message would contain the whole URL.
    pub(crate) fn of(error: &reqwest::Error, url: &Url) -> Self {
        let place = origin(url);
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(one) = cause {
            if let Some(forbidden) = one.downcast_ref::<Forbidden>() {
                return forbidden.clone().into();
            }
            if let Some(Unresolved(why)) = one.downcast_ref::<Unresolved>() {
                let message = format!("the name of {place} cannot be resolved: {why}");
                return Self::new(EgressErrorKind::Unresolved, message).outside([&place]);
            }
            cause = one.source();
        }
        if error.is_connect() {
            let why = if error.is_timeout() {
                "the connection timed out".into()
            } else {
                innermost(error)
            };
            let message = format!("{place} cannot be reached: {why}");
            return Self::new(EgressErrorKind::Unreachable, message)
                .outside([&place, quoted(&why)]);
        }
        let why = innermost(error);
        let message = format!("{place} returned an invalid response: {why}");
        Self::new(EgressErrorKind::Broken, message).outside([&place, quoted(&why)])
    }
}

/// Returns the part of a library's message that is in quotes, such as the names in a certificate.
fn quoted(message: &str) -> &str {
    match (message.find('"'), message.rfind('"')) {
        (Some(first), Some(last)) => &message[first..=last],
        _ => "",
    }
}

pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// A name or a literal that leads to an address which is not public.
/// The address is omitted if the URL contained a name: it would reveal the inner network.
#[derive(Debug, Clone)]
pub(crate) struct Forbidden {
    pub(crate) host: String,
    pub(crate) address: Option<IpAddr>,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leads = if self.address.is_some() { "is" } else { "resolves to" };
        write!(f, "\"{}\" {leads} an address that is not public", self.host)
    }
}

impl Error for Forbidden {}

impl From<Forbidden> for EgressError {
    fn from(forbidden: Forbidden) -> Self {
        let message = format!("{forbidden}, which is not allowed");
        Self::new(EgressErrorKind::Forbidden, message).outside([&format!("\"{}\"", forbidden.host)])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_chose_is_masked() {
        let mask = |text: &str| text.replace("reached", "***");
        let message = "https://reached.example cannot be reached: a certificate for \"reached\"";
        let error = EgressError::new(EgressErrorKind::Unreachable, message);
        let error = error.outside(["https://reached.example", quoted(message)]).masked(mask);
        assert_eq!(
            error.message,
            "https://***.example cannot be reached: a certificate for \"***\""
        );
        assert_eq!((quoted("no quotes"), quoted("a \"b\" and \"c\"!")), ("", "\"b\" and \"c\""));
        let forbidden = EgressError::forbidden("10.0.0.1", IpAddr::from([10, 0, 0, 1]))
            .masked(|_| "\"***\"".into());
        assert_eq!(
            forbidden.message,
            "\"***\" is an address that is not public, which is not allowed"
        );
    }
}
