//! The two sides of the links: namespaces, devices, addresses and routes.
//!
//! Addresses are of 198.18.0.0/15 and 2001:2::/48, which RFC 2544 and RFC 5180 reserve for network tests. Each link has
//! four of each; which four depends on the nesting depth of runs and on a number that is free on the far side.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use starhaul_net::{MAIN_TABLE, Routing, Tun, interface_index};

use crate::{Error, ReplayLink, namespace::NetworkNamespace};

/// The largest packet, and the size of a trace's delivery opportunity.
pub(crate) const MTU: u32 = 1500;
/// Length of the read queue: the kernel must never drop a packet before the link has seen it.
const READ_QUEUE_PACKETS: u32 = 10_000;
const FIRST_ADDRESS: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// Nested runs use one range after the other; beyond this depth ranges repeat.
const DEPTHS: u32 = 8;
const LINKS_PER_DEPTH: u32 = 1 << 12;
const ADDRESSES_PER_LINK: u32 = 4;
/// Routing tables and rules of the links, one each.
const FIRST_TABLE: u32 = 1001;
/// Before the rule of the main table, which is 32766.
const FIRST_RULE: u32 = 1001;
/// The variable by which a nested run knows its depth.
const DEPTH: &str = "STARHAUL_REPLAY_DEPTH";
const SERVER: &str = "STARHAUL_SERVER";
const ADDRESS: &str = "STARHAUL_ADDRESS";
/// Settings that make a namespace forward packets. Its devices stay hosts: as routers they would send multicast reports
/// over the links.
const FORWARDING: [(&str, &str); 3] = [
    ("/proc/sys/net/ipv4/ip_forward", "1"),
    ("/proc/sys/net/ipv6/conf/all/forwarding", "1"),
    ("/proc/sys/net/ipv6/conf/default/forwarding", "0"),
];

/// Least, first and greatest size of TCP's buffers.
const TCP_BUFFERS: [&str; 2] = ["/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"];

/// The kernel objects of a run; they end with this value and the processes in it.
pub(crate) struct Network {
    /// The namespace of the command.
    pub(crate) near: NetworkNamespace,
    /// The namespace at the far end of the links.
    pub(crate) far: NetworkNamespace,
    pub(crate) links: Vec<LinkNetwork>,
    /// Environment variables of the command and the server.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) warnings: Vec<String>,
}

/// The two devices of one link.
pub(crate) struct LinkNetwork {
    pub(crate) near: Arc<Tun>,
    pub(crate) far: Arc<Tun>,
    /// IPv4 addresses of the near and the far end.
    pub(crate) ends: [IpAddr; 2],
}

impl Network {
    /// `own_far_side`: the links end in a second new namespace instead of the caller's.
    pub(crate) fn create(links: &[ReplayLink], own_far_side: bool) -> Result<Self, Error> {
        let mut warnings = Vec::new();
        let mut own_far_side = own_far_side;
        let (near, became_root) = NetworkNamespace::create_as_root()?;
        if became_root && !own_far_side {
            own_far_side = true;
            warnings.push(
                "without root nothing is on the far side of the link but its address; --server starts something there".to_owned(),
            );
        }
        let far = match own_far_side {
            true => NetworkNamespace::create(),
            false => NetworkNamespace::current(),
        };
        let mut network = Self {
            near,
            far: far.map_err(|source| Error::Namespace { source })?,
            links: Vec::new(),
            environment: Vec::new(),
            warnings,
        };
        let (depth, inner) = depths();
        network.environment.push(inner);
        if own_far_side {
            let ready = network.far.inside(loopback_up);
            ready.map_err(Error::Network)?;
        }
        network.near.inside(loopback_up).map_err(Error::Network)?;
        for (number, link) in (0u32..).zip(links) {
            network.add(number, link, depth, own_far_side)?;
        }
        Ok(network)
    }

