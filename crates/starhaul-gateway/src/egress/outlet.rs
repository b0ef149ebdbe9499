//! What peers share on their way out: the policy, the resolver, and the bounds on both.

use std::{net::SocketAddr, sync::Arc};

use crate::{
    egress_policy::{CurrentPolicy, EgressPolicy},
    limits::Limits,
    resolver::{LookupError, Resolver},
    socks5::Reply,
    target::{Host, Target},
};

/// One for all peers.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(crate) policy: CurrentPolicy,
    pub(crate) resolver: Resolver,
    pub(crate) limits: Arc<Limits>,
}

/// What one flow may reach: by the policy under which it began.
#[derive(Clone, Debug)]
pub(super) struct Permit {
    pub(super) policy: Arc<EgressPolicy>,
    outlet: Arc<Outlet>,
}

impl Outlet {
    /// For a flow that begins now.
    pub(super) fn permit(self: &Arc<Self>) -> Permit {
        Permit {
            policy: self.policy.get(),
            outlet: self.clone(),
        }
    }
}

impl Permit {
    /// The addresses of a target that `peer` may reach; never none. A name that no rule names is not looked up.
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
