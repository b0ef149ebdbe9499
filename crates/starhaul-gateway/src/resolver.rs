//! Lookups of names by the system's resolver, at most a given number at once.
//!
//! The system's resolver blocks, for many seconds if no server answers. So each lookup has a detached thread: neither the
//! end of the gateway nor that of the runtime waits for it.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use crate::egress_policy::is_localhost;

/// Longest wait for a lookup.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Stack of a lookup's thread; the resolver and its modules need little.
const STACK_BYTES: usize = 512 << 10;

type Ask = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Looks names up. Clones share the count of lookups under way.
#[derive(Clone)]
pub struct Resolver {
    ask: Arc<Ask>,
    under_way: Arc<AtomicUsize>,
}

/// Why a name has no address now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    /// The resolver reports an error.
    #[error(transparent)]
    Failed(#[from] io::Error),
    /// The resolver does not answer.
    #[error("no answer from the resolver for {0:?}")]
    NoAnswer(Duration),
    /// As many lookups as allowed are under way.
    #[error("{0} lookups are under way already")]
    Busy(usize),
}

impl Resolver {
    /// The system's resolver.
    pub fn system() -> Self {
        Self::new(|name, port| Ok((name, port).to_socket_addrs()?.collect()))
    }

    /// A resolver that calls `ask`, which may block.
    pub fn new(
        ask: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            ask: Arc::new(ask),
            under_way: Arc::default(),
        }
    }

    /// The same resolver with a count of its own, so that the lookups of one do not count for the other.
    pub(crate) fn apart(&self) -> Self {
        Self {
            ask: self.ask.clone(),
            under_way: Arc::default(),
        }
    }

    /// All addresses of a name, with the port; never none. Gives up after [`LOOKUP_TIMEOUT`]. At most `most` lookups are
    /// under way at once, including abandoned ones that the system has not ended yet.
    pub(crate) async fn addresses(
        &self,
        name: &str,
        port: u16,
        most: usize,
    ) -> Result<Vec<SocketAddr>, LookupError> {
        let found = self.addresses_at_last(name, port, most);
        tokio::time::timeout(LOOKUP_TIMEOUT, found)
            .await
            .unwrap_or(Err(LookupError::NoAnswer(LOOKUP_TIMEOUT)))
    }

    /// As [`Resolver::addresses`], without a time limit.
    pub(crate) async fn addresses_at_last(
        &self,
        name: &str,
        port: u16,
        most: usize,
    ) -> Result<Vec<SocketAddr>, LookupError> {
        if is_localhost(name) {
            let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            return Ok(loopback.map(|ip| SocketAddr::new(ip, port)).to_vec());
        }
        let slot = LookupSlot::take(&self.under_way, most).ok_or(LookupError::Busy(most))?;
        let (sender, answer) = oneshot::channel();
        let (ask, name) = (self.ask.clone(), name.to_owned());
        std::thread::Builder::new()
            .name("lookup".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let found = ask(&name, port);
                drop(slot);
                // Fails when the caller has given up.
                let _ = sender.send(found);
            })?;
        let found = answer
            .await
            .map_err(|_| io::Error::other("the lookup ended without an answer"))??;
        if found.is_empty() {
            return Err(io::Error::other("the name has no address").into());
        }
        Ok(found)
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::system()
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver")
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

/// Counts one lookup until its thread ends.
struct LookupSlot(Arc<AtomicUsize>);

impl LookupSlot {
    fn take(under_way: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let more = |count: usize| (count < most).then_some(count + 1);
        let taken = under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Self(under_way.clone()))
    }
}

impl Drop for LookupSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;

    #[tokio::test]
    async fn lookups_beyond_the_bound_are_refused_until_one_ends() {
        let (let_go, held) = mpsc::channel::<()>();
        let held = Mutex::new(held);
        let resolver = Resolver::new(move |_, port| {
            let _ = held.lock().map(|held| held.recv());
            Ok(vec![SocketAddr::from(([192, 0, 2, 1], port))])
        });
        let first = tokio::spawn({
            let resolver = resolver.clone();
            async move { resolver.addresses("one.test", 1, 1).await }
        });
        while resolver.under_way.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let busy = resolver.addresses("two.test", 1, 1).await;
        assert!(matches!(busy, Err(LookupError::Busy(1))), "{busy:?}");
        assert!(resolver.addresses("a.localhost", 1, 0).await.is_ok());
        let_go.send(()).unwrap();
        assert_eq!(first.await.unwrap().unwrap().len(), 1);
        let_go.send(()).unwrap();
        assert!(resolver.addresses("two.test", 1, 1).await.is_ok());
    }
}
