//! Invalid HTTP requests are refused with a problem, counted, and do not affect others.

use reqwest::Method;
use sa_gateway_kit::{Gateway, Hello, RawHttp, Reply, Setup, Traffic, eventually};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

async fn start() -> (Gateway, Traffic) {
    let gateway = Setup::new().config("[limits]\nmax_body_bytes = 100_000").start().await;
    let traffic = Traffic::start(&gateway).await;
    (gateway, traffic)
}

#[tokio::test]
async fn routes_and_methods_that_are_not_there() {
    let (gateway, traffic) = start().await;
    let operator = gateway.operator();
    for path in [
        "/v1",
        "/v2/tools",
        "/v1/tools/",
        "/v1/tools/a/b/c",
        "/v1/calls/x/y",
        "/etc/passwd",
        "/%2e%2e/x",
    ] {
        let reply = operator.get(path).await;
        reply.assert_problem(404, "not_found");
        assert!(reply.body["hint"].as_str().unwrap().contains("openapi"), "{}", reply.text);
    }
    for (method, path) in [
        (Method::POST, "/v1/tools"),
        (Method::DELETE, "/v1/tools"),
        (Method::GET, "/v1/tools/a/call"),
        (Method::PUT, "/v1/tokens"),
        (Method::PATCH, "/v1/calls/x"),
        (Method::POST, "/healthz"),
        (Method::PUT, "/v1/upstream"),
        (Method::PUT, "/v1/channels"),
        (Method::PUT, "/v1/sessions"),
        (Method::POST, "/"),
    ] {
        Reply::of(operator.request(method, path)).await.assert_problem(405, "method_not_allowed");
    }
    for path in ["/v1/calls/ws", "/v1/nodes/ws"] {
        operator.get(path).await.assert_problem(if path.contains("nodes") { 401 } else { 426 }, {
            if path.contains("nodes") { "unauthorized" } else { "upgrade_required" }
        });
    }
    assert_eq!(gateway.refused("http", "route").await, 7);
    assert_eq!(gateway.refused("http", "method").await, 10);
    assert_eq!(gateway.refused("http", "no_upgrade").await, 1);
    traffic.end().await;
}

#[tokio::test]
async fn where_there_is_no_websocket_the_sockets_are_named() {
    let (gateway, traffic) = start().await;
    let (own, bearer) = (gateway.address().to_owned(), format!("Bearer {}", gateway.operator));
    let upgrade = [
        ("host", own.as_str()),
        ("connection", "upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    // The path is wrong, so the error is about the path even when the token is missing.
    for token in [None, Some(("authorization", bearer.as_str()))] {
        for path in ["/v1/nodes", "/v1/nodes/ws/", "/ws", "/mcp", "/v1/tools"] {
            let headers: Vec<_> = upgrade.into_iter().chain(token).collect();
            let (status, answer) = RawHttp::ask(&gateway, "GET", path, &headers).await;
            let named = ["/v1/nodes/ws", "/v1/calls/ws", "/v1/channels/ws"]
                .iter()
                .all(|socket| answer.contains(socket));
            assert!(status == 404 && named, "{path}: {answer}");
        }
    }
    assert_eq!(gateway.refused("http", "route").await, 10);
    assert_eq!(gateway.refused("http", "token").await, 0);
    traffic.end().await;
}

#[tokio::test]
async fn requests_for_a_websocket_that_are_none() {
    let (gateway, traffic) = start().await;
    let usual = format!(
        "host: {}\r\nauthorization: Bearer {}\r\nconnection: upgrade\r\nupgrade: websocket\r\n",
        gateway.address(),
        gateway.operator
    );
    let (version, key) =
        ("sec-websocket-version: 13\r\n", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
    let mut refused = 0;
    for (protocol, headers, rest, words) in [
        ("HTTP/1.1", format!("{version}sec-websocket-key: x\r\n"), "", "Sec-WebSocket-Key"),
        ("HTTP/1.1", version.to_owned(), "", "Sec-WebSocket-Key"),
        ("HTTP/1.1", format!("{version}{key}{key}"), "", "Sec-WebSocket-Key"),
        ("HTTP/1.1", format!("{version}{version}{key}"), "", "Sec-WebSocket-Version"),
        ("HTTP/1.1", format!("{version}{key}content-length: 2\r\n"), "hi", "body"),
        (
            "HTTP/1.1",
            format!("{version}{key}transfer-encoding: chunked\r\n"),
            "2\r\nhi\r\n0\r\n\r\n",
            "body",
        ),
        ("HTTP/1.0", format!("{version}{key}"), "", "HTTP/1.1"),
    ] {
        for path in ["/v1/calls/ws", "/v1/channels/ws?channel=x", "/?channel=x"] {
            let mut raw = RawHttp::connect(&gateway).await;
            raw.write(&format!("GET {path} {protocol}\r\n{usual}{headers}\r\n{rest}")).await;
            raw.stream.shutdown().await.unwrap();
            let answer = raw.read_to_end().await;
            let status = answer.split(' ').nth(1);
            assert!(
                status == Some("400") && answer.contains(words),
                "{path} {protocol} {headers}: {answer}"
            );
            refused += 1;
        }
    }
    assert_eq!(gateway.refused("http", "bad_request").await, refused);
    traffic.end().await;
}

#[tokio::test]
async fn bodies_that_are_too_large() {
    let (gateway, traffic) = start().await;
    let _node = Hello::new("n").capability("a").connect(&gateway).await.echo();
    let operator = gateway.operator();
    let large = json!({ "args": { "x": "x".repeat(100_000) }, "tool": "a.b" }).to_string();
    for path in ["/v1/tools/a.b/call", "/v1/tools/invoke", "/v1/tokens"] {
        Reply::of(operator.request(Method::POST, path).body(large.clone()))
            .await
            .assert_problem(413, "too_large");
    }
    // Without a content length, which would reveal the size.
    let chunks = (0..200).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1_000]));
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    let request = operator.request(Method::POST, "/v1/tools/a.b/call").body(body);
    Reply::of(request).await.assert_problem(413, "too_large");
    assert_eq!(gateway.refused("http", "too_large").await, 4);
    // The largest allowed body.
    assert_eq!(operator.call("a.b", json!({ "x": "x".repeat(99_000) })).await.status, 200);
    traffic.end().await;
}

