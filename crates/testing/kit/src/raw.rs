//! HTTP as raw bytes, for requests that no client library would send.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::{Server, soon};

/// A connection on which a test can write any bytes.
#[derive(Debug)]
pub struct RawHttp {
    pub stream: TcpStream,
}

impl RawHttp {
    pub async fn connect(gateway: &Server) -> Self {
        Self { stream: TcpStream::connect(gateway.address()).await.unwrap() }
    }

    pub async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until the gateway closes the connection.
    pub async fn read_to_end(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = soon(self.stream.read_to_end(&mut bytes)).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends one request with exactly these header lines, and returns the status and the whole
    /// response.
    pub async fn ask(
        gateway: &Server,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (u16, String) {
        let mut raw = Self::connect(gateway).await;
        let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        raw.write(&text).await;
        let answer = raw.read_to_end().await;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, answer)
    }
}
