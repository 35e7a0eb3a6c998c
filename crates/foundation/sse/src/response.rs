//! The events of a response.

use crate::{Event, Reader, TooLong};

/// The events of a response, one by one.
#[derive(Debug)]
pub struct Events {
    response: reqwest::Response,
    reader: Reader,
}

/// Why a stream of events ends before its time.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    #[error(transparent)]
    Cut(#[from] reqwest::Error),
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

impl Events {
    /// `most` is how long an event may be, in bytes.
    pub fn new(response: reqwest::Response, most: usize) -> Self {
        Self { response, reader: Reader::new(most) }
    }

    /// `None` at the end of the stream. Nothing is lost if this is dropped before it is done.
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
