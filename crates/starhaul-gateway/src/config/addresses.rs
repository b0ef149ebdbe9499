//! The addresses of this host that a configuration uses, so that none is used twice.

use std::net::{IpAddr, SocketAddr};

/// By which sockets an address is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

/// An address that something takes.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) address: SocketAddr,
    pub(super) transport: Transport,
    /// The network interface to which the socket is bound.
    pub(super) interface: Option<String>,
    /// Whether the IPv6 wildcard leaves IPv4 alone: with sockets for peers it does, with those for applications and metrics it does not.
    pub(super) only_v6: bool,
    /// The table that has the address, as messages name it: `rule "web"`.
    pub(super) owner: String,
}

/// All addresses that are taken so far.
#[derive(Debug, Default)]
pub(super) struct Addresses(Vec<Taken>);

impl Addresses {
    /// Takes one more, unless that is taken already; then says by what.
    pub(super) fn take(&mut self, new: Taken) -> Result<(), String> {
        if let Some(old) = self.0.iter().find(|old| old.overlaps(&new)) {
            return Err(format!(
                "{} of {} is taken already: {} has {}",
                new.address, new.owner, old.owner, old.address
            ));
        }
        self.0.push(new);
        Ok(())
    }
}

impl Taken {
    fn overlaps(&self, other: &Self) -> bool {
        let interfaces = match (&self.interface, &other.interface) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        // The kernel chooses another port each time for 0.
        let port = self.address.port();
        port != 0
            && port == other.address.port()
            && self.transport == other.transport
            && interfaces
            && (self.covers(other) || other.covers(self))
    }

    /// Whether what is sent to the address of `other` is sent to this one too.
    fn covers(&self, other: &Self) -> bool {
        let (one, another) = (self.address.ip(), other.address.ip());
        match (one, another) {
            _ if one == another => true,
            (IpAddr::V4(one), IpAddr::V4(_)) => one.is_unspecified(),
            (IpAddr::V6(one), IpAddr::V6(_)) => one.is_unspecified(),
            (IpAddr::V6(one), IpAddr::V4(_)) => one.is_unspecified() && !self.only_v6,
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
        }
    }
}
