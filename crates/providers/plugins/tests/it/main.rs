//! Tests of the registry of plugins, with a real store and a real web server.

mod budget;
mod documents;
mod indexes;
mod inline;
mod support;
