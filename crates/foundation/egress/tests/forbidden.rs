//! Rule: no spelling, redirect or changed name leads to a connection to an address that is not
//! public. Only the hosts and ports that the operator has named are exceptions.

mod support;

use sa_egress::{Allowed, EgressErrorKind, Request, is_public};
use support::{Names, Server, egress, get, rule_for_tests};
use url::Url;

/// Spellings of 127.0.0.1, or of another address that is not public, as the host of a URL.
const SPELLINGS: [&str; 48] = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0X7F000001",
    "0x7f.0.0.1",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "0177.0x0.0.1",
    "00000177.0.0.01",
    "127.0.0.1.",
    "0",
    "0.0.0.0",
    "0x0",
    "%31%32%37.0.0.1",
    "127%2e0%2e0%2e1",
    "127。0。0。1",
    "①②⑦.⓪.⓪.①",
    "127.0.0.1",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "loopback.test",
    "mixed.test",
    "10.0.0.1",
    "10.1",
    "167772161",
    "192.168.0.1",
    "172.16.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "metadata.test",
    "224.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::1]",
];

const MORE: [&str; 5] =
    ["[fe80::1]", "[fd00:ec2::254]", "[ff02::1]", "[2001:0:7f00:1::1]", "[::127.0.0.1]"];

fn names() -> Names {
    Names::new(&[
        ("localhost", &[&["127.0.0.1", "::1"]]),
        ("localhost.", &[&["127.0.0.1"]]),
        ("loopback.test", &[&["127.0.0.1"]]),
        ("mixed.test", &[&["8.8.8.8", "127.0.0.1"]]),
        ("metadata.test", &[&["169.254.169.254"]]),
    ])
}

#[tokio::test]
async fn no_spelling_leads_inside() {
    let server = Server::start("127.0.0.1", |_| support::ok("inside")).await;
    let egress = egress(&[], names(), is_public);
    for host in SPELLINGS.iter().chain(&MORE) {
        for url in
            [format!("http://{host}:{}/", server.port), format!("https://{host}:{}/", server.port)]
        {
            // Text that is not a URL cannot be requested at all.
            let Ok(url) = Url::parse(&url) else { continue };
            let error = egress.send(get(url.clone())).await.expect_err(url.as_str());
            assert_eq!(error.kind, EgressErrorKind::Forbidden, "{url}: {error}");
        }
    }
    assert_eq!(server.hits(), 0, "not one connection");
}

#[tokio::test]
async fn no_redirect_leads_inside() {
    let inside = Server::start("127.0.0.1", |_| support::ok("inside")).await;
    for host in SPELLINGS.iter().chain(&MORE) {
        let target = format!("http://{host}:{}/", inside.port);
        if Url::parse(&target).is_err() || !target.is_ascii() {
            continue;
        }
        for status in [301, 302, 303, 307, 308] {
            let to = target.clone();
            let outside = Server::start("127.0.0.2", move |_| support::redirect(status, &to)).await;
            let url = format!("http://127.0.0.2:{}/", outside.port).parse().unwrap();
            let error = egress(&[], names(), rule_for_tests).send(get(url)).await.expect_err(host);
            assert_eq!(error.kind, EgressErrorKind::Forbidden, "{host} {status}: {error}");
            if status == 301 && host.len() > 4 {
                break;
            }
        }
    }
    assert_eq!(inside.hits(), 0, "not one connection");
}

#[tokio::test]
async fn other_schemes_and_credentials_are_refused() {
    let egress = egress(&[], Names::new(&[]), is_public);
    for url in [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "http://me:secret@example.com/",
    ] {
        let error = egress.send(get(url.parse().unwrap())).await.unwrap_err();
        assert_eq!(error.kind, EgressErrorKind::BadUrl, "{url}");
        assert!(!error.message.contains("secret"));
    }
    let to_file =
        Server::start("127.0.0.2", |_| support::redirect(302, "file:///etc/passwd")).await;
    let url = format!("http://127.0.0.2:{}/", to_file.port).parse().unwrap();
    let open = support::egress(&[], Names::new(&[]), rule_for_tests);
    assert_eq!(open.send(get(url)).await.unwrap_err().kind, EgressErrorKind::BadUrl);
}

