//! Which datagrams leave whole toward a neighbour. Segmentation offload makes no fragments: a batch of greater ones is refused, and the socket
//! alone would then send everything one by one, to whomever.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use rustix::net::sockopt;
use socket2::{Domain, Socket, Type};

/// Routes and interfaces change: the kernel is asked again after so long.
const KNOWN: Duration = Duration::from_secs(10);
/// Hosts that are remembered at most: more than neighbours.
const MOST: usize = 1024;
/// Headers of IP and UDP.
const HEADERS_V4: usize = 28;
const HEADERS_V6: usize = 48;

/// The greatest datagrams by host.
#[derive(Debug, Default)]
pub(crate) struct Mtus(HashMap<IpAddr, Known>);

#[derive(Clone, Copy, Debug)]
struct Known {
    at: Instant,
    /// Bytes of UDP payload, if the kernel says so.
    most: Option<usize>,
    /// Batches of datagrams of so many bytes or more are refused.
    refused: usize,
}

impl Mtus {
    /// Whether a batch of datagrams of so many bytes of UDP payload leaves toward a host: each whole. Where the kernel does not say, it is
    /// taken to.
    pub(crate) fn carry(&mut self, now: Instant, to: SocketAddr, bytes: usize) -> bool {
        let known = self.known(now, to);
        bytes < known.refused && known.most.is_none_or(|most| bytes <= most)
    }

    /// Bytes of an IP packet that leaves whole toward a host, if the kernel says so.
    #[cfg(feature = "ltp")]
    pub(crate) fn toward(&mut self, now: Instant, to: SocketAddr) -> Option<usize> {
        Some(self.known(now, to).most? + headers(to))
    }

    fn known(&mut self, now: Instant, to: SocketAddr) -> Known {
        if let Some(known) = self.recent(now, to) {
            return known;
        }
        let known = Known {
            at: now,
            most: most_toward(to),
            refused: usize::MAX,
        };
        self.remember(to.ip(), known);
        known
    }

    fn recent(&self, now: Instant, to: SocketAddr) -> Option<Known> {
        let known = self.0.get(&to.ip()).copied();
        known.filter(|known| now.saturating_duration_since(known.at) < KNOWN)
    }

    /// A batch of datagrams of so many bytes was refused though they were taken to leave whole: the route has changed since, so that the kernel
    /// is asked again, or it takes no batches. What the path carries does not follow from it.
    pub(crate) fn note_refused(&mut self, now: Instant, to: SocketAddr, bytes: usize) {
        let before = self.recent(now, to).map(|known| known.refused);
        let known = Known {
            at: now,
            most: most_toward(to),
            refused: before.map_or(bytes, |before| before.min(bytes)),
        };
        self.remember(to.ip(), known);
    }

    fn remember(&mut self, host: IpAddr, known: Known) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(host, known);
    }
}

/// What the MTU of the route to a host leaves for UDP payload.
fn most_toward(to: SocketAddr) -> Option<usize> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None).ok()?;
    // `connect` sends nothing.
    socket.connect(&to.into()).ok()?;
    let mtu = match to {
        SocketAddr::V4(_) => sockopt::ip_mtu(&socket),
        SocketAddr::V6(_) => sockopt::ipv6_mtu(&socket),
    };
    usize::try_from(mtu.ok()?).ok()?.checked_sub(headers(to))
}

/// Bytes of the headers of IP and UDP.
fn headers(to: SocketAddr) -> usize {
    match to {
        SocketAddr::V4(_) => HEADERS_V4,
        SocketAddr::V6(_) => HEADERS_V6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_mtu_towards_one_host_counts_for_no_other() {
        let now = Instant::now();
        let [near, tunnel] = [1, 2].map(|host| SocketAddr::from(([127, 0, 0, host], 9)));
        let mut mtus = Mtus::default();
        let known = Known {
            at: now,
            most: Some(1372),
            refused: usize::MAX,
        };
        mtus.0.insert(tunnel.ip(), known);
        assert!(mtus.carry(now, tunnel, 1372) && !mtus.carry(now, tunnel, 1373));
        assert!(mtus.carry(now, near, 1472), "loopback has more");
        let later = now + KNOWN;
        assert!(mtus.carry(later, tunnel, 1472), "the kernel is asked again");
        // What the kernel refuses counts more than what it said.
        mtus.note_refused(later, near, 1472);
        assert!(mtus.carry(later, near, 1471) && !mtus.carry(later, near, 1472));
        assert!(mtus.carry(later, tunnel, 1472), "no other host");
        assert!(mtus.carry(later + KNOWN, near, 1472), "nor for ever");
        for host in 0..2000_u32 {
            mtus.carry(now, SocketAddr::from((host.to_be_bytes(), 9)), 1472);
        }
        assert!(mtus.0.len() <= MOST);
    }

    /// A route through IPsec takes no batches at all: sizes that follow the MTU would shrink with each batch, and grow with each question.
    #[cfg(feature = "ltp")]
    #[test]
    fn batches_that_are_refused_say_nothing_of_the_path() {
        let (now, near) = (Instant::now(), SocketAddr::from(([127, 0, 0, 1], 9)));
        let mut mtus = Mtus::default();
        let mtu = mtus.toward(now, near);
        assert!(mtu.is_some());
        for bytes in [1420, 1000, 1200] {
            mtus.note_refused(now, near, bytes);
            assert_eq!(mtus.toward(now, near), mtu, "{bytes}");
        }
        assert!(mtus.carry(now, near, 999) && !mtus.carry(now, near, 1000));
    }
}
