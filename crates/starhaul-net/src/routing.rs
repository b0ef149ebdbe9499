//! The few requests to the kernel's routing socket (rtnetlink(7)) that set up TUN devices and emulated links.
//! Each acts in the network namespace of the thread that opened the socket.

use std::{io, net::IpAddr};

use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with},
};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWRULE: u16 = 32;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;

const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_TABLE: u16 = 15;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_TABLE: u16 = 15;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// Skips duplicate address detection: the address is unique, and usable at once.
const IFA_F_NODAD: u8 = 2;
const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_LINK: u8 = 253;
/// The answer is the route of a table (Linux 4.13).
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const FR_ACT_TO_TBL: u8 = 1;
/// The metric of the kernel's own IPv6 routes to the networks of addresses.
const CONNECTED_METRIC: u32 = 256;

/// The routing table used unless a rule selects another.
pub const MAIN_TABLE: u32 = 254;

/// A network by its first address and the length of its prefix, in bits.
pub type Prefix = (IpAddr, u8);

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceState {
    /// It is switched on.
    pub is_up: bool,
    /// Its link carries: a cable is connected, a modem is attached.
    pub has_carrier: bool,
    /// Longest packet, in bytes.
    pub mtu: u32,
}

/// The route that leads to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRoute {
    /// The interface through which it leads; `None` where it divides packets among several.
    pub interface: Option<u32>,
    /// Length of its network's prefix, in bits.
    pub bits: u8,
    /// It is in [`MAIN_TABLE`], where no rule selected another.
    pub is_main: bool,
}

/// A socket to the kernel's routing tables. What the kernel refuses is its error; most requests need `CAP_NET_ADMIN`.
#[derive(Debug)]
pub struct Routing(OwnedFd);

