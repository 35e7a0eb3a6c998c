//! Host and Origin are checked first on every route and every upgrade, and every route except the
//! two health checks needs a token. The routes come from the gateway's own OpenAPI document, so new
//! ones are covered.

use sa_gateway_kit::{FakeNode, Gateway, Hello, RawHttp, Setup, Traffic, eventually};
use serde_json::{Value, json};

/// Browsers come here without a token; see `upstream_login`.
const LOGIN_CALLBACK: &str = "/v1/upstream/a.b/callback";

/// Returns every method and path of the API, with the parameters filled in.
async fn routes(gateway: &Gateway) -> Vec<(String, String)> {
    let api = gateway.operator().get("/openapi.json").await.body;
    let mut routes = Vec::new();
    for (path, methods) in api["paths"].as_object().unwrap() {
        let path =
            path.replace("{name}", "a.b").replace("{id}", "01890000-0000-7000-8000-000000000000");
        let path = path.replace("{attachment}", "img_1");
        assert!(!path.contains('{'), "{path} has a variable that this test does not know");
        for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            routes.push((method.to_uppercase(), path.clone()));
        }
    }
    assert!(routes.len() >= 18, "{routes:?}");
    // MCP is a separate protocol; the OpenAPI document covers only its POST route.
    routes.extend(["GET", "DELETE"].map(|method| (method.to_owned(), "/mcp".to_owned())));
    routes
}

#[tokio::test]
async fn a_wrong_host_is_refused_everywhere() {
    let gateway = Setup::new().start().await;
    let traffic = Traffic::start(&gateway).await;
    let (own, port) = (gateway.address().to_owned(), gateway.port());
    let bearer = format!("Bearer {}", gateway.operator);
    let other_port = format!("127.0.0.1:{}", port - 1);
    let rebound = format!("evil.example:{port}");
    let dressed = format!("127.0.0.1.evil.example:{port}");
    let user = format!("127.0.0.1:{port}@evil.example");
    let wrong: Vec<Vec<(&str, &str)>> = vec![
        vec![],
        vec![("host", "")],
        vec![("host", "null")],
        vec![("host", "127.0.0.1")],
        vec![("host", "localhost")],
        vec![("host", &other_port)],
        vec![("host", &rebound)],
        vec![("host", &dressed)],
        vec![("host", &user)],
        vec![("host", &own), ("host", &own)],
        vec![("host", &own), ("host", &rebound)],
    ];
    for (method, path) in routes(&gateway).await {
        for hosts in &wrong {
            let mut headers = hosts.clone();
            headers.push(("authorization", &bearer));
            let (status, answer) = RawHttp::ask(&gateway, &method, &path, &headers).await;
            assert!(matches!(status, 400 | 403), "{method} {path} with {hosts:?}: {answer}");
        }
    }
    // The host in the request line counts as well.
    let target = format!("http://{rebound}/v1/tools");
    let (status, answer) =
        RawHttp::ask(&gateway, "GET", &target, &[("host", &own), ("authorization", &bearer)]).await;
    assert_eq!(status, 403, "{answer}");
    assert!(gateway.refused("http", "host").await > 100);
    traffic.end().await;
}

#[tokio::test]
async fn a_wrong_origin_is_refused_everywhere() {
    let gateway = Setup::new().start().await;
    let (own, port) = (gateway.address().to_owned(), gateway.port());
    let bearer = format!("Bearer {}", gateway.operator);
    let other_port = format!("http://127.0.0.1:{}", port - 1);
    let other_scheme = format!("https://{own}");
    let rebound = format!("http://evil.example:{port}");
    let with_path = format!("http://{own}/");
    let page = format!("http://{own}");
    let wrong: Vec<Vec<(&str, &str)>> = vec![
        vec![("origin", "")],
        vec![("origin", "null")],
        vec![("origin", "nonsense")],
        vec![("origin", "http://")],
        vec![("origin", "http://127.0.0.1")],
        vec![("origin", "https://evil.example")],
        vec![("origin", &other_port)],
        vec![("origin", &other_scheme)],
        vec![("origin", &rebound)],
        vec![("origin", &with_path)],
        vec![("origin", &page), ("origin", &page)],
        vec![("origin", &page), ("origin", "https://evil.example")],
    ];
    for (method, path) in routes(&gateway).await {
        for origins in &wrong {
            let mut headers = origins.clone();
            headers.extend([("host", own.as_str()), ("authorization", &bearer)]);
            let (status, answer) = RawHttp::ask(&gateway, &method, &path, &headers).await;
            assert_eq!(status, 403, "{method} {path} with {origins:?}: {answer}");
        }
    }
}

