//! Parses rtnetlink messages (linux/netlink.h, linux/rtnetlink.h). Sans-IO and stateless; it terminates for any input.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A change in the network of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NetworkChange {
    /// An interface was created or changed.
    Link {
        /// Its index, which is unique while it exists.
        index: u32,
        /// Whether it is up and has carrier (`IFF_UP`, `IFF_RUNNING`).
        running: bool,
    },
    /// An interface was removed. A later one of the same name is a different interface.
    LinkGone {
        /// Index of the interface, which is unique while it exists.
        index: u32,
    },
    /// This host has a usable address.
    Address {
        /// Index of the interface.
        index: u32,
        /// The address that this host has.
        address: IpAddr,
    },
    /// This host has lost an address.
    AddressGone {
        /// Index of the interface.
        index: u32,
        /// The address that this host had.
        address: IpAddr,
    },
    /// A default route was added or removed.
    DefaultRoute,
    /// Notifications were lost or are invalid: check everything again.
    Missed,
}

const NLMSG_OVERRUN: u16 = 4;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;

const HEADER_BYTES: usize = 16;
const IFF_UP: u32 = 0x1;
const IFF_RUNNING: u32 = 0x40;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// Not usable: duplicate address detection is still running, or found a conflict.
const IFA_F_UNUSABLE: u32 = 0x40 | 0x08;
const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RTN_UNICAST: u8 = 1;
/// Flag bits in an attribute's type (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const TYPE_FLAGS: u16 = 0xc000;

/// Passes on the changes of one datagram of the kernel in order. Other messages are skipped; truncated or inconsistent
/// ones count as [`NetworkChange::Missed`].
pub fn parse_news(mut datagram: &[u8], mut each: impl FnMut(NetworkChange)) {
    while !datagram.is_empty() {
        let Some((kind, body, rest)) = split_message(datagram) else {
            return each(NetworkChange::Missed);
        };
        match change(kind, body) {
            Ok(Some(change)) => each(change),
            Ok(None) => {}
            Err(Malformed) => each(NetworkChange::Missed),
        }
        datagram = rest;
    }
}

/// A message shorter than its fields.
struct Malformed;

fn split_message(datagram: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(number(datagram, 0)?).ok()?;
    let kind = u16::from_ne_bytes(field(datagram, 4)?);
    let body = datagram.get(HEADER_BYTES..length)?;
    let rest = datagram.get(length.next_multiple_of(4)..);
    Some((kind, body, rest.unwrap_or_default()))
}

fn change(kind: u16, body: &[u8]) -> Result<Option<NetworkChange>, Malformed> {
    match kind {
        RTM_NEWLINK | RTM_DELLINK => link(kind == RTM_NEWLINK, body).ok_or(Malformed),
        RTM_NEWADDR | RTM_DELADDR => address(kind == RTM_NEWADDR, body).ok_or(Malformed),
        RTM_NEWROUTE | RTM_DELROUTE => route(body).ok_or(Malformed),
        NLMSG_OVERRUN => Ok(Some(NetworkChange::Missed)),
        _ => Ok(None),
    }
}

/// Parses `struct ifinfomsg`. The outer `None` is a malformed message, the inner one is of no interest, here and below.
fn link(is_there: bool, body: &[u8]) -> Option<Option<NetworkChange>> {
    let family = *body.first()?;
    let (index, flags) = (number(body, 4)?, number(body, 8)?);
    number(body, 12)?;
    let running = IFF_UP | IFF_RUNNING;
    Some(match (family, is_there) {
        (AF_UNSPEC, true) => Some(NetworkChange::Link {
            index,
            running: flags & running == running,
        }),
        (AF_UNSPEC, false) => Some(NetworkChange::LinkGone { index }),
        // A bridge's message about its ports.
        _ => None,
    })
}

/// Parses `struct ifaddrmsg` and its attributes.
fn address(is_there: bool, body: &[u8]) -> Option<Option<NetworkChange>> {
    let [family, _, flags, _] = field(body, 0)?;
    let index = number(body, 4)?;
    if ![AF_INET, AF_INET6].contains(&family) {
        return Some(None);
    }
    let mut flags = u32::from(flags);
    let (mut local, mut any) = (None, None);
    let mut attributes = body.get(8..)?;
    while !attributes.is_empty() {
        let length = usize::from(u16::from_ne_bytes(field(attributes, 0)?));
        let kind = u16::from_ne_bytes(field(attributes, 2)?) & !TYPE_FLAGS;
        let value = attributes.get(4..length)?;
        match kind {
            IFA_LOCAL => local = Some(ip(family, value)?),
            IFA_ADDRESS => any = Some(ip(family, value)?),
            IFA_FLAGS => flags = number(value, 0)?,
            _ => {}
        }
        attributes = attributes
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
    }
    // On point-to-point links the other one is the peer's.
    let Some(address) = local.or(any) else {
        return Some(None);
    };
    Some(match is_there {
        true if flags & IFA_F_UNUSABLE != 0 => None,
        true => Some(NetworkChange::Address { index, address }),
        false => Some(NetworkChange::AddressGone { index, address }),
    })
}

