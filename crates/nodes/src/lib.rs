//! Nodes on a WebSocket become providers.
