//! Plugins over the command line, in a browser, and with real servers.

mod browser_host;
mod demo;
mod echoed_credentials;
mod node_server;
mod private_addresses;
mod registry;
mod settings;