#[tokio::test]
async fn a_name_that_turns_is_looked_at_each_time() {
    // Both addresses are on this machine. By this test's rule 127.0.0.2 is public and 127.0.0.1 is
    // not.
    let inside = Server::start("127.0.0.1", |_| support::ok("inside")).await;
    let outside = Server::start_at("127.0.0.2", inside.port, |_| support::closing("outside")).await;
    let names = Names::new(&[("turns.test", &[&["127.0.0.2"], &["127.0.0.1"], &["127.0.0.2"]])]);
    let egress = egress(&[], names.clone(), rule_for_tests);
    let url: Url = format!("http://turns.test:{}/", inside.port).parse().unwrap();

    assert_eq!(egress.send(get(url.clone())).await.unwrap().body, "outside");
    assert_eq!(
        names.asked("turns.test"),
        1,
        "the address that was looked at is the one that was connected to"
    );
    let error = egress.send(get(url.clone())).await.unwrap_err();
    assert_eq!(error.kind, EgressErrorKind::Forbidden);
    assert!(!error.message.contains("127.0.0.1"), "{error}");
    assert_eq!(egress.send(get(url)).await.unwrap().body, "outside");
    assert_eq!((inside.hits(), outside.hits()), (0, 2));
}

#[tokio::test]
async fn what_is_named_by_host_and_port_is_reached_and_nothing_else() {
    let named = Server::start("127.0.0.1", |_| support::ok("named")).await;
    let other = Server::start("127.0.0.1", |_| support::ok("other")).await;
    let allowed = format!("localhost:{}", named.port);
    let egress = egress(&[&allowed], names(), is_public);
    let ask =
        |host: &str, port: u16| egress.send(get(format!("http://{host}:{port}/").parse().unwrap()));
    assert_eq!(ask("localhost", named.port).await.unwrap().body, "named");
    assert_eq!(ask("LOCALHOST", named.port).await.unwrap().body, "named");
    assert_eq!(ask("localhost", other.port).await.unwrap_err().kind, EgressErrorKind::Forbidden);
    assert_eq!(ask("127.0.0.1", named.port).await.unwrap_err().kind, EgressErrorKind::Forbidden);
    assert_eq!(
        ask("loopback.test", named.port).await.unwrap_err().kind,
        EgressErrorKind::Forbidden
    );
    assert_eq!((named.hits(), other.hits()), (1, 0), "and one connection is used again");
}

#[tokio::test]
async fn what_one_may_reach_is_closed_to_another() {
    let inside = Server::start("127.0.0.1", |_| support::ok("inside")).await;
    let to = format!("http://localhost:{}/", inside.port);
    let (direct, target): (Url, String) = (to.parse().unwrap(), to.clone());
    let outside = Server::start("127.0.0.2", move |_| support::redirect(307, &target)).await;
    let around: Url = format!("http://127.0.0.2:{}/", outside.port).parse().unwrap();
    let egress = egress(&[], names(), rule_for_tests);
    let allowed = Allowed::parse(&[format!("localhost:{}", inside.port)]).unwrap();
    let other_port = Allowed::parse(&[format!("localhost:{}", outside.port)]).unwrap();
    // The requests alternate, so that one could reuse a pooled connection that the other has
    // opened.
    for _ in 0..3 {
        for url in [&direct, &around] {
            let asked =
                |allowed: &Allowed| Request { allowed: allowed.clone(), ..get(url.clone()) };
            assert_eq!(egress.send(asked(&allowed)).await.unwrap().body, "inside");
            for without in [&Allowed::default(), &other_port] {
                assert_eq!(
                    egress.send(asked(without)).await.unwrap_err().kind,
                    EgressErrorKind::Forbidden,
                    "{url}"
                );
            }
        }
    }
    assert_eq!(inside.hits(), 1, "one connection, and nobody else's");
}

#[test]
fn what_may_be_named() {
    for good in ["localhost:3400", "127.0.0.1:80", "[::1]:8080", "Plugin.Internal:443", "0x7f.1:80"]
    {
        assert!(Allowed::parse(&[good]).is_ok(), "{good}");
    }
    for bad in [
        "localhost",
        "localhost:",
        "localhost:0",
        "localhost:99999",
        "http://a:1",
        ":80",
        "a@b:1",
        "a:+1",
        "*:80",
    ] {
        assert!(Allowed::parse(&[bad]).is_err(), "{bad}");
    }
    assert_eq!(Allowed::parse(&["0x7f.1:80"]), Allowed::parse(&["127.0.0.1:80"]));
}
