//! The program works against a gateway in the test: the handshake, calls, and its end by a signal
//! or a lost gateway.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

/// Waits for a future. The timeout only keeps a broken test from hanging forever.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("this never happened")
}

async fn start(dir: &Path) -> (Child, WebSocketStream<TcpStream>, String) {
    let dir = dir.to_str().unwrap();
    let all = [
        ("SA_NODE_TOKEN", "s&cret"),
        ("SA_NODE_ID", "hello:1"),
        ("SA_NODE_NAME", "Hello"),
        ("SA_NODE_TAGS", "a,b"),
        ("SA_ALLOWED_DIR", dir),
    ];
    start_with(&all, Path::new("/")).await
}

/// Starts the program in this folder with only these variables of its own.
async fn start_with(
    variables: &[(&str, &str)],
    folder: &Path,
) -> (Child, WebSocketStream<TcpStream>, String) {
    start_at("ws://{}/v1/nodes/ws", variables, folder).await
}

/// Starts the program with an address of this form.
async fn start_at(
    address: &str,
    variables: &[(&str, &str)],
    folder: &Path,
) -> (Child, WebSocketStream<TcpStream>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sa-hello-node"));
    for name in ["SA_NODE_TOKEN", "SA_NODE_ID", "SA_NODE_NAME", "SA_NODE_TAGS", "SA_ALLOWED_DIR"] {
        command.env_remove(name);
    }
    let child = command
        .arg(address.replace("{}", &listener.local_addr().unwrap().to_string()))
        .envs(variables.iter().copied())
        .current_dir(folder)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut uri = String::new();
    #[allow(clippy::result_large_err)] // The library's callback has this type.
    let keep_uri = |request: &Request, response: Response| {
        uri = request.uri().to_string();
        Ok(response)
    };
    let stream = soon(listener.accept()).await.unwrap().0;
    let socket = soon(accept_hdr_async(stream, keep_uri)).await.unwrap();
    (child, socket, uri)
}

/// Returns the next frame of the node that is not a ping.
async fn next(socket: &mut WebSocketStream<TcpStream>) -> Value {
    loop {
        match soon(socket.next()).await {
            Some(Ok(Message::Text(text))) => {
                let frame: Value = serde_json::from_str(&text).unwrap();
                if frame["type"] != "ping" {
                    return frame;
                }
            }
            other => panic!("expected a text frame, got {other:?}"),
        }
    }
}

async fn send(socket: &mut WebSocketStream<TcpStream>, frame: Value) {
    socket.send(Message::text(frame.to_string())).await.unwrap();
}

#[tokio::test]
async fn serves_until_it_is_told_to_stop() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "text").unwrap();
    let (child, mut socket, uri) = start(dir.path()).await;
    assert_eq!(uri, "/v1/nodes/ws?token=s%26cret&node_id=hello%3A1");

    let hello = next(&mut socket).await;
    assert_eq!((&hello["type"], &hello["protocol_version"]), (&json!("node_hello"), &json!(1)));
    let (id, name, tags) = (&hello["node"]["id"], &hello["node"]["name"], &hello["node"]["tags"]);
    assert_eq!((id, name, tags), (&json!("hello:1"), &json!("Hello"), &json!(["a", "b"])));
    assert_eq!(hello["capabilities"], json!(["node"]));
    assert_eq!(hello["tools"].as_array().unwrap().len(), 3);
    send(
        &mut socket,
        json!({"type":"gateway_welcome","protocol_version":1,"gateway_version":"test"}),
    )
    .await;

    let request = |id: &str, tool: &str, args: Value| json!({"type":"tool_request","request_id":id,"tool":tool,"args":args});
    send(&mut socket, request("1", "node.fs.read_text", json!({"path":"a.txt"}))).await;
    assert_eq!(next(&mut socket).await["result"]["content"], "text");
    send(&mut socket, request("2", "node.fs.read_text", json!({"path":"/etc/passwd"}))).await;
    assert_eq!(next(&mut socket).await["error"]["kind"], "not_allowed");
    send(&mut socket, json!({"type":"ping","timestamp":5})).await;
    assert_eq!(next(&mut socket).await, json!({"type":"pong","timestamp":5}));

    // An unreadable frame is answered if its request id is known, and ignored otherwise.
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    for frame in [
        "nonsense".to_owned(),
        r#"{"type":"tool_request"}"#.to_owned(),
        r#"{"type":"tool_response","request_id":"3","ok":"maybe"}"#.to_owned(),
        r#"{"type":"tool_request","request_id":"odd","tool":7}"#.to_owned(),
        format!(
            r#"{{"type":"tool_request","request_id":"deep","tool":"node.echo","args":{deep}}}"#
        ),
    ] {
        socket.send(Message::text(frame)).await.unwrap();
    }
    for id in ["odd", "deep"] {
        let answer = next(&mut socket).await;
        assert_eq!(
            (&answer["type"], &answer["request_id"]),
            (&json!("tool_response"), &json!(id)),
            "{answer}"
        );
        assert_eq!(
            (&answer["ok"], &answer["error"]["kind"]),
            (&json!(false), &json!("invalid_args")),
            "{answer}"
        );
    }

    let pid = rustix::process::Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let Some(Ok(Message::Close(Some(goodbye)))) = soon(socket.next()).await else {
        panic!("no goodbye")
    };
    assert_eq!(u16::from(goodbye.code), 1000);
    let ended = soon(child.wait_with_output()).await.unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{said}");
    let first = said.lines().next().unwrap_or_default();
    let named = ["hello:1", "node.ping", "node.echo", "node.fs.read_text"]
        .iter()
        .all(|word| first.contains(word));
    assert!(named, "who it is, and what it has: {said}");
}

