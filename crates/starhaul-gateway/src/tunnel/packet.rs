//! IP packets: what a class is chosen by, congestion marks, and the ICMP messages that tell a sender of a failure.

use std::net::IpAddr;

use etherparse::{
    Icmpv4Type, Icmpv6Type, IpFragOffset, LaxNetSlice, LaxSlicedPacket, PacketBuilder,
    TransportSlice, icmpv4, icmpv6,
};

/// Longest ICMP error over IPv4 (RFC 1812 §4.3.2.3); over IPv6 it is 1280 (RFC 4443 §3.1).
const MAX_ICMP4_BYTES: usize = 576;
const MAX_ICMP6_BYTES: usize = 1280;
const IPV4_ICMP_HEADERS: usize = 28;
const IPV6_ICMP_HEADERS: usize = 48;
const TTL: u8 = 64;

/// Protocol numbers of IP.
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// What the headers of a packet say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Address of the sender.
    pub source: IpAddr,
    /// Address of the receiver.
    pub destination: IpAddr,
    /// Protocol number, behind IPv6 extension headers.
    pub protocol: u8,
    /// DiffServ code point.
    pub dscp: u8,
    /// Source and destination of UDP and TCP; `None` also in fragments, which do not carry them all.
    pub ports: Option<(u16, u16)>,
    is_first_fragment: bool,
    is_icmp_error: bool,
    /// Of an ICMP error: the destination of the packet of which it tells.
    pub(crate) told_of: Option<IpAddr>,
}

/// Why a packet cannot be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// There is no session with the peer.
    NoRoute,
    /// The destination is of the tunnel's own network, and neither end has it (RFC 4443 §3.1).
    NoHost,
    /// The destination is in none of the networks behind the peer.
    Prohibited,
}

