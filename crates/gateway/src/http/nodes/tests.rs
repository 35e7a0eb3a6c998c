//! Rule: a node connects with a valid token and keeps its names while the token is valid. A token
//! that may have expired only by a wrong clock costs no names.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::HeaderValue;
use proptest::prelude::*;
use sa_core::directory::Attach;
use sa_core::{Catalog, Notices, ProviderId, RawJson, Scope};

use super::*;
use crate::gateway_for_tests::{MINUTE_MS, YEAR_MS, start_after};
use crate::tokens::NewToken;

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

struct Nobody;

impl sa_core::Provider for Nobody {
    fn call(
        &self,
        _: Arc<sa_core::Call>,
        _: sa_core::Updates,
    ) -> futures_util::future::BoxFuture<'static, sa_core::Outcome> {
        Box::pin(std::future::ready(Err(sa_core::CallError::undelivered("nobody is here"))))
    }
}

fn attach(id: &str, grant: Grant) -> Attach {
    Attach {
        id: ProviderId::new(KIND, id),
        scope: Scope::Everyone,
        grant,
        provider: Arc::new(Nobody),
        catalog: Catalog { prefixes: vec![format!("{id}.x")], ..Catalog::default() },
        max_running: 1,
        about: RawJson::empty_object(),
        may_take_over: false,
    }
}

#[tokio::test]
async fn a_node_that_is_away_keeps_no_names_once_its_token_is_over() {
    let trusted = Arc::new(AtomicBool::new(false));
    let is_trusted = Arc::clone(&trusted);
    let now = move || is_trusted.load(Ordering::Relaxed).then(sa_core::clock::now_ms);
    let records = Arc::new(crate::records_for_tests::MemoryRecords::default());
    let store = Tokens::load(records, now).await.unwrap();
    let directory = Directory::new(Notices::new(), Duration::from_secs(600));
    let attach = |id: &str, token: &str| directory.attach(attach(id, grant_of(token))).unwrap();
    let known = || {
        directory.members(KIND).into_iter().map(|node| node.id.id.to_string()).collect::<Vec<_>>()
    };
    let create = async |name: &str, expires_ms| {
        let new = NewToken { expires_ms, ..NewToken::new(name, Role::Node) };
        store.create(new).await.unwrap().0.id
    };
    let (valid, expired, revoked) = (
        create("valid", None).await,
        create("expired", Some(1)).await,
        create("revoked", None).await,
    );
    drop(attach("a-valid", &valid));
    drop(attach("b-expired", &expired));
    drop(attach("c-revoked", &revoked));
    let here = attach("d-here", &expired);
    store.revoke(&revoked, false).unwrap();
    let grants = || valid_grants(&NodeTokens::default(), &store);
    release_names(&directory, &store);
    assert_eq!(known(), ["a-valid", "b-expired", "d-here"], "the clock may be wrong");
    assert_eq!(grants(), HashSet::from([grant_of(&valid), grant_of(&expired)]));
    trusted.store(true, Ordering::Relaxed);
    release_names(&directory, &store);
    assert_eq!(grants(), HashSet::from([grant_of(&valid)]));
    assert_eq!(known(), ["a-valid", "d-here"], "who is connected is told, and leaves");
    drop(here);
    release_names(&directory, &store);
    assert_eq!(known(), ["a-valid"]);
}

/// The demo node connects with a token that expires.
#[tokio::test]
async fn a_connected_node_keeps_its_names_if_its_token_expired_by_a_wrong_clock() {
    for (ms, keeps_names) in [(MINUTE_MS, false), (YEAR_MS, true)] {
        let dir = tempfile::tempdir().unwrap();
        let gateway = start_after(dir.path(), ms, []).await;
        let expires_ms = Some(sa_core::clock::now_ms() + 1_000);
        let new = NewToken { expires_ms, ..NewToken::new("n", Role::Node) };
        let (_, token) = gateway.tokens.create(new).await.unwrap();
        let directory = gateway.router.directory();
        let mut changes = directory.subscribe();
        crate::demo::spawn(&gateway, "127.0.0.1:9".parse().unwrap(), &token).unwrap();
        while directory.online(KIND) == 0 {
            changes.changed().await.unwrap();
        }
        while directory.online(KIND) == 1 {
            changes.changed().await.unwrap();
        }
        assert_eq!(!directory.members(KIND).is_empty(), keeps_names, "after {ms} ms");
        gateway.shut_down().await;
        gateway.store.shutdown().await.unwrap();
    }
}

#[test]
fn a_node_has_the_tags_of_its_hello() {
    let directory = Directory::new(Notices::new(), Duration::from_secs(600));
    let check = |about: &str, tag: &str, expected: bool| {
        let about = RawJson::parse(about).unwrap();
        let _node = directory.attach(Attach { about, ..attach("n", Grant::none()) }).unwrap();
        assert_eq!(has_tag(&directory.members(KIND)[0], tag), expected, "{tag:?}");
    };
    let tagged = r#"{ "id": "n", "tags": ["gpu", "to ship", "\u00fc"] }"#;
    for tag in ["gpu", "to ship", "ü"] {
        check(tagged, tag, true);
    }
    for tag in ["gp", "gpux", "GPU", "to", "", "n", "tags"] {
        check(tagged, tag, false);
    }
    for about in ["{}", r#"{ "tags": "gpu" }"#, r#"{ "tags": ["gpu", 1] }"#, "null", "[]"] {
        check(about, "gpu", false);
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
