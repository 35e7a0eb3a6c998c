//! The HTTP client for URLs that other parties have chosen, such as the server of a plugin.
//! This is the only way out of the gateway.
//!
//! The party that chooses a URL must not choose the network. [`Egress::send`] checks the address
//! behind every name, at every step of a redirect. It only connects to public addresses, except for
//! hosts and ports that the operator has named. The operator names them for all requests or for the
//! sender of one request.
//!
//! The client connects to the same address that was checked. A second lookup of a name is checked
//! again, because the name may then point elsewhere. Size, time and redirects are bounded. A
//! request that carries a secret stays at its origin.

mod address;
mod allowed;
mod error;
mod resolver;
mod typed;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
pub use reqwest::header;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
pub use reqwest::{Method, StatusCode};
use sa_limits::budget::Share;
use sa_limits::received::{Held, Received};
use tokio::time::Instant;
use url::{Host, Url};

pub use self::address::is_public;
pub use self::allowed::Allowed;
pub use self::error::{EgressError, EgressErrorKind};
use self::resolver::{Guarded, Unguarded};
pub use self::resolver::{Resolver, SystemResolver};
pub use self::typed::http_url;

/// Node.js closes a connection that has been idle for five seconds. A request on a connection that
/// is being closed would be lost, and must not be sent again.
const POOL_IDLE: Duration = Duration::from_secs(4);
const POOL_PER_HOST: usize = 64;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_URL: usize = 8 * 1024;

#[derive(Debug, Clone)]
pub struct Options {
    /// `host:port` entries that every request may reach although they are not public.
    pub allow_private: Vec<String>,
    /// The maximum number of redirects that a request follows.
    pub max_redirects: usize,
    pub user_agent: &'static str,
}

/// A request and its limits.
#[derive(Clone)]
pub struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether any part of the request is a secret for this origin alone. A redirect to another
    /// origin is then refused.
    pub secret: bool,
    /// The private destinations that this request may reach, directly and by redirects.
    pub allowed: Allowed,
    /// The timeout from the first name lookup to the last byte of the response, redirects included.
    pub time: Duration,
    /// The maximum size of the response body.
    pub max_bytes: usize,
    /// The share of the budget for answers from which a large response takes.
    pub answers: Option<Share>,
}

#[derive(Debug, Clone)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The URL of the response, after redirects.
    pub url: Url,
    /// The part of the budget that the body holds.
    pub held: Held,
}

/// The outgoing client. Connections are pooled and shared.
pub struct Egress {
    /// The client for public addresses.
    guarded: reqwest::Client,
    /// The client for the hosts and ports that the operator has named. It is separate, so that
    /// connections are never shared with the other client.
    named: reqwest::Client,
    allowed: Allowed,
    max_redirects: usize,
    is_public: fn(IpAddr) -> bool,
}

impl Egress {
    pub fn new(options: &Options) -> Result<Self, EgressError> {
        Self::with(options, Arc::new(SystemResolver), is_public)
    }

    /// Creates a client with another resolver and another rule for public addresses, for tests.
    pub fn with(
        options: &Options,
        resolver: Arc<dyn Resolver>,
        is_public: fn(IpAddr) -> bool,
    ) -> Result<Self, EgressError> {
        let allowed = Allowed::parse(&options.allow_private);
        let allowed = allowed.map_err(|why| EgressError::new(EgressErrorKind::BadUrl, why))?;
        let builder = || {
            reqwest::Client::builder()
                .no_proxy()
                .redirect(Policy::none())
                .referer(false)
                .retry(reqwest::retry::never())
                .tcp_nodelay(true)
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(POOL_IDLE)
                .pool_max_idle_per_host(POOL_PER_HOST)
                .user_agent(options.user_agent)
        };
        let broken = |error: reqwest::Error| {
            EgressError::new(EgressErrorKind::Broken, error::innermost(&error))
        };
        Ok(Self {
            guarded: builder()
                .dns_resolver(Guarded { resolver: Arc::clone(&resolver), is_public })
                .build()
                .map_err(broken)?,
            named: builder().dns_resolver(Unguarded { resolver }).build().map_err(broken)?,
            allowed,
            max_redirects: options.max_redirects,
            is_public,
        })
    }

    /// Sends a request and reads the whole response, whatever its status.
    pub async fn send(&self, request: Request) -> Result<Response, EgressError> {
        let (time, place) = (request.time, origin(&request.url));
        // The connect timeout is separate and shorter, so that an unreachable server is reported as
        // unreachable.
        let late = || {
            let message = format!("{place} did not answer within {} ms", time.as_millis());
            Err(EgressError::new(EgressErrorKind::Timeout, message).outside([&place]))
        };
        let until = Instant::now() + time;
        Box::pin(tokio::time::timeout_at(until, self.follow(request)))
            .await
            .unwrap_or_else(|_| late())
    }

    /// Checks whether a request to this URL could be sent, without a name lookup.
    pub fn check(&self, url: &Url, allowed: &Allowed) -> Result<(), EgressError> {
        self.client_for(url, allowed).map(drop)
    }

