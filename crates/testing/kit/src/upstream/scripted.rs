//! An upstream server that sends predefined answers byte for byte, over every transport.

use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// The answers of the server, as JSON.
#[derive(Debug, Clone)]
pub struct Says {
    pub tools: String,
    /// The result of every call.
    pub result: String,
}

/// The transport to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Http,
    /// HTTP with answers as events.
    Events,
    Program,
}

pub const WAYS: [Way; 3] = [Way::Http, Way::Events, Way::Program];

impl Says {
    /// Returns a server with one valid tool, followed by these tools.
    pub fn tools(others: &str) -> Self {
        let tools = format!(r#"[{{"name":"fine","inputSchema":{{"type":"object"}}}}{others}]"#);
        Self { tools, result: r#"{"content":[{"type":"text","text":"hello"}]}"#.into() }
    }

    /// Returns the answer to a message, without its id.
    fn to(&self, asked: &str) -> Option<String> {
        let initialize = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;
        let said = match asked {
            "initialize" => format!("\"result\":{initialize}"),
            "tools/list" => format!("\"result\":{{\"tools\":{}}}", self.tools),
            "tools/call" => format!("\"result\":{}", self.result),
            "server/discover" => r#""error":{"code":-32601,"message":"what is that"}"#.to_owned(),
            _ => return None,
        };
        Some(said)
    }

    /// Starts this server, and returns its configuration as `test` and the directory that must live
    /// as long.
    pub async fn config(self, way: Way) -> (String, Option<TempDir>) {
        match way {
            Way::Program => {
                let dir = tempfile::tempdir().unwrap();
                (self.program(dir.path()), Some(dir))
            }
            Way::Http | Way::Events => (self.serve(way == Way::Events).await, None),
        }
    }

    /// Serves it over HTTP, and returns the configuration for it.
    pub async fn serve(self, as_events: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = async move |method: Method, body: Bytes| -> Response {
            if method != Method::POST {
                return StatusCode::METHOD_NOT_ALLOWED.into_response();
            }
            let asked: Value = serde_json::from_slice(&body).unwrap();
            let Some(said) = self.to(asked["method"].as_str().unwrap_or_default()) else {
                return StatusCode::ACCEPTED.into_response();
            };
            let said = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},{said}}}", asked["id"]);
            if as_events {
                ([(header::CONTENT_TYPE, "text/event-stream")], format!("data: {said}\n\n"))
                    .into_response()
            } else {
                ([(header::CONTENT_TYPE, "application/json")], said).into_response()
            }
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        format!("[upstream.test]\nurl = \"http://{address}/\"\n")
    }

    /// Returns the configuration for the same server as a program.
    fn program(&self, dir: &std::path::Path) -> String {
        let cases: Vec<String> = ["server/discover", "initialize", "tools/list", "tools/call"]
            .into_iter()
            .map(|asked| {
                let file = dir.join(asked.replace('/', "_"));
                std::fs::write(&file, self.to(asked).unwrap()).unwrap();
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
        let file = dir.join("server.sh");
        std::fs::write(&file, script).unwrap();
        format!("[upstream.test]\ncommand = {}\n", json!(["sh", file]))
    }
}
