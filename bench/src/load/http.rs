//! Requests over HTTP/1.1, with one keep-alive connection for each request in flight.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{Latencies, Sample};

#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) server: SocketAddr,
    pub(crate) path: String,
    pub(crate) token: String,
    pub(crate) body: Bytes,
    /// Headers in addition to those of every request.
    pub(crate) headers: Vec<(&'static str, String)>,
}

type Connection =
    (http1::SendRequest<Full<Bytes>>, http1::Connection<TokioIo<TcpStream>, Full<Bytes>>);

impl Target {
    pub(super) async fn load(&self, in_flight: usize, length: Duration) -> anyhow::Result<Sample> {
        let mut lanes = Vec::new();
        for _ in 0..in_flight {
            lanes.push(connect(self.server).await?);
        }
        super::run(lanes, length, |lane, end| drive(self.clone(), lane, end)).await
    }

    /// Sends this number of requests one after the other, and returns the last response as text.
    pub(crate) async fn send(&self, times: usize) -> anyhow::Result<String> {
        let (mut sender, connection) = connect(self.server).await?;
        let requests = async {
            let mut last = Bytes::new();
            for _ in 0..times {
                sender.ready().await?;
                last = whole(sender.send_request(self.request(Method::POST)?).await?).await?;
            }
            Ok(String::from_utf8_lossy(&last).into_owned())
        };
        tokio::select! {
            biased;
            last = requests => last,
            ended = connection => anyhow::bail!("the connection ended: {ended:?}"),
        }
    }

    fn request(&self, method: Method) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(method)
            .uri(&*self.path)
            .header(header::HOST, self.server.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        Ok(request.body(Full::new(self.body.clone()))?)
    }
}

async fn connect(server: SocketAddr) -> anyhow::Result<Connection> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    Ok(http1::handshake(TokioIo::new(stream)).await?)
}

/// Runs the connection and its client in one task. A driver that passes requests between tasks
/// would measure its own overhead.
async fn drive(
    target: Target,
    (mut sender, connection): Connection,
    end: Instant,
) -> anyhow::Result<Latencies> {
    let requests = async {
        let mut latencies = Latencies::new();
        while Instant::now() < end {
            let request = target.request(Method::POST)?;
            let start = Instant::now();
            sender.ready().await?;
            whole(sender.send_request(request).await?).await?;
            latencies.record(start);
        }
        Ok(latencies)
    };
    tokio::select! {
        biased;
        latencies = requests => latencies,
        ended = connection => anyhow::bail!("the connection ended: {ended:?}"),
    }
}

async fn whole(response: Response<Incoming>) -> anyhow::Result<Bytes> {
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    anyhow::ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}

/// Sends a single GET request.
pub(crate) async fn get(
    server: SocketAddr,
    path: &str,
    token: &str,
) -> anyhow::Result<serde_json::Value> {
    ask(Method::GET, server, path, token, String::new()).await
}

/// Sends a single POST request.
pub(crate) async fn post(
    server: SocketAddr,
    path: &str,
    token: &str,
    body: String,
) -> anyhow::Result<serde_json::Value> {
    ask(Method::POST, server, path, token, body).await
}

async fn ask(
    method: Method,
    server: SocketAddr,
    path: &str,
    token: &str,
    body: String,
) -> anyhow::Result<serde_json::Value> {
    let (mut sender, connection) = connect(server).await?;
    let target = Target {
        server,
        path: path.to_owned(),
        token: token.to_owned(),
        body: body.into(),
        headers: Vec::new(),
    };
    let answer = async { whole(sender.send_request(target.request(method)?).await?).await };
    let body = tokio::select! {
        biased;
        body = answer => body?,
        ended = connection => anyhow::bail!("the connection ended: {ended:?}"),
    };
    Ok(serde_json::from_slice(&body)?)
}