#[tokio::test]
async fn values_that_cannot_be_read() {
    let (gateway, traffic) = start().await;
    let operator = gateway.operator();
    for path in [
        "/v1/tools?limit=many",
        "/v1/tools?colour=red",
        "/v1/calls?state=gone",
        "/v1/calls?cursor=-1",
    ] {
        operator.get(path).await.assert_problem(400, "bad_request");
    }
    for path in ["/v1/calls/not-an-id", "/v1/calls/%00", "/v1/calls/%ff"] {
        operator.get(path).await.assert_problem(400, "bad_request");
        operator.delete(path).await.assert_problem(400, "bad_request");
    }
    let utf8 =
        operator.request(Method::POST, "/v1/tools/a.b/call").body(b"{\"args\":\"\xff\"}".to_vec());
    Reply::of(utf8).await.assert_problem(400, "bad_request");
    let long = "x".repeat(300);
    let key = json!({ "args": {}, "idempotency_key": long });
    operator.call_with("a.b", key).await.assert_problem(400, "bad_request");
    assert!(gateway.refused("http", "bad_request").await >= 12);
    traffic.end().await;
}

#[tokio::test]
async fn words_that_would_fill_the_history() {
    let (gateway, traffic) = start().await;
    let operator = gateway.operator();
    let long = "x".repeat(50_000);
    for body in [json!({ "tool": long }), json!({ "tool": "a", "session_key": long })] {
        operator.post("/v1/tools/invoke", &body).await.assert_problem(400, "bad_request");
    }
    let mut socket = operator.socket().await;
    for field in ["tool", "session_key", "idempotency_key"] {
        let mut call = json!({ "type": "call", "id": "1", "tool": "a.b" });
        call[field] = json!(long);
        socket.send(call).await;
        assert_eq!(socket.recv().await["kind"], "invalid_args");
    }
    let history = operator.get("/v1/calls").await.text;
    assert!(!history.contains(&long[..2_000]));
    traffic.end().await;
}

#[tokio::test]
async fn bytes_that_are_no_http() {
    let (gateway, traffic) = start().await;
    let many = (0..300).map(|number| format!("h{number}: x\r\n")).collect::<Vec<_>>().concat();
    for text in [
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1} TLS to a port without\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        "GET / HTTP/9.9\r\n\r\n".to_owned(),
        format!(
            "GET /healthz HTTP/1.1\r\nhost: {}\r\nx: {}\r\n\r\n",
            gateway.address(),
            "x".repeat(500_000)
        ),
        format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n{many}\r\n", gateway.address()),
        format!(
            "POST /v1/tools/a/call HTTP/1.1\r\nhost: {}\r\ncontent-length: minus\r\n\r\n",
            gateway.address()
        ),
    ] {
        let mut raw = RawHttp::connect(&gateway).await;
        let _ = raw.stream.write_all(text.as_bytes()).await;
        let answer = raw.read_to_end().await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    eventually("them counted", || async {
        (gateway.refused("http", "malformed").await >= 5).then_some(())
    })
    .await;
    traffic.end().await;
}

#[tokio::test]
async fn a_body_that_is_no_json_is_told_what_to_send() {
    let gateway = Setup::new().start().await;
    for body in ["text=hello", "{\"args\":", "{'args': {}}", "[1]"] {
        let request = gateway.operator().request(Method::POST, "/v1/tools/a/call").body(body);
        let reply = Reply::of(request).await;
        reply.assert_problem(400, "bad_request");
        let hint = reply.body["hint"].as_str().unwrap();
        assert!(hint.contains("application/json") && hint.contains("\"args\""), "{}", reply.text);
    }
}

#[tokio::test]
async fn who_asks_whether_to_send_a_body_that_is_too_large_is_told_not_to() {
    let (gateway, traffic) = start().await;
    let (own, bearer) = (gateway.address().to_owned(), format!("Bearer {}", gateway.operator));
    for path in ["/v1/tools/a.b/call", "/v1/tokens", "/mcp", "/v1/chat/completions"] {
        let headers = [
            ("host", own.as_str()),
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("content-length", "100001"),
            ("expect", "100-continue"),
        ];
        let (status, answer) = RawHttp::ask(&gateway, "POST", path, &headers).await;
        assert_eq!(status, 413, "{path}: {answer}");
    }
    assert_eq!(gateway.refused("http", "too_large").await, 4);
    traffic.end().await;
}
