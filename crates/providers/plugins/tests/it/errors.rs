//! Every failure of the plugin gateway has a type, a status, and a message that the reader can act
//! on.

use reqwest::Method;
use sa_testkit::plugins::{add, gateway, payload};
use sa_testkit::{PluginAnswer, PluginServer, Reply, Setup};
use serde_json::{Value, json};

use crate::gateway::Serve as _;

/// The output of a plugin SDK's helper, with one additional field.
const KEYLESS: &str =
    r#"{ "errorType": "PluginSettingsInvalid", "body": {"message": "API key required"}, "x": 1 }"#;

#[track_caller]
fn check(reply: &Reply, status: u16, error_type: Value, words: &[&str]) {
    assert_eq!((reply.status, &reply.body["errorType"]), (status, &error_type), "{}", reply.text);
    assert!(
        reply.body.get("body").is_some()
            && reply.headers["content-type"].to_str().unwrap().contains("json")
    );
    for word in words {
        assert!(reply.body["body"].to_string().contains(word), "{} should say {word}", reply.text);
    }
}

#[tokio::test]
async fn what_a_host_gets_wrong() {
    let server = PluginServer::echo().await;
    let at = Setup::new().config(&server.allowed()).serve().await;
    let operator = at.operator();
    let settings = json!({ "type": "object", "required": ["apiKey"], "properties": { "apiKey": { "type": "string", "minLength": 8, "format": "password" } } });
    add(&operator, &server.manifest("plain", json!({}))).await;
    add(&operator, &server.manifest("keyed", json!({ "settings": settings }))).await;
    let page = json!({ "type": "standalone", "ui": { "url": "https://ui.example/" }, "api": [{ "name": "run", "description": "d" }] });
    add(&operator, &server.manifest("page", page)).await;

    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let reply = Reply::of(operator.request(method, "/api/gateway")).await;
        check(&reply, 405, json!("MethodNotAllowed"), &["POST"]);
    }
    for body in
        ["", "{", "[]", "{}", r#"{"identifier":"plain"}"#, r#"{"identifier":5,"apiName":"x"}"#]
    {
        let reply = Reply::of(operator.request(Method::POST, "/api/gateway").body(body)).await;
        check(&reply, 400, json!(400), &["apiName"]);
    }
    let unknown = gateway(&operator, &payload("nope", json!({}))).await;
    check(&unknown, 404, json!("PluginMarketIndexNotFound"), &["nope", "switchboard plugin add"]);
    let no_api = gateway(&operator, &json!({ "identifier": "plain", "apiName": "jump" })).await;
    check(&no_api, 404, json!("PluginApiNotFound"), &["jump", "run"]);
    check(
        &gateway(&operator, &payload("page", json!({}))).await,
        404,
        json!("PluginApiNotFound"),
        &["page"],
    );
    let missing = gateway(&operator, &payload("plain", json!({}))).await;
    check(&missing, 422, json!("PluginApiParamsError"), &["city", "string"]);
    let wrong = gateway(&operator, &payload("plain", json!({ "city": 5 }))).await;
    check(&wrong, 422, json!("PluginApiParamsError"), &["city", "must be string"]);
    let dated = json!({ "type": "object", "properties": { "day": { "type": "string", "format": "date" } } });
    let api = json!({ "api": [{ "name": "run", "description": "d", "url": server.url("/"), "parameters": dated }] });
    add(&operator, &server.manifest("dated", api)).await;
    let wrong = gateway(&operator, &payload("dated", json!({ "day": "soon" }))).await;
    check(&wrong, 422, json!("PluginApiParamsError"), &["day", "date"]);
    let no_json = json!({ "identifier": "plain", "apiName": "run", "arguments": "{city" });
    check(&gateway(&operator, &no_json).await, 422, json!("PluginApiParamsError"), &["arguments"]);

    let keyed = payload("keyed", json!({ "city": "x" }));
    check(
        &gateway(&operator, &keyed).await,
        400,
        json!("PluginSettingsInvalid"),
        &["missing", "apiKey"],
    );
    for header in [
        "{\"apiKey\":\"canary\"}",
        "canary",
        "[\"canary\"]",
        "{\"apiKey\":[\"canary-long-enough\"]}",
    ] {
        let request =
            operator.request(Method::POST, "/api/gateway").header("sperax-plugin-settings", header);
        let reply = Reply::of(request.json(&keyed)).await;
        check(&reply, 400, json!("PluginSettingsInvalid"), &[]);
        assert!(!reply.text.contains("canary"), "{}", reply.text);
    }
    assert_eq!(server.asked().len(), 0, "none of these reached the plugin");
    operator.post("/v1/plugins/plain/disable", &json!({})).await;
    let disabled = gateway(&operator, &payload("plain", json!({ "city": "x" }))).await;
    check(&disabled, 404, json!("PluginMetaNotFound"), &["disabled"]);
}