#[tokio::test]
async fn upgrades_are_no_way_around() {
    let gateway =
        Setup::new().config("[server]\nallowed_origins = [\"https://app.example\"]").start().await;
    let page = format!("http://{}", gateway.address());
    for headers in [
        [("origin", "https://evil.example")],
        [("origin", "null")],
        [("origin", page.as_str())],
        // A node must not come from any web page.
        [("origin", "https://app.example")],
        [("host", "evil.example")],
    ] {
        let refused = FakeNode::upgrade_with(&gateway, "", &headers).await.unwrap_err();
        assert_eq!(refused.status, 403, "{headers:?}: {}", refused.body);
    }
    let bearer = format!("Bearer {}", gateway.operator);
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for (origin, expected) in [("https://evil.example", 403), ("null", 403)] {
        let mut headers = upgrade.to_vec();
        headers.extend([
            ("host", gateway.address()),
            ("authorization", &bearer),
            ("origin", origin),
        ]);
        headers.remove(0);
        let (status, answer) = RawHttp::ask(&gateway, "GET", "/v1/calls/ws", &headers).await;
        assert_eq!(status, expected, "{answer}");
    }
}

/// MCP clients look for an OAuth authority first. They treat 401 as an authority that refuses to
/// register them.
#[tokio::test]
async fn there_is_no_oauth_authority_and_clients_learn_it_without_a_token() {
    let gateway = Setup::new().start().await;
    let own = gateway.address();
    for (method, path) in [
        ("GET", "/.well-known/oauth-protected-resource"),
        ("GET", "/.well-known/oauth-protected-resource/mcp"),
        ("GET", "/.well-known/oauth-authorization-server"),
        ("GET", "/.well-known/openid-configuration"),
        ("GET", "/.well-known/openid-configuration/mcp"),
        ("GET", "/mcp/.well-known/oauth-protected-resource"),
        ("GET", "/mcp/.well-known/oauth-authorization-server"),
        ("GET", "/mcp/.well-known/openid-configuration"),
        ("POST", "/register"),
    ] {
        for (headers, expected) in [
            (vec![("host", own)], 404),
            (vec![("host", own), ("authorization", "Bearer wrong")], 404),
            (vec![("host", "evil.example")], 403),
            (vec![("host", own), ("origin", "https://evil.example")], 403),
        ] {
            let (status, answer) = RawHttp::ask(&gateway, method, path, &headers).await;
            assert_eq!(status, expected, "{method} {path} with {headers:?}: {answer}");
        }
    }
    for path in ["/registers", "/mcp/register", "/mcp", "/v1/.well-known/openid-configuration"] {
        let (status, answer) = RawHttp::ask(&gateway, "GET", path, &[("host", own)]).await;
        assert_eq!(status, 401, "{path}: {answer}");
    }
}

#[tokio::test]
async fn listed_origins_may_ask_and_others_get_no_word() {
    let gateway =
        Setup::new().config("[server]\nallowed_origins = [\"https://app.example\"]").start().await;
    let bearer = format!("Bearer {}", gateway.operator);
    let headers = [
        ("host", gateway.address()),
        ("origin", "https://app.example"),
        ("authorization", &bearer),
    ];
    let (status, answer) = RawHttp::ask(&gateway, "GET", "/v1/tools", &headers).await;
    assert_eq!(status, 200);
    assert!(answer.contains("access-control-allow-origin: https://app.example"), "{answer}");
    let (status, answer) = RawHttp::ask(&gateway, "OPTIONS", "/v1/tools", &headers[..2]).await;
    assert_eq!(status, 204, "{answer}");
    for header in ["mcp-protocol-version", "mcp-session-id", "last-event-id", "accept,"] {
        assert!(answer.contains(header), "an MCP client in a page needs {header}: {answer}");
    }
    let evil = [("host", gateway.address()), ("origin", "https://evil.example")];
    let (status, answer) = RawHttp::ask(&gateway, "OPTIONS", "/v1/tools", &evil).await;
    assert_eq!(status, 403);
    assert!(!answer.contains("access-control"), "{answer}");
}

