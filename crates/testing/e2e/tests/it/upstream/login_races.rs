//! A renewal of a token survives a stop of the gateway, and a kill during one is reported.

use sa_gateway_kit::upstream::{assert_greeted, authority, config, hello, log_in, until};
use sa_gateway_kit::{Setup, eventually};
use serde_json::json;
use tokio::net::TcpStream;

use crate::SWITCHBOARD;

#[tokio::test]
async fn a_gateway_that_stops_hears_a_renewal_to_its_end() {
    let authority = authority().await;
    let setup = || Setup::new().config(&config(&authority));
    let mut at = setup().spawn(SWITCHBOARD).await;
    until(&at, "hosted", "login_needed").await;
    log_in(&at, &authority).await;
    authority.end_tokens();
    let mut held = authority.hold("/token");
    let call = at.operator().call_later("hosted__hello", json!({}));
    held.reached(1).await;
    call.abort();
    eventually("the end of the call", || async { (at.running_calls().await == 0).then_some(()) })
        .await;
    at.begin_stop();
    eventually("that nobody listens", || async {
        TcpStream::connect(at.address()).await.is_err().then_some(())
    })
    .await;
    drop(held);
    assert_eq!(at.exit_code().await, Some(0), "{}", at.stderr());
    let at = setup().on(&at).spawn(SWITCHBOARD).await;
    assert_greeted(&hello(&at).await);
    assert_eq!(authority.counts().reused, 0);
    at.stop().await;
}

#[tokio::test]
async fn a_gateway_that_is_killed_while_it_renews_says_what_to_do() {
    let authority = authority().await;
    let setup = || Setup::new().config(&config(&authority));
    let mut at = setup().spawn(SWITCHBOARD).await;
    until(&at, "hosted", "login_needed").await;
    log_in(&at, &authority).await;
    authority.end_tokens();
    let mut held = authority.hold("/token");
    let call = at.operator().call_later("hosted__hello", json!({}));
    held.reached(1).await;
    at.kill().await;
    assert!(call.await.is_err(), "nobody was left to answer");
    drop(held);
    // The authority has issued a new token that the gateway never received, and treats the old one
    // as stolen.
    let at = setup().on(&at).spawn(SWITCHBOARD).await;
    let reply = hello(&at).await;
    assert!(reply.text.contains("switchboard upstream login hosted"), "{}", reply.text);
    until(&at, "hosted", "login_needed").await;
    assert_eq!(authority.counts().reused, 1);
    log_in(&at, &authority).await;
    assert_greeted(&hello(&at).await);
    at.stop().await;
}
