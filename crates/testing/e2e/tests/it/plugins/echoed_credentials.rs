//! A server that repeats its credentials, in every encoding that libraries produce, cannot expose
//! them. They are in no answer, log, journal, history, metric or error, and not in the process
//! list.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::Method;
use sa_gateway_kit::plugins::gateway;
use sa_gateway_kit::{
    PluginAnswer, PluginRequest, PluginServer, Reply, Setup, assert_nowhere, eventually,
    find_in_files,
};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

const KEY: &str = "canary-key/5f0c71+d2e9";
const QUERY: &str = "canary query & 77Ä1";
const PASSWORD: &str = "canary:pass\"word";
const CLIENT_SECRET: &str = "canary-client-81b2";
const TOKEN: &str = "canary-token-9d0e";
const PIN: u64 = 918_273_645;

fn document() -> Value {
    json!({ "openapi": "3.1.0", "info": { "title": "Echo" }, "servers": [{ "url": "/v1" }],
        "components": { "securitySchemes": {
            "key": { "type": "apiKey", "in": "header", "name": "X-Api-Key" },
            "query": { "type": "apiKey", "in": "query", "name": "key" },
            "pin": { "type": "apiKey", "in": "header", "name": "X-Pin" },
            "basic": { "type": "http", "scheme": "basic" },
            "client": { "type": "oauth2", "flows": { "clientCredentials": { "tokenUrl": "/token", "scopes": {} } } } } },
        "paths": {
            "/text": { "get": { "operationId": "text", "security": [{ "key": [], "query": [] }] } },
            "/json": { "get": { "operationId": "json", "security": [{ "key": [], "query": [], "pin": [] }] } },
            "/bytes": { "get": { "operationId": "bytes", "security": [{ "key": [], "query": [] }] } },
            "/refuse": { "get": { "operationId": "refuse", "security": [{ "basic": [], "query": [] }] } },
            "/rubbish": { "get": { "operationId": "rubbish", "security": [{ "basic": [] }] } },
            "/token_json": { "get": { "operationId": "token_json", "security": [{ "client": [] }] } } } })
}

