//! The machine node: files and a shell through a gateway.

mod clients;
mod files;
mod shell;
