//! Rule: an accepted URL has a public host and no user name or password, and any other gets a short
//! error.

use std::sync::LazyLock;

use proptest::prelude::*;
use sa_egress::{Allowed, Egress, EgressErrorKind, Options, is_public};
use url::{Host, Url};

const WORDS: &[&str] = &[
    "http",
    "https",
    "ftp",
    "javascript",
    ":",
    "//",
    "/",
    "\\",
    "@",
    "?",
    "#",
    "127.0.0.1",
    "0x7f.1",
    "2130706433",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "localhost",
    "8.8.8.8",
    "a.example",
    "me:secret@",
    ":80",
    ":3400",
    "%31",
    "。",
    "xn--",
];

static EGRESS: LazyLock<Egress> = LazyLock::new(|| {
    Egress::new(&Options { allow_private: Vec::new(), max_redirects: 0, user_agent: "test" })
        .unwrap()
});

proptest! {
    #[test]
    fn what_may_be_asked_is_public_and_carries_no_secret(text in sa_hostile::text(WORDS), path in sa_hostile::long()) {
        for text in [format!("http://{text}"), format!("{text}{path}"), text] {
            let Ok(url) = Url::parse(&text) else { continue };
            match EGRESS.check(&url, &Allowed::default()) {
                Ok(()) => {
                    prop_assert!(matches!(url.scheme(), "http" | "https"));
                    prop_assert!(url.username().is_empty() && url.password().is_none() && url.as_str().len() <= 8 * 1024);
                    prop_assert!(match url.host().unwrap() {
                        Host::Ipv4(address) => is_public(address.into()),
                        Host::Ipv6(address) => is_public(address.into()),
                        Host::Domain(_) => true,
                    }, "the rule is broken");
                }
                Err(error) => {
                    prop_assert!(matches!(error.kind, EgressErrorKind::BadUrl | EgressErrorKind::Forbidden));
                    prop_assert!(error.message.len() < 3 * sa_hostile::SHORT && !error.message.contains("secret"), "{}", error.message);
                }
            }
        }
    }
}
