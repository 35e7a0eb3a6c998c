//! Private hosts and ports that the operator allows as destinations.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use url::{Host, Url};

/// Hosts and ports that the operator has named. Cloning is cheap, because every request carries a
/// copy.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Allowed(Option<Arc<BTreeSet<(String, u16)>>>);

impl Allowed {
    /// Parses entries such as `localhost:3400`. The error names the invalid entry.
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, String> {
        let places: BTreeSet<_> =
            entries.iter().map(|entry| place(entry.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self((!places.is_empty()).then(|| Arc::new(places))))
    }

    pub(crate) fn has<S: AsRef<str>>(&self, host: &Host<S>, port: u16) -> bool {
        self.0.as_ref().is_some_and(|places| places.contains(&(key(host), port)))
    }
}

impl fmt::Debug for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().flat_map(|places| places.iter())).finish()
    }
}

/// Parses `host:port` as written by the operator, and normalizes it like the host of a URL.
fn place(entry: &str) -> Result<(String, u16), String> {
    let wrong = || format!("\"{entry}\" must be a host and a port, such as \"localhost:3400\"");
    if entry.contains(['/', '@', '?', '#', '\\', '*']) {
        return Err(wrong());
    }
    let (_, port) = entry.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 =
        port.parse().ok().filter(|port| *port != 0 && !entry.contains('+')).ok_or_else(wrong)?;
    let url = Url::parse(&format!("http://{entry}/")).map_err(|_| wrong())?;
    Ok((key(&url.host().ok_or_else(wrong)?), port))
}

fn key<S: AsRef<str>>(host: &Host<S>) -> String {
    match host {
        Host::Domain(name) => name.as_ref().trim_end_matches('.').to_ascii_lowercase(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_canonical().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORDS: &[&str] = &[
        "localhost",
        ":",
        "3400",
        "80",
        "0",
        "65536",
        "[::1]",
        "127.0.0.1",
        ".",
        "/",
        "@",
        "?",
        "#",
        "*",
        "+",
        "a-b",
    ];

    proptest! {
        /// An entry allows exactly one host and one port, in every spelling that a URL can use.
        #[test]
        fn an_entry_is_a_host_and_a_port(entry in sa_hostile::text(WORDS)) {
            match Allowed::parse(&[entry.as_str()]) {
                Ok(allowed) => {
                    let url = Url::parse(&format!("http://{entry}/")).unwrap();
                    let (host, port) = (url.host().unwrap(), url.port_or_known_default().unwrap());
                    prop_assert!(port > 0 && url.username().is_empty() && url.path() == "/");
                    prop_assert!(allowed.has(&host, port) && !allowed.has(&host, port ^ 1));
                    prop_assert!(!allowed.has(&Host::Domain("elsewhere.example"), port));
                }
                Err(why) => prop_assert!(why.contains(&entry)),
            }
        }
    }
}
