//! A failed login reports the reason and stores nothing. An ended login reports the next step, and
//! is not retried again and again.

use sa_testkit::{Authority, Gateway, PluginAnswer, PluginServer, Setup};
use serde_json::json;

use crate::SWITCHBOARD;
use crate::upstream::{until, upstream};
use crate::upstream_http::HttpServer;
use crate::upstream_login::{agreed, assert_said, authority, config, hello, log_in, open};

async fn waiting() -> (Authority, Gateway) {
    let authority = authority().await;
    let at = Setup::new().config(&config(&authority)).start().await;
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
async fn whoever_comes_back_from_somewhere_else_is_refused() {
    let (authority, at) = waiting().await;
    authority.change(|manner| manner.issuer = Some("https://evil.example".into()));
    let (begun, back) = agreed(&at, &authority).await;
    refused(&at, &authority, &back, begun["login"].as_str().unwrap(), "unexpected authority").await;
    // A redirect that names no issuer is refused too.
    authority.change(|manner| manner.issuer = None);
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
    authority.change(|manner| manner.refuses = Some("<script>alert(1)</script> not you".into()));
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
async fn a_login_that_has_ended_says_what_to_do() {
    let authority = authority().await;
    let at = Setup::new().config(&config(&authority)).spawn(SWITCHBOARD).await;
    until(&at, "hosted", "login_needed").await;
    log_in(&at, &authority).await;
    authority.end_logins();
    let reply = hello(&at).await;
    reply.assert_problem(502, "failed");
    assert!(reply.detail().contains("refused to renew it"), "{}", reply.text);
    assert!(reply.text.contains("switchboard upstream login hosted"), "{}", reply.text);
    let asked = authority.counts().turned_away;
    let state = until(&at, "hosted", "login_needed").await;
    assert!(
        state["last_error"].as_str().unwrap().contains("switchboard upstream login hosted"),
        "{state}"
    );
    assert!(
        at.operator().tool_names().await.contains(&"hosted__hello".to_owned()),
        "its tools stay listed"
    );
    let list = at.cli(&["upstream", "list"]).run().await;
    assert!(
        list.stdout.contains("login_needed") && list.stdout.contains("refused to renew"),
        "{}",
        list.stdout
    );
    let doctor = at.cli(&["doctor"]).run().await;
    assert!(doctor.stdout.contains("\"hosted\" needs a login"), "{}", doctor.stdout);
    for _ in 0..3 {
        hello(&at).await.assert_problem(502, "failed");
    }
    assert_eq!(
        authority.counts().turned_away,
        asked,
        "the server was asked again, though nothing had changed"
    );
    log_in(&at, &authority).await;
    assert_said(&hello(&at).await);
    at.stop().await;
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
    assert_said(&hello(&at).await);
    assert_eq!(authority.counts().registered, 2);
}

#[tokio::test]
async fn a_login_that_allows_too_little_can_be_widened() {
    let (authority, at) = waiting().await;
    log_in(&at, &authority).await;
    assert_said(&hello(&at).await);
    authority.change(|manner| manner.scope = "admin".into());
    let reply = hello(&at).await;
    assert!(reply.text.contains("switchboard upstream login hosted"), "{}", reply.text);
    let (begun, back) = agreed(&at, &authority).await;
    let asked = begun["url"].as_str().unwrap();
    assert!(asked.contains("scope=tools+admin"), "{asked}");
    assert_eq!(open(&back).await.0, 200);
    until(&at, "hosted", "ready").await;
    assert_said(&hello(&at).await);
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
        authority.change(|manner| manner.authority = Some(place.into()));
        let reply = at.operator().post("/v1/upstream/hosted/login", &json!({})).await;
        assert!(
            reply.status == 502
                || reply.body["url"].as_str().is_some_and(|url| url.starts_with(&authority.url)),
            "{place}: {}",
            reply.text
        );
    }
    authority.change(|manner| manner.authority = None);
    for place in [
        "http://169.254.169.254/latest",
        "http://10.0.0.1/",
        "http://[fd00::1]/",
        "file:///etc/passwd",
    ] {
        authority.change(|manner| manner.registration = Some(place.into()));
        let reply = at.operator().post("/v1/upstream/hosted/login", &json!({})).await;
        let said = reply.assert_problem(502, "failed").detail().to_owned();
        assert!(
            said.contains("not allowed") || said.contains("not an https URL"),
            "{place}: {said}"
        );
    }
}

#[tokio::test]
async fn only_what_takes_a_login_can_be_logged_in_to() {
    let config = "[upstream.token]\nurl = \"http://127.0.0.1:9/mcp\"\nbearer = \"env:HOME\"\n\
                  [upstream.program]\ncommand = [\"true\"]\n[upstream.gone]\nurl = \"http://127.0.0.1:9/mcp\"\n";
    let at = Setup::new().config(config).start().await;
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

#[tokio::test]
async fn who_needs_no_login_or_has_no_authority_is_told_so() {
    let web = HttpServer::start("127.0.0.1:0", "new").await;
    let locked = PluginServer::start(|request| match &*request.path {
        "/mcp" => PluginAnswer::text(401, "text/plain", "who are you"),
        _ => PluginAnswer::text(404, "text/html", "<!DOCTYPE html>"),
    })
    .await;
    let config = format!("{}[upstream.locked]\nurl = \"{}\"\n", web.config(""), locked.url("/mcp"));
    let at = Setup::new().config(&config).spawn(SWITCHBOARD).await;
    until(&at, "web", "ready").await;
    let login = async |name: &str| {
        let ended = at.cli(&["upstream", "login", name]).run().await;
        assert_ne!(ended.code, Some(0), "{}", ended.stdout);
        ended.stderr
    };
    let said = login("web").await;
    assert!(said.contains("\"web\" is ready and requires no login"), "{said}");
    let said = login("locked").await;
    assert!(said.contains("names no OAuth authority") && said.contains("--bearer"), "{said}");
    assert!(!said.contains("DOCTYPE"), "{said}");
    let out = at.cli(&["upstream", "logout", "web"]).run().await;
    assert_eq!(out.assert_code(0).stdout, "was not logged in to web\n");
    at.stop().await;
}