#[tokio::test]
async fn every_route_needs_a_token() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "for-nodes").start().await;
    let host = gateway.address().to_owned();
    let operator = gateway.operator();
    let (_, expired) =
        gateway.token(json!({ "name": "old", "role": "operator", "expires_in_s": 1 })).await;
    let past = gateway.agent(&expired);
    eventually("its end", || async { (past.get("/v1/tools").await.status == 401).then_some(()) })
        .await;
    let (id, revoked) = gateway.token(json!({ "name": "gone", "role": "operator" })).await;
    assert_eq!(operator.delete(&format!("/v1/tokens/{id}")).await.status, 200);
    let wrong = [
        None,
        Some(String::new()),
        Some("Bearer ".into()),
        Some("Bearer nonsense".into()),
        Some(gateway.operator.clone()),
        Some(format!("Basic {}", gateway.operator)),
        Some(format!("Bearer {}x", gateway.operator)),
        Some(format!("Bearer {expired}")),
        Some(format!("Bearer {revoked}")),
        Some("Bearer for-nodes".into()),
    ];
    for (method, path) in routes(&gateway).await {
        // A token in the query counts only on the WebSockets for nodes and participants.
        let paths = [path.clone(), format!("{path}?token={}", gateway.operator)];
        for (path, authorization) in
            paths.iter().flat_map(|path| wrong.iter().map(move |header| (path, header)))
        {
            let open = path.starts_with("/healthz") || path.starts_with("/readyz");
            let node = path.starts_with("/v1/nodes/ws")
                && authorization.as_deref() == Some("Bearer for-nodes");
            let mut headers = vec![("host", host.as_str())];
            headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
            let (status, answer) = RawHttp::ask(&gateway, &method, path, &headers).await;
            let expected = match path.as_str() {
                _ if open => 200,
                // The token is accepted, but the request is not an upgrade.
                path if path.starts_with("/v1/channels/ws?token=") => 426,
                // The route needs the id of a login.
                path if path.starts_with(LOGIN_CALLBACK) => 400,
                _ => 401,
            };
            assert!(status == expected || node, "{method} {path} with {authorization:?}: {answer}");
        }
    }
    assert!(gateway.refused("http", "token").await > 100);
}

#[tokio::test]
async fn what_is_for_operators_is_for_nobody_else() {
    let gateway = Setup::new().start().await;
    let _node = Hello::new("n").tool("a.b").connect(&gateway).await.echo();
    let agents = [
        "/v1/tools",
        "/v1/calls",
        "/v1/events",
        "/v1/channels",
        "/v1/eligibility",
        "/v1/skills",
        "/v1/sessions",
        "/api/gateway",
        "/v1/chat",
        "/v1/functions",
        "/v1/models",
        "/v1/responses",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/v1/calls/ws",
        "/mcp",
        LOGIN_CALLBACK,
    ];
    for role in ["agent", "caller", "node", "participant", "user"] {
        let (_, token) = gateway.token(json!({ "name": role, "role": role })).await;
        let agent = gateway.agent(&token);
        let host = gateway.address().to_owned();
        let bearer = format!("Bearer {token}");
        for (method, path) in routes(&gateway).await {
            let for_agents =
                agents.iter().any(|open| path == *open || path.starts_with(&format!("{open}/")));
            // The list of plugins is public, and settings belong to each user.
            let plugins =
                path.starts_with("/v1/plugins") && (method == "GET" || path.ends_with("/settings"));
            if !for_agents && !plugins && path != "/v1/nodes/ws" {
                let headers =
                    [("host", host.as_str()), ("authorization", &bearer), ("content-length", "0")];
                let (status, answer) = RawHttp::ask(&gateway, &method, &path, &headers).await;
                assert_eq!(status, 403, "{method} {path} as {role}: {answer}");
            }
        }
        let body: Value = json!({ "name": "x", "role": "operator" });
        agent.post("/v1/tokens", &body).await.assert_problem(403, "not_allowed");
    }
}

#[tokio::test]
async fn two_tokens_are_none() {
    let gateway = Setup::new().start().await;
    let bearer = format!("Bearer {}", gateway.operator);
    for second in [bearer.as_str(), "Bearer other"] {
        let headers =
            [("host", gateway.address()), ("authorization", &bearer), ("authorization", second)];
        for path in ["/v1/tools", "/v1/nodes/ws", "/mcp"] {
            let (status, answer) = RawHttp::ask(&gateway, "GET", path, &headers).await;
            assert_eq!(status, 400, "{path}: {answer}");
        }
    }
}
