//! What the egress flows of all peers share: policy, resolver and bounds.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use crate::{
    egress_policy::{CurrentPolicy, EgressPolicy},
    limits::Limits,
    resolver::{LookupError, Resolver},
    socks5::Reply,
    target::{Host, Target},
    tunnel::Registry,
};

/// Policy, resolver and bounds of egress, for all peers.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(crate) policy: CurrentPolicy,
    pub(crate) resolver: Resolver,
    pub(crate) limits: Arc<Limits>,
    /// The tunnels, for the packets of peers.
    pub(crate) tunnels: Registry,
}

/// Reason for refusing a stream without a slot.
pub(super) const FULL: &str = "the peer has as many streams through us as [egress] allows";

/// The number of streams that one session has through this gateway.
#[derive(Debug, Default)]
pub(super) struct Slots(AtomicUsize);

/// How long an address may be silent before the next one is tried, too (RFC 8305 §8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Counts one of them until dropped.
#[derive(Debug)]
pub(super) struct Slot(Arc<Slots>);

/// The targets that one flow may reach, by the policy under which it began.
#[derive(Clone, Debug)]
pub(super) struct Permit {
    pub(super) policy: Arc<EgressPolicy>,
    outlet: Arc<Outlet>,
}

impl Outlet {
    /// A permit for a flow that begins now.
    pub(super) fn permit(self: &Arc<Self>) -> Permit {
        Permit {
            policy: self.policy.get(),
            outlet: self.clone(),
        }
    }
}

impl Slots {
    /// A slot for one more stream; counts if there is none.
    pub(super) fn take(self: &Arc<Self>, permit: &Permit, peer: &str) -> Option<Slot> {
        let taken = self.take_if_free(permit);
        if taken.is_none() {
            let most = permit.policy.limits.max_streams;
            permit.limits().peer_streams.reach(peer, most);
        }
        taken
    }

    /// The same for one that has waited, which is counted already.
    pub(super) fn take_if_free(self: &Arc<Self>, permit: &Permit) -> Option<Slot> {
        let most = permit.policy.limits.max_streams;
        let one_more = |held: usize| (held < most).then_some(held + 1);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.is_ok().then(|| Slot(self.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Permit {
    /// The addresses of a target that `peer` may reach; at least one. A name that no rule names is not looked up.
    pub(super) async fn addresses(
        &self,
        peer: &str,
        target: &Target,
    ) -> Result<Vec<SocketAddr>, Reply> {
        let Target { host, port } = target;
        let mut found = match host {
            _ if *port == 0 => return Err(Reply::HostUnreachable),
            Host::Ip(ip) => vec![SocketAddr::new(*ip, *port)],
            Host::Name(name) => self.look_up(peer, name, *port).await?,
        };
        found.retain(|address| self.policy.permits(host, address.ip(), *port));
        match found.is_empty() {
            true => Err(Reply::NotAllowed),
            false => Ok(found),
        }
    }

    /// Connects to a target that `peer` may reach, at the first of its addresses where `connect` succeeds. The next address is tried
    /// when one before has failed, or was silent for a while (RFC 8305 §5).
    pub(super) async fn connect<T, F: Future<Output = io::Result<T>>>(
        &self,
        peer: &str,
        target: &Target,
        connect: impl Fn(SocketAddr) -> F,
    ) -> Result<T, Reply> {
        let mut addresses = self.addresses(peer, target).await?.into_iter();
        let mut attempts: Vec<Pin<Box<F>>> = Vec::new();
        let mut last = Reply::HostUnreachable;
        loop {
            match addresses.next() {
                Some(address) => attempts.push(Box::pin(connect(address))),
                None if attempts.is_empty() => return Err(last),
                None => {}
            }
            let is_last = addresses.len() == 0;
            let ended = tokio::select! {
                ended = first(&mut attempts) => ended,
                () = tokio::time::sleep(ATTEMPT_DELAY), if !is_last => continue,
            };
            match ended {
                Ok(connected) => return Ok(connected),
                Err(error) => {
                    self.limits().note_io(peer, &error);
                    last = reply_to(&error);
                }
            }
        }
    }

    async fn look_up(&self, peer: &str, name: &str, port: u16) -> Result<Vec<SocketAddr>, Reply> {
        let is_ours = crate::egress_policy::is_localhost(name);
        if !is_ours && !self.policy.may_look_up(name, port) {
            return Err(Reply::NotAllowed);
        }
        let most = self.policy.limits.max_lookups;
        let found = self.outlet.resolver.addresses(name, port, most).await;
        found.map_err(|error| {
            if let LookupError::Busy(most) = error {
                self.outlet.limits.lookups.reach(peer, most);
            }
            tracing::debug!(peer, name, %error, "a name that the peer asked for has no address");
            Reply::HostUnreachable
        })
    }

    /// The bounds that all peers share.
    pub(super) fn limits(&self) -> &Limits {
        &self.outlet.limits
    }
}

/// The first of some attempts to end, which is taken out of them.
async fn first<F: Future>(attempts: &mut Vec<Pin<Box<F>>>) -> F::Output {
    std::future::poll_fn(|context| {
        for index in 0..attempts.len() {
            if let Some(attempt) = attempts.get_mut(index)
                && let Poll::Ready(ended) = attempt.as_mut().poll(context)
            {
                drop(attempts.swap_remove(index));
                return Poll::Ready(ended);
            }
        }
        Poll::Pending
    })
    .await
}

fn reply_to(error: &io::Error) -> Reply {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Reply::ConnectionRefused,
        io::ErrorKind::NetworkUnreachable => Reply::NetworkUnreachable,
        io::ErrorKind::HostUnreachable | io::ErrorKind::TimedOut => Reply::HostUnreachable,
        _ => Reply::GeneralFailure,
    }
}
