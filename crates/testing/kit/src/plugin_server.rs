//! A plugin server with real HTTP. It gives the answers that a test wants and records its requests.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

#[derive(Debug, Clone)]
pub struct PluginRequest {
    pub method: String,
    /// The path, with its query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub enum PluginAnswer {
    Say {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Bytes,
    },
    /// Never answers.
    Silence,
    /// Sends bytes without end.
    Endless,
}

impl PluginAnswer {
    pub fn json(value: &Value) -> Self {
        Self::text(200, "application/json", &value.to_string())
    }

    pub fn text(status: u16, content_type: &str, body: &str) -> Self {
        let headers = vec![("content-type", content_type.to_owned())];
        Self::Say { status, headers, body: Bytes::copy_from_slice(body.as_bytes()) }
    }

    pub fn redirect(status: u16, to: &str) -> Self {
        Self::Say { status, headers: vec![("location", to.to_owned())], body: Bytes::new() }
    }
}

type Answering = Arc<dyn Fn(&PluginRequest) -> PluginAnswer + Send + Sync>;
type Asked = Arc<Mutex<Vec<PluginRequest>>>;

#[derive(Debug)]
pub struct PluginServer {
    /// `127.0.0.1:PORT`
    pub address: String,
    asked: Asked,
    task: JoinHandle<()>,
}

impl PluginServer {
    pub async fn start(
        answer: impl Fn(&PluginRequest) -> PluginAnswer + Send + Sync + 'static,
    ) -> Self {
        Self::start_at("127.0.0.1:0", answer).await
    }

    /// Starts a server at an address that another server used before.
    pub async fn start_at(
        address: &str,
        answer: impl Fn(&PluginRequest) -> PluginAnswer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Asked::default();
        let state: (Answering, Asked) = (Arc::new(answer), Arc::clone(&asked));
        let routes = Router::new().fallback(respond).with_state(state);
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { address, asked, task }
    }

    /// Starts a server that answers with the request that it received.
    pub async fn echo() -> Self {
        Self::start(|request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            PluginAnswer::json(&json!({ "path": request.path, "got": body }))
        })
        .await
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns configuration lines that allow a gateway to call this server.
    pub fn allowed(&self) -> String {
        format!("[plugins]\nallow_private = [\"{}\"]\n", self.address)
    }

    /// Returns a manifest with one function `run` at `/run`, and the members of `more` added.
    pub fn manifest(&self, identifier: &str, more: Value) -> Value {
        let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
        let api = json!([{ "name": "run", "description": "Runs.", "url": self.url("/run"), "parameters": parameters }]);
        let mut manifest =
            json!({ "identifier": identifier, "meta": { "title": "Test" }, "api": api });
        for (key, value) in more.as_object().unwrap() {
            manifest[key] = value.clone();
        }
        manifest
    }

    /// Returns all requests so far.
    pub fn asked(&self) -> Vec<PluginRequest> {
        self.asked.lock().clone()
    }

    pub fn last(&self) -> PluginRequest {
        self.asked().pop().expect("nobody has asked it")
    }

    /// Stops the server and waits until its port is closed.
    pub async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn respond(State((answer, asked)): State<(Answering, Asked)>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let request = PluginRequest {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: parts.headers,
        body,
    };
    let answer = answer(&request);
    asked.lock().push(request);
    match answer {
        PluginAnswer::Say { status, headers, body } => {
            let mut response = (StatusCode::from_u16(status).unwrap(), body).into_response();
            response.headers_mut().clear();
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            response
        }
        PluginAnswer::Silence => std::future::pending().await,
        PluginAnswer::Endless => {
            let chunks = std::iter::repeat_with(|| {
                Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 4_096]))
            });
            Body::from_stream(futures_util::stream::iter(chunks)).into_response()
        }
    }
}
