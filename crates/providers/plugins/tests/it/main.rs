//! Tests of the registry of plugins, with a real store and a real web server.

mod budget;
mod calls;
mod documents;
mod errors;
mod gateway;
mod hostile;
mod indexes;
mod inline;
mod oauth;
mod openapi;
mod private_addresses;
mod rates;
mod registry;
mod settings;
mod support;
mod visibility;