impl Headers {
    /// Reads a packet as it comes from a TUN device; `None` if it is no whole IPv4 or IPv6 packet.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let sliced = LaxSlicedPacket::from_ip(packet).ok()?;
        let (source, destination, dscp, payload, is_first_fragment) = match sliced.net.as_ref()? {
            LaxNetSlice::Ipv4(ip) => {
                let header = ip.header();
                if usize::from(header.total_len()) != packet.len() {
                    return None;
                }
                (
                    header.source_addr().into(),
                    header.destination_addr().into(),
                    header.dcp().value(),
                    ip.payload().clone(),
                    header.fragments_offset() == IpFragOffset::ZERO,
                )
            }
            LaxNetSlice::Ipv6(ip) => {
                let header = ip.header();
                (
                    header.source_addr().into(),
                    header.destination_addr().into(),
                    header.dscp().value(),
                    ip.payload().clone(),
                    !ip.is_payload_fragmented(),
                )
            }
            LaxNetSlice::Arp(_) => return None,
        };
        if payload.incomplete {
            return None;
        }
        let ports = match &sliced.transport {
            Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
            Some(TransportSlice::Tcp(tcp)) => Some((tcp.source_port(), tcp.destination_port())),
            _ => None,
        };
        let is_icmp_error = match &sliced.transport {
            // Destination unreachable, source quench, redirect, time exceeded, parameter problem.
            Some(TransportSlice::Icmpv4(icmp)) => matches!(icmp.type_u8(), 3 | 4 | 5 | 11 | 12),
            Some(TransportSlice::Icmpv6(icmp)) => icmp.type_u8() < 128,
            _ => false,
        };
        let told_of = match &sliced.transport {
            Some(TransportSlice::Icmpv4(icmp)) if is_icmp_error => {
                quoted_destination(icmp.payload())
            }
            Some(TransportSlice::Icmpv6(icmp)) if is_icmp_error => {
                quoted_destination(icmp.payload())
            }
            _ => None,
        };
        Some(Self {
            told_of,
            source,
            destination,
            protocol: payload.ip_number.0,
            dscp,
            ports,
            is_first_fragment,
            is_icmp_error,
        })
    }

    /// Whether an ICMP error may answer the packet (RFC 1122 §3.2.2, RFC 4443 §2.4).
    fn may_be_answered(&self) -> bool {
        let is_one = |address: IpAddr| {
            !address.is_multicast()
                && !address.is_unspecified()
                && !address.is_loopback()
                && address != IpAddr::from([255; 4])
        };
        self.is_first_fragment
            && !self.is_icmp_error
            && is_one(self.source)
            && is_one(self.destination)
    }

    /// The ICMP error for a packet with these headers, to be delivered to its sender as if it came from the destination; `None`
    /// where none is due.
    pub fn unreachable(&self, packet: &[u8], why: Unreachable) -> Option<Vec<u8>> {
        if !self.may_be_answered() {
            return None;
        }
        let mut answer = Vec::new();
        let written = match (self.destination, self.source) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let reason = match why {
                    Unreachable::NoRoute | Unreachable::NoHost => {
                        icmpv4::DestUnreachableHeader::Host
                    }
                    Unreachable::Prohibited => icmpv4::DestUnreachableHeader::FilterProhibited,
                };
                let quoted = packet.get(..MAX_ICMP4_BYTES - IPV4_ICMP_HEADERS);
                PacketBuilder::ipv4(from.octets(), to.octets(), TTL)
                    .icmpv4(Icmpv4Type::DestinationUnreachable(reason))
                    .write(&mut answer, quoted.unwrap_or(packet))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let reason = match why {
                    Unreachable::NoRoute => icmpv6::DestUnreachableCode::NoRoute,
                    Unreachable::NoHost => icmpv6::DestUnreachableCode::Address,
                    Unreachable::Prohibited => icmpv6::DestUnreachableCode::Prohibited,
                };
                let quoted = packet.get(..MAX_ICMP6_BYTES - IPV6_ICMP_HEADERS);
                PacketBuilder::ipv6(from.octets(), to.octets(), TTL)
                    .icmpv6(Icmpv6Type::DestinationUnreachable(reason))
                    .write(&mut answer, quoted.unwrap_or(packet))
            }
            _ => return None,
        };
        written.ok().map(|()| answer)
    }
}

/// The destination in the header that an ICMP error quotes.
fn quoted_destination(quoted: &[u8]) -> Option<IpAddr> {
    match quoted.first()? >> 4 {
        4 => {
            let address: [u8; 4] = quoted.get(16..20)?.try_into().ok()?;
            Some(address.into())
        }
        6 => {
            let address: [u8; 16] = quoted.get(24..40)?.try_into().ok()?;
            Some(address.into())
        }
        _ => None,
    }
}

/// Marks a packet of an ECN-capable transport as having met congestion (RFC 3168 §5); `false`, unchanged, for any other.
pub fn mark_congestion(packet: &mut [u8]) -> bool {
    match packet {
        [first, tos, rest @ ..] if *first >> 4 == 4 && *tos & 0b11 != 0 => {
            let Some(checksum) = rest.get_mut(8..10) else {
                return false;
            };
            let before = u16::from_be_bytes([*first, *tos]);
            *tos |= 0b11;
            let after = u16::from_be_bytes([*first, *tos]);
            let old = u16::from_be_bytes([checksum[0], checksum[1]]);
            checksum.copy_from_slice(&next_checksum(old, before, after).to_be_bytes());
            true
        }
        [first, second, ..] if *first >> 4 == 6 && *second & 0x30 != 0 => {
            *second |= 0x30;
            true
        }
        _ => false,
    }
}

