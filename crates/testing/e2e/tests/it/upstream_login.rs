//! For a server with a login, a user logs in once in a browser. The tokens are encrypted at rest,
//! renewed automatically, and sent only to that server, until the logout.

use std::sync::Arc;

use axum::Router;
use reqwest::Method;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use sa_testkit::{Authority, Gateway, Reply, Setup, assert_nowhere, find_in_files, is_private};
use serde_json::{Value, json};

use crate::SWITCHBOARD;
use crate::upstream::{until, upstream};
use crate::upstream_oauth::Guarded;

/// Starts a server with one tool, which requires tokens of its authority.
pub(crate) async fn authority() -> Authority {
    let service = StreamableHttpService::new(
        || Ok(Guarded),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    Authority::start(Router::new().fallback_service(service)).await
}

pub(crate) fn config(authority: &Authority) -> String {
    let oauth = "oauth = { grant = \"authorization_code\" }";
    format!(
        "[log]\nfilter = \"debug,rmcp=debug\"\n[upstream.hosted]\nurl = \"{}\"\n{oauth}\n",
        authority.resource()
    )
}

/// Opens an address like a browser, and returns the page's status, headers and text.
pub(crate) async fn open(address: &str) -> (u16, reqwest::header::HeaderMap, String) {
    let response = reqwest::get(address).await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, response.text().await.unwrap())
}

/// Begins a login over REST, and returns the URL to which the browser is redirected.
pub(crate) async fn agreed(gateway: &Gateway, authority: &Authority) -> (Value, String) {
    let begun = gateway.operator().post("/v1/upstream/hosted/login", &json!({})).await;
    assert_eq!(begun.status, 200, "{}", begun.text);
    let back = authority.agree(begun.body["url"].as_str().unwrap()).await;
    (begun.body, back)
}

pub(crate) async fn log_in(gateway: &Gateway, authority: &Authority) {
    let (_, back) = agreed(gateway, authority).await;
    let (status, _, page) = open(&back).await;
    assert_eq!(status, 200, "{page}");
    until(gateway, "hosted", "ready").await;
}

pub(crate) async fn hello(gateway: &Gateway) -> Reply {
    gateway.operator().call("hosted__hello", json!({})).await
}

#[track_caller]
pub(crate) fn assert_said(reply: &Reply) {
    assert_eq!(reply.body["blocks"][0]["text"], "hello", "{}", reply.text);
}

#[tokio::test]
async fn somebody_logs_in_and_out_and_nobody_sees_their_tokens() {
    let authority = authority().await;
    let setup = || Setup::new().config(&config(&authority));
    let at = setup().spawn(SWITCHBOARD).await;
    let waiting = until(&at, "hosted", "login_needed").await;
    let why = waiting["last_error"].as_str().unwrap();
    assert!(why.contains("switchboard upstream login hosted"), "{why}");
    assert_eq!(waiting["logged_in"], false);
    assert_eq!(authority.counts().turned_away, 0, "it is known that there is no use in asking");

    // The command prints the address, and waits until the user has logged in there.
    let login = at.cli(&["upstream", "login", "hosted"]).start();
    let said = login.says("/authorize?").await;
    let address = said.lines().find(|line| line.starts_with("http")).unwrap().to_owned();
    let back = authority.agree(&address).await;
    assert!(
        back.starts_with(&format!("http://{}/v1/upstream/hosted/callback?", at.address())),
        "{back}"
    );
    let (status, headers, page) = open(&back).await;
    assert!(status == 200 && page.contains("logged in to hosted"), "{page}");
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert!(
        headers["referrer-policy"] == "no-referrer" && headers["cache-control"] == "no-store",
        "{headers:?}"
    );
    let ended = login.end().await;
    ended.assert_code(0);
    assert!(ended.stdout.contains("logged in to hosted"), "{}", ended.stdout);

    // The code in the address works only once.
    let (status, _, replayed) = open(&back).await;
    assert!(status == 400 && replayed.contains("start again"), "{replayed}");
    assert_eq!(authority.counts().granted, 1);

    until(&at, "hosted", "ready").await;
    assert_said(&hello(&at).await);
    assert_eq!(upstream(&at, "hosted").await["logged_in"], true);

    // First the token is revoked without notice. Then it has a short lifetime, and is renewed
    // before it expires.
    authority.end_tokens();
    assert_said(&hello(&at).await);
    authority.change(|manner| manner.lifetime_s = 1);
    authority.end_tokens();
    assert_said(&hello(&at).await);
    let renewed = authority.counts().renewed;
    assert_said(&hello(&at).await);
    assert!(authority.counts().renewed > renewed, "it was not renewed before it was over");
    authority.change(|manner| manner.lifetime_s = 3_600);

    // A new gateway process has the same login.
    let again = setup().on(&at);
    let mut seen = at.stderr();
    at.stop().await;
    let at = again.spawn(SWITCHBOARD).await;
    assert_said(&hello(&at).await);
    authority.end_tokens();
    assert_said(&hello(&at).await);
    assert_eq!((authority.counts().registered, authority.counts().granted), (1, 1));
    assert_eq!(authority.counts().reused, 0);

    let operator = at.operator();
    let mut shown = page + &replayed + &said + &ended.stdout + &ended.stderr;
    for path in ["/v1/upstream", "/v1/audit", "/v1/tools", "/v1/calls", "/v1/status", "/metrics"] {
        shown += &operator.get_text(path).await;
    }
    for args in [["upstream", "list"], ["doctor", "--json"]] {
        let ended = at.cli(&args).run().await;
        shown += &(ended.stdout + &ended.stderr);
    }
    assert!(shown.contains("upstream.logged_in"), "it is in the audit");

    let out = at.cli(&["upstream", "logout", "hosted"]).run().await;
    out.assert_code(0);
    let waiting = until(&at, "hosted", "login_needed").await;
    assert_eq!(waiting["logged_in"], false);
    let refused = hello(&at).await;
    assert!(refused.text.contains("switchboard upstream login hosted"), "{}", refused.text);
    shown += &refused.text;

    let again = setup().on(&at);
    let dir = at.dir.clone();
    seen += &at.stderr();
    at.stop().await;
    assert!(is_private(&dir.path().join("data/settings.key")));
    for canary in authority.granted() {
        assert_nowhere(&canary, &[("what was shown", &shown), ("the log", &seen)]);
        assert_eq!(find_in_files(dir.path(), &canary), Vec::<std::path::PathBuf>::new());
    }
    let at = again.spawn(SWITCHBOARD).await;
    until(&at, "hosted", "login_needed").await;
    at.stop().await;
}

