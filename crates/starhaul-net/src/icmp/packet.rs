//! The wire format of ICMP echo and of errors from routers (RFC 792, RFC 4443 §4.1, §3.3). A raw socket receives any
//! packet.

use std::net::IpAddr;

const ECHO_REQUEST_V4: u8 = 8;
const ECHO_REPLY_V4: u8 = 0;
const TIME_EXCEEDED_V4: u8 = 11;
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
const TIME_EXCEEDED_V6: u8 = 3;
const HEADER_BYTES: usize = 8;
const IPV6_HEADER_BYTES: usize = 40;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// The IP version of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// ICMP over IPv4 (RFC 792).
    V4,
    /// ICMPv6 (RFC 4443).
    V6,
}

impl IpVersion {
    /// The version of an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// A received message of interest to a prober.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpMessage {
    /// An answer with this prober's token.
    Reply {
        /// Number of the probe.
        number: u32,
    },
    /// A router dropped an echo request of this identifier at the end of its hop limit.
    Exceeded {
        /// Identifier of the request.
        identifier: [u8; 2],
        /// The low half of its number.
        sequence: u16,
    },
}

/// Encodes an echo request. The kernel fills in the checksum of ICMPv6, and checksum and identifier of ping sockets.
pub(super) fn echo_request(version: IpVersion, token: [u8; 8], number: u32) -> Vec<u8> {
    let kind = match version {
        IpVersion::V4 => ECHO_REQUEST_V4,
        IpVersion::V6 => ECHO_REQUEST_V6,
    };
    let number = number.to_be_bytes();
    let mut packet = [
        &[kind, 0, 0, 0][..],
        &identifier(token),
        &number[2..],
        &token,
        &number,
    ]
    .concat();
    if version == IpVersion::V4 {
        let checksum = checksum(&packet).to_be_bytes();
        if let Some(place) = packet.get_mut(2..4) {
            place.copy_from_slice(&checksum);
        }
    }
    packet
}

/// The identifier in requests of a raw socket.
pub(super) fn identifier(token: [u8; 8]) -> [u8; 2] {
    [token[0], token[1]]
}

/// Parses a packet as received: with its IP header (raw sockets of IPv4) or without. `None` for all packets of no
/// interest to the prober with this token.
pub fn parse_icmp(
    version: IpVersion,
    behind_header: bool,
    token: [u8; 8],
    payload: &[u8],
) -> Option<IcmpMessage> {
    let packet = match behind_header {
        true => behind_ipv4(payload)?,
        false => payload,
    };
    let (reply, exceeded) = match version {
        IpVersion::V4 => (ECHO_REPLY_V4, TIME_EXCEEDED_V4),
        IpVersion::V6 => (ECHO_REPLY_V6, TIME_EXCEEDED_V6),
    };
    let (kind, body) = (*packet.first()?, packet.get(HEADER_BYTES..)?);
    if kind == reply {
        let number = body.strip_prefix(&token)?;
        let number = u32::from_be_bytes(*number.first_chunk()?);
        Some(IcmpMessage::Reply { number })
    } else if kind == exceeded {
        let quoted = match version {
            IpVersion::V4 => behind_ipv4(body).filter(|_| body.get(9) == Some(&ICMP)),
            IpVersion::V6 => body
                .get(IPV6_HEADER_BYTES..)
                .filter(|_| body.get(6) == Some(&ICMPV6)),
        };
        parse_quoted(version, quoted?)
    } else {
        None
    }
}

/// Parses an echo request of ours as quoted by a router or the kernel: only its header must be present.
pub(super) fn parse_quoted(version: IpVersion, packet: &[u8]) -> Option<IcmpMessage> {
    let request = match version {
        IpVersion::V4 => ECHO_REQUEST_V4,
        IpVersion::V6 => ECHO_REQUEST_V6,
    };
    let header: &[u8; HEADER_BYTES] = packet.first_chunk()?;
    let [kind, _, _, _, id_high, id_low, high, low] = *header;
    (kind == request).then_some(IcmpMessage::Exceeded {
        identifier: [id_high, id_low],
        sequence: u16::from_be_bytes([high, low]),
    })
}

/// The number of a probe in a packet that the kernel returned, after any headers.
pub fn number_behind_token(token: [u8; 8], packet: &[u8]) -> Option<u32> {
    let at = packet
        .windows(token.len())
        .position(|window| window == token)?;
    let number = packet.get(at + token.len()..)?;
    Some(u32::from_be_bytes(*number.first_chunk()?))
}

fn behind_ipv4(packet: &[u8]) -> Option<&[u8]> {
    let first = packet.first()?;
    let header_bytes = usize::from(first & 0x0f) * 4;
    packet.get(header_bytes.max(20)..)
}

/// The ones' complement of the ones' complement sum (RFC 1071).
fn checksum(packet: &[u8]) -> u16 {
    let words = packet.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([
            pair.first().copied().unwrap_or(0),
            low,
        ]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: [u8; 8] = *b"a token!";

    fn ipv4(protocol: u8, contents: &[u8]) -> Vec<u8> {
        let mut header = [0; 24]; // with an option
        (header[0], header[9]) = (0x46, protocol);
        [&header[..], contents].concat()
    }

    /// The reply to a request according to RFC 792.
    fn reply(token: [u8; 8], number: u32) -> Vec<u8> {
        let mut packet = echo_request(IpVersion::V4, token, number);
        packet[0] = 0;
        packet
    }

    #[test]
    fn only_answers_to_our_own_probes_count() {
        let read = |packet: &[u8]| parse_icmp(IpVersion::V4, true, TOKEN, packet);
        let number = 0x0102_0304;
        let ours = ipv4(1, &reply(TOKEN, number));
        assert_eq!(read(&ours), Some(IcmpMessage::Reply { number }));
        assert_eq!(read(&ipv4(1, &reply(*b"another!", number))), None);
        assert_eq!(
            read(&ipv4(1, &echo_request(IpVersion::V4, TOKEN, number))),
            None
        );
        for length in 0..ours.len() {
            assert_eq!(read(&ours[..length]), None, "cut to {length} bytes");
        }
    }

    #[test]
    fn a_router_quotes_no_more_than_it_must() {
        let request = echo_request(IpVersion::V4, TOKEN, 0xffff_0203);
        let exceeded = [&[11, 0, 0, 0, 0, 0, 0, 0][..], &ipv4(1, &request[..8])].concat();
        let expected = IcmpMessage::Exceeded {
            identifier: [b'a', b' '],
            sequence: 0x0203,
        };
        let read = |packet: &[u8]| parse_icmp(IpVersion::V4, true, TOKEN, packet);
        assert_eq!(read(&ipv4(1, &exceeded)), Some(expected));
        // A UDP datagram that begins with the same bytes is no answer.
        let udp = [&[11, 0, 0, 0, 0, 0, 0, 0][..], &ipv4(17, &request[..8])].concat();
        assert_eq!(read(&ipv4(1, &udp)), None);
    }

    #[test]
    fn the_sum_of_a_request_and_its_checksum_is_nothing() {
        assert_eq!(checksum(&echo_request(IpVersion::V4, TOKEN, 70_001)), 0);
    }
}
