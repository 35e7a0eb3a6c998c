//! A nearly valid request is answered or refused with a correct status and a short text, and never
//! causes an internal error.

use proptest::prelude::*;
use proptest::sample::select;
use reqwest::Method;
use sa_gateway_kit::{Agent, Gateway, Hello, Setup, soon};
use serde_json::{Value, json};

use crate::mutated::{nearly, some};

/// The number of requests for each route.
const EACH: usize = 60;
/// The longest refusal.
const MAX_REFUSAL: usize = 4_000;

async fn gateway() -> Gateway {
    // Without agents and models, which a valid request could start.
    Setup::new()
        .config("[sessions]\nenabled = true\n[plugins]\nallow_inline_manifest = true\n")
        .start()
        .await
}

/// Sends a request and checks that the response is a valid answer.
async fn check(agent: &Agent, method: Method, path: &str, body: Vec<u8>) -> u16 {
    let shown = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
    let request =
        agent.request(method.clone(), path).header("content-type", "application/json").body(body);
    let response = soon(request.send()).await.unwrap();
    let status = response.status().as_u16();
    let what = format!("{method} {path} {shown}");
    assert!(status < 500, "{status} for {what}: {}", response.text().await.unwrap());
    if status >= 400 {
        let kind =
            response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        let text = response.text().await.unwrap();
        assert!(text.len() <= MAX_REFUSAL, "{} bytes for {what}", text.len());
        // MCP has its own error texts, and none for some refusals.
        if path.starts_with("/mcp") {
            return status;
        }
        let kind = kind.unwrap_or_default();
        assert!(kind.contains("json"), "{kind} for {what}: {text}");
        assert!(serde_json::from_str::<Value>(&text).unwrap().is_object(), "{what}: {text}");
    }
    status
}

async fn check_bodies(method: Method, path: &str, right: Value) {
    let gateway = gateway().await;
    let _node = Hello::new("n").capability("a").connect(&gateway).await.echo();
    let operator = gateway.operator();
    let mut refused = 0;
    for body in some(EACH, nearly(right)) {
        let status = check(&operator, method.clone(), path, body).await;
        refused += u64::from(status >= 400);
    }
    assert!(refused > EACH as u64 / 4, "{refused} of {EACH} were refused: are they wrong at all?");
    // The gateway still serves the next request.
    assert_eq!(operator.call("a.b", json!({ "x": 1 })).await.status, 200);
}

macro_rules! bodies {
    ($($name:ident: $method:ident $path:literal $right:tt;)*) => {$(
        #[tokio::test]
        async fn $name() {
            check_bodies(Method::$method, $path, json!($right)).await;
        }
    )*};
}

bodies! {
    calls: POST "/v1/tools/a.b/call" {"args":{"x":[1]},"session_key":"s","timeout_ms":1000,"idempotency_key":"k"};
    invocations: POST "/v1/tools/invoke" {"tool":"a.b","args":{"x":1},"session_key":"s","timeout_ms":1000};
    questions_about_hosts: POST "/v1/eligibility" {"capabilities":["shell.exec"],"bins":[],"env":["HOME"],"os":["linux"]};
    probes: POST "/v1/nodes/n/probe" {"bins":["git","sh"]};
    tokens: POST "/v1/tokens" {"name":"t","role":"participant","channels":["a"],"channel_rights":["read"],"tools":["*"],"expires_in_s":60};
    upstream_servers: POST "/v1/upstream" {"name":"","url":"http://127.0.0.1:1/","headers":{"x":"y"},"oauth":{"grant":"client_credentials"},"timeout_ms":5};
    plugins: POST "/v1/plugins" {"manifest":{"identifier":"p","api":[{"name":"f","url":"http://127.0.0.1:1/","description":"d","parameters":{"type":"object","properties":{}}}],"settings":{"type":"object"},"meta":{"title":"P","avatar":"x"}},"replace":true,"allow_private":["127.0.0.1:1"]};
    plugins_to_check: POST "/v1/plugins/check" {"text":"{\"identifier\":\"p\",\"api\":[]}","allow_private":["127.0.0.1:1"]};
    acceptances: POST "/v1/plugins/p/accept" {"hash":"x"};
    settings: PUT "/v1/plugins/p/settings" {"settings":{"a":"b"}};
    messages_to_agents: POST "/v1/sessions" {"message":"hello","agent":"none","timeout_ms":100,"context":{"caller_id":"c","caller_tools":[{"name":"t","description":"d","inputSchema":{"type":"object"}}]}};
    responses_of_callers: POST "/v1/sessions/none/responses" {"request_id":"r","result":{"a":1},"progress":1.5};
    chats: POST "/v1/chat/completions" {"model":"none","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"stream":false};
    functions: POST "/v1/functions/execute" {"tool_calls":[{"id":"1","type":"function","function":{"name":"none","arguments":"{}"}}]};
    published_messages: POST "/v1/channels/room/messages" {"type":"note","payload":{"a":1},"persist":true,"clientMessageId":"c"};
    sign_ins: POST "/v1/console/sign-in" {"code":"x"};
    plugin_calls: POST "/api/gateway" {"identifier":"p","apiName":"none","arguments":"{}","manifest":{"identifier":"p","api":[{"name":"f","url":"http://127.0.0.1:1/","description":"d","parameters":{"type":"object"}}]}};
    mcp_messages: POST "/mcp" {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"none","arguments":{"x":1},"_meta":{"progressToken":1}}};
}

/// Query values, some of which are valid for some parameter.
fn values() -> impl Strategy<Value = String> {
    let odd = " 1 -1 true maybe % %ff %00 a%20b+c 18446744073709551616 1e3 = %26 all []"
        .split(' ')
        .collect::<Vec<_>>();
    prop_oneof![4 => select(odd).prop_map(str::to_owned), 1 => Just("x".repeat(4_000))]
}

#[tokio::test]
async fn queries() {
    let gateway = gateway().await;
    let operator = gateway.operator();
    let api = operator.get("/openapi.json").await.body;
    let mut asked = 0;
    for (path, methods) in api["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let in_query = |parameter: &&Value| parameter["in"] == "query";
            let parameters =
                operation["parameters"].as_array().into_iter().flatten().filter(in_query);
            let mut names: Vec<String> =
                parameters.map(|it| it["name"].as_str().unwrap().to_owned()).collect();
            if names.is_empty() || path.ends_with("/ws") {
                continue;
            }
            names.push("no_such_parameter".into());
            let path = path.replace("{name}", "none").replace("{id}", "none");
            let pairs = proptest::collection::vec((select(names), values()), 1..4);
            for pairs in some(20, pairs) {
                let query: Vec<String> =
                    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let path = format!("{path}?{}", query.join("&"));
                let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
                // Waits only for the head, because some of these answers are endless.
                check_query(&operator, method, &path).await;
                asked += 1;
            }
        }
    }
    assert!(asked > 200, "{asked}");
    assert_eq!(operator.get("/v1/tools").await.status, 200);
}

/// HTML pages are not JSON.
async fn check_query(operator: &Agent, method: Method, path: &str) {
    if path.contains("/callback") {
        let response = soon(operator.request(method, path).send()).await.unwrap();
        assert!(response.status().as_u16() < 500, "{path}");
        assert!(response.text().await.unwrap().len() <= MAX_REFUSAL, "{path}");
        return;
    }
    check(operator, method, path, b"{}".to_vec()).await;
}
