//! Official clients of the OpenAI-compatible API, and the keys of models.

mod clients;
mod key_exposure;
