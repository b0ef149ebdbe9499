//! Two network namespaces, *field* and *ground*, and the links between them.
//!
//! Link `k` is a veth pair whose ends are called `wan{k}` on both sides, with the addresses 10.77.`k`.2 in the field
//! and 10.77.`k`.1 on the ground. Nothing has a name outside the test: the kernel frees namespaces and devices with the
//! last process in them.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _},
    process::{Command, Output},
};

use starhaul_replay::NetworkNamespace;

/// The two sides of the links.
pub(crate) struct Network {
    pub(crate) field: NetworkNamespace,
    pub(crate) ground: NetworkNamespace,
    pub(crate) links: u8,
}

/// One end of all links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Field,
    Ground,
}

impl Network {
    /// Creates the sides and `links` links between them, all up; `None`, with a reported reason, if this system does
    /// not allow it.
    pub(crate) fn create(links: u8) -> Option<Self> {
        let (field, ground) = match (NetworkNamespace::create(), NetworkNamespace::create()) {
            (Ok(field), Ok(ground)) => (field, ground),
            (Err(error), _) | (_, Err(error)) => return skip(&error.to_string()),
        };
        if Command::new("ip").arg("-V").output().is_err() {
            return skip("the program ip is missing (Debian's iproute2)");
        }
        let network = Self {
            field,
            ground,
            links,
        };
        for side in [Side::Field, Side::Ground] {
            network.ip(side, "link set lo up");
        }
        for link in 0..links {
            if let Err(refusal) = network.try_add_link(link) {
                return skip(&refusal);
            }
        }
        Some(network)
    }

    /// The address of one end of a link.
    pub(crate) fn address(side: Side, link: u8) -> String {
        let host = match side {
            Side::Field => 2,
            Side::Ground => 1,
        };
        format!("10.77.{link}.{host}")
    }

    /// An IPv6 address of a link; 1 is the ground's, 2 the field's first one.
    pub(crate) fn ipv6(link: u8, host: u8) -> String {
        format!("fd77:{link}::{host}")
    }

    /// Adds an IPv6 address to one end of a link. It is usable after the kernel's duplicate address detection.
    pub(crate) fn add_ipv6(&self, side: Side, link: u8, host: u8) {
        let address = Self::ipv6(link, host);
        self.ip(side, &format!("address add {address}/64 dev wan{link}"));
    }

    pub(crate) fn namespace(&self, side: Side) -> &NetworkNamespace {
        match side {
            Side::Field => &self.field,
            Side::Ground => &self.ground,
        }
    }

    /// Makes the veth pair of a link, with its addresses, and brings it up.
    pub(crate) fn add_link(&self, link: u8) {
        if let Err(refusal) = self.try_add_link(link) {
            panic!("{refusal}");
        }
    }

    /// Deletes the veth pair of a link, both ends of it.
    pub(crate) fn delete_link(&self, link: u8) {
        self.ip(Side::Field, &format!("link delete wan{link}"));
    }

    /// Replaces the addresses of one end of a link by another one of the same network.
    pub(crate) fn change_address(&self, side: Side, link: u8, host: u8) {
        self.ip(side, &format!("address flush dev wan{link}"));
        self.ip(
            side,
            &format!("address add 10.77.{link}.{host}/24 dev wan{link}"),
        );
    }

    /// Drops all packets on a link without notice, in both directions.
    pub(crate) fn cut(&self, link: u8) {
        for (side, other) in [(Side::Field, Side::Ground), (Side::Ground, Side::Field)] {
            // The neighbour does not exist.
            let there = Self::address(other, link);
            let wrong = format!(
                "neigh replace {there} lladdr 02:00:00:00:00:01 dev wan{link} nud permanent"
            );
            self.ip(side, &wrong);
        }
    }

    /// Mends a link that [`Network::cut`] has cut.
    pub(crate) fn mend(&self, link: u8) {
        for (side, other) in [(Side::Field, Side::Ground), (Side::Ground, Side::Field)] {
            let there = Self::address(other, link);
            self.ip(side, &format!("neigh delete {there} dev wan{link}"));
        }
    }

    /// From now on each end of a link loses that many of a hundred UDP packets at random; false, with a reported reason, where the
    /// kernel takes no such rule.
    pub(crate) fn lose(&self, link: u8, percent: u8) -> bool {
        [Side::Field, Side::Ground].into_iter().all(|side| {
            let rules = format!(
                "create table inet loss{link}\n\
                 create chain inet loss{link} arriving {{ type filter hook input priority filter; }}\n\
                 add rule inet loss{link} arriving iifname wan{link} meta l4proto udp numgen random mod 100 < {percent} drop\n"
            );
            let refusal = match self.run(side, Command::new("nft").arg(rules)) {
                Ok(output) if output.status.success() => return true,
                Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(error) => error.to_string(),
            };
            starhaul_needs::skip(starhaul_needs::Need::Nftables, refusal);
            false
        })
    }

    /// Sets the MTU of one end of a link. That end drops larger packets of the other one without notice, so with one
    /// small end the link acts as a path with an MTU black hole.
    pub(crate) fn set_mtu(&self, side: Side, link: u8, mtu: u16) {
        for end in [Side::Field, Side::Ground] {
            // Otherwise batches pass the veth as one large packet, whatever the MTU of the other end.
            self.ip(end, &format!("link set wan{link} gso_max_segs 1"));
        }
        self.ip(side, &format!("link set wan{link} mtu {mtu}"));
    }

    /// Runs `ip` with these arguments on one side; an error fails the test.
    pub(crate) fn ip(&self, side: Side, arguments: &str) {
        if let Err(refusal) = self.try_ip(side, arguments) {
            panic!("{refusal}");
        }
    }

    /// Runs a command on one side to its end.
    pub(crate) fn run(&self, side: Side, command: &mut Command) -> io::Result<Output> {
        self.namespace(side).inside(|| command.output())
    }

    fn try_add_link(&self, link: u8) -> Result<(), String> {
        let ground = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.ground.as_fd().as_raw_fd()
        );
        let pair = format!("link add wan{link} type veth peer name wan{link} netns {ground}");
        self.try_ip(Side::Field, &pair)?;
        for side in [Side::Field, Side::Ground] {
            let address = Self::address(side, link);
            self.try_ip(side, &format!("address add {address}/24 dev wan{link}"))?;
            self.try_ip(side, &format!("link set wan{link} up"))?;
        }
        Ok(())
    }

    /// Runs `ip` with these arguments on one side.
    pub(crate) fn try_ip(&self, side: Side, arguments: &str) -> Result<(), String> {
        let mut command = Command::new("ip");
        command.args(arguments.split_whitespace());
        let output = self
            .run(side, &mut command)
            .map_err(|error| format!("ip {arguments}: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!(
                "ip {arguments}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )),
        }
    }
}

/// Skips a test that needs namespaces; the only place where this happens.
fn skip(reason: &str) -> Option<Network> {
    let why = "with veth devices; run as root, or under `unshare --user --map-root-user`";
    starhaul_needs::skip(starhaul_needs::Need::Netns, format!("{why}: {reason}"));
    None
}
