//! From a path's description to its socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use starhaul_cc::ControllerConfig;
use starhaul_net::{BindOptions, UdpSocket, prober::ProberConfig};
use starhaul_quic::{LinkKind, LocalId, PathConfig};

use crate::{Detection, Error};

/// A path to open.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// Name for people, unique in its session.
    pub name: String,
    /// Local address to send from; `None` lets the kernel choose.
    pub local: Option<SocketAddr>,
    /// Network interface to bind to (`SO_BINDTODEVICE`).
    pub interface: Option<String>,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Price per byte; only the order matters.
    pub cost: f64,
    /// Over what it leads; the peer chooses the controller of its direction by that.
    pub link: LinkKind,
    /// Controller of our direction.
    pub controller: ControllerConfig,
    /// How to watch its satellite hop for reconfigurations; `None` where there is none, or nobody cares.
    pub detection: Option<Detection>,
}

impl PathSpec {
    /// A path over whatever route the kernel chooses, with Cubic.
    pub fn new(name: impl Into<String>, remote: SocketAddr) -> Self {
        Self {
            name: name.into(),
            local: None,
            interface: None,
            remote,
            cost: 1.0,
            link: LinkKind::Other,
            controller: ControllerConfig::Cubic,
            detection: None,
        }
    }

    /// What watching it in this way asks of a prober.
    pub(crate) fn prober(&self, detection: &Detection) -> ProberConfig {
        let local = self.local.map(|local| local.ip());
        detection.prober(self.remote, local, self.interface.clone())
    }
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

pub(crate) fn path_config(path: PathSpec, local: LocalId) -> PathConfig {
    PathConfig {
        name: path.name,
        local,
        remote: path.remote,
        cost: path.cost,
        link: path.link,
        controller: path.controller,
    }
}
