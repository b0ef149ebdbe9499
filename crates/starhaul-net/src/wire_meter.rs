//! Bytes on the wire: what a provider counts of a link.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

const IPV4_HEADER_BYTES: usize = 20;
const IPV6_HEADER_BYTES: usize = 40;
const UDP_HEADER_BYTES: usize = 8;

/// The bytes of the IP packets that passed sockets, both ways together, without the headers of the layers below. Clones count
/// together. What the kernel dropped before a socket saw it is not known here.
#[derive(Clone, Debug, Default)]
pub struct WireMeter(Arc<AtomicU64>);

impl WireMeter {
    /// Bytes since it was made.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts UDP datagrams to or from `remote` with this many bytes of payload together.
    pub fn count_udp(&self, remote: IpAddr, datagrams: usize, payload_bytes: usize) {
        let header = ip_header_bytes(remote) + UDP_HEADER_BYTES;
        self.count(datagrams * header + payload_bytes);
    }

    /// Counts one packet to or from `remote` with this many bytes behind its IP header.
    pub(crate) fn count_ip(&self, remote: IpAddr, payload_bytes: usize) {
        self.count(ip_header_bytes(remote) + payload_bytes);
    }

    /// Counts bytes that were counted elsewhere.
    pub fn count(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

fn ip_header_bytes(remote: IpAddr) -> usize {
    match remote.to_canonical() {
        IpAddr::V4(_) => IPV4_HEADER_BYTES,
        IpAddr::V6(_) => IPV6_HEADER_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_datagram_of_a_batch_has_its_own_headers() {
        let meter = WireMeter::default();
        meter.count_udp("192.0.2.1".parse().unwrap(), 3, 3000);
        assert_eq!(meter.bytes(), 3000 + 3 * 28);
        meter.count_udp("2001:db8::1".parse().unwrap(), 2, 2400);
        assert_eq!(meter.bytes(), 3084 + 2400 + 2 * 48);
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        meter.clone().count_ip(mapped, 40);
        assert_eq!(meter.bytes(), 5580 + 60);
    }
}
