//! Names to addresses, outside of the call.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use palyra_core::EgressHost;
use tokio::sync::Semaphore;

/// Who knows the addresses of a name. Asked only for names that a rule covers.
pub trait Resolve: Send + Sync {
    /// The addresses, the best first.
    ///
    /// # Errors
    /// There is no such name, or nobody could be asked.
    fn lookup<'a>(&'a self, name: &'a EgressHost) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// So many lookups at once, of all calls together. Each takes a thread for as long as the machine's
/// resolver waits, however soon its asker gives up, and the daemon needs its threads for other things.
static LOOKUPS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(32)));

/// The machine's own way, whatever it is set to: `getaddrinfo`.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostResolver;

impl Resolve for HostResolver {
    fn lookup<'a>(&'a self, name: &'a EgressHost) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let turn = Arc::clone(&LOOKUPS).acquire_owned().await;
            let turn = turn.map_err(io::Error::other)?;
            let name = name.as_str().to_owned();
            let looking = tokio::task::spawn_blocking(move || {
                let found = (name.as_str(), 0).to_socket_addrs();
                drop(turn);
                found
            });
            let found = looking.await.map_err(io::Error::other)??;
            let mut addresses: Vec<IpAddr> = found.map(|found| found.ip()).collect();
            addresses.dedup();
            Ok(addresses)
        })
    }
}