/// The checksum of a header in which one 16-bit word changed (RFC 1624 §3 eq. 3).
fn next_checksum(checksum: u16, before: u16, after: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use etherparse::{IpHeaders, Ipv4Header, Ipv6Header, SlicedPacket};
    use proptest::prelude::*;

    use super::*;

    fn udp4(ecn: u8) -> Vec<u8> {
        let mut ip = Ipv4Header::new(
            0,
            TTL,
            etherparse::IpNumber::UDP,
            [10, 0, 0, 1],
            [10, 0, 0, 2],
        )
        .unwrap();
        ip.dscp = etherparse::IpDscp::try_new(46).unwrap();
        ip.ecn = etherparse::IpEcn::try_new(ecn).unwrap();
        let mut packet = Vec::new();
        PacketBuilder::ip(IpHeaders::Ipv4(ip, Default::default()))
            .udp(5004, 6000)
            .write(&mut packet, b"frame")
            .unwrap();
        packet
    }

    fn udp6() -> Vec<u8> {
        let mut packet = Vec::new();
        let ip = Ipv6Header {
            traffic_class: 0b10,
            hop_limit: TTL,
            source: [1; 16],
            destination: [2; 16],
            ..Ipv6Header::default()
        };
        PacketBuilder::ip(IpHeaders::Ipv6(ip, Default::default()))
            .udp(53, 4000)
            .write(&mut packet, &[7; 2000])
            .unwrap();
        packet
    }

    #[test]
    fn headers_of_both_versions_are_read() {
        let headers = Headers::read(&udp4(0)).unwrap();
        assert_eq!(headers.source, IpAddr::from([10, 0, 0, 1]));
        assert_eq!(headers.destination, IpAddr::from([10, 0, 0, 2]));
        assert_eq!((headers.protocol, headers.dscp), (UDP, 46));
        assert_eq!(headers.ports, Some((5004, 6000)));
        let headers = Headers::read(&udp6()).unwrap();
        assert_eq!(headers.ports, Some((53, 4000)));
        assert_eq!(headers.destination, IpAddr::from([2; 16]));
        let cut = udp4(0);
        assert_eq!(Headers::read(&cut[..cut.len() - 1]), None);
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let mut packet = udp4(0);
        packet[7] = 3;
        let headers = Headers::read(&packet).unwrap();
        assert_eq!((headers.protocol, headers.ports), (UDP, None));
        assert_eq!(headers.unreachable(&packet, Unreachable::NoRoute), None);
    }

    #[test]
    fn congestion_marks_keep_the_checksum_right() {
        for ecn in [1, 2, 3] {
            let mut packet = udp4(ecn);
            assert!(mark_congestion(&mut packet));
            let ip = Ipv4Header::from_slice(&packet).unwrap().0;
            assert_eq!(ip.ecn.value(), 3);
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        }
        let mut packet = udp4(0);
        assert!(!mark_congestion(&mut packet));
        assert_eq!(packet, udp4(0));
        let mut packet = udp6();
        assert!(mark_congestion(&mut packet));
        assert_eq!(packet[1] & 0x30, 0x30);
        assert!(!mark_congestion(&mut []));
        assert!(!mark_congestion(&mut [0x45, 1]));
    }

    #[test]
    fn a_sender_is_told_what_became_of_its_packet_and_errors_are_not_answered() {
        for (packet, most) in [(udp4(0), MAX_ICMP4_BYTES), (udp6(), MAX_ICMP6_BYTES)] {
            let headers = Headers::read(&packet).unwrap();
            for why in [
                Unreachable::NoRoute,
                Unreachable::NoHost,
                Unreachable::Prohibited,
            ] {
                let answer = headers.unreachable(&packet, why).unwrap();
                assert!(answer.len() <= most);
                assert!(SlicedPacket::from_ip(&answer).is_ok());
                let answered = Headers::read(&answer).unwrap();
                assert_eq!(answered.destination, headers.source);
                assert!(matches!(answered.protocol, 1 | 58));
                assert_eq!(answered.unreachable(&answer, why), None);
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(packet in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Some(headers) = Headers::read(&packet) {
                let _ = headers.unreachable(&packet, Unreachable::NoRoute);
            }
            mark_congestion(&mut packet.clone());
        }
    }
}
