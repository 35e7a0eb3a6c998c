//! Name resolution that checks every address before it is used.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::error::{Forbidden, Unresolved};

/// Resolves names to addresses.
pub trait Resolver: Send + Sync + 'static {
    fn resolve(&self, host: &str) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: &str) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> {
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Resolves a name only if all of its addresses are public. A name with both kinds of addresses is
/// suspicious, and the client would try one after another.
pub(crate) struct Guarded {
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) is_public: fn(IpAddr) -> bool,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (asked, is_public, host) =
            (self.resolver.resolve(name.as_str()), self.is_public, name.as_str().to_owned());
        Box::pin(async move {
            let addresses = known(asked.await)?;
            if addresses.iter().any(|address| !is_public(*address)) {
                return Err(Forbidden { host, address: None }.into());
            }
            Ok(sockets(addresses))
        })
    }
}

/// Resolves names that the operator has allowed, whatever their addresses are.
pub(crate) struct Unguarded {
    pub(crate) resolver: Arc<dyn Resolver>,
}

impl Resolve for Unguarded {
    fn resolve(&self, name: Name) -> Resolving {
        let asked = self.resolver.resolve(name.as_str());
        Box::pin(async move { Ok(sockets(known(asked.await)?)) })
    }
}

fn known(answer: std::io::Result<Vec<IpAddr>>) -> Result<Vec<IpAddr>, Unresolved> {
    let addresses = answer.map_err(|error| Unresolved(error.to_string()))?;
    if addresses.is_empty() { Err(Unresolved("it has no address".into())) } else { Ok(addresses) }
}

fn sockets(addresses: Vec<IpAddr>) -> Addrs {
    Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)))
}
