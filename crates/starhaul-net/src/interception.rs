//! Interception of what passes this host (TPROXY): a table of nftables, a routing rule and a route, which exist as long as their
//! owner does.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

use crate::{Error, Prefix};

/// Numbers for marks and routing tables; the first that nothing uses is taken.
const NUMBERS: std::ops::Range<u32> = 45_110..45_142;
/// They, as a pattern of the shell.
const PATTERN: &str = "451[1-4][0-9]";
/// Makes the rules, again where another program removed them, and ends them when its input ends: with the process that owns the other
/// end, however that ends. It ignores signals, which a
/// terminal and a service manager send to it, too.
const OWNER: &str = include_str!("interception.sh");

/// Packets to some foreign addresses arrive at sockets of this host, until dropped.
#[derive(Debug)]
pub struct Interception {
    owner: Child,
}

/// Which TCP connections that pass this host are intercepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passing<'a> {
    /// Destinations; those of another version of IP than the socket's are left alone.
    pub networks: &'a [Prefix],
    /// Destinations of connections that may be open, those above and of earlier rules: what comes to their sockets arrives at them.
    pub open: &'a [Prefix],
    /// Ports of the destination; all if empty.
    pub ports: &'a [RangeInclusive<u16>],
    /// The interface over which they come; any if `None`. It need not exist.
    pub interface: Option<&'a str>,
}

impl Interception {
    /// Datagrams that pass this host to `targets`, at the port of `socket`, arrive there. They keep their destination.
    ///
    /// # Errors
    /// [`Error::Interception`]: a program, a part of the kernel or the permission is missing.
    pub(crate) fn start(socket: SocketAddr, targets: &[IpAddr]) -> Result<Self, Error> {
        let rules = |number| datagrams(socket, targets, number);
        Self::begin(socket.is_ipv4(), rules)
    }

    /// TCP connections that pass this host arrive at the listening `socket`, which must be transparent. A connection's local
    /// address is its destination. Those to this host itself are left alone.
    ///
    /// # Errors
    /// [`Error::Interception`]: a program, a part of the kernel or the permission is missing.
    pub fn of_connections(socket: SocketAddr, passing: &Passing<'_>) -> Result<Self, Error> {
        Self::begin(socket.is_ipv4(), |number| {
            connections(socket, passing, number)
        })
    }

    /// What comes to the transparent TCP sockets of this host, which have addresses of these networks, arrives at them.
    ///
    /// # Errors
    /// [`Error::Interception`]: a program, a part of the kernel or the permission is missing.
    pub fn of_answers(is_ipv4: bool, networks: &[Prefix]) -> Result<Self, Error> {
        Self::begin(is_ipv4, |number| answers(is_ipv4, networks, number))
    }

    /// Asks nftables and the kernel whether they would take rules such as [`Self::of_connections`] makes; changes nothing.
    ///
    /// # Errors
    /// [`Error::Interception`]: the program, a part of the kernel or the permission is missing.
    pub fn check(is_ipv4: bool) -> Result<(), Error> {
        let (networks, socket): (_, IpAddr) = match is_ipv4 {
            true => (
                (Ipv4Addr::UNSPECIFIED.into(), 0),
                Ipv4Addr::LOCALHOST.into(),
            ),
            false => (
                (Ipv6Addr::UNSPECIFIED.into(), 0),
                Ipv6Addr::LOCALHOST.into(),
            ),
        };
        let passing = Passing {
            networks: &[networks],
            open: &[networks],
            ports: &[],
            interface: None,
        };
        // A number that no interception has.
        let rules = connections(SocketAddr::new(socket, 1), &passing, 0);
        let mut command = Command::new("nft");
        command.args(["--check", &rules]).stdin(Stdio::null());
        let answer = command.output();
        let answer = answer.map_err(|error| Error::Interception(format!("nft: {error}")))?;
        if answer.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&answer.stderr);
        let reason = reason.lines().next().unwrap_or("nft refused");
        Err(Error::Interception(reason.trim().to_owned()))
    }

    fn begin(is_ipv4: bool, rules: impl Fn(u32) -> String) -> Result<Self, Error> {
        for number in NUMBERS {
            match Self::try_begin(is_ipv4, &rules(number), number) {
                // Another one has the number.
                Err(Refusal::Taken) => {}
                Err(Refusal::Other(reason)) => return Err(Error::Interception(reason)),
                Ok(started) => return Ok(started),
            }
        }
        let refusal = format!("marks and routing tables {NUMBERS:?} are all in use");
        Err(Error::Interception(refusal))
    }

    fn try_begin(is_ipv4: bool, rules: &str, number: u32) -> Result<Self, Refusal> {
        let mut command = Command::new("sh");
        command.args(["-c", OWNER, "sh", &number.to_string(), PATTERN]);
        command.arg(if is_ipv4 { "-4" } else { "-6" });
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).process_group(0);
        let mut owner = command.spawn().map_err(other)?;
        if let Some(input) = &mut owner.stdin {
            // Where it has ended already, it has said why.
            let _ = input.write_all(format!("{}\n\n", rules.trim_end()).as_bytes());
        }
        let mut answer = String::new();
        if let Some(output) = &mut owner.stdout {
            BufReader::new(output)
                .read_line(&mut answer)
                .map_err(other)?;
        }
        match answer.trim() {
            "ready" => return Ok(Self { owner }),
            "taken" => {
                let _ = owner.wait();
                return Err(Refusal::Taken);
            }
            _ => {}
        }
        let mut reason = String::new();
        if let Some(errors) = &mut owner.stderr {
            errors.read_to_string(&mut reason).map_err(other)?;
        }
        let _ = owner.wait();
        Err(Refusal::Other(reason.trim().to_owned()))
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        drop(self.owner.stdin.take());
        let _ = self.owner.wait();
    }
}

