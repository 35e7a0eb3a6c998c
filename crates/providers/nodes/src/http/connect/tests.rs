//! Rule: a node sends its token in the query or in the header. A node without a token is local.

use axum::http::HeaderValue;
use proptest::prelude::*;

use super::*;

/// Returns the tokens of a node with this query and header.
fn tokens(query: &str, authorization: Option<&str>) -> Option<Vec<String>> {
    let mut headers = HeaderMap::new();
    authorization
        .map(|value| headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap()));
    tokens_of(&format!("/v1/nodes/ws?{query}").parse().unwrap(), &headers).ok()
}

#[test]
fn a_request_through_a_proxy_is_forwarded() {
    let check = |host: &'static str, name: &'static str, expected: bool| {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static(host));
        headers.insert(name, HeaderValue::from_static("x"));
        assert_eq!(is_forwarded(&headers), expected, "{host} with {name}");
    };
    for host in ["localhost:3210", "LocalHost", "127.0.0.1:3210", "127.1.2.3", "[::1]:3210"] {
        check(host, "accept", false);
        for name in [
            "x-forwarded-for",
            "x-forwarded-proto",
            "forwarded",
            "via",
            "x-real-ip",
            "true-client-ip",
            "cf-connecting-ip",
            "x-original-forwarded-for",
            "x-envoy-external-address",
        ] {
            check(host, name, true);
        }
    }
    for host in ["gw.example.com", "10.0.0.1:3210", "localhost.example.com", ""] {
        check(host, "accept", true);
    }
}

#[test]
fn a_token_is_in_the_query_or_a_bearer_of_the_header() {
    let check = |query: &str, header: Option<&str>, expected: Option<&[&str]>| {
        let expected =
            expected.map(|tokens| tokens.iter().map(|token| (*token).to_owned()).collect());
        assert_eq!(tokens(query, header), expected, "{query} {header:?}");
    };
    check("", None, Some(&[]));
    check("token=", None, Some(&[]));
    check("token=x", None, Some(&["x"]));
    check("token=a%20b", None, Some(&["a b", "a%20b"]));
    check("token=100%", None, Some(&["100%"]));
    check("token=%ff", None, Some(&["%ff"]));
    check("token=x", Some("Bearer y"), Some(&["x"]));
    check("node_id=a", Some("Bearer y"), Some(&["y"]));
    check("", Some("bEARER y"), Some(&["y"]));
    check("", Some("Bearer"), Some(&[]));
    for other in ["Basic y", "Token y", "Bearery y", " y", "y"] {
        check("", Some(other), Some(&[]));
    }
    check("token=x&token=y", None, None);
    check("token=x&token=x", Some("Bearer x"), None);
}

proptest! {
    #[test]
    fn a_token_gets_through_encoded_and_in_the_header(token in "[!-~]([ -~]{0,30}[!-~])?") {
        let encoded = token.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
        let found = tokens(&format!("node_id=n&token={encoded}"), None).unwrap_or_default();
        prop_assert!(found.contains(&token), "{found:?}");
        prop_assert_eq!(tokens("", Some(&format!("Bearer {token}"))), Some(vec![token]));
    }
}
