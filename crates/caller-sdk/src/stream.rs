//! Server-sent events, one by one.

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::Value;

pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

pub(crate) struct Events {
    body: BoxStream<'static, reqwest::Result<Vec<u8>>>,
    buffer: Vec<u8>,
}

impl Events {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        let body = response.bytes_stream().map(|part| part.map(|part| part.to_vec())).boxed();
        Self { body, buffer: Vec::new() }
    }

    /// `None` at the end of the stream, however it came.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(event) = read(&String::from_utf8_lossy(&block)) {
                    return Some(event);
                }
            }
            self.buffer.extend(self.body.next().await?.ok()?);
        }
    }
}

/// One event; `None` for a comment, and for what is not JSON.
fn read(block: &str) -> Option<Event> {
    let values = |name: &str| -> Vec<&str> {
        block.lines().filter_map(|line| line.strip_prefix(name)).map(|rest| rest.trim_start_matches(' ')).collect()
    };
    let data = values("data:").join("\n");
    let id = values("id:").first().map(|id| (*id).to_owned());
    Some(Event { id, data: serde_json::from_str(&data).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_and_comments_are_not() {
        let event = read("id: 7\nevent: x\ndata: {\"a\":\ndata: 1}\n\n").unwrap();
        assert_eq!((event.id.as_deref(), event.data), (Some("7"), serde_json::json!({ "a": 1 })));
        assert!(read(": still here\n\n").is_none());
        assert!(read("data: nonsense\n\n").is_none());
    }
}
