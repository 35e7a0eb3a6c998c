//! Reading server-sent events.

use futures_util::StreamExt as _;
use reqwest::Response;

/// One event's name and data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) data: String,
}

/// The events of a response, one by one.
pub(super) struct Events {
    body: futures_util::stream::BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    buffer: Vec<u8>,
}

impl Events {
    pub(super) fn new(response: Response) -> Self {
        Self { body: response.bytes_stream().boxed(), buffer: Vec::new() }
    }

    /// `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, reqwest::Error> {
        loop {
            while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(event) = parse(&String::from_utf8_lossy(&block)) {
                    return Ok(Some(event));
                }
            }
            match self.body.next().await {
                Some(bytes) => self.buffer.extend_from_slice(&bytes?),
                None => return Ok(None),
            }
        }
    }
}

fn parse(block: &str) -> Option<Event> {
    let mut name = "message";
    let mut data: Vec<&str> = Vec::new();
    for line in block.lines() {
        if let Some(value) = line.strip_prefix("event:") {
            name = value.trim_start();
        } else if let Some(value) = line.strip_prefix("data:") {
            data.push(value.strip_prefix(' ').unwrap_or(value));
        }
    }
    (!data.is_empty()).then(|| Event { name: name.to_owned(), data: data.join("\n") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_comments() {
        let done = |data: &str| Some(Event { name: "done".into(), data: data.into() });
        assert_eq!(parse("event: done\ndata: {\"a\":1}\n\n"), done("{\"a\":1}"));
        assert_eq!(parse("event: done\ndata: a\ndata: b\n\n"), done("a\nb"));
        assert_eq!(parse(": still here\n\n"), None);
    }
}
