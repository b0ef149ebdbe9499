//! Which packets a tunnel carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::packet::Headers;
use crate::config::DeviceRule;

impl DeviceRule {
    /// Whether a packet of this host's side goes to the peer: its destination is in one of the networks there. Groups, broadcast and
    /// link-local addresses are in none that does not name them: a default route would carry what is meant for this link.
    pub(super) fn sends(&self, headers: &Headers) -> bool {
        let destination = headers.destination;
        self.networks.iter().any(|network| {
            network.contains(&destination) && (!is_of_a_link(destination) || is_narrow(network))
        })
    }

    /// Whether this is an address of this end.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.addr() == address)
    }

    /// Whether this is an address of the tunnel's own network, as the peer's is and those that neither end has.
    pub(super) fn shares(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.contains(&address))
    }

    /// Whether a packet of the peer comes from its side: from a network there, or from an address of the tunnel, as the peer's own. A router
    /// there has any address, and tells of a packet that was on the way to one of the networks.
    pub(super) fn accepts(&self, headers: &Headers) -> bool {
        let is_there = |address: IpAddr| {
            let networks = self.networks.iter().chain(&self.addresses);
            networks.clone().any(|network| network.contains(&address))
        };
        is_there(headers.source) || headers.told_of.is_some_and(is_there)
    }
}

/// Addresses to which routers pass on no packet by default: groups, those of one link, broadcast.
const OF_A_LINK: [IpNet; 5] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::BROADCAST, 32)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0),
        8,
    )),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0),
        10,
    )),
];

fn is_of_a_link(address: IpAddr) -> bool {
    OF_A_LINK.iter().any(|known| known.contains(&address))
}

/// Whether a network has no other addresses than such.
fn is_narrow(network: &IpNet) -> bool {
    OF_A_LINK.iter().any(|known| known.contains(network))
}

#[cfg(test)]
mod tests {
    use etherparse::{Icmpv4Type, PacketBuilder, icmpv4::DestUnreachableHeader};

    use super::*;

    fn rule(networks: &[&str]) -> DeviceRule {
        DeviceRule {
            name: "star0".to_owned(),
            addresses: vec![
                "10.9.0.2/24".parse().unwrap(),
                "fd09::2/64".parse().unwrap(),
            ],
            mtu: 1400,
            networks: networks.iter().map(|text| text.parse().unwrap()).collect(),
            add_routes: true,
        }
    }

    fn udp(from: &str, to: &str) -> Headers {
        let mut packet = Vec::new();
        match (from.parse().unwrap(), to.parse().unwrap()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let headers = PacketBuilder::ipv4(from.octets(), to.octets(), 64).udp(1, 2);
                headers.write(&mut packet, b"x").unwrap();
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let headers = PacketBuilder::ipv6(from.octets(), to.octets(), 64).udp(1, 2);
                headers.write(&mut packet, b"x").unwrap();
            }
            _ => panic!("of two versions"),
        }
        Headers::read(&packet).unwrap()
    }

    /// A router's ICMP error that it cannot pass on a packet from the tunnel to `to`.
    fn too_big(router: [u8; 4], to: [u8; 4]) -> Headers {
        let mut quoted = Vec::new();
        let headers = PacketBuilder::ipv4([10, 9, 0, 2], to, 64).udp(1, 2);
        headers.write(&mut quoted, &[0; 1000]).unwrap();
        let why = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1300 };
        let mut packet = Vec::new();
        PacketBuilder::ipv4(router, [10, 9, 0, 2], 64)
            .icmpv4(Icmpv4Type::DestinationUnreachable(why))
            .write(&mut packet, &quoted[..28])
            .unwrap();
        Headers::read(&packet).unwrap()
    }

    #[test]
    fn a_default_route_carries_nothing_that_is_meant_for_a_link() {
        let all = rule(&["0.0.0.0/0", "::/0"]);
        for (from, to, carried) in [
            ("10.9.0.2", "8.8.8.8", true),
            ("10.9.0.2", "224.0.0.251", false),
            ("10.9.0.2", "255.255.255.255", false),
            ("169.254.1.2", "169.254.1.3", false),
            ("fd09::2", "2001:db8::1", true),
            ("fd09::2", "ff02::fb", false),
            ("fe80::1", "fe80::2", false),
        ] {
            assert_eq!(all.sends(&udp(from, to)), carried, "{to}");
        }
        let groups = rule(&["10.1.0.0/16", "239.0.0.0/8", "224.0.0.0/3"]);
        assert!(groups.sends(&udp("10.9.0.2", "239.1.2.3")));
        // The network reaches beyond the groups.
        assert!(!groups.sends(&udp("10.9.0.2", "224.0.0.251")));
    }

    #[test]
    fn routers_and_the_peer_itself_are_heard_of_packets_to_the_networks() {
        let office = rule(&["192.168.50.0/24"]);
        assert!(office.accepts(&udp("192.168.50.7", "10.9.0.2")));
        assert!(
            office.accepts(&udp("10.9.0.1", "10.9.0.2")),
            "the peer's own"
        );
        assert!(!office.accepts(&udp("192.168.51.7", "10.9.0.2")));
        let (router, there, elsewhere) = ([172, 16, 0, 1], [192, 168, 50, 7], [192, 168, 51, 7]);
        assert!(office.accepts(&too_big(router, there)));
        assert!(!office.accepts(&too_big(router, elsewhere)));
    }
}