/// Answers with everything that the server received.
fn echo(request: &PluginRequest) -> PluginAnswer {
    let headers = format!(
        "{:?}",
        request
            .headers
            .iter()
            .map(|(name, value)| (
                name.as_str(),
                String::from_utf8_lossy(value.as_bytes()).into_owned()
            ))
            .collect::<Vec<_>>()
    );
    let all = format!("{} {headers}", request.path);
    let hex = KEY.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    // Includes the received data, and the password without its user.
    let password = if headers.contains("Basic ") { PASSWORD } else { "" };
    let spelled = format!(
        "{all} {KEY} {QUERY} {password} {} {} {hex}",
        BASE64_STANDARD.encode(&all),
        BASE64_STANDARD.encode(format!("xy{KEY}"))
    );
    let path = request.path.split(['?', '#']).next().unwrap();
    match path {
        "/document.json" => PluginAnswer::json(&document()),
        "/token" => PluginAnswer::json(
            &json!({ "access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600 }),
        ),
        "/v1/text" => PluginAnswer::text(200, "text/plain", &spelled),
        "/v1/json" | "/v1/token_json" => PluginAnswer::json(
            &json!({ KEY: spelled, "pin": PIN, "all": all, "nested": json!({ "in": KEY }).to_string() }),
        ),
        "/v1/bytes" => {
            let mut body = vec![0xff, 0xfe];
            body.extend(spelled.as_bytes());
            body.extend(spelled.encode_utf16().flat_map(u16::to_le_bytes));
            PluginAnswer::Say {
                status: 200,
                headers: vec![("content-type", "application/octet-stream".into())],
                body: body.into(),
            }
        }
        "/v1/refuse" => PluginAnswer::text(403, "text/plain", &spelled),
        _ => PluginAnswer::text(200, "application/json", &format!("{{{spelled}")),
    }
}

/// The words that must not appear anywhere, each from the middle of a secret.
const CANARIES: [&str; 7] = [
    "5f0c71",
    "query & 77",
    "query%20%26%2077",
    "pass\"word",
    "client-81b2",
    "token-9d0e",
    "918273645",
];

#[tokio::test]
async fn credentials_that_a_server_repeats_are_nowhere() {
    let server = PluginServer::start(echo).await;
    let config = format!("[log]\nfilter = \"debug\"\n{}", server.allowed());
    let at = Setup::new().config(&config).spawn(SWITCHBOARD).await;
    let operator = at.operator();
    let added = operator.post("/v1/plugins", &json!({ "url": server.url("/document.json") })).await;
    assert_eq!(added.status, 201, "{}", added.text);
    let settings = json!({ "settings": { "key": KEY, "query": QUERY, "basic": format!("me:{PASSWORD}"),
        "client_clientId": "me", "client_clientSecret": CLIENT_SECRET, "pin": PIN.to_string() } });
    let stored =
        Reply::of(operator.request(Method::PUT, "/v1/plugins/echo/settings").json(&settings)).await;
    assert_eq!(stored.status, 200, "{}", stored.text);

    let mut said = stored.text;
    let names = ["text", "json", "bytes", "refuse", "rubbish", "token_json"];
    for name in names {
        let asked = json!({ "identifier": "echo", "apiName": name, "arguments": "{}" });
        let request =
            operator.request(Method::POST, "/api/gateway").json(&asked).send().await.unwrap();
        let bytes = request.bytes().await.unwrap();
        said += &String::from_utf8_lossy(&bytes);
        // Also searches text with two bytes per character.
        said += &String::from_utf8_lossy(
            &bytes.iter().copied().filter(|byte| *byte != 0).collect::<Vec<_>>(),
        );
        let called = operator.call(&format!("echo__{name}"), json!({})).await;
        said += &called.text;
        if name == "bytes" {
            let data = called.body["attachments"][0]["data"].as_str().unwrap_or_default();
            said += &String::from_utf8_lossy(&BASE64_STANDARD.decode(data).unwrap());
        }
        if name == "json" {
            assert_eq!(
                called.result()["pin"],
                "***",
                "a number becomes a text, and the answer stays JSON"
            );
        }
    }
    for decoded in said
        .clone()
        .split(|c: char| !c.is_ascii_alphanumeric() && !"+/=".contains(c))
        .filter(|run| run.len() > 7)
    {
        said += &String::from_utf8_lossy(&BASE64_STANDARD.decode(decoded).unwrap_or_default());
    }
    assert!(said.contains("***"));
    let seen = format!("{:?}", server.asked());
    assert!(
        seen.contains("5f0c71") && seen.contains("query%20%26") && seen.contains("token-9d0e"),
        "the server gets them"
    );

    let history = eventually("the history", || async {
        Some(operator.get("/v1/calls").await)
            .filter(|reply| reply.body["calls"].as_array().unwrap().len() == 2 * names.len())
    })
    .await;
    let mut lists = history.text.clone();
    for call in history.body["calls"].as_array().unwrap() {
        let id = call["id"].as_str().or(call["call_id"].as_str()).unwrap();
        lists += &operator.get_text(&format!("/v1/calls/{id}")).await;
    }
    for path in [
        "/v1/plugins",
        "/v1/plugins/echo/settings",
        "/v1/audit",
        "/v1/tools",
        "/v1/status",
        "/metrics",
    ] {
        lists += &operator.get_text(path).await;
    }
    let processes = every_command_line();
    let (dir, mut at) = (at.dir.clone(), at);
    at.begin_stop();
    assert_eq!(at.exit_code().await, Some(0));
    let log = at.stderr();
    for canary in CANARIES {
        assert_nowhere(
            canary,
            &[
                ("an answer", &said),
                ("a list", &lists),
                ("the log", &log),
                ("a command line", &processes),
            ],
        );
        assert_eq!(find_in_files(dir.path(), canary), Vec::<std::path::PathBuf>::new(), "{canary}");
    }
}

fn every_command_line() -> String {
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read(entry.ok()?.path().join("cmdline")).ok()
    };
    let found: Vec<Vec<u8>> = std::fs::read_dir("/proc").unwrap().filter_map(of).collect();
    assert!(!found.is_empty());
    String::from_utf8_lossy(&found.concat()).into_owned()
}

/// A gap in a well-known sentence would reveal the masked word.
#[tokio::test]
async fn a_secret_that_is_one_of_our_words_is_not_cut_out_of_our_sentences() {
    let server =
        PluginServer::start(|_| PluginAnswer::redirect(307, "http://plugin.evil.example/")).await;
    let at = Setup::new().config(&server.allowed()).start().await;
    let operator = at.operator();
    let settings = json!({ "type": "object", "properties": { "key": { "type": "string", "format": "password" } } });
    operator
        .post(
            "/v1/plugins",
            &json!({ "manifest": server.manifest("w", json!({ "settings": settings })) }),
        )
        .await;
    let stored = json!({ "settings": { "key": "plugin" } });
    Reply::of(operator.request(Method::PUT, "/v1/plugins/w/settings").json(&stored)).await;
    let asked = json!({ "identifier": "w", "apiName": "run", "arguments": { "city": "x" } });
    let host = gateway(&operator, &asked).await.text;
    let tool = operator.call("w__run", json!({ "city": "x" })).await.text;
    for said in [&host, &tool] {
        assert!(said.contains("the plugin ") && said.contains("cannot be called"), "{said}");
        assert!(said.contains("redirects to http://***.evil.example"), "{said}");
    }
}

#[tokio::test]
async fn a_token_server_that_repeats_the_secret_tells_it_to_nobody() {
    let server = PluginServer::start(|request| match request.path.as_str() {
        "/document.json" => PluginAnswer::json(&document()),
        _ => PluginAnswer::text(
            401,
            "application/json",
            &json!({ "error": format!("no {CLIENT_SECRET} here") }).to_string(),
        ),
    })
    .await;
    let at = Setup::new().config(&server.allowed()).start().await;
    let operator = at.operator();
    operator.post("/v1/plugins", &json!({ "url": server.url("/document.json") })).await;
    let settings =
        json!({ "settings": { "client_clientId": "me", "client_clientSecret": CLIENT_SECRET } });
    Reply::of(operator.request(Method::PUT, "/v1/plugins/echo/settings").json(&settings)).await;
    let asked = json!({ "identifier": "echo", "apiName": "token_json", "arguments": "{}" });
    let reply = gateway(&operator, &asked).await;
    assert_eq!(
        (reply.status, &reply.body["errorType"]),
        (400, &json!("PluginSettingsInvalid")),
        "{}",
        reply.text
    );
    assert!(reply.text.contains("401") && reply.text.contains("no *** here"), "{}", reply.text);
    let called = operator.call("echo__token_json", json!({})).await;
    assert_nowhere(CLIENT_SECRET, &[("the reply", &reply.text), ("the call", &called.text)]);
}
