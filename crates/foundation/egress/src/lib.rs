//! The one way out: HTTP to addresses that somebody else has chosen, such as the server of a plugin.
//!
//! Whoever chooses a URL does not choose the network. [`Egress::send`] looks at the address behind every name and at
//! every step of a redirect, and reaches nothing that is not public unless the operator has named that very host and
//! port, for everyone or for whoever sends this request. The address that was looked at is the one that is connected to: a name that is asked a second time, and then
//! points elsewhere, is looked at a second time. Size, time and redirects are bounded, and a request that carries a
//! secret stays at its origin.

mod address;
mod allowed;
mod error;
mod resolver;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
pub use reqwest::header;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
pub use reqwest::{Method, StatusCode};
use tokio::time::Instant;
use url::{Host, Url};

pub use self::address::is_public;
pub use self::allowed::Allowed;
pub use self::error::{EgressError, EgressErrorKind};
use self::resolver::{Guarded, Unguarded};
pub use self::resolver::{Resolver, SystemResolver};

/// Node.js closes a connection that has been idle for five seconds. A request on one that is being closed at that moment
/// would be lost, and must not be sent again.
const POOL_IDLE: Duration = Duration::from_secs(4);
const POOL_PER_HOST: usize = 64;
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
const MAX_URL: usize = 8 * 1024;

#[derive(Debug, Clone)]
pub struct Options {
    /// `host:port` of those that every request may reach though they are not public.
    pub allow_private: Vec<String>,
    /// How many redirects a request may follow.
    pub max_redirects: usize,
    pub user_agent: &'static str,
}

/// A request, and how much may become of it.
#[derive(Clone)]
pub struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether anything in it, wherever that is, is for this origin alone. A redirect to another one is then refused.
    pub secret: bool,
    /// What it may reach beyond what is public, itself and by redirects.
    pub allowed: Allowed,
    /// From the first look at the name to the last byte of the answer, redirects included.
    pub time: Duration,
    /// The largest body that is taken.
    pub max_bytes: usize,
}

#[derive(Debug, Clone)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Where it came from, after redirects.
    pub url: Url,
}

/// The client that goes out. Connections are kept and shared.
pub struct Egress {
    /// For whatever is public.
    guarded: reqwest::Client,
    /// For the hosts and ports that the operator has named. On its own, so that no connection is ever shared.
    named: reqwest::Client,
    allowed: Allowed,
    max_redirects: usize,
    is_public: fn(IpAddr) -> bool,
}

impl Egress {
    pub fn new(options: &Options) -> Result<Self, EgressError> {
        Self::with(options, Arc::new(SystemResolver), is_public)
    }

