//! Names to addresses, outside of the call.

use std::io;
use std::net::IpAddr;

use futures::future::BoxFuture;
use palyra_core::EgressHost;

/// Who knows the addresses of a name. Asked only for names that a rule covers.
pub trait Resolve: Send + Sync {
    /// The addresses, the best first.
    ///
    /// # Errors
    /// There is no such name, or nobody could be asked.
    fn lookup<'a>(&'a self, name: &'a EgressHost) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The machine's own way, whatever it is set to: `getaddrinfo`.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostResolver;

impl Resolve for HostResolver {
    fn lookup<'a>(&'a self, name: &'a EgressHost) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let mut addresses: Vec<IpAddr> = found.map(|found| found.ip()).collect();
            addresses.dedup();
            Ok(addresses)
        })
    }
}
