//! Servers with scripted responses, and names with scripted addresses.
#![allow(dead_code)] // Each test file uses a part of this module.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sa_egress::{Egress, Options, Request, Resolver};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use url::Url;

pub(crate) fn egress(
    allow_private: &[&str],
    names: Names,
    is_public: fn(IpAddr) -> bool,
) -> Egress {
    let allow_private = allow_private.iter().map(ToString::to_string).collect();
    let options = Options { allow_private, max_redirects: 5, user_agent: "test" };
    Egress::with(&options, Arc::new(names), is_public).unwrap()
}

pub(crate) fn get(url: Url) -> Request {
    Request::get(url, Duration::from_secs(20), 64 * 1024)
}

/// Treats 127.0.0.2 as the public Internet.
pub(crate) fn rule_for_tests(address: IpAddr) -> bool {
    address == IpAddr::from([127, 0, 0, 2])
}

/// The addresses of each name, one entry for each lookup. The last entry repeats.
#[derive(Clone)]
pub(crate) struct Names(Arc<Mutex<HashMap<String, (usize, Answers)>>>);

type Answers = Vec<Vec<IpAddr>>;

impl Names {
    pub(crate) fn new(names: &[(&str, &[&[&str]])]) -> Self {
        let answers = |answers: &[&[&str]]| {
            let parse = |list: &&[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
            answers.iter().map(parse).collect()
        };
        Self(Arc::new(Mutex::new(
            names.iter().map(|(name, list)| ((*name).to_owned(), (0, answers(list)))).collect(),
        )))
    }

    pub(crate) fn asked(&self, name: &str) -> usize {
        self.0.lock()[name].0
    }
}

impl Resolver for Names {
    fn resolve(&self, host: &str) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        let mut names = self.0.lock();
        let answer = names.get_mut(host).map(|(asked, answers)| {
            *asked += 1;
            answers[(*asked - 1).min(answers.len() - 1)].clone()
        });
        let answer = answer.ok_or_else(|| std::io::Error::other("there is no such name"));
        Box::pin(std::future::ready(answer))
    }
}

/// Answers each request with the test's response to its head. With an empty response, the server
/// stays silent.
pub(crate) struct Server {
    pub(crate) port: u16,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(
        ip: &str,
        answer: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self::start_at(ip, 0, answer).await
    }

    pub(crate) async fn start_at(
        ip: &str,
        port: u16,
        answer: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((ip, port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, requests) =
            (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (counted, seen, answer) =
            (Arc::clone(&connections), Arc::clone(&requests), Arc::new(answer));
        let task = tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                tokio::spawn(async move {
                    let mut buffer = vec![0; 16 * 1024];
                    loop {
                        let Ok(length @ 1..) = socket.read(&mut buffer).await else { return };
                        let head = String::from_utf8_lossy(&buffer[..length]).into_owned();
                        seen.lock().push(head.clone());
                        let text = answer(&head);
                        if socket.write_all(text.as_bytes()).await.is_err()
                            || text.contains("connection: close")
                        {
                            return;
                        }
                        while text.contains("chunked") {
                            let chunk = format!("1000\r\n{}\r\n", "x".repeat(4_096));
                            if socket.write_all(chunk.as_bytes()).await.is_err() {
                                return;
                            }
                        }
                    }
                });
            }
        });
        Self { port, connections, requests, task }
    }

    /// Returns the number of connections that the server has accepted.
    pub(crate) fn hits(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn hits_of_requests(&self) -> usize {
        self.requests.lock().len()
    }

    pub(crate) fn last_request(&self) -> String {
        self.requests.lock().last().cloned().unwrap_or_default()
    }

    /// Stops listening.
    pub(crate) async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

pub(crate) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Returns a response that closes the connection, so that the next request needs a new one.
pub(crate) fn closing(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

pub(crate) fn endless() -> String {
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".into()
}

pub(crate) fn redirect(status: u16, to: &str) -> String {
    format!("HTTP/1.1 {status} Moved\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
}
