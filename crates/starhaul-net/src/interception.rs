//! Interception of what passes this host (TPROXY): a table of nftables, two routing rules and a route, which exist as long as their
//! owner does.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{SocketAddrUnix, bind},
};

use crate::{Error, Prefix};

/// Numbers for marks and routing tables; the first that nothing uses is taken.
const NUMBERS: std::ops::Range<u32> = 45_110..45_142;
/// They, as a pattern of the shell.
const PATTERN: &str = "451[1-4][0-9]";
/// Table names of nftables, before the number.
const TABLES: &str = "starhaul_";
/// The chain that marks them.
const HELD: &str = "held";
/// Connections being opened that are remembered at once, for the kernel keeps nothing of one that it answers by a SYN cookie (RFC 4987 §3.6).
/// They take up to 9 MB. Those beyond are taken where the kernel keeps them itself, as it does but in a flood.
const OPENING: u32 = 65_536;
/// How long each is: until the client's third packet came, or what it repeats of it. The shorter, the larger a flood may be.
const OPENING_SECONDS: u32 = 5;
/// How long the owner may take to read its rules.
const READ_TIME: Duration = Duration::from_secs(10);
/// Makes the rules, again where another program removed them, and ends them when its input ends: with the process that owns the other
/// end, however that ends. It ignores signals, which a
/// terminal and a service manager send to it, too.
const OWNER: &str = include_str!("interception.sh");

/// Packets to some foreign addresses arrive at sockets of this host, until dropped.
#[derive(Debug)]
pub struct Interception {
    owner: Child,
    number: u32,
    /// Its end is the owner's.
    input: Option<UnixStream>,
    /// What holds the number's name, if it was free.
    _name: UnixStream,
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
    /// New connections per second up to which [`Self::of_connections`] takes all while the kernel answers by SYN cookies; of more it takes
    /// as large a part as this is of them.
    pub const MOST_OPENED_PER_SECOND: u32 = OPENING / (OPENING_SECONDS + 1);

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
        reclaim();
        // Who has a number's name may just be removing what a killed process left there. Without it a number is taken only where none
        // is left with it: any process on this host can take all names.
        for must_have_name in [true, false] {
            for number in NUMBERS {
                match Self::try_begin(is_ipv4, &rules(number), number, must_have_name) {
                    // Another one has the number.
                    Err(Refusal::Taken) => {}
                    Err(Refusal::Other(reason)) => return Err(Error::Interception(reason)),
                    Ok(started) => return Ok(started),
                }
            }
        }
        let refusal = format!("marks and routing tables {NUMBERS:?} are all in use");
        Err(Error::Interception(refusal))
    }

    fn try_begin(
        is_ipv4: bool,
        rules: &str,
        number: u32,
        must_have_name: bool,
    ) -> Result<Self, Refusal> {
        let (mut input, name) = UnixStream::pair().map_err(other)?;
        input.set_write_timeout(Some(READ_TIME)).map_err(other)?;
        let mark = match take_name(number, &name).map_err(other)? {
            true => held(number),
            false if must_have_name => return Err(Refusal::Taken),
            // Whether the number is in use, the kernel's tables tell.
            false => String::new(),
        };
        let mut command = script(number, is_ipv4);
        // It has the name, too, for as long as it needs to remove the rules of a process that was killed.
        command.stdin(OwnedFd::from(name.try_clone().map_err(other)?));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut owner = command.spawn().map_err(other)?;
        let rules = format!("{}\n{mark}\n", rules.trim_end());
        let mut answer = String::new();
        // One that does not read them in time is told that no more come.
        let written = input.write_all(rules.as_bytes());
        let input = written.as_ref().ok().map(|()| input);
        // Where it has ended already, it has said why.
        if let Some(output) = &mut owner.stdout {
            BufReader::new(output)
                .read_line(&mut answer)
                .map_err(other)?;
        }
        match answer.trim() {
            "ready" => {
                return Ok(Self {
                    owner,
                    number,
                    input,
                    _name: name,
                });
            }
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
        written.map_err(other)?;
        Err(Refusal::Other(reason.trim().to_owned()))
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        drop(self.input.take());
        let ended = self.owner.wait();
        // One that was killed has left its rules.
        if !ended.is_ok_and(|status| status.success()) {
            remove(self.number);
        }
    }
}