#[tokio::test]
async fn what_an_index_gets_wrong() {
    let server = PluginServer::start(|request| match request.path.as_str() {
        "/index.json" => PluginAnswer::json(&json!({ "schemaVersion": 1, "plugins": [
            { "identifier": "good", "manifest": "./good.json" },
            { "identifier": "bare" },
            { "identifier": "gone", "manifest": "/gone.json" },
            { "identifier": "broken", "manifest": "/broken.json" },
            { "identifier": "other", "manifest": "/good.json" },
        ] })),
        "/good.json" => PluginAnswer::json(
            &json!({ "identifier": "good", "api": [{ "name": "run", "description": "d", "url": "/run" }] }),
        ),
        "/broken.json" => PluginAnswer::json(&json!({ "identifier": "broken", "api": [{ "name": "run" }] })),
        "/no-index.json" => PluginAnswer::json(&json!({ "something": "else" })),
        "/run" => PluginAnswer::json(&json!("ran")),
        _ => PluginAnswer::text(404, "text/plain", "not here"),
    })
    .await;
    let at =
        Setup::new().config(&server.allowed()).config("allow_inline_manifest = true").serve().await;
    let operator = at.operator();
    let ask = async |index: &str, identifier: &str| {
        let mut payload = payload(identifier, json!({}));
        payload["indexUrl"] = json!(server.url(index));
        gateway(&operator, &payload).await
    };
    check(&ask("/nowhere.json", "good").await, 404, json!("PluginMarketIndexNotFound"), &["404"]);
    check(
        &ask("/no-index.json", "good").await,
        490,
        json!("PluginMarketIndexInvalid"),
        &["plugins"],
    );
    check(&ask("/index.json", "missing").await, 404, json!("PluginMetaNotFound"), &["missing"]);
    check(&ask("/index.json", "bare").await, 490, json!("PluginMetaInvalid"), &["manifest"]);
    check(&ask("/index.json", "gone").await, 404, json!("PluginManifestNotFound"), &["404"]);
    check(&ask("/index.json", "broken").await, 490, json!("PluginManifestInvalid"), &["url"]);
    check(&ask("/index.json", "other").await, 490, json!("PluginManifestInvalid"), &["good"]);
    let before = server.asked().iter().filter(|request| request.path == "/index.json").count();
    for _ in 0..2 {
        let reply = ask("/index.json", "good").await;
        assert_eq!((reply.status, &reply.body), (200, &json!("ran")), "{}", reply.text);
    }
    let asked = server.asked();
    assert_eq!(
        asked.iter().filter(|request| request.path == "/index.json").count(),
        before,
        "it is remembered"
    );
    assert_eq!(asked.iter().filter(|request| request.path == "/run").count(), 2);
}