impl Routing {
    /// Opens a socket in the namespace of the calling thread.
    ///
    /// # Errors
    /// The system's, for example without descriptors.
    pub fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            // Protocol 0 is NETLINK_ROUTE.
            None,
        )?;
        Ok(Self(socket))
    }

    /// Brings an interface up with its present settings.
    ///
    /// # Errors
    /// The system's.
    pub fn set_up(&self, interface: u32) -> io::Result<()> {
        self.ask(Request::link(interface, IFF_UP))
    }

    /// Sets an interface's MTU and brings it up.
    ///
    /// # Errors
    /// The system's.
    pub fn set_up_with_mtu(&self, interface: u32, mtu: u32) -> io::Result<()> {
        self.ask(Request::link(interface, IFF_UP).with(IFLA_MTU, &mtu.to_ne_bytes()))
    }

    /// Sets the interface's MTU and the length of its queue, disables automatic IPv6 addresses, and brings it up.
    ///
    /// # Errors
    /// The system's.
    pub fn set_up_as(&self, interface: u32, mtu: u32, queue_packets: u32) -> io::Result<()> {
        let mut inet6 = Vec::new();
        attribute(
            &mut inet6,
            IFLA_INET6_ADDR_GEN_MODE,
            &[IN6_ADDR_GEN_MODE_NONE],
        );
        let mut families = Vec::new();
        attribute(&mut families, u16::from(AF_INET6), &inet6);
        // Before the interface is up, as IPv6 then creates an address at once. A kernel without IPv6 refuses, without
        // effect.
        let _ = self.ask(Request::link(interface, 0).with(IFLA_AF_SPEC, &families));
        self.ask(
            Request::link(interface, IFF_UP)
                .with(IFLA_MTU, &mtu.to_ne_bytes())
                .with(IFLA_TXQLEN, &queue_packets.to_ne_bytes()),
        )
    }

    /// Adds an address with the single neighbour `peer`, of the same family.
    ///
    /// # Errors
    /// The system's, also if the interface has the address already.
    pub fn add_address(&self, interface: u32, local: IpAddr, peer: IpAddr) -> io::Result<()> {
        self.add_address_with(interface, (local, host_bits(local)), peer)
    }

    /// Adds an address to an interface whose neighbours have the addresses of this prefix.
    ///
    /// # Errors
    /// The system's, also if the interface has the address already.
    pub fn add_network(&self, interface: u32, (local, bits): Prefix) -> io::Result<()> {
        self.add_address_with(interface, (local, bits), local)
    }

    fn add_address_with(
        &self,
        interface: u32,
        (local, bits): Prefix,
        peer: IpAddr,
    ) -> io::Result<()> {
        let flags = if local.is_ipv6() { IFA_F_NODAD } else { 0 };
        // struct ifaddrmsg
        let [a, b, c, d] = interface.to_ne_bytes();
        let request = Request::new(
            RTM_NEWADDR,
            NLM_F_CREATE | NLM_F_EXCL,
            &[family(local), bits, flags, 0, a, b, c, d],
        );
        self.ask(
            request
                .with(IFA_LOCAL, &octets(local))
                .with(IFA_ADDRESS, &octets(peer)),
        )
    }

    /// Adds a route to a network through an interface to the main table, before those of any usual metric. It goes with the
    /// interface.
    ///
    /// # Errors
    /// The system's, also if there is a route to this network with the same metric.
    pub fn add_route_to(&self, interface: u32, network: Prefix) -> io::Result<()> {
        // Without a metric, IPv4 takes 0, and IPv6 1024, which is behind the default routes of other programs.
        let metric = u32::from(network.0.is_ipv6());
        self.add_route_with(interface, network, metric)
    }

    /// Adds the route that the kernel itself adds for an address of this network, where that was removed.
    ///
    /// # Errors
    /// The system's, also if there is such a route.
    pub fn add_connected_route(&self, interface: u32, network: Prefix) -> io::Result<()> {
        let metric = match network.0 {
            IpAddr::V4(_) => 0,
            IpAddr::V6(_) => CONNECTED_METRIC,
        };
        self.add_route_with(interface, network, metric)
    }

    fn add_route_with(
        &self,
        interface: u32,
        (network, bits): Prefix,
        metric: u32,
    ) -> io::Result<()> {
        self.ask(
            Request::route(family(network), bits)
                .with(RTA_DST, &octets(network))
                .with(RTA_OIF, &interface.to_ne_bytes())
                .with(RTA_TABLE, &MAIN_TABLE.to_ne_bytes())
                .with(RTA_PRIORITY, &metric.to_ne_bytes()),
        )
    }

    /// Adds a route through an interface to a table, to a single address or, without one, to all of the family of
    /// `source`; of several routes to the same the one with the lowest `metric` is used.
    ///
    /// # Errors
    /// The system's, also if there is such a route.
    pub fn add_route(
        &self,
        interface: u32,
        to: Option<IpAddr>,
        source: IpAddr,
        table: u32,
        metric: u32,
    ) -> io::Result<()> {
        let mut request = Request::route(family(source), to.map_or(0, host_bits));
        if let Some(to) = to {
            request = request.with(RTA_DST, &octets(to));
        }
        self.ask(
            request
                .with(RTA_OIF, &interface.to_ne_bytes())
                .with(RTA_PREFSRC, &octets(source))
                .with(RTA_TABLE, &table.to_ne_bytes())
                .with(RTA_PRIORITY, &metric.to_ne_bytes()),
        )
    }

    /// Makes packets from `source` use `table`.
    ///
    /// # Errors
    /// The system's, also if there is such a rule.
    pub fn add_source_rule(&self, source: IpAddr, table: u32, priority: u32) -> io::Result<()> {
        // struct fib_rule_hdr
        let body = [
            family(source),
            0,
            host_bits(source),
            0,
            0,
            0,
            0,
            FR_ACT_TO_TBL,
            0,
            0,
            0,
            0,
        ];
        self.ask(
            Request::new(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, &body)
                .with(FRA_SRC, &octets(source))
                .with(FRA_TABLE, &table.to_ne_bytes())
                .with(FRA_PRIORITY, &priority.to_ne_bytes()),
        )
    }

    /// Whether an address is of this host: what is sent there arrives here.
    ///
    /// # Errors
    /// The system's, also if there is no route to the address.
    pub fn is_local(&self, address: IpAddr) -> io::Result<bool> {
        // struct rtmsg
        let body = [
            family(address),
            host_bits(address),
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ];
        let request = Request::get(RTM_GETROUTE, &body).with(RTA_DST, &octets(address));
        let mut answer = [0; 4096];
        send(&self.0, &request.finish(), SendFlags::empty())?;
        let (length, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        let answer = answer.get(..length).unwrap_or_default();
        match (answered(answer), route_kind(answer)) {
            (Some(error), _) if error != 0 => Err(io::Error::from_raw_os_error(error)),
            (_, Some(kind)) => Ok(kind == RTN_LOCAL),
            _ => Err(io::Error::other("the kernel's answer makes no sense")),
        }
    }

    /// Whether a table has a route through an interface to an address, for packets from `source`. Without one, a socket that is
    /// bound to the interface takes every address for one of its neighbours (IPv4).
    ///
    /// # Errors
    /// The system's, but for those that say that there is no route.
    pub fn has_route(&self, interface: u32, source: IpAddr, to: IpAddr) -> io::Result<bool> {
        Ok(self.match_route(Some(interface), source, to)?.is_some())
    }

    /// The route of packets from `source`, an address of this host, to an address, of sockets that are bound to no interface; `None` if
    /// there is none, and for an address of this host.
    ///
    /// # Errors
    /// As [`Routing::has_route`].
    pub fn route(&self, source: IpAddr, to: IpAddr) -> io::Result<Option<FoundRoute>> {
        let answer = self.match_route(None, source, to)?;
        Ok(answer.as_deref().and_then(found_route))
    }

    /// The answer with the route of a table to an address, for packets from `source`; `None` if there is none to other hosts.
    fn match_route(
        &self,
        interface: Option<u32>,
        source: IpAddr,
        to: IpAddr,
    ) -> io::Result<Option<Vec<u8>>> {
        // struct rtmsg
        let mut body = vec![family(to), host_bits(to), host_bits(source), 0, 0, 0, 0, 0];
        body.extend(RTM_F_FIB_MATCH.to_ne_bytes());
        let mut request = Request::get(RTM_GETROUTE, &body)
            .with(RTA_DST, &octets(to))
            .with(RTA_SRC, &octets(source));
        if let Some(interface) = interface {
            request = request.with(RTA_OIF, &interface.to_ne_bytes());
        }
        let mut answer = [0; 4096];
        send(&self.0, &request.finish(), SendFlags::empty())?;
        let (length, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        let answer = answer.get(..length).unwrap_or_default();
        match (answered(answer), route_kind(answer)) {
            (Some(libc::ENETUNREACH | libc::EHOSTUNREACH), _) => Ok(None),
            (Some(error), _) if error != 0 => Err(io::Error::from_raw_os_error(error)),
            (_, Some(kind)) => Ok((kind == RTN_UNICAST).then(|| answer.to_vec())),
            _ => Err(io::Error::other("the kernel's answer makes no sense")),
        }
    }

    /// The state of an interface.
    ///
    /// # Errors
    /// The system's, also if there is no such interface.
    pub fn interface(&self, interface: u32) -> io::Result<InterfaceState> {
        let mut body = vec![0; 4];
        body.extend(interface.to_ne_bytes());
        body.extend([0; 8]);
        let request = Request::get(RTM_GETLINK, &body);
        // A link has many attributes.
        let mut answer = vec![0; 32 << 10];
        send(&self.0, &request.finish(), SendFlags::empty())?;
        let (length, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        let answer = answer.get(..length).unwrap_or_default();
        match (answered(answer), interface_state(answer)) {
            (Some(error), _) if error != 0 => Err(io::Error::from_raw_os_error(error)),
            (_, Some(state)) => Ok(state),
            _ => Err(io::Error::other("the kernel's answer makes no sense")),
        }
    }

    fn ask(&self, request: Request) -> io::Result<()> {
        send(&self.0, &request.finish(), SendFlags::empty())?;
        let mut answer = [0; 4096];
        let (length, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        match answered(answer.get(..length).unwrap_or_default()) {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None => Err(io::Error::other("the kernel's answer makes no sense")),
        }
    }
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}

/// The prefix length of a single address.
fn host_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The error number in an acknowledgement, 0 for success.
fn answered(message: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let error = i32::from_ne_bytes(message.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then(|| error.saturating_neg())
}

/// The state of the interface that a message is about: `struct ifinfomsg` and its attributes.
fn interface_state(message: &[u8]) -> Option<InterfaceState> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let flags = u32::from_ne_bytes(message.get(24..28)?.try_into().ok()?);
    let mtu = number_in(message.get(32..)?, IFLA_MTU)?;
    (kind == RTM_NEWLINK).then_some(InterfaceState {
        is_up: flags & IFF_UP != 0,
        has_carrier: flags & IFF_LOWER_UP != 0,
        mtu,
    })
}

/// The route that an answer is about: `struct rtmsg` and its attributes.
fn found_route(message: &[u8]) -> Option<FoundRoute> {
    Some(FoundRoute {
        interface: number_in(message.get(28..)?, RTA_OIF),
        bits: *message.get(17)?,
        is_main: u32::from(*message.get(20)?) == MAIN_TABLE,
    })
}

/// The number in the first attribute of this kind.
fn number_in(mut attributes: &[u8], wanted: u16) -> Option<u32> {
    while let Some((head, _)) = attributes.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        if u16::from_ne_bytes([head[2], head[3]]) == wanted {
            let number = attributes.get(4..8)?.try_into().ok()?;
            return Some(u32::from_ne_bytes(number));
        }
        attributes = attributes
            .get(length.max(4).next_multiple_of(4)..)
            .unwrap_or_default();
    }
    None
}

/// The kind of route in an answer.
fn route_kind(message: &[u8]) -> Option<u8> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    (kind == RTM_NEWROUTE).then(|| message.get(23).copied())?
}

/// A message under construction; its length is filled in at the end.
struct Request(Vec<u8>);

impl Request {
    fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        Self::with_flags(kind, NLM_F_ACK | flags, body)
    }

    /// A request with an answer, and no acknowledgement behind it, which the next request would take for its own.
    fn get(kind: u16, body: &[u8]) -> Self {
        Self::with_flags(kind, 0, body)
    }

    fn with_flags(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(body);
        Self(bytes)
    }

    /// A request to change an interface and some of its flags.
    fn link(interface: u32, flags: u32) -> Self {
        // struct ifinfomsg
        let mut body = vec![0; 4];
        body.extend(interface.to_ne_bytes());
        body.extend(flags.to_ne_bytes());
        // The mask of flags to change.
        body.extend(flags.to_ne_bytes());
        Self::new(RTM_NEWLINK, 0, &body)
    }

    /// A request for a new route to a network with a prefix of `bits`.
    fn route(family: u8, bits: u8) -> Self {
        // struct rtmsg
        let body = [
            family,
            bits,
            0,
            0,
            0,
            RTPROT_STATIC,
            RT_SCOPE_LINK,
            RTN_UNICAST,
            0,
            0,
            0,
            0,
        ];
        Self::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &body)
    }

    fn with(mut self, kind: u16, value: &[u8]) -> Self {
        attribute(&mut self.0, kind, value);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        for (place, byte) in self.0.iter_mut().zip(length.to_ne_bytes()) {
            *place = byte;
        }
        self.0
    }
}

/// Adds an attribute, padded to four bytes.
fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    to.extend(length.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_own_answer() {
        let routing = Routing::open().unwrap();
        let loopback = crate::interface_index("lo").unwrap();
        for _ in 0..3 {
            assert!(routing.is_local([127, 0, 0, 1].into()).unwrap());
            assert!(routing.interface(loopback).unwrap().mtu > 0);
            let own: IpAddr = [127, 0, 0, 1].into();
            assert_eq!(routing.route(own, own).unwrap(), None);
            // There is no such interface.
            assert!(routing.set_up(i32::MAX.cast_unsigned()).is_err());
        }
    }
}