/// Why interception did not start.
enum Refusal {
    Taken,
    Other(String),
}

fn other(error: std::io::Error) -> Refusal {
    Refusal::Other(error.to_string())
}

/// The keyword of nftables for a version of IP.
const fn version(is_ipv4: bool) -> &'static str {
    if is_ipv4 { "ip" } else { "ip6" }
}

/// The beginning of a table of nftables.
fn table(number: u32) -> String {
    format!(
        "create table inet starhaul_{number}\n\
         create chain inet starhaul_{number} passing {{ type filter hook prerouting priority mangle; }}\n"
    )
}

/// A set of nftables of these networks, as far as they are of one version of IP.
fn set(is_ipv4: bool, networks: &[Prefix]) -> String {
    let of_version = networks.iter().filter(|(ip, _)| ip.is_ipv4() == is_ipv4);
    let written: Vec<_> = of_version
        .map(|(ip, bits)| format!("{ip}/{bits}"))
        .collect();
    written.join(", ")
}

fn connections(socket: SocketAddr, passing: &Passing<'_>, number: u32) -> String {
    let (ip, port) = (version(socket.is_ipv4()), socket.port());
    let mut matching = String::new();
    if let Some(interface) = passing.interface {
        let _ = write!(matching, "iifname \"{interface}\" ");
    }
    let networks = set(socket.is_ipv4(), passing.networks);
    let _ = write!(
        matching,
        "{ip} daddr {{ {networks} }} fib daddr type != local "
    );
    let ports: Vec<_> = passing
        .ports
        .iter()
        .map(|ports| format!("{}-{}", ports.start(), ports.end()))
        .collect();
    match ports.is_empty() {
        true => matching.push_str("meta l4proto tcp"),
        false => {
            let _ = write!(matching, "tcp dport {{ {} }}", ports.join(", "));
        }
    }
    let to = place(socket);
    // What belongs to no connection of ours, as an answer to a connection from elsewhere, is left alone.
    let opening = "tcp flags & (fin | syn | rst | ack) == syn";
    table(number)
        + &format!(
            "add rule inet starhaul_{number} passing {matching} {opening} tproxy {ip} to {to}:{port} meta mark set {number} counter accept\n"
        )
        + &of_own_sockets(socket.is_ipv4(), passing.open, number)
}

/// What comes to a connected transparent socket of this host with an address of these networks arrives at it, and ICMP errors that tell of
/// what it sent, by which it learns the path's MTU.
fn of_own_sockets(is_ipv4: bool, networks: &[Prefix], number: u32) -> String {
    let (ip, networks) = (version(is_ipv4), set(is_ipv4, networks));
    let ours = format!(
        "add rule inet starhaul_{number} passing {ip} daddr {{ {networks} }} meta l4proto {{ tcp, icmp, ipv6-icmp }} socket transparent 1"
    );
    // A listening socket has no part in a connection that is open already. Of one that is being opened the kernel cannot tell.
    format!("{ours} socket wildcard 1 return\n{ours} meta mark set {number} counter accept\n")
}

fn answers(is_ipv4: bool, networks: &[Prefix], number: u32) -> String {
    table(number) + &of_own_sockets(is_ipv4, networks, number)
}

/// Where a rule redirects to; nothing for a socket at any address.
fn place(socket: SocketAddr) -> String {
    match socket.ip() {
        ip if ip.is_unspecified() => String::new(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn datagrams(socket: SocketAddr, targets: &[IpAddr], number: u32) -> String {
    let (to, ip, port) = (place(socket), version(socket.is_ipv4()), socket.port());
    let mut text = table(number);
    for target in targets {
        // Without a socket, as before it is bound again, the rule ends at `tproxy`, and the datagram passes.
        let _ = writeln!(
            text,
            "add rule inet starhaul_{number} passing {ip} daddr {target} udp dport {port} \
             tproxy {ip} to {to}:{port} meta mark set {number} counter accept"
        );
    }
    text
}
