//! Rule: only requests for the gateway's own names, from allowed pages and with a token reach a
//! route. The listed open paths need no token.

use super::*;

fn ends(local: &str, tls: bool) -> Ends {
    Ends { local: local.parse().unwrap(), remote: "127.0.0.1:9".parse().unwrap(), tls }
}

#[track_caller]
fn check_host_name(host: &str, local: &str, accepted: bool) {
    let server = Server {
        allowed_hosts: vec!["gw.example.com".into(), "other:8443".into()],
        ..Server::default()
    };
    assert_eq!(is_our_host(host, ends(local, false), &server), accepted, "{host} at {local}");
}

#[test]
fn hosts() {
    check_host_name("127.0.0.1:3210", "127.0.0.1:3210", true);
    check_host_name("localhost:3210", "127.0.0.1:3210", true);
    check_host_name("LOCALHOST:3210", "127.0.0.1:3210", true);
    check_host_name("[::1]:3210", "[::1]:3210", true);
    check_host_name("localhost", "127.0.0.1:80", true);
    check_host_name("localhost", "127.0.0.1:3210", false);
    check_host_name("localhost:3211", "127.0.0.1:3210", false);
    check_host_name("evil.example:3210", "127.0.0.1:3210", false);
    check_host_name("127.0.0.1.evil.example:3210", "127.0.0.1:3210", false);
    check_host_name("localhost:3210@evil.example", "127.0.0.1:3210", false);
    check_host_name("localhost:", "127.0.0.1:3210", false);
    check_host_name("", "127.0.0.1:3210", false);
    check_host_name("null", "127.0.0.1:3210", false);
    check_host_name("localhost:3210", "10.0.0.5:3210", false);
    check_host_name("10.0.0.5:3210", "10.0.0.5:3210", true);
    check_host_name("10.0.0.6:3210", "10.0.0.5:3210", false);
    check_host_name("[127.0.0.1]:3210", "127.0.0.1:3210", false);
    check_host_name("[[127.0.0.1]]]:3210", "127.0.0.1:3210", false);
    check_host_name("[[::1]]:3210", "[::1]:3210", false);
    check_host_name("[localhost]:3210", "127.0.0.1:3210", false);
    check_host_name("127.0.0.1:+3210", "127.0.0.1:3210", false);
    check_host_name("127.0.0.1:-3210", "127.0.0.1:3210", false);
    check_host_name("[::ffff:127.0.0.1]:3210", "127.0.0.1:3210", true);
    check_host_name("gw.example.com", "10.0.0.5:3210", true);
    check_host_name("gw.example.com:443", "10.0.0.5:3210", true);
    check_host_name("other:8443", "10.0.0.5:3210", true);
    check_host_name("other:8444", "10.0.0.5:3210", false);
}

#[track_caller]
fn check_origin_value(origins: &[&str], accepted: bool) {
    let server =
        Server { allowed_origins: vec!["https://app.example.com".into()], ..Server::default() };
    let mut headers = HeaderMap::new();
    for origin in origins {
        headers.append(header::ORIGIN, HeaderValue::from_bytes(origin.as_bytes()).unwrap());
    }
    let result = check_origin(&headers, ends("127.0.0.1:3210", false), &server, &[]);
    assert_eq!(result.is_ok(), accepted, "{origins:?}: {result:?}");
}

#[test]
fn origins() {
    check_origin_value(&[], true);
    check_origin_value(&["http://127.0.0.1:3210"], true);
    check_origin_value(&["http://localhost:3210"], true);
    check_origin_value(&["https://app.example.com"], true);
    check_origin_value(&["https://127.0.0.1:3210"], false);
    check_origin_value(&["http://127.0.0.1:3211"], false);
    check_origin_value(&["http://127.0.0.1"], false);
    check_origin_value(&["null"], false);
    check_origin_value(&[""], false);
    check_origin_value(&["http://127.0.0.1:3210/"], false);
    check_origin_value(&["http://127.0.0.1:3210 "], false);
    check_origin_value(&["http://evil.example"], false);
    check_origin_value(&["http://127.0.0.1:3210", "http://127.0.0.1:3210"], false);
    check_origin_value(&["http://127.0.0.1:3210", "http://evil.example"], false);
}

#[test]
fn paths_that_need_no_token() {
    for path in [
        "/healthz",
        "/readyz",
        "/",
        "/console",
        "/console/",
        "/console/sandbox.html",
        "/console/assets/index.js",
        "/v1/console/sign-in",
        "/v1/channels/ws",
        "/v1/nodes/ws",
        "/v1/upstream/mail/callback",
        "/.well-known/oauth-protected-resource",
    ] {
        assert!(is_open(path), "{path}");
    }
    for path in [
        "",
        "/metrics",
        "/mcp",
        "/openapi.json",
        "/v1/tools",
        "/v1/tokens",
        "/v1/nodes",
        "/v1/nodes/ws/",
        "/v1/calls/ws",
        "/v1/console/sign-out",
        "/v1/console/link",
        "/console/assets",
        "/console/other",
        "/v1/upstream/callback",
        "/v1/upstream/a/b/callback",
        "/healthz/",
        "//healthz",
        "/HEALTHZ",
        "/readyz/../v1/tokens",
        "/v1/channels/ws/x",
    ] {
        assert!(!is_open(path), "{path}");
    }
}

#[test]
fn paths_where_clients_look_for_an_oauth_authority() {
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/mcp",
        "/mcp/.well-known/oauth-authorization-server",
        "/mcp/.well-known/openid-configuration",
        "/register",
    ] {
        assert!(is_oauth_discovery(path), "{path}");
    }
    for path in [
        "/mcp",
        "/mcp/",
        "/mcp/register",
        "/register/",
        "/registered",
        "/.well-known/",
        "/.well-known/security.txt",
        "/.well-known/oauth",
        "/v1/.well-known/oauth-authorization-server",
        "/v1/tools/.well-known/oauth-authorization-server",
    ] {
        assert!(!is_oauth_discovery(path), "{path}");
    }
}

proptest::proptest! {
    #[test]
    fn no_name_but_our_own_passes(name in "[ -~]{0,60}") {
        let server = Server::default();
        let ours = ["127.0.0.1:3210", "localhost:3210", "[::1]:3210", "::1:3210"];
        let accepted = is_our_host(&name, ends("127.0.0.1:3210", false), &server);
        proptest::prop_assert!(!accepted || ours.contains(&name.to_lowercase().as_str()), "{name}");
    }
}
