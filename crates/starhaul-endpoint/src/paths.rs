//! The socket and the prober of a path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use starhaul_cc::Detection;
use starhaul_net::{
    BindOptions, UdpSocket,
    prober::{ProberConfig, Via},
};
use starhaul_quic::PathSpec;

use crate::Error;

/// What a prober of a path from `local` over `interface` to `remote` is to do.
pub(crate) fn prober(
    detection: Detection,
    remote: SocketAddr,
    local: Option<SocketAddr>,
    interface: Option<String>,
) -> ProberConfig {
    let local = local.map(|local| local.ip());
    ProberConfig {
        detection,
        toward: Some(remote),
        via: Via {
            local: local.filter(|local| !local.is_unspecified()),
            interface,
        },
    }
}

/// What the prober of a path of ours is to do, if it has one.
pub(crate) fn own_prober(path: &PathSpec) -> Option<ProberConfig> {
    let interface = path.interface.clone();
    path.detection
        .map(|detection| prober(detection, path.remote, path.local, interface))
}

/// A socket, or why there is none yet.
pub(crate) type BoundSocket = Result<UdpSocket, starhaul_net::Error>;

/// Binds the path's socket. An address or interface that is not there (yet) is no error: the driver tries again.
pub(crate) fn bind(path: &PathSpec) -> Result<(BoundSocket, BindOptions), Error> {
    let wildcard = match path.remote {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let address = path.local.unwrap_or(SocketAddr::new(wildcard, 0));
    if address.is_ipv4() != path.remote.is_ipv4() {
        return Err(Error::AddressFamily {
            path: path.name.clone(),
            local: address,
            remote: path.remote,
        });
    }
    let mut options = BindOptions::new(address);
    options.interface.clone_from(&path.interface);
    let socket = UdpSocket::bind(&options);
    if let Err(error) = &socket {
        tracing::warn!(path = path.name, %error, "path has no socket yet, will try again");
    }
    Ok((socket, options))
}
