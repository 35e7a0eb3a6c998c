//! Events during a slow answer of an authority neither lose a login nor restore an ended one. A
//! renewal runs to its end, once for all calls, and a logout does not wait for it.

use sa_testkit::upstream::{
    agreed, assert_greeted, authority, config, hello, log_in, open, until, upstream,
};
use sa_testkit::{Authority, Gateway, Setup, eventually};
use serde_json::json;

use crate::serve::Serve as _;

async fn waiting() -> (Authority, Gateway) {
    let authority = authority().await;
    let at = Setup::new().config(&config(&authority)).serve().await;
    until(&at, "hosted", "login_needed").await;
    (authority, at)
}

async fn logged_in() -> (Authority, Gateway) {
    let (authority, at) = waiting().await;
    log_in(&at, &authority).await;
    assert_greeted(&hello(&at).await);
    (authority, at)
}

#[tokio::test]
async fn a_token_that_many_are_refused_with_is_renewed_once() {
    let (authority, at) = logged_in().await;
    let mut agents = Vec::new();
    for number in 0..6 {
        agents.push(at.new_agent(&format!("agent{number}")).await);
        assert_greeted(&agents[number].call("hosted__hello", json!({})).await);
    }
    let before = authority.counts();
    authority.end_tokens();
    let mut held = authority.hold("/mcp");
    let calls: Vec<_> =
        agents.iter().map(|agent| agent.call_later("hosted__hello", json!({}))).collect();
    held.reached(agents.len()).await;
    drop(held);
    for call in calls {
        assert_greeted(&call.await.unwrap());
    }
    let after = authority.counts();
    assert!(after.turned_away >= before.turned_away + agents.len(), "{after:?}");
    assert_eq!((after.renewed - before.renewed, after.reused), (1, 0));
}

#[tokio::test]
async fn a_renewal_runs_to_its_end_without_a_waiting_call() {
    let (authority, at) = logged_in().await;
    authority.end_tokens();
    let mut held = authority.hold("/token");
    let call = at.operator().call_later("hosted__hello", json!({}));
    held.reached(1).await;
    call.abort();
    eventually("the end of the call", || async { (at.running_calls().await == 0).then_some(()) })
        .await;
    drop(held);
    assert_greeted(&hello(&at).await);

    // A restart of the server does not lose it either.
    authority.end_tokens();
    let mut held = authority.hold("/token");
    let call = at.operator().call_later("hosted__hello", json!({}));
    held.reached(1).await;
    at.operator().post("/v1/upstream/hosted/restart", &json!({})).await;
    eventually("the restart", || async {
        (upstream(&at, "hosted").await["state"] != "ready").then_some(())
    })
    .await;
    drop(held);
    drop(call.await);
    until(&at, "hosted", "ready").await;
    assert_greeted(&hello(&at).await);
    assert_eq!(authority.counts().reused, 0);
}

#[tokio::test]
async fn nobody_is_let_in_who_came_before_a_logout() {
    let (authority, at) = waiting().await;
    let (_, back) = agreed(&at, &authority).await;
    let mut held = authority.hold("/token");
    let browser = tokio::spawn(async move { open(&back).await });
    held.reached(1).await;
    let out = at.operator().post("/v1/upstream/hosted/logout", &json!({})).await;
    assert_eq!(out.status, 200, "{}", out.text);
    drop(held);
    let (status, _, page) = browser.await.unwrap();
    assert!(status == 400 && page.contains("another login or logout"), "{page}");
    assert_eq!(upstream(&at, "hosted").await["logged_in"], false);

    // A login that began before the logout and returns after it is unknown.
    let (_, back) = agreed(&at, &authority).await;
    at.operator().post("/v1/upstream/hosted/logout", &json!({})).await;
    assert_eq!(open(&back).await.0, 400);
    assert_eq!(upstream(&at, "hosted").await["logged_in"], false);
    log_in(&at, &authority).await;
}

#[tokio::test]
async fn a_server_that_was_removed_does_not_come_back_with_a_login() {
    let authority = authority().await;
    let at = Setup::new().serve().await;
    let add = json!({ "name": "hosted", "url": authority.resource() });
    assert_eq!(at.operator().post("/v1/upstream", &add).await.status, 201);
    until(&at, "hosted", "login_needed").await;
    let (_, back) = agreed(&at, &authority).await;
    let mut held = authority.hold("/token");
    let browser = tokio::spawn(async move { open(&back).await });
    held.reached(1).await;
    assert_eq!(at.operator().delete("/v1/upstream/hosted").await.status, 200);
    drop(held);
    assert_eq!(browser.await.unwrap().0, 400);
    assert_eq!(at.operator().post("/v1/upstream", &add).await.status, 201);
    let state = until(&at, "hosted", "login_needed").await;
    assert_eq!(state["logged_in"], false);
}

#[tokio::test]
async fn somebody_who_closes_the_page_too_soon_is_logged_in_all_the_same() {
    let (authority, at) = waiting().await;
    let (begun, back) = agreed(&at, &authority).await;
    let mut held = authority.hold("/token");
    let browser = tokio::spawn(async move { open(&back).await });
    held.reached(1).await;
    browser.abort();
    let _ = browser.await;
    drop(held);
    let path = format!("/v1/upstream/hosted/login/{}", begun["login"].as_str().unwrap());
    let progress = at.operator().get(&path).await;
    assert_eq!(progress.body["state"], "done", "{}", progress.text);
    until(&at, "hosted", "ready").await;
    assert_greeted(&hello(&at).await);
}

#[tokio::test]
async fn nobody_who_logs_out_waits_for_an_authority() {
    let (authority, at) = logged_in().await;
    let again = Setup::new().config(&config(&authority)).on(&at);
    at.stop().await;
    let mut held = authority.hold("/.well-known/oauth-authorization-server");
    let at = again.serve().await;
    let call = at.operator().call_later("hosted__hello", json!({}));
    held.reached(1).await;
    let out = at.operator().post("/v1/upstream/hosted/logout", &json!({})).await;
    assert_eq!(out.status, 200, "{}", out.text);
    assert_eq!(out.body["logged_in"], false);
    drop(held);
    until(&at, "hosted", "login_needed").await;
    drop(call.await);
    // State from the previous login is not used for the next one.
    log_in(&at, &authority).await;
    assert_greeted(&hello(&at).await);
}
