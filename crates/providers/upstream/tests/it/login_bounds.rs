//! The tokens of a login are sent only to their server, whatever servers, authorities and browsers
//! do.

use sa_testkit::upstream::{
    agreed, assert_greeted, authority, config, hello, log_in, open, until, upstream,
};
use sa_testkit::{Authority, Setup};
use serde_json::json;

use crate::serve::Serve as _;

fn with(name: &str, authority: &Authority, oauth: &str) -> String {
    format!("[upstream.{name}]\nurl = \"{}\"\noauth = {{ {oauth} }}\n", authority.resource())
}

#[tokio::test]
async fn a_login_is_renewed_by_the_authority_that_granted_it_and_no_other() {
    let (granter, server) = (authority().await, authority().await);
    server.change(|behaviour| behaviour.authority = Some(granter.url.clone()));
    granter.change(|behaviour| behaviour.resource = Some(server.resource()));
    let at = Setup::new().config(&config(&server)).serve().await;
    until(&at, "hosted", "login_needed").await;
    let begun = at.operator().post("/v1/upstream/hosted/login", &json!({})).await;
    let back = granter.agree(begun.body["url"].as_str().unwrap()).await;
    assert_eq!(open(&back).await.0, 200);
    // Without metadata, the server itself would become the authority.
    server.change(|behaviour| behaviour.mute = true);
    let again = Setup::new().config(&config(&server)).on(&at);
    at.stop().await;
    let at = again.serve().await;
    let reply = at.operator().post("/v1/upstream/hosted/restart", &json!({})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let state = until(&at, "hosted", "offline").await;
    assert!(
        state["last_error"].as_str().unwrap().contains("no longer names the authority"),
        "{state}"
    );
    assert_eq!(state["logged_in"], true, "it may be a passing mistake");
    assert_eq!(server.asked("/token").len(), 0, "it was sent what is for another");
}

#[tokio::test]
async fn an_authority_that_the_operator_has_not_named_gets_nothing() {
    let (first, second) = (authority().await, authority().await);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    std::fs::write(&file, "canary-of-the-operator").unwrap();
    let account = format!(
        "client_id = \"me\", client_secret = \"file:{}\", issuer = \"{}\"",
        file.display(),
        second.url
    );
    let login = format!("grant = \"authorization_code\", {account}");
    let at = Setup::new()
        .config(&(with("hosted", &first, &login) + &with("own", &first, &account)))
        .serve()
        .await;
    let refused = at.operator().post("/v1/upstream/hosted/login", &json!({})).await;
    assert!(
        refused.assert_problem(502, "failed").detail().contains("oauth.issuer"),
        "{}",
        refused.text
    );
    let state = until(&at, "own", "offline").await;
    assert!(state["last_error"].as_str().unwrap().contains("oauth.issuer"), "{state}");
    assert_eq!((first.asked("/authorize").len(), first.asked("/token").len()), (0, 0));
    // With its real issuer, the login works.
    let right = format!("grant = \"authorization_code\", issuer = \"{}/\"", first.url);
    let at = Setup::new().config(&with("hosted", &first, &right)).serve().await;
    until(&at, "hosted", "login_needed").await;
    log_in(&at, &first).await;
    assert_greeted(&hello(&at).await);
}

#[tokio::test]
async fn the_code_of_one_authority_is_not_brought_to_another() {
    let (hostile, honest) = (authority().await, authority().await);
    hostile.change(|behaviour| behaviour.names_itself = false);
    let oauth = "grant = \"authorization_code\"";
    let at = Setup::new()
        .config(&(with("hostile", &hostile, oauth) + &with("hosted", &honest, oauth)))
        .serve()
        .await;
    let begun = at.operator().post("/v1/upstream/hostile/login", &json!({})).await;
    let mine = hostile.agree(begun.body["url"].as_str().unwrap()).await;
    let (_, theirs) = agreed(&at, &honest).await;
    let word = |address: &str, name: &str| {
        let address = reqwest::Url::parse(address).unwrap();
        address.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned()
    };
    // The hostile authority redirects a user to the honest one, with the state of its own login.
    // Not every authority names itself in the redirect.
    let (code, state) = (word(&theirs, "code"), word(&mine, "state"));
    let brought = format!("{}?code={code}&state={state}", theirs.split_once('?').unwrap().0);
    let (status, _, page) = open(&brought).await;
    assert!(status == 400 && page.contains("start again"), "{page}");
    assert_eq!(hostile.asked("/token").len(), 0, "it has the other's code");
    // This does not end either of the two logins.
    assert_eq!(open(&theirs).await.0, 200);
    assert_eq!(open(&mine).await.0, 200);
}

#[tokio::test]
async fn a_token_that_cannot_be_sent_is_not_kept() {
    let authority = authority().await;
    let at = Setup::new().config(&config(&authority)).serve().await;
    until(&at, "hosted", "login_needed").await;
    for token in ["", "a\r\nx-evil: 1", "with space", "\u{fc}ber", &"x".repeat(100_000)] {
        authority.change(|behaviour| behaviour.token = Some(token.to_owned()));
        let (_, back) = agreed(&at, &authority).await;
        let (status, _, page) = open(&back).await;
        assert!(status == 400 && page.contains("token that is empty, too long"), "{page}");
        assert_eq!(upstream(&at, "hosted").await["logged_in"], false);
    }
    authority.change(|behaviour| behaviour.token = None);
    log_in(&at, &authority).await;
    // An invalid token in a renewal is refused too, and the login is then over.
    authority.change(|behaviour| behaviour.token = Some("a\nb".into()));
    authority.end_tokens();
    hello(&at).await.assert_problem(502, "failed");
    hello(&at).await.assert_problem(502, "failed");
    until(&at, "hosted", "login_needed").await;
}

#[tokio::test]
async fn a_server_that_refuses_a_token_without_a_word_gets_a_new_one() {
    let authority = authority().await;
    let at = Setup::new().config(&config(&authority)).serve().await;
    until(&at, "hosted", "login_needed").await;
    log_in(&at, &authority).await;
    authority.change(|behaviour| behaviour.challenges = false);
    authority.end_tokens();
    assert_greeted(&hello(&at).await);
    authority.end_logins();
    let reply = hello(&at).await;
    assert!(reply.text.contains("switchboard upstream login hosted"), "{}", reply.text);
    until(&at, "hosted", "login_needed").await;
}

#[tokio::test]
async fn a_login_that_cannot_be_sealed_is_not_kept_and_one_that_cannot_be_opened_is_told_of() {
    let authority = authority().await;
    let setup = || Setup::new().config(&config(&authority));
    let at = setup().serve().await;
    until(&at, "hosted", "login_needed").await;
    let key = at.data_dir().join("settings.key");
    std::fs::write(&key, "cut").unwrap();
    let (_, back) = agreed(&at, &authority).await;
    let (status, _, page) = open(&back).await;
    assert!(
        status == 400 && page.contains("settings.key") && page.contains("contains no key"),
        "{page}"
    );
    assert_eq!(upstream(&at, "hosted").await["logged_in"], false);
    std::fs::remove_file(&key).unwrap();
    log_in(&at, &authority).await;
    let again = setup().on(&at);
    at.stop().await;
    std::fs::write(&key, "another key, which is long enough").unwrap();
    let at = again.serve().await;
    until(&at, "hosted", "login_needed").await;
    log_in(&at, &authority).await;
    assert_greeted(&hello(&at).await);
}
