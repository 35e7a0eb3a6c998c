//! A sign-in link contains a code that works once, and never a token. The session expires, can be
//! revoked, and is for operators only. The page has a strict policy and cannot be framed, and its
//! files are cacheable forever.

use reqwest::Client;
use sa_gateway_kit::{Gateway, Setup};
use serde_json::{Value, json};

async fn new_code(gateway: &Gateway) -> String {
    let link = gateway.operator().post("/v1/console/links", &json!({})).await;
    assert_eq!(link.status, 201, "{}", link.text);
    link.body["path"].as_str().unwrap().strip_prefix("/console/#code=").unwrap().to_owned()
}

async fn sign_in(gateway: &Gateway, body: Value) -> (u16, Value) {
    let request = Client::new().post(format!("{}/v1/console/sign-in", gateway.url)).json(&body);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn a_code_works_once() {
    let gateway = Setup::new().start().await;
    let code = new_code(&gateway).await;
    for wrong in [json!({ "code": "" }), json!({ "code": format!("{code}x") })] {
        assert_eq!(sign_in(&gateway, wrong).await.0, 401);
    }
    for wrong in
        [json!({}), json!({ "code": 1 }), json!({ "code": code, "more": 1 }), json!([code])]
    {
        assert_eq!(sign_in(&gateway, wrong).await.0, 400);
    }
    // Before sign-in, the body limit is just large enough for a code.
    assert_eq!(sign_in(&gateway, json!({ "code": "x".repeat(2_000) })).await.0, 413);
    let (status, session) = sign_in(&gateway, json!({ "code": code })).await;
    assert_eq!(status, 201, "{session}");
    let agent = gateway.agent(session["token"].as_str().unwrap());
    assert_eq!(agent.get("/v1/status").await.status, 200);
    let (status, problem) = sign_in(&gateway, json!({ "code": code })).await;
    assert_eq!(status, 401);
    assert!(problem["hint"].as_str().unwrap().contains("switchboard console"), "{problem}");
}

#[tokio::test]
async fn a_session_ends_when_its_person_signs_out() {
    let gateway = Setup::new().start().await;
    let signed = gateway
        .operator()
        .post("/v1/console/sign-in", &json!({ "code": new_code(&gateway).await }))
        .await;
    let page = gateway.agent(signed.body["token"].as_str().unwrap());
    let mut events = page.events("/v1/events").await;
    assert_eq!(
        page.request(reqwest::Method::POST, "/v1/console/sign-out").send().await.unwrap().status(),
        204
    );
    // An audit event may still arrive; then the open stream ends.
    while let Some((name, _)) = events.next().await {
        assert_eq!(name, "audit");
    }
    page.get("/v1/status").await.assert_problem(401, "unauthorized");
    // An operator's own token is not a session and remains valid.
    let own = gateway
        .operator()
        .request(reqwest::Method::POST, "/v1/console/sign-out")
        .send()
        .await
        .unwrap();
    assert_eq!(own.status(), 409);
    assert_eq!(gateway.operator().get("/v1/status").await.status, 200);
}

#[tokio::test]
async fn sessions_that_are_over_make_room() {
    let gateway = Setup::new().start().await;
    for _ in 0..5 {
        let signed = gateway
            .operator()
            .request(reqwest::Method::POST, "/v1/console/sign-in")
            .send()
            .await
            .unwrap();
        let session: Value = signed.json().await.unwrap();
        let page = gateway.agent(session["token"].as_str().unwrap());
        page.request(reqwest::Method::POST, "/v1/console/sign-out").send().await.unwrap();
    }
    let tokens = gateway.operator().get("/v1/tokens").await.body;
    let sessions = tokens["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|token| token["name"] == "console")
        .count();
    assert_eq!(sessions, 1, "{tokens}");
}

#[tokio::test]
async fn only_operators_sign_in() {
    let gateway = Setup::new().start().await;
    let agent = gateway.new_agent("bot").await;
    for path in ["/v1/console/sign-in", "/v1/console/sign-out", "/v1/console/links"] {
        let response = agent.request(reqwest::Method::POST, path).send().await.unwrap();
        assert_eq!(response.status(), 403, "{path}");
    }
}

#[tokio::test]
async fn the_page_and_its_files() {
    let gateway = Setup::new().start().await;
    let get = |path: &str, coding: &'static str| {
        Client::new().get(format!("{}{path}", gateway.url)).header("accept-encoding", coding).send()
    };
    let page = get("/console/", "identity").await.unwrap();
    let header = |name: &str| {
        page.headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let policy = header("content-security-policy");
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(header("x-frame-options"), "DENY");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("cache-control"), "no-cache");
    assert!(page.headers().get("set-cookie").is_none());
    let html = page.text().await.unwrap();
    assert!(!html.contains("<style") && !html.contains("onclick"), "{html}");

    let script = html.split("src=\"./").nth(1).unwrap().split('"').next().unwrap();
    let plain = get(&format!("/console/{script}"), "identity").await.unwrap();
    assert_eq!(plain.headers()["cache-control"], "public, max-age=31536000, immutable");
    assert_eq!(plain.headers()["content-type"], "text/javascript; charset=utf-8");
    assert!(plain.headers().get("content-encoding").is_none());
    let policy = plain.headers()["content-security-policy"].to_str().unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert_eq!(plain.headers()["cross-origin-resource-policy"], "same-origin");
    let plain = plain.bytes().await.unwrap();
    for (coding, least) in [("br", 3), ("gzip", 2)] {
        let packed = get(&format!("/console/{script}"), coding).await.unwrap();
        assert_eq!(packed.headers()["content-encoding"], coding);
        assert_eq!(packed.headers()["vary"], "accept-encoding");
        assert!(packed.bytes().await.unwrap().len() * least < plain.len(), "{coding}");
    }
    for missing in [
        "/console/assets/none.js",
        "/console/assets/..%2findex.html",
        "/console/assets/%2e%2e%2findex.html",
    ] {
        assert_eq!(get(missing, "br").await.unwrap().status(), 404, "{missing}");
    }
}
