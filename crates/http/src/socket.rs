//! Routes for WebSockets.

/// A route that accepts WebSockets.
#[derive(Debug, Clone, Copy)]
pub struct SocketRoute {
    pub path: &'static str,
    /// The clients that connect to it, for error messages.
    pub clients: &'static str,
    /// Whether web pages may connect.
    pub allows_pages: bool,
}
