//! An upstream server's schema that is nested too deeply is refused with a word on why, whether it can be read or not, over
//! either way to the server; what else there is goes on.

use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sa_testkit::{Gateway, Setup, eventually};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::upstream::{until, upstream};

/// The tools of a server: one that is fine, and one with a schema of so many levels.
fn tools(levels: usize) -> String {
    // `properties` of `properties`: each level is one that a validator goes down as well.
    let deep = format!("{}{{}}{}", "{\"properties\":".repeat(levels - 1), "}".repeat(levels - 1));
    format!(r#"[{{"name":"fine","inputSchema":{{"type":"object"}}}},{{"name":"deep","inputSchema":{deep}}}]"#)
}

/// What such a server says to a message, but for its id.
fn said(asked: &str, tools: &str) -> Option<String> {
    let initialize =
        r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;
    let said = match asked {
        "initialize" => format!("\"result\":{initialize}"),
        "tools/list" => format!("\"result\":{{\"tools\":{tools}}}"),
        "tools/call" => r#""result":{"content":[{"type":"text","text":"hello"}]}"#.to_owned(),
        "server/discover" => r#""error":{"code":-32601,"message":"what is that"}"#.to_owned(),
        _ => return None,
    };
    Some(said)
}

/// A gateway with this server, as `web` over HTTP.
async fn over_http(levels: usize) -> Gateway {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = async move |method: Method, body: Bytes| -> Response {
        if method != Method::POST {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        }
        let asked: Value = serde_json::from_slice(&body).unwrap();
        match said(asked["method"].as_str().unwrap_or_default(), &tools(levels)) {
            Some(said) => {
                let said = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},{said}}}", asked["id"]);
                ([(header::CONTENT_TYPE, "application/json")], said).into_response()
            }
            None => StatusCode::ACCEPTED.into_response(),
        }
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    Setup::new().config(&format!("[upstream.test]\nurl = \"http://{address}/\"\n")).start().await
}

/// A gateway with this server as a program.
async fn as_program(levels: usize) -> (Gateway, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let cases: Vec<String> = ["server/discover", "initialize", "tools/list", "tools/call"]
        .into_iter()
        .map(|asked| {
            let file = dir.path().join(asked.replace('/', "_"));
            std::fs::write(&file, said(asked, &tools(levels)).unwrap()).unwrap();
            let file = file.display();
            format!(
                "*'\"{asked}\"'*) printf '{{\"jsonrpc\":\"2.0\",\"id\":%s,' \"$id\"; cat {file}; printf '}}\\n' ;;\n"
            )
        })
        .collect();
    let script = format!(
        "while read -r line; do\nid=$(printf '%s' \"$line\" | sed -n 's/.*\"id\":\\([0-9]*\\).*/\\1/p')\ncase \"$line\" in\n{}esac\ndone\n",
        cases.concat()
    );
    let file = dir.path().join("server.sh");
    std::fs::write(&file, script).unwrap();
    let config = format!("[upstream.test]\ncommand = {}\n", json!(["sh", file]));
    (Setup::new().config(&config).start().await, dir)
}

/// One that can be read: its tool cannot be called, and says why.
async fn check_readable(gateway: &Gateway) {
    until(gateway, "test", "ready").await;
    let agent = gateway.operator();
    let reply = agent.call("test__deep", json!({})).await;
    let told = reply.assert_problem(502, "failed").detail();
    assert!(told.contains("input schema") && told.contains("deeper than 100 levels"), "{told}");
    assert_eq!(agent.call("test__fine", json!({})).await.result()["content"][0]["text"], "hello");
}

/// One that cannot: the server is away, and says why.
async fn check_unreadable(gateway: &Gateway) {
    let told = eventually("the reason", || async {
        Some(upstream(gateway, "test").await.to_string()).filter(|server| server.contains("levels"))
    })
    .await;
    assert!(told.contains("120 levels"), "{told}");
    assert_eq!(gateway.operator().get("/v1/tools").await.status, 200);
}

#[tokio::test]
async fn over_http_a_schema_that_can_be_read() {
    check_readable(&over_http(110).await).await;
}

#[tokio::test]
async fn over_http_a_schema_that_cannot_be_read() {
    check_unreadable(&over_http(100_000).await).await;
}

#[tokio::test]
async fn of_a_program_a_schema_that_can_be_read() {
    check_readable(&as_program(110).await.0).await;
}

#[tokio::test]
async fn of_a_program_a_schema_that_cannot_be_read() {
    check_unreadable(&as_program(100_000).await.0).await;
}
