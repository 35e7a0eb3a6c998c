//! Errors of routes whose clients expect another format than a [`Problem`](crate::Problem).

/// The errors of some routes, as the OpenAPI document describes them.
#[derive(Debug, Clone, Copy)]
pub struct ErrorFormat {
    /// The paths of the routes, as in the document.
    pub paths: &'static [&'static str],
    /// The media types of an error, with the names of their schemas.
    pub schemas: &'static [(&'static str, &'static str)],
}
