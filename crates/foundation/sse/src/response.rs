//! The events of an HTTP response.

use crate::{Event, Reader, TooLong};

/// Reads the events of a response one by one.
#[derive(Debug)]
pub struct Events {
    response: reqwest::Response,
    reader: Reader,
}

/// The reason why a stream of events ends early.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    #[error(transparent)]
    Cut(#[from] reqwest::Error),
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

impl Events {
    /// Creates a reader. `most` is the maximum length of an event in bytes.
    pub fn new(response: reqwest::Response, most: usize) -> Self {
        Self { response, reader: Reader::new(most) }
    }

    /// Returns the next event, or `None` at the end of the stream. This method is cancel safe.
    pub async fn next(&mut self) -> Result<Option<Event>, Broken> {
        loop {
            if let Some(event) = self.reader.next_event()? {
                return Ok(Some(event));
            }
            match self.response.chunk().await? {
                Some(bytes) => self.reader.push(&bytes),
                None => return Ok(None),
            }
        }
    }
}
