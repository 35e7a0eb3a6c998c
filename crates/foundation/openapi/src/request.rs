//! The HTTP request of a call, and the rules for its parts.

use std::fmt;

use url::Url;

use crate::error::{RequestError, RequestErrorKind};

/// A request that is ready to be sent. Its `Debug` contains no query, no header value and no body,
/// because these may contain secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpRequest {
    pub method: String,
    pub url: Url,
    /// The headers, without control characters. A value may contain non-ASCII characters as UTF-8.
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
}

impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.url.clone();
        if url.query().is_some() {
            url.set_query(Some("…"));
        }
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("HttpRequest")
            .field("method", &self.method)
            .field("url", &url.as_str())
            .field("headers", &headers)
            .field("body_bytes", &self.body.as_ref().map(Vec::len))
            .finish()
    }
}

/// A request under construction.
#[derive(Default)]
pub(crate) struct Draft {
    /// The encoded path with a leading slash.
    path: String,
    /// Encoded pairs.
    pub(crate) query: Vec<(String, String)>,
    /// Encoded pairs.
    pub(crate) cookies: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    pub(crate) body: Option<Vec<u8>>,
}

impl Draft {
    pub(crate) fn new(path: String) -> Self {
        Self { path, ..Self::default() }
    }

    /// Adds a header; a later one with the same name replaces it.
    pub(crate) fn set_header(&mut self, name: &str, value: String) {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value));
    }

    pub(crate) fn finish(mut self, method: &str, base: &Url) -> Result<HttpRequest, RequestError> {
        if !self.cookies.is_empty() {
            let cookies = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
            self.headers.push(("Cookie".to_owned(), cookies.collect::<Vec<_>>().join("; ")));
        }
        let start = base.path().trim_end_matches('/');
        let mut url = base.clone();
        url.set_path(&format!("{start}{}", self.path));
        let mut query: Vec<_> =
            base.query().filter(|query| !query.is_empty()).map(str::to_owned).into_iter().collect();
        query.extend(self.query.iter().map(|(name, value)| match name.as_str() {
            "" => value.clone(),
            name => format!("{name}={value}"),
        }));
        url.set_query((!query.is_empty()).then(|| query.join("&")).as_deref());
        // All parts are encoded. If the encoding ever fails, this check still keeps the request on
        // its server.
        if url.origin() != base.origin() || !url.path().starts_with(start) {
            let message =
                "the arguments would send the request to another server than the document's";
            return Err(RequestError::new(RequestErrorKind::InvalidArgument, "", message));
        }
        Ok(HttpRequest { method: method.to_owned(), url, headers: self.headers, body: self.body })
    }
}

/// Returns whether parameters may not set this header: OpenAPI forbids the first three, and the
/// others belong to the connection.
pub(crate) fn forbidden_header(name: &str) -> bool {
    const FORBIDDEN: [&str; 16] = [
        "accept",
        "authorization",
        "content-type",
        "connection",
        "content-length",
        "cookie",
        "date",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    FORBIDDEN.iter().any(|forbidden| forbidden.eq_ignore_ascii_case(name))
}

/// Returns whether a name is a token according to RFC 9110.
pub(crate) fn header_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Checks a header value. A line break would begin another header, or another request.
pub(crate) fn header_value(value: &str) -> Result<(), &'static str> {
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err("has a line break or another control character, which a header cannot carry");
    }
    Ok(())
}
