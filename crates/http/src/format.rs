//! Errors of routes whose clients expect another format than a [`Problem`].

use axum::response::Response;

use crate::Problem;

/// The errors of some routes, as the OpenAPI document describes them.
#[derive(Debug, Clone, Copy)]
pub struct ErrorFormat {
    /// The paths of the routes, as in the document.
    pub paths: &'static [&'static str],
    /// The media types of an error, with the names of their schemas.
    pub schemas: &'static [(&'static str, &'static str)],
}

/// The routes of a protocol that other programs define.
#[derive(Debug, Clone, Copy)]
pub struct ForeignRoutes<'a> {
    pub paths: &'static [&'static str],
    /// Formats an error for the clients.
    pub render: fn(&Problem) -> Response,
    /// The origins of web pages that may use these routes, and no other.
    pub origins: &'a [String],
    /// The configuration key of this list.
    pub origins_key: &'static str,
}
