//! For a server with a login, a user logs in once in a browser. The tokens are encrypted at rest,
//! renewed automatically, and sent only to that server, until the logout.

use reqwest::Method;
use sa_testkit::upstream::{agreed, assert_greeted, authority, config, hello, log_in, open, until};
use sa_testkit::{Reply, Setup};
use serde_json::json;

use crate::serve::Serve as _;

#[tokio::test]
async fn a_server_that_wants_a_login_says_so_by_itself() {
    let authority = authority().await;
    let at = Setup::new().serve().await;
    let add = json!({ "name": "hosted", "url": authority.resource() });
    assert_eq!(at.operator().post("/v1/upstream", &add).await.status, 201);
    until(&at, "hosted", "login_needed").await;
    let asked = authority.counts().turned_away;
    let refused = hello(&at).await;
    assert!(refused.text.contains("switchboard upstream login hosted"), "{}", refused.text);
    let (_, back) = agreed(&at, &authority).await;
    assert_eq!(open(&back).await.0, 200);
    // The user need not check whether the server is ready: a call waits for it.
    assert_greeted(&hello(&at).await);
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
    let at = Setup::new().config(&config(&authority)).serve().await;
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
            assert_greeted(&call.await.unwrap());
        }
        authority.end_tokens();
    }
    assert_eq!(authority.counts().reused, 0, "a token that was renewed was used again");
}

#[tokio::test]
async fn the_login_of_one_server_is_not_sent_to_another() {
    let (first, second) = (authority().await, authority().await);
    // A server that names the first server's authority as its own.
    second.change(|behaviour| behaviour.authority = Some(first.url.clone()));
    let at = Setup::new().config(&config(&first)).serve().await;
    until(&at, "hosted", "login_needed").await;
    log_in(&at, &first).await;
    let moved = Setup::new().config(&config(&second)).on(&at);
    at.stop().await;
    let at = moved.serve().await;
    until(&at, "hosted", "login_needed").await;
    assert_eq!(second.counts().turned_away, 0, "it was asked, with what is for another");
    let reply = Reply::of(at.operator().request(Method::POST, "/v1/upstream/hosted/logout")).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
}