/// The owner's script, for a number.
fn script(number: u32, is_ipv4: bool) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", OWNER, "sh", &number.to_string(), PATTERN]);
    command.arg(if is_ipv4 { "-4" } else { "-6" });
    command.process_group(0);
    command
}

/// Gives a socket the name of a number, which the kernel gives to one at a time in a network namespace, and takes back when the last process has
/// closed it; `false` if another one has it.
fn take_name(number: u32, socket: &UnixStream) -> std::io::Result<bool> {
    let name = SocketAddrUnix::new_abstract_name(format!("{TABLES}{number}").as_bytes())?;
    match bind(socket, &name) {
        Ok(()) => Ok(true),
        Err(Errno::ADDRINUSE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Marks the table of an owner that has its name: only such tables are removed when no process has the name any more.
fn held(number: u32) -> String {
    format!("create chain inet {TABLES}{number} {HELD}\n")
}

/// Removes the rules of those that were killed with all their processes: they go on taking what passes, and no process has their names.
fn reclaim() {
    let mut command = Command::new("nft");
    command
        .args(["list", "chains", "inet"])
        .stdin(Stdio::null());
    // Where there is no such program, nothing starts, which says why.
    let Ok(listed) = command.output() else { return };
    for number in held_numbers(&String::from_utf8_lossy(&listed.stdout)) {
        let Ok((_, socket)) = UnixStream::pair() else {
            return;
        };
        if take_name(number, &socket).unwrap_or(false) {
            remove(number);
        }
    }
}

/// The numbers of marked tables among the chains that nftables lists.
fn held_numbers(listed: &str) -> Vec<u32> {
    let (mut table, mut numbers) = (None, Vec::new());
    for line in listed.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("table inet ") {
            let name = name.trim_end_matches('{').trim_end();
            let number = name
                .strip_prefix(TABLES)
                .and_then(|n| n.parse::<u32>().ok());
            table = number.filter(|number| NUMBERS.contains(number));
        } else if line
            .strip_prefix("chain ")
            .and_then(|rest| rest.split_whitespace().next())
            == Some(HELD)
        {
            numbers.extend(table);
        }
    }
    numbers
}

/// Removes the rules of a number whose owner is dead; nothing where there are none.
fn remove(number: u32) {
    let mut command = script(number, true);
    command.arg("end").stdin(Stdio::null());
    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
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
    let ip = version(socket.is_ipv4());
    // What belongs to no connection of ours, as an answer to a connection from elsewhere, is left alone. The flags are first, for they spare
    // all packets of open connections the rest, the lookup of the routes above all.
    let mut matching = "tcp flags & (fin | syn | rst | ack) == syn ".to_owned();
    if let Some(interface) = passing.interface {
        let _ = write!(matching, "iifname \"{interface}\" ");
    }
    let networks = set(socket.is_ipv4(), passing.networks);
    let _ = write!(
        matching,
        "{ip} daddr {{ {networks} }} fib daddr type != local"
    );
    let ports: Vec<_> = passing
        .ports
        .iter()
        .map(|ports| format!("{}-{}", ports.start(), ports.end()))
        .collect();
    if !ports.is_empty() {
        let _ = write!(matching, " tcp dport {{ {} }}", ports.join(", "));
    }
    table(number)
        + &openings(socket, &matching, number)
        + &of_own_sockets(socket.is_ipv4(), passing.open, number)
}

/// Leads connections that are opened by packets such as match to the listening socket, and what completes one of which the kernel kept nothing:
/// that packet belongs to no socket, and would pass. The socket refuses what has no cookie of its.
fn openings(socket: SocketAddr, matching: &str, number: u32) -> String {
    let (to, ip, port) = (place(socket), version(socket.is_ipv4()), socket.port());
    let name = format!("inet {TABLES}{number}");
    let address = match socket.is_ipv4() {
        true => "ipv4_addr",
        false => "ipv6_addr",
    };
    let ends = format!("{ip} saddr . tcp sport . {ip} daddr . tcp dport");
    let lead = format!("tproxy {ip} to {to}:{port} meta mark set {number} counter accept");
    // Where the set is full, the rule that adds to it ends there, and the next one takes the connection all the same. What completes one is
    // looked for before the rules of sockets, which leave a packet alone whose destination has the listening socket's port.
    format!(
        "create set {name} opening {{ type {address} . inet_service . {address} . inet_service; size {OPENING}; flags dynamic, timeout; timeout {OPENING_SECONDS}s; }}\n\
         create chain {name} taken\n\
         add rule {name} taken update @opening {{ {ends} }}\n\
         add rule {name} taken meta l4proto tcp {lead}\n\
         add rule {name} passing {matching} jump taken\n\
         add rule {name} passing tcp flags & (syn | rst | ack) == ack {ends} @opening {lead}\n"
    )
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
    // Of fragments only the first one tells of a socket. Where there is a rule with `tproxy`, the kernel joins them before; this one is in a
    // chain that nothing enters.
    let ip = version(is_ipv4);
    let joining = format!(
        "create chain inet {TABLES}{number} joining\n\
         add rule inet {TABLES}{number} joining meta l4proto tcp tproxy {ip} to :1\n"
    );
    table(number) + &joining + &of_own_sockets(is_ipv4, networks, number)
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
        if target.is_ipv6() {
            // What the relay sends in the target's name no router cuts: the ICMPv6 error that it is too long is for the relay.
            let _ = writeln!(
                text,
                "add rule inet starhaul_{number} passing {ip} daddr {target} icmpv6 type packet-too-big \
                 socket transparent 1 meta mark set {number} counter accept"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_tables_of_ours_are_given_up_by_the_dead() {
        let listed = "table inet starhaul_45110 {\n\tchain passing {\n\t\ttype filter hook prerouting priority mangle; policy accept;\n\t}\n\tchain held {\n\t}\n}\n\
             table inet starhaul_45111 {\n\tchain passing {\n\t}\n}\n\
             table inet firewall {\n\tchain held {\n\t}\n}\n\
             table inet starhaul_7 {\n\tchain held {\n\t}\n}\n\
             table inet starhaul_45112 {\n\tchain held {\n\t}\n}\n";
        assert_eq!(held_numbers(listed), [45_110, 45_112]);
    }

    /// Otherwise a full set would keep connections out.
    #[test]
    fn the_rule_that_remembers_a_connection_is_not_the_one_that_takes_it() {
        for (socket, network, to) in [
            ("0.0.0.0:4700", "192.0.2.0", "tproxy ip to :4700"),
            (
                "[fd00::1]:4700",
                "2001:db8::",
                "tproxy ip6 to [fd00::1]:4700",
            ),
        ] {
            let networks: [Prefix; 1] = [(network.parse().unwrap(), 24)];
            let passing = Passing {
                networks: &networks,
                open: &networks,
                ports: &[80..=80, 8000..=8099],
                interface: Some("lan"),
            };
            let rules = connections(socket.parse().unwrap(), &passing, 45_110);
            let line = |part: &str| {
                let found = rules.lines().position(|line| line.contains(part));
                found.unwrap_or_else(|| panic!("no {part}: {rules}"))
            };
            let (remembers, takes) = (line("update @opening"), line(to));
            assert_eq!(takes, remembers + 1, "{rules}");
            assert!(line("jump taken") < line("@opening tproxy"), "{rules}");
            assert!(line("@opening tproxy") < line("socket wildcard"), "{rules}");
            assert_eq!(rules.matches(to).count(), 2, "{rules}");
        }
    }

    #[test]
    fn only_over_ipv6_a_relay_takes_the_word_of_routers_that_packets_are_too_long() {
        for (socket, target, taken) in [
            ("[::]:4511", "2001:db8::1", 1),
            ("0.0.0.0:4511", "192.0.2.1", 0),
        ] {
            let target = target.parse().unwrap();
            let rules = datagrams(socket.parse().unwrap(), &[target], 45_110);
            assert_eq!(rules.matches("tproxy").count(), 1, "{rules}");
            assert_eq!(rules.matches("packet-too-big").count(), taken, "{rules}");
        }
    }
}
