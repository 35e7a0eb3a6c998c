//! `/console/`: a page to look at and call the tools with.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse, Redirect};

const PAGE: &str = include_str!("console.html");

/// Nothing but the page itself and requests to this gateway; no frames around it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Where a person who types the gateway's address wants to go.
pub(super) async fn redirect() -> Redirect {
    Redirect::temporary("/console/")
}

/// The page holds no data: it asks for a token, keeps it in the tab alone, and talks to the API with it.
pub(super) async fn page() -> impl IntoResponse {
    let headers: [(HeaderName, HeaderValue); 4] = [
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, Html(PAGE))
}