    async fn follow(&self, mut request: Request) -> Result<Response, EgressError> {
        for _ in 0..=self.max_redirects {
            let client = self.client_for(&request.url, &request.allowed)?;
            let mut sent = client
                .request(request.method.clone(), request.url.clone())
                .headers(request.headers.clone());
            if !request.body.is_empty() {
                sent = sent.body(request.body.clone());
            }
            let response =
                sent.send().await.map_err(|error| EgressError::of(&error, &request.url))?;
            let Some(next) = redirect_of(&response, &request.url)? else {
                return read(response, request).await;
            };
            if request.secret && next.origin() != request.url.origin() {
                let (from, to) = (origin(&request.url), origin(&next));
                let message = format!(
                    "{from} redirects to {to}, but the request contains a secret for {from} only"
                );
                return Err(
                    EgressError::new(EgressErrorKind::CrossOrigin, message).outside([&from, &to])
                );
            }
            // As in browsers and `fetch`, only 307 and 308 keep the method and the body.
            let keeps = matches!(
                response.status(),
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
            );
            if !keeps && request.method != Method::HEAD {
                request.method = Method::GET;
                request.body = Bytes::new();
                for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING]
                {
                    request.headers.remove(name);
                }
            }
            if next.origin() != request.url.origin() {
                for name in [header::AUTHORIZATION, header::COOKIE] {
                    request.headers.remove(name);
                }
            }
            request.url = next;
        }
        let place = origin(&request.url);
        let message = format!("{place} redirects more than {} times", self.max_redirects);
        Err(EgressError::new(EgressErrorKind::TooManyRedirects, message).outside([&place]))
    }

    /// Returns the client for a URL, if the URL is allowed. A literal address never reaches the
    /// resolver, so it is checked here.
    fn client_for(&self, url: &Url, allowed: &Allowed) -> Result<&reqwest::Client, EgressError> {
        let bad = |why: &str| Err(EgressError::new(EgressErrorKind::BadUrl, why.to_owned()));
        if url.as_str().len() > MAX_URL {
            return bad(&format!("the URL has more than {MAX_URL} bytes"));
        }
        if !matches!(url.scheme(), "http" | "https") {
            let scheme = format!("\"{}\"", url.scheme());
            let message = format!("only http and https URLs are supported, not {scheme}");
            return Err(EgressError::new(EgressErrorKind::BadUrl, message).outside([&scheme]));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return bad("a URL must not contain a user name or a password");
        }
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return bad("the URL has no host");
        };
        if self.allowed.has(&host, port) || allowed.has(&host, port) {
            return Ok(&self.named);
        }
        let literal = match host {
            Host::Ipv4(address) => Some(IpAddr::from(address)),
            Host::Ipv6(address) => Some(IpAddr::from(address)),
            Host::Domain(_) => None,
        };
        match literal {
            Some(address) if !(self.is_public)(address) => {
                Err(EgressError::forbidden(&host.to_string(), address))
            }
            _ => Ok(&self.guarded),
        }
    }
}

/// Returns scheme, host and port. A secret belongs to one origin, and errors may contain it.
pub fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn redirect_of(response: &reqwest::Response, from: &Url) -> Result<Option<Url>, EgressError> {
    let moved = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = response.headers().get(header::LOCATION).filter(|_| moved) else {
        return Ok(None);
    };
    let next = std::str::from_utf8(location.as_bytes()).ok().and_then(|text| from.join(text).ok());
    next.map(Some).ok_or_else(|| {
        let place = origin(from);
        let message = format!("{place} redirects to an invalid URL");
        EgressError::new(EgressErrorKind::BadUrl, message).outside([&place])
    })
}

async fn read(mut response: reqwest::Response, request: Request) -> Result<Response, EgressError> {
    let Request { url, max_bytes: max, answers, .. } = request;
    let too_large = || {
        let place = origin(&url);
        let message = format!("the response of {place} has more than {max} bytes");
        Err(EgressError::new(EgressErrorKind::TooLarge, message).outside([&place]))
    };
    let length = response.content_length().unwrap_or_default();
    if length > max as u64 {
        return too_large();
    }
    let mut received = answers.map_or_else(Received::uncounted, Received::counted);
    received.grow(length as usize).map_err(EgressError::refused)?;
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| EgressError::of(&error, &url))? {
        if body.len() + chunk.len() > max {
            return too_large();
        }
        received.grow(body.len() + chunk.len()).map_err(EgressError::refused)?;
        body.extend_from_slice(&chunk);
    }
    Ok(Response {
        status: response.status(),
        headers: response.headers().clone(),
        body: body.freeze(),
        url,
        held: received.into_held(),
    })
}

impl Request {
    /// Returns a `GET` request without a secret.
    pub fn get(url: Url, time: Duration, max_bytes: usize) -> Self {
        let (method, headers, body) = (Method::GET, HeaderMap::new(), Bytes::new());
        Self {
            method,
            url,
            headers,
            body,
            secret: false,
            allowed: Allowed::default(),
            time,
            max_bytes,
            answers: None,
        }
    }
}

impl Response {
    /// Returns a header of the response, if it is text.
    pub fn header(&self, name: &header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok())
    }
}

impl fmt::Debug for Request {
    /// Omits headers, query and body, because any of them may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({} {})", self.method, origin(&self.url))
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("allowed", &self.allowed).finish_non_exhaustive()
    }
}
