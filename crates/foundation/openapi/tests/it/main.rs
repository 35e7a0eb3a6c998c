//! Tests of documents, and of the requests that their calls send.

mod arguments;
mod bodies;
mod documents;
mod hostile;
mod lifting;
mod refs;
mod security;
mod servers;
mod styles;
mod support;
mod swagger;
mod wild;