    fn add(
        &mut self,
        number: u32,
        link: &ReplayLink,
        depth: u32,
        own_far_side: bool,
    ) -> Result<(), Error> {
        // In a shared namespace the kernel chooses a free number.
        let far_name = if own_far_side {
            &link.name
        } else {
            "starhaul%d"
        };
        let far = device(&self.far, far_name)?;
        let near = device(&self.near, &link.name)?;
        let digits = far.name().trim_start_matches("starhaul");
        let place = match own_far_side {
            true => number,
            false => digits.parse().unwrap_or(number),
        };
        let ends = addresses(depth, place);
        let ends_v6 = ends.map(|address| IpAddr::V6(in_ipv6(address)));
        let ends = ends.map(IpAddr::V4);
        self.connect(number, (&far, &near), ends, own_far_side)
            .map_err(Error::Network)?;
        self.tell_ends(number, "", ends, own_far_side);
        // A kernel without IPv6 still has IPv4.
        match self.connect(number, (&far, &near), ends_v6, own_far_side) {
            Ok(()) => self.tell_ends(number, "6", ends_v6, own_far_side),
            Err(error) => tracing::debug!(%error, link = link.name, "no IPv6"),
        }
        self.links.push(LinkNetwork {
            near: Arc::new(near),
            far: Arc::new(far),
            ends: [ends[1], ends[0]],
        });
        Ok(())
    }

    /// Addresses and routes of one family, for the far and the near end.
    fn connect(
        &self,
        number: u32,
        (far, near): (&Tun, &Tun),
        [far_address, near_address]: [IpAddr; 2],
        own_far_side: bool,
    ) -> io::Result<()> {
        self.far.inside(|| {
            let routing = Routing::open()?;
            routing.add_address(far.index(), far_address, near_address)?;
            if own_far_side {
                // For answers to a nested run that sends through this one.
                routing.add_route(far.index(), None, far_address, MAIN_TABLE, number + 1)?;
            }
            Ok(())
        })?;
        self.near.inside(|| {
            let routing = Routing::open()?;
            routing.add_address(near.index(), near_address, far_address)?;
            routing.add_route(near.index(), None, near_address, MAIN_TABLE, number + 1)?;
            // A socket bound to this address uses this link, regardless of other routes.
            let table = FIRST_TABLE + number;
            routing.add_route(near.index(), None, near_address, table, 1)?;
            routing.add_source_rule(near_address, table, FIRST_RULE + number)
        })
    }

    fn tell_ends(&mut self, number: u32, family: &str, [far, near]: [IpAddr; 2], own_far: bool) {
        let suffix = match number {
            0 => family.to_owned(),
            number => format!("{family}_{}", number + 1),
        };
        // Inside another run, its server is the final destination of the links.
        let server = std::env::var(format!("{SERVER}{suffix}"));
        let is_nested = depths().0 > 0;
        let server = server.ok().filter(|_| is_nested && !own_far);
        self.tell(
            format!("{SERVER}{suffix}"),
            server.unwrap_or_else(|| far.to_string()),
        );
        self.tell(format!("{ADDRESS}{suffix}"), near.to_string());
    }

    fn tell(&mut self, name: String, value: String) {
        self.environment.push((name, value));
    }
}

/// A device of a link, which is up.
pub(crate) fn device(network: &NetworkNamespace, name: &str) -> Result<Tun, Error> {
    let tun = network.inside(|| Tun::create(name));
    let tun = tun.map_err(|source| Error::Tun { source })?;
    let up = || Routing::open()?.set_up_as(tun.index(), MTU, READ_QUEUE_PACKETS);
    network.inside(up).map_err(Error::Network)?;
    Ok(tun)
}