/// Parses `struct rtmsg`.
fn route(body: &[u8]) -> Option<Option<NetworkChange>> {
    let [_, prefix_bits, ..]: [u8; 12] = field(body, 0)?;
    let kind = *body.get(7)?;
    let default = prefix_bits == 0 && kind == RTN_UNICAST;
    Some(default.then_some(NetworkChange::DefaultRoute))
}

fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    Some(match family {
        AF_INET => Ipv4Addr::from(whole::<4>(value)?).into(),
        AF_INET6 => Ipv6Addr::from(whole::<16>(value)?).into(),
        _ => return None,
    })
}

fn whole<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    value.try_into().ok()
}

fn number(from: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(field(from, at)?))
}

fn field<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn link_message(kind: u16, family: u8, index: u32, flags: u32) -> Vec<u8> {
        let mut body = vec![family, 0, 0, 0];
        for word in [index, flags, 0] {
            body.extend(word.to_ne_bytes());
        }
        message(kind, &body)
    }

    fn address_message(kind: u16, flags: u32, attributes: &[(u16, IpAddr)]) -> Vec<u8> {
        let family = match attributes[0].1 {
            IpAddr::V4(_) => AF_INET,
            IpAddr::V6(_) => AF_INET6,
        };
        let mut body = vec![family, 24, 0, 0];
        body.extend(7u32.to_ne_bytes());
        let values = attributes.iter().map(|(kind, ip)| match ip {
            IpAddr::V4(ip) => (*kind, ip.octets().to_vec()),
            IpAddr::V6(ip) => (*kind, ip.octets().to_vec()),
        });
        for (kind, value) in values.chain([(IFA_FLAGS, flags.to_ne_bytes().to_vec())]) {
            body.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(value);
        }
        message(kind, &body)
    }

    fn news(datagram: &[u8]) -> Vec<NetworkChange> {
        let mut all = Vec::new();
        parse_news(datagram, |change| all.push(change));
        all
    }

    #[test]
    fn links_addresses_and_default_routes_are_told_in_order() {
        let (near, far): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        let default = [AF_INET, 0, 0, 0, 254, 3, 0, RTN_UNICAST, 0, 0, 0, 0];
        let specific = [AF_INET, 24, 0, 0, 254, 3, 0, RTN_UNICAST, 0, 0, 0, 0];
        let datagram = [
            link_message(RTM_NEWLINK, AF_UNSPEC, 7, IFF_UP),
            link_message(RTM_NEWLINK, AF_UNSPEC, 7, IFF_UP | IFF_RUNNING),
            address_message(RTM_NEWADDR, 0, &[(IFA_ADDRESS, far), (IFA_LOCAL, near)]),
            address_message(RTM_NEWADDR, 0x40, &[(IFA_ADDRESS, six)]),
            address_message(RTM_NEWADDR, 0x80, &[(IFA_ADDRESS, six)]),
            message(RTM_NEWROUTE, &specific),
            message(RTM_NEWROUTE, &default),
            message(RTM_DELROUTE, &default),
            // Neighbours, and a bridge's port.
            message(28, &[0; 12]),
            link_message(RTM_DELLINK, 7, 7, 0),
            address_message(RTM_DELADDR, 0, &[(IFA_LOCAL, near)]),
            link_message(RTM_DELLINK, AF_UNSPEC, 7, 0),
        ]
        .concat();
        let (index, address) = (7, near);
        let expected = [
            NetworkChange::Link {
                index,
                running: false,
            },
            NetworkChange::Link {
                index,
                running: true,
            },
            NetworkChange::Address { index, address },
            NetworkChange::Address {
                index,
                address: six,
            },
            NetworkChange::DefaultRoute,
            NetworkChange::DefaultRoute,
            NetworkChange::AddressGone { index, address },
            NetworkChange::LinkGone { index },
        ];
        assert_eq!(news(&datagram), expected);
    }

    #[test]
    fn what_is_cut_or_lost_means_that_all_must_be_looked_at() {
        let whole = link_message(RTM_NEWLINK, AF_UNSPEC, 7, 0);
        for length in 1..whole.len() {
            assert_eq!(news(&whole[..length]), [NetworkChange::Missed], "{length}");
        }
        assert_eq!(news(&message(NLMSG_OVERRUN, &[])), [NetworkChange::Missed]);
        let mut endless = whole.clone();
        endless[..4].fill(0);
        assert_eq!(news(&endless), [NetworkChange::Missed]);
        // An attribute that claims to be shorter than its own header, and an address of half its length.
        let mut address = address_message(RTM_NEWADDR, 0, &[(IFA_LOCAL, [192, 0, 2, 1].into())]);
        let attribute = HEADER_BYTES + 8;
        for length in [0u16, 3, 6, u16::MAX] {
            address[attribute..attribute + 2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(news(&address), [NetworkChange::Missed], "{length}");
        }
        let both = [message(RTM_NEWLINK, &[0; 3]), whole].concat();
        let link = NetworkChange::Link {
            index: 7,
            running: false,
        };
        assert_eq!(news(&both), [NetworkChange::Missed, link]);
    }
}
