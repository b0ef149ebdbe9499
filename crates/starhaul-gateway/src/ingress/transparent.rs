//! `[[tproxy]]`: TCP connections that pass this host are taken, and carried to where they lead.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;
use socket2::SockRef;
use starhaul_net::{Interception, Passing, Routing};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::{
    config::{ConnectionTargets, TransparentTargets},
    open_networks::{prefixes, with_open},
    target::{Host, Target},
};

/// Connections that the kernel keeps until they are accepted, as many as it allows by default (`net.core.somaxconn`): of a burst beyond
/// it each waits a second or is not intercepted.
const BACKLOG: u32 = 4096;

/// A socket that listens, and what leads passing connections to it.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(super) tcp: TcpListener,
    intercepting: Option<(TransparentTargets, Interception)>,
    /// Destinations that connections may have which are open.
    open: Vec<IpNet>,
}

impl Listener {
    /// Listens for connections with these targets; nothing is intercepted before [`Listener::follow`].
    pub(super) fn bind(address: SocketAddr, targets: &ConnectionTargets) -> io::Result<Self> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        if let ConnectionTargets::Transparent(_) = targets {
            make_transparent(SockRef::from(&socket), address)?;
        }
        socket.bind(address)?;
        Ok(Self {
            tcp: socket.listen(BACKLOG)?,
            intercepting: None,
            open: Vec::new(),
        })
    }

    /// Intercepts what these targets ask for from now on, and nothing else.
    ///
    /// # Errors
    /// The system does not allow it; then nothing is intercepted.
    pub(super) async fn follow(&mut self, targets: &ConnectionTargets) -> io::Result<()> {
        let followed = self.start(targets).await;
        if followed.is_err() {
            self.replace(None);
        }
        followed
    }

    /// The one before goes when the next one is there; that waits for other programs.
    fn replace(&mut self, next: Option<(TransparentTargets, Interception)>) {
        if let Some(before) = std::mem::replace(&mut self.intercepting, next) {
            tokio::task::spawn_blocking(move || drop(before));
        }
    }

    async fn start(&mut self, targets: &ConnectionTargets) -> io::Result<()> {
        let ConnectionTargets::Transparent(wanted) = targets else {
            self.replace(None);
            return Ok(());
        };
        let present = self.intercepting.as_ref();
        if present.is_some_and(|(present, _)| present.intercepts_as(wanted)) {
            return Ok(());
        }
        let address = self.tcp.local_addr()?;
        make_transparent(SockRef::from(&self.tcp), address)?;
        let rule = wanted.clone();
        let open = with_open(&wanted.networks, &self.open);
        self.open.clone_from(&open);
        // It waits for other programs.
        let started = tokio::task::spawn_blocking(move || {
            let (networks, open) = (prefixes(&rule.networks), prefixes(&open));
            let passing = Passing {
                networks: &networks,
                open: &open,
                ports: &rule.ports,
                interface: rule.interface.as_deref(),
            };
            Interception::of_connections(address, &passing)
        });
        let started = started.await?.map_err(io::Error::other)?;
        self.replace(Some((wanted.clone(), started)));
        Ok(())
    }
}

fn make_transparent(socket: SockRef<'_>, address: SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true),
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true),
    }
}

/// Where a connection that came to the socket at `listening` leads; an error for one that was made to this host itself, which would
/// lead to us again.
pub(super) fn target(tcp: &TcpStream, listening: SocketAddr) -> io::Result<Target> {
    let address = tcp.local_addr()?;
    // Sockets at [::] take IPv4, too.
    let ip = address.ip().to_canonical();
    if address.port() == listening.port() && is_ours(ip)? {
        return Err(io::Error::other(
            "it was not intercepted: its destination is this host",
        ));
    }
    Ok(Target {
        host: Host::Ip(ip),
        port: address.port(),
    })
}

/// Whether an address is of this host. One without a route, or with one that ends here, is not: the peer may know a way.
fn is_ours(ip: IpAddr) -> io::Result<bool> {
    match Routing::open()?.is_local(ip) {
        Err(error) if is_unroutable(error.kind()) => Ok(false),
        answer => answer,
    }
}

/// Errors for routes that are missing, `unreachable`, `prohibit` and `blackhole`.
const fn is_unroutable(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable
            | ErrorKind::PermissionDenied
            | ErrorKind::InvalidInput
    )
}

#[cfg(test)]
mod tests {
    use starhaul_needs::{Need, skip};

    use super::*;

    #[tokio::test]
    async fn an_ipv4_connection_to_this_host_leads_nowhere_at_a_socket_of_ipv6_too() {
        let listener = match TcpListener::bind("[::]:0").await {
            Ok(listener) => listener,
            Err(error) => return skip(Need::Ipv6, error),
        };
        let listening = listener.local_addr().unwrap();
        let connect = TcpStream::connect(("127.0.0.1", listening.port()));
        let (_client, accepted) = tokio::join!(connect, listener.accept());
        let (tcp, _) = accepted.unwrap();
        assert!(tcp.local_addr().unwrap().is_ipv6());
        let refused = target(&tcp, listening).map(drop).unwrap_err();
        assert!(refused.to_string().contains("is this host"), "{refused}");
    }
}
