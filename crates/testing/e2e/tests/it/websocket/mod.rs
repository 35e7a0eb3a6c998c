//! Autobahn's test suite, against the gateway and its clients.

mod clients;
mod gateway;
mod suite;