/// How many sockets in the namespace listen for TCP or receive UDP.
pub(crate) fn listeners(network: &NetworkNamespace) -> io::Result<usize> {
    network.inside(|| {
        let table = |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        let tcp = ["tcp", "tcp6"]
            .into_iter()
            .filter_map(|name| table(name).ok());
        // The fourth column is the state; 0A is LISTEN.
        let listens = |line: &&str| line.split_whitespace().nth(3) == Some("0A");
        let tcp = tcp.map(|table| table.lines().skip(1).filter(listens).count());
        let udp = ["udp", "udp6"]
            .into_iter()
            .filter_map(|name| table(name).ok());
        let udp = udp.map(|table| table.lines().skip(1).count());
        Ok(tcp.chain(udp).sum())
    })
}

/// Addresses of the far and of the near end.
pub(crate) fn addresses(depth: u32, place: u32) -> [Ipv4Addr; 2] {
    let link = (depth % DEPTHS) * LINKS_PER_DEPTH + place % LINKS_PER_DEPTH;
    let first = FIRST_ADDRESS + link * ADDRESSES_PER_LINK;
    [first + 1, first + 2].map(Ipv4Addr::from)
}

/// The IPv6 address with the same last bytes: 2001:2::c612:1 for 198.18.0.1.
fn in_ipv6(address: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = address.octets();
    let [high, low] = [[a, b], [c, d]].map(u16::from_be_bytes);
    Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, high, low)
}

/// How many runs this one is inside of, and the variable that tells those inside of this one.
pub(crate) fn depths() -> (u32, (String, String)) {
    let depth = std::env::var(DEPTH).ok().and_then(|text| text.parse().ok());
    let depth = depth.unwrap_or(0);
    (depth, (DEPTH.to_owned(), (depth + 1).to_string()))
}

pub(crate) fn loopback_up() -> io::Result<()> {
    Routing::open()?.set_up(interface_index("lo")?)?;
    // Nested runs send through this one. If /proc is read-only they cannot, without other effects.
    for (file, value) in FORWARDING {
        let _ = std::fs::write(file, value);
    }
    Ok(())
}

/// Lets TCP of a namespace grow its windows until so many bytes are in flight.
///
/// # Errors
/// What to warn of: the system keeps its bounds.
pub(crate) fn widen(namespace: &NetworkNamespace, bytes: u64) -> Result<(), String> {
    let widened = namespace.inside(|| widen_tcp(bytes));
    widened.map_err(|error| format!("TCP keeps the system's bounds of its windows: {error}"))
}

/// The same of this thread's namespace. A buffer also holds what the kernel needs for itself, about as much again.
fn widen_tcp(bytes: u64) -> io::Result<()> {
    for file in TCP_BUFFERS {
        let text = std::fs::read_to_string(file)?;
        let mut bounds = text.split_whitespace();
        if let (Some(least), Some(first)) = (bounds.next(), bounds.next()) {
            std::fs::write(file, format!("{least} {first} {}", bytes.saturating_mul(2)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use starhaul_needs::{Need, skip};

    use super::*;

    #[test]
    fn no_two_links_share_an_address_and_all_are_kept_for_tests() {
        let mut all: Vec<Ipv4Addr> = Vec::new();
        for (depth, place) in [(0, 0), (0, 1), (1, 0), (7, 4095), (0, 4095)] {
            all.extend(addresses(depth, place));
        }
        assert!(
            all.iter()
                .all(|address| matches!(address.octets(), [198, 18 | 19, ..]))
        );
        let in_ipv6 = in_ipv6(all[0]);
        assert_eq!(in_ipv6.to_string(), "2001:2::c612:1");
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn wider_windows_of_tcp_stay_inside() {
        let inside = match NetworkNamespace::create() {
            Ok(inside) => inside,
            Err(error) => return skip(Need::Netns, error),
        };
        let read = || {
            let text = std::fs::read_to_string(TCP_BUFFERS[1])?;
            Ok(text.split_whitespace().last().map(str::to_owned))
        };
        let outside = read().unwrap();
        inside.inside(|| widen_tcp(64 << 20)).unwrap();
        let widened = inside.inside(read).unwrap();
        assert_eq!(widened, Some((128 << 20).to_string()));
        assert_eq!(read().unwrap(), outside);
    }
}
