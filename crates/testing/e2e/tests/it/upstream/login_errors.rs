//! The command line reports the next step when a login has ended or is not needed.

use sa_gateway_kit::upstream::{
    HttpServer, assert_greeted, authority, config, hello, log_in, until,
};
use sa_gateway_kit::{PluginAnswer, PluginServer, Setup};

use crate::SWITCHBOARD;

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
    assert_greeted(&hello(&at).await);
    at.stop().await;
}

#[tokio::test]
async fn who_needs_no_login_or_has_no_authority_is_told_so() {
    let web = HttpServer::start(crate::upstream::server::SERVER, "127.0.0.1:0", "new").await;
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