#[tokio::test]
async fn without_its_variables_it_goes_by_its_type_and_the_machines_name() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "text").unwrap();
    let (_child, mut socket, uri) = start_with(&[("HOSTNAME", "desk")], dir.path()).await;
    assert_eq!(uri, "/v1/nodes/ws?node_id=reference%3Adesk", "and no token");
    let hello = next(&mut socket).await;
    let (id, name, tags) =
        (&hello["node"]["id"], &hello["node"]["name"], hello["node"].get("tags"));
    assert_eq!((id, name, tags), (&json!("reference:desk"), &json!("sa-node-reference"), None));
    send(&mut socket, json!({"type":"gateway_welcome"})).await;
    let args = json!({"path":"a.txt"});
    send(
        &mut socket,
        json!({"type":"tool_request","request_id":"1","tool":"node.fs.read_text","args":args}),
    )
    .await;
    assert_eq!(
        next(&mut socket).await["result"]["content"],
        "text",
        "from the folder it was started in"
    );
}

#[tokio::test]
async fn an_address_without_a_path_leads_to_the_nodes_door() {
    let dir = tempfile::tempdir().unwrap();
    for address in ["ws://{}", "http://{}/"] {
        let (_child, _socket, uri) = start_at(address, &[("SA_NODE_ID", "n")], dir.path()).await;
        assert_eq!(uri, "/v1/nodes/ws?node_id=n");
    }
}

#[tokio::test]
async fn ends_with_an_error_when_the_gateway_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (child, mut socket, _) = start(dir.path()).await;
    next(&mut socket).await;
    send(&mut socket, json!({"type":"gateway_welcome"})).await;
    drop(socket);
    let output = soon(child.wait_with_output()).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("connection") && !words.contains("s&cret"), "{words}");
}

#[tokio::test]
async fn a_refusal_is_told_in_the_gateways_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_sa-hello-node"))
        .arg(format!("ws://{}", listener.local_addr().unwrap()))
        .env("SA_NODE_TOKEN", "s3cret")
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut stream, _) = soon(listener.accept()).await.unwrap();
    let mut head = vec![0; 4096];
    assert!(soon(stream.read(&mut head)).await.unwrap() > 0);
    let body = r#"{"detail":"the token was revoked","hint":"make another"}"#;
    let answer = format!(
        "HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
    let ended = soon(child.wait_with_output()).await.unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(
        said.contains("401") && said.contains("the token was revoked (make another)"),
        "{said}"
    );
    assert!(said.contains("SA_NODE_TOKEN") && !said.contains("s3cret"), "{said}");
}