#[tokio::test]
async fn what_a_plugin_server_gets_wrong() {
    let server = PluginServer::start(|request| {
        let asked: Value = serde_json::from_slice(&request.body).unwrap();
        match asked["city"].as_str().unwrap() {
            "tea" => PluginAnswer::text(418, "text/plain", "I am a teapot"),
            "oops" => PluginAnswer::text(500, "application/json", r#"{"error":"oops"}"#),
            "keyless" => PluginAnswer::text(400, "application/json", KEYLESS),
            "rubbish" => PluginAnswer::text(200, "application/json", "<html>"),
            "slow" => PluginAnswer::Silence,
            "endless" => PluginAnswer::Endless,
            "moved" => PluginAnswer::text(302, "text/plain", "no location"),
            "round" => PluginAnswer::redirect(307, "/round"),
            "metadata" => PluginAnswer::redirect(307, "http://169.254.169.254/latest/meta-data"),
            _ => PluginAnswer::json(&json!({})),
        }
    })
    .await;
    let gone = PluginServer::echo().await;
    let mut manifest = server.manifest("w", json!({}));
    manifest["api"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "down", "description": "d", "url": gone.url("/") }));
    manifest["api"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "inside", "description": "d", "url": "http://10.0.0.1/" }));
    let allowed = format!(
        "[plugins]\ntimeout_ms = 1000\nmax_response_bytes = 65536\nallow_private = [\"{}\", \"{}\"]",
        server.address, gone.address
    );
    let at = Setup::new().config(&allowed).serve().await;
    let operator = at.operator();
    add(&operator, &manifest).await;
    gone.end().await;
    let ask = async |city: &str| gateway(&operator, &payload("w", json!({ "city": city }))).await;

    let teapot = ask("tea").await;
    check(&teapot, 418, json!(418), &[]);
    assert_eq!(teapot.body["body"], "I am a teapot");
    let oops = ask("oops").await;
    check(&oops, 500, json!(500), &[]);
    assert_eq!(oops.body["body"], r#"{"error":"oops"}"#);
    let keyless = ask("keyless").await;
    assert_eq!(
        (keyless.status, keyless.text.as_str()),
        (400, KEYLESS),
        "an error of the protocol goes on unchanged"
    );
    assert_eq!(keyless.headers["content-type"], "application/json");
    let problem = operator.call("w__run", json!({ "city": "keyless" })).await;
    assert_eq!(
        (&problem.body["kind"], &problem.body["reason"]),
        (&json!("failed"), &json!("settings_invalid"))
    );
    check(&ask("rubbish").await, 500, json!("PluginServerError"), &["not valid JSON"]);
    check(&ask("slow").await, 500, json!("PluginServerError"), &["did not answer"]);
    check(&ask("endless").await, 500, json!("PluginServerError"), &["65536"]);
    check(&ask("moved").await, 500, json!("PluginServerError"), &["302"]);
    check(&ask("round").await, 500, json!("PluginServerError"), &["redirects"]);
    check(&ask("metadata").await, 502, json!("PluginGatewayError"), &["not public"]);
    let named = |name: &str| json!({ "identifier": "w", "apiName": name });
    check(
        &gateway(&operator, &named("down")).await,
        500,
        json!("PluginServerError"),
        &["cannot be reached"],
    );
    check(
        &gateway(&operator, &named("inside")).await,
        502,
        json!("PluginGatewayError"),
        &["not public", "--allow-private"],
    );
    // Called as tools, the same failures have the usual kinds of tools.
    let kind = async |tool: &str, args: Value| operator.call(tool, args).await.body["kind"].clone();
    assert_eq!(kind("w__down", json!({})).await, "offline");
    assert_eq!(kind("w__inside", json!({})).await, "failed");
    assert_eq!(kind("w__run", json!({ "city": "slow" })).await, "timeout");
    assert_eq!(kind("w__run", json!({ "city": "tea" })).await, "failed");
}

#[tokio::test]
async fn too_many_calls_and_a_slow_server_are_nobody_elses_trouble() {
    let server = PluginServer::start(|request| match request.path.as_str() {
        "/slow" => PluginAnswer::Silence,
        _ => PluginAnswer::json(&json!("quick")),
    })
    .await;
    let config = format!(
        "[limits]\nqueue_wait_ms = 50\n{}max_running = 2\ncalls_per_second = 5\n",
        server.allowed()
    );
    let at = Setup::new().config(&config).serve().await;
    let operator = at.operator();
    let function = |path: &str| json!({ "api": [{ "name": "run", "description": "d", "url": server.url(path) }] });
    add(&operator, &server.manifest("slow", function("/slow"))).await;
    add(&operator, &server.manifest("quick", function("/quick"))).await;
    let agent = at.new_agent("a").await;
    let stuck: Vec<_> = (0..2).map(|_| agent.call_later("slow__run", json!({}))).collect();
    sa_testkit::eventually("both to run", || async { (server.asked().len() == 2).then_some(()) })
        .await;
    let full = gateway(&agent, &payload("slow", json!({}))).await;
    check(&full, 429, json!(429), &["limit"]);
    assert_eq!(
        gateway(&agent, &payload("quick", json!({}))).await.status,
        200,
        "the other one is as quick as ever"
    );
    let mut refused = None;
    for _ in 0..20 {
        refused = Some(gateway(&agent, &payload("quick", json!({}))).await)
            .filter(|reply| reply.status != 200);
        if refused.is_some() {
            break;
        }
    }
    check(
        &refused.expect("at some point it is too often"),
        429,
        json!(429),
        &["per second", "calls_per_second"],
    );
    assert_eq!(
        gateway(&at.new_agent("b").await, &payload("quick", json!({}))).await.status,
        200,
        "nor is it another's"
    );
    stuck.iter().for_each(tokio::task::JoinHandle::abort);
}