    /// With a resolver and a rule of one's own, for tests.
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
                .connect_timeout(CONNECT_PATIENCE)
                .pool_idle_timeout(POOL_IDLE)
                .pool_max_idle_per_host(POOL_PER_HOST)
                .user_agent(options.user_agent)
        };
        let broken = |error: reqwest::Error| EgressError::new(EgressErrorKind::Broken, error::innermost(&error));
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

    /// Sends a request and reads the whole answer, whatever its status.
    pub async fn send(&self, request: Request) -> Result<Response, EgressError> {
        let (time, place) = (request.time, origin(&request.url));
        // A connection has a limit of its own, so that what is said about a server that is not there is that.
        let late = || {
            let message = format!("{place} did not answer within {} ms", time.as_millis());
            Err(EgressError::new(EgressErrorKind::Timeout, message).outside([&place]))
        };
        let until = Instant::now() + time;
        Box::pin(tokio::time::timeout_at(until, self.follow(request))).await.unwrap_or_else(|_| late())
    }

    /// Whether a request to this URL could be sent, as far as that can be told without asking for its name.
    pub fn check(&self, url: &Url, allowed: &Allowed) -> Result<(), EgressError> {
        self.client_for(url, allowed).map(drop)
    }

    async fn follow(&self, mut request: Request) -> Result<Response, EgressError> {
        for _ in 0..=self.max_redirects {
            let client = self.client_for(&request.url, &request.allowed)?;
            let mut sent = client.request(request.method.clone(), request.url.clone()).headers(request.headers.clone());
            if !request.body.is_empty() {
                sent = sent.body(request.body.clone());
            }
            let response = sent.send().await.map_err(|error| EgressError::of(&error, &request.url))?;
            let Some(next) = redirect_of(&response, &request.url)? else {
                return read(response, request.url, request.max_bytes).await;
            };
            if request.secret && next.origin() != request.url.origin() {
                let (from, to) = (origin(&request.url), origin(&next));
                let message = format!("{from} redirects to {to}, and what the request carries is for {from} alone");
                return Err(EgressError::new(EgressErrorKind::CrossOrigin, message).outside([&from, &to]));
            }
            // As browsers and fetch do: only 307 and 308 keep the method and the body.
            let keeps = matches!(response.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            if !keeps && request.method != Method::HEAD {
                request.method = Method::GET;
                request.body = Bytes::new();
                for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING] {
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

    /// The client for a URL that may be asked. A literal address never sees the resolver, and so is looked at here.
    fn client_for(&self, url: &Url, allowed: &Allowed) -> Result<&reqwest::Client, EgressError> {
        let bad = |why: &str| Err(EgressError::new(EgressErrorKind::BadUrl, why.to_owned()));
        if url.as_str().len() > MAX_URL {
            return bad(&format!("the URL has more than {MAX_URL} bytes"));
        }
        if !matches!(url.scheme(), "http" | "https") {
            let scheme = format!("\"{}\"", url.scheme());
            let message = format!("only http and https can be reached, not {scheme}");
            return Err(EgressError::new(EgressErrorKind::BadUrl, message).outside([&scheme]));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return bad("a URL with a user name or a password in it is not used");
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
            Some(address) if !(self.is_public)(address) => Err(EgressError::forbidden(&host.to_string(), address)),
            _ => Ok(&self.guarded),
        }
    }
}

/// Scheme, host and port: what a secret belongs to, and what may be said in an error.
pub fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn redirect_of(response: &reqwest::Response, from: &Url) -> Result<Option<Url>, EgressError> {
    let moved = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = response.headers().get(header::LOCATION).filter(|_| moved) else { return Ok(None) };
    let next = std::str::from_utf8(location.as_bytes()).ok().and_then(|text| from.join(text).ok());
    next.map(Some).ok_or_else(|| {
        let place = origin(from);
        let message = format!("{place} redirects to something that is no URL");
        EgressError::new(EgressErrorKind::BadUrl, message).outside([&place])
    })
}

async fn read(mut response: reqwest::Response, url: Url, max: usize) -> Result<Response, EgressError> {
    let too_large = || {
        let place = origin(&url);
        let message = format!("the answer of {place} has more than {max} bytes");
        Err(EgressError::new(EgressErrorKind::TooLarge, message).outside([&place]))
    };
    if response.content_length().is_some_and(|length| length > max as u64) {
        return too_large();
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| EgressError::of(&error, &url))? {
        if body.len() + chunk.len() > max {
            return too_large();
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Response { status: response.status(), headers: response.headers().clone(), body: body.freeze(), url })
}

impl Request {
    /// A `GET` with nothing secret in it.
    pub fn get(url: Url, time: Duration, max_bytes: usize) -> Self {
        let (method, headers, body) = (Method::GET, HeaderMap::new(), Bytes::new());
        Self { method, url, headers, body, secret: false, allowed: Allowed::default(), time, max_bytes }
    }
}

impl Response {
    /// A header of the answer, if it is text.
    pub fn header(&self, name: &header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok())
    }
}

impl fmt::Debug for Request {
    /// Without headers, query and body, any of which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({} {})", self.method, origin(&self.url))
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("allowed", &self.allowed).finish_non_exhaustive()
    }
}