#[tokio::test]
async fn a_server_that_wants_a_login_says_so_by_itself() {
    let authority = authority().await;
    let at = Setup::new().start().await;
    let add = json!({ "name": "hosted", "url": authority.resource() });
    assert_eq!(at.operator().post("/v1/upstream", &add).await.status, 201);
    until(&at, "hosted", "login_needed").await;
    let asked = authority.counts().turned_away;
    let refused = hello(&at).await;
    assert!(refused.text.contains("switchboard upstream login hosted"), "{}", refused.text);
    let (_, back) = agreed(&at, &authority).await;
    assert_eq!(open(&back).await.0, 200);
    // The user need not check whether the server is ready: a call waits for it.
    assert_said(&hello(&at).await);
    let ready = until(&at, "hosted", "ready").await;
    assert!(ready["last_error"].is_null(), "what is over is not shown any more: {ready}");
    assert_eq!(
        authority.counts().turned_away,
        asked,
        "nobody asked again before there was a login"
    );
    // Removing the server removes its login.
    assert_eq!(at.operator().delete("/v1/upstream/hosted").await.status, 200);
    assert_eq!(at.operator().post("/v1/upstream", &add).await.status, 201);
    until(&at, "hosted", "login_needed").await;
}

#[tokio::test]
async fn a_login_is_renewed_by_one_for_all() {
    let authority = authority().await;
    let at = Setup::new().config(&config(&authority)).start().await;
    until(&at, "hosted", "login_needed").await;
    log_in(&at, &authority).await;
    let mut agents = Vec::new();
    for number in 0..6 {
        agents.push(at.new_agent(&format!("agent{number}")).await);
    }
    for _ in 0..3 {
        let calls: Vec<_> =
            agents.iter().map(|agent| agent.call_later("hosted__hello", json!({}))).collect();
        for call in calls {
            assert_said(&call.await.unwrap());
        }
        authority.end_tokens();
    }
    assert_eq!(authority.counts().reused, 0, "a token that was renewed was used again");
}

#[tokio::test]
async fn the_login_of_one_server_is_not_sent_to_another() {
    let (first, second) = (authority().await, authority().await);
    // A server that names the first server's authority as its own.
    second.change(|manner| manner.authority = Some(first.url.clone()));
    let at = Setup::new().config(&config(&first)).start().await;
    until(&at, "hosted", "login_needed").await;
    log_in(&at, &first).await;
    let moved = Setup::new().config(&config(&second)).on(&at);
    at.stop().await;
    let at = moved.start().await;
    until(&at, "hosted", "login_needed").await;
    assert_eq!(second.counts().turned_away, 0, "it was asked, with what is for another");
    let reply = Reply::of(at.operator().request(Method::POST, "/v1/upstream/hosted/logout")).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
}
