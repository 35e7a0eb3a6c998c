//! A failed login reports the reason and stores nothing. An ended login reports the next step, and
//! is not retried again and again.

use sa_testkit::upstream::{
    agreed, assert_greeted, authority, config, hello, log_in, open, until, upstream,
};
use sa_testkit::{Authority, Gateway, Setup};
use serde_json::json;

use crate::serve::Serve as _;

async fn waiting() -> (Authority, Gateway) {
    let authority = authority().await;
    let at = Setup::new().config(&config(&authority)).serve().await;
    until(&at, "hosted", "login_needed").await;
    (authority, at)
}

/// Returns from the authority with this URL, and checks that the login fails.
async fn refused(at: &Gateway, authority: &Authority, back: &str, login: &str, words: &str) {
    let (status, _, page) = open(back).await;
    assert!(status == 400 && page.contains(words), "{status}: {page}");
    let progress = at.operator().get(&format!("/v1/upstream/hosted/login/{login}")).await;
    assert_eq!(progress.body["state"], "failed", "{}", progress.text);
    assert_eq!(authority.counts().granted, 0);
    assert_eq!(upstream(at, "hosted").await["logged_in"], false);
    let (status, _, page) = open(back).await;
    assert!(status == 400 && page.contains("start again"), "{page}");
}

#[tokio::test]
async fn a_browser_that_returns_from_another_server_is_refused() {
    let (authority, at) = waiting().await;
    authority.change(|behaviour| behaviour.issuer = Some("https://evil.example".into()));
    let (begun, back) = agreed(&at, &authority).await;
    refused(&at, &authority, &back, begun["login"].as_str().unwrap(), "unexpected authority").await;
    // A redirect that names no issuer is refused too.
    authority.change(|behaviour| behaviour.issuer = None);
    let (begun, back) = agreed(&at, &authority).await;
    let without =
        back.split('&').filter(|part| !part.starts_with("iss=")).collect::<Vec<_>>().join("&");
    assert_ne!(without, back);
    refused(&at, &authority, &without, begun["login"].as_str().unwrap(), "unexpected authority")
        .await;
}

#[tokio::test]
async fn what_an_authority_says_is_shown_as_words() {
    let (authority, at) = waiting().await;
    authority
        .change(|behaviour| behaviour.refuses = Some("<script>alert(1)</script> not you".into()));
    let (begun, back) = agreed(&at, &authority).await;
    refused(
        &at,
        &authority,
        &back,
        begun["login"].as_str().unwrap(),
        "&lt;script&gt;alert(1)&lt;/script&gt; not you",
    )
    .await;
}

#[tokio::test]
async fn a_word_that_is_not_of_a_login_is_refused() {
    let (authority, at) = waiting().await;
    let base = format!("http://{}/v1/upstream/hosted/callback", at.address());
    for query in
        ["", "?code=a", "?code=a&state=guessed", "?state=", "?code=%ff&state=x", "?state=a&state=b"]
    {
        let (status, headers, page) = open(&format!("{base}{query}")).await;
        assert!(status == 400 && page.contains("Not logged in"), "{query}: {status}: {page}");
        assert!(headers.contains_key("content-security-policy"));
    }
    // A later login replaces the earlier one.
    let (first, back) = agreed(&at, &authority).await;
    let (_, newer) = agreed(&at, &authority).await;
    assert_eq!(open(&back).await.0, 400);
    let path = format!("/v1/upstream/hosted/login/{}", first["login"].as_str().unwrap());
    at.operator().get(&path).await.assert_problem(404, "not_found");
    assert_eq!(open(&newer).await.0, 200);
}

#[tokio::test]
async fn an_authority_that_has_forgotten_the_gateway_gets_to_know_it_again() {
    let (authority, at) = waiting().await;
    log_in(&at, &authority).await;
    authority.forget_clients();
    let reply = hello(&at).await;
    assert!(
        reply.assert_problem(502, "failed").detail().contains("switchboard upstream login hosted"),
        "{}",
        reply.text
    );
    log_in(&at, &authority).await;
    assert_greeted(&hello(&at).await);
    assert_eq!(authority.counts().registered, 2);
}

#[tokio::test]
async fn a_login_that_allows_too_little_can_be_widened() {
    let (authority, at) = waiting().await;
    log_in(&at, &authority).await;
    assert_greeted(&hello(&at).await);
    authority.change(|behaviour| behaviour.scope = "admin".into());
    let reply = hello(&at).await;
    assert!(reply.text.contains("switchboard upstream login hosted"), "{}", reply.text);
    let (begun, back) = agreed(&at, &authority).await;
    let asked = begun["url"].as_str().unwrap();
    assert!(asked.contains("scope=tools+admin"), "{asked}");
    assert_eq!(open(&back).await.0, 200);
    until(&at, "hosted", "ready").await;
    assert_greeted(&hello(&at).await);
}

#[tokio::test]
async fn a_server_cannot_send_the_gateway_to_where_it_may_not_go() {
    let (authority, at) = waiting().await;
    for place in [
        "http://169.254.169.254/",
        "http://10.0.0.1/",
        "http://metadata.google.internal/",
        "file:///etc/",
    ] {
        authority.change(|behaviour| behaviour.authority = Some(place.into()));
        let reply = at.operator().post("/v1/upstream/hosted/login", &json!({})).await;
        assert!(
            reply.status == 502
                || reply.body["url"].as_str().is_some_and(|url| url.starts_with(&authority.url)),
            "{place}: {}",
            reply.text
        );
    }
    authority.change(|behaviour| behaviour.authority = None);
    for place in [
        "http://169.254.169.254/latest",
        "http://10.0.0.1/",
        "http://[fd00::1]/",
        "file:///etc/passwd",
    ] {
        authority.change(|behaviour| behaviour.registration = Some(place.into()));
        let reply = at.operator().post("/v1/upstream/hosted/login", &json!({})).await;
        let text = reply.assert_problem(502, "failed").detail().to_owned();
        assert!(
            text.contains("not allowed") || text.contains("not an https URL"),
            "{place}: {text}"
        );
    }
}

#[tokio::test]
async fn only_what_takes_a_login_can_be_logged_in_to() {
    let config = "[upstream.token]\nurl = \"http://127.0.0.1:9/mcp\"\nbearer = \"env:HOME\"\n\
                  [upstream.program]\ncommand = [\"true\"]\n[upstream.gone]\nurl = \"http://127.0.0.1:9/mcp\"\n";
    let at = Setup::new().config(config).serve().await;
    let operator = at.operator();
    for name in ["token", "program"] {
        for action in ["login", "logout"] {
            let reply = operator.post(&format!("/v1/upstream/{name}/{action}"), &json!({})).await;
            assert!(
                reply.assert_problem(400, "bad_request").detail().contains("does not use a login"),
                "{}",
                reply.text
            );
        }
    }
    operator.post("/v1/upstream/nobody/login", &json!({})).await.assert_problem(404, "not_found");
    operator.post("/v1/upstream/gone/login", &json!({})).await.assert_problem(502, "failed");
    let agent = at.new_agent("agent").await;
    agent.post("/v1/upstream/gone/login", &json!({})).await.assert_problem(403, "not_allowed");
}
