//! The host: socket buffers, what the kernel has, programs, disks.

use std::{fs, io, path::PathBuf};

use starhaul_gateway::{
    Config,
    config::{ConnectionTargets, ControlPath},
};
use starhaul_net::{BindOptions, BulkSocket, Interception, IoMode};
use starhaul_replay::NetworkNamespace;

use super::{Cause, Finding};

/// What a gateway asks for, for each socket.
pub(super) const BUFFER_BYTES: u64 = 4 << 20;
/// Less free than this is as good as full.
pub(super) const LEAST_FREE_BYTES: u64 = 16 << 20;
/// What a socket's file, its folder and its lock take.
const SOCKET_BYTES: u64 = 16 << 10;

pub(super) fn examine(config: Option<&Config>) -> Vec<Finding> {
    let mut findings = buffers();
    findings.extend([offload(), joining(), namespaces()]);
    findings.extend(parts_of_kernel(config));
    findings.extend(config.map(disks).unwrap_or_default());
    findings
}

fn buffers() -> Vec<Finding> {
    let finding = |name: &str| {
        let subject = format!("net.core.{name}");
        let bytes = limit(name)?;
        Some(match bytes >= BUFFER_BYTES {
            true => Finding::good(Cause::SocketBuffer, subject, format!("{bytes} bytes")),
            false => Finding::note(
                Cause::SocketBuffer,
                subject,
                format!("{bytes} bytes: bursts of fast links are lost in the socket"),
                format!("sysctl -w net.core.{name}={BUFFER_BYTES}, and the same in /etc/sysctl.d"),
            ),
        })
    };
    ["rmem_max", "wmem_max"]
        .into_iter()
        .filter_map(finding)
        .collect()
}

/// Most bytes that a socket's receive buffer may have without a privilege.
pub(super) fn receive_limit() -> Option<u64> {
    limit("rmem_max")
}

fn limit(name: &str) -> Option<u64> {
    let file = format!("/proc/sys/net/core/{name}");
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Whether the kernel cuts large buffers into datagrams.
fn offload() -> Finding {
    let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    match BulkSocket::bind_with(&BindOptions::new(loopback), IoMode::Gso) {
        Ok(_) => Finding::good(
            Cause::Offload,
            "UDP segmentation offload",
            "the kernel has it",
        ),
        Err(error) => Finding::note(
            Cause::Offload,
            "UDP segmentation offload",
            format!("not possible: {error}"),
            "use a kernel of version 5.0 or later: without it a fast session takes several times the processor",
        ),
    }
}

/// Whether the kernel joins datagrams that arrive together.
fn joining() -> Finding {
    let subject = "UDP receive offload";
    match starhaul_net::joins_datagrams() {
        Ok(()) => Finding::good(Cause::Offload, subject, "the kernel has it"),
        Err(error) => Finding::note(
            Cause::Offload,
            subject,
            format!("not possible: {error}"),
            "use a kernel of version 5.0 or later: without it fast sessions take more of the processor",
        ),
    }
}

/// Whether programs may have networks of their own on this host.
fn namespaces() -> Finding {
    let subject = "network namespaces";
    match NetworkNamespace::create() {
        Ok(_) => Finding::good(Cause::Namespace, subject, "the kernel has them"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Finding::good(
            Cause::Namespace,
            subject,
            "this user may make none without a user namespace",
        ),
        Err(error) => Finding::note(
            Cause::Namespace,
            subject,
            format!("not possible: {error}"),
            "use a kernel with CONFIG_NET_NS: `starhaul replay` needs them, the gateway does not",
        ),
    }
}

/// What the rules of a configuration need, and what the kernel has for those that could be added.
fn parts_of_kernel(config: Option<&Config>) -> Vec<Finding> {
    let has_tunnels = config.is_some_and(|config| !config.tunnels.is_empty());
    let intercepts = config.is_some_and(|config| {
        let mut rules = config.connection_rules.iter();
        rules.any(|rule| is_transparent(&rule.service.targets)) || !config.egress.clients.is_empty()
    });
    let mut findings = vec![tun_device().unless_needed(has_tunnels, "[[tun]]")];
    for program in ["nft", "ip"].into_iter().filter(|_| intercepts) {
        if !is_there(program) {
            let found = format!("the program {program} is missing");
            let advice = "install nftables and iproute2";
            findings.push(Finding::problem(
                Cause::Program,
                "[[tproxy]]",
                found,
                advice,
            ));
        }
    }
    findings.push(transparent(intercepts).unless_needed(intercepts, "[[tproxy]]"));
    findings.extend(config.and_then(cookies));
    findings
}

fn is_transparent(targets: &ConnectionTargets) -> bool {
    matches!(targets, ConnectionTargets::Transparent(_))
}

/// Whether there was a flood of connections, in which not all that pass may be taken.
fn cookies(config: &Config) -> Option<Finding> {
    let mut rules = config.connection_rules.iter();
    if !rules.any(|rule| is_transparent(&rule.service.targets)) {
        return None;
    }
    let setting = fs::read_to_string("/proc/sys/net/ipv4/tcp_syncookies").ok()?;
    let counters = fs::read_to_string("/proc/net/netstat").unwrap_or_default();
    cookies_found(setting.trim(), tcp_counter(&counters, "SyncookiesSent"))
}

/// Of a connection that is answered by a SYN cookie the kernel keeps nothing, and our rules remember some only: of the others the third packet
/// passes, and the server, which knows of no connection, resets it.
fn cookies_found(setting: &str, sent: Option<u64>) -> Option<Finding> {
    // With 2 it answers each connection so, flood or not.
    if setting != "1" {
        return None;
    }
    let sent = sent.filter(|sent| *sent > 0)?;
    let most = Interception::MOST_OPENED_PER_SECOND;
    Some(Finding::note(
        Cause::Transparent,
        "SYN cookies",
        format!(
            "the kernel sent {sent} since it started, as in a flood of connections: while more than {most} a second pass, only a part is taken by [[tproxy]], and the others are reset"
        ),
        "find who opens them (during a flood: nft list set inet starhaul_45110 opening), and stop it there",
    ))
}

/// A counter of the kernel's TCP in `/proc/net/netstat`.
fn tcp_counter(netstat: &str, name: &str) -> Option<u64> {
    let lines = netstat.lines();
    let mut lines = lines.filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split(' ').position(|known| known == name)?;
    values.split(' ').nth(place)?.parse().ok()
}

fn tun_device() -> Finding {
    let device = "/dev/net/tun";
    let opened = fs::OpenOptions::new().read(true).write(true).open(device);
    match opened {
        Ok(_) => Finding::good(
            Cause::TunDevice,
            "TUN devices",
            format!("{device} can be opened"),
        ),
        Err(error) => Finding::problem(
            Cause::TunDevice,
            "TUN devices",
            format!("{device}: {error}"),
            "modprobe tun, and give the gateway's user /dev/net/tun and CAP_NET_ADMIN",
        ),
    }
}

/// Whether sockets may take connections of others. Who asks may have less rights than the gateway.
fn transparent(asks_nftables: bool) -> Finding {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let subject = "transparent sockets";
    match socket.and_then(|socket| socket.set_ip_transparent_v4(true)) {
        Ok(()) if asks_nftables && is_there("nft") => interception(subject),
        Ok(()) => Finding::good(Cause::Transparent, subject, "the kernel has them"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Finding::note(
            Cause::Transparent,
            subject,
            "they are for CAP_NET_ADMIN, which this doctor has not",
            "run the doctor as root; the gateway needs CAP_NET_ADMIN (unit starhaul-router)",
        ),
        Err(error) => Finding::problem(
            Cause::Transparent,
            subject,
            format!("not possible: {error}"),
            "use a kernel with CONFIG_NETFILTER_XT_TARGET_TPROXY or nft_tproxy",
        ),
    }
}

/// Whether nftables and the kernel would take our rules.
fn interception(subject: &str) -> Finding {
    match Interception::check(true) {
        Ok(()) => Finding::good(
            Cause::Transparent,
            subject,
            "the kernel has them, and nftables takes our rules",
        ),
        Err(error) => Finding::problem(
            Cause::Transparent,
            subject,
            error.to_string(),
            "modprobe nft_tproxy nft_socket nft_fib_inet; nft lists what it refuses",
        ),
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(system);
    folders.any(|folder| folder.join(program).is_file())
}

/// The file systems into which the gateway writes, where they are full.
fn disks(config: &Config) -> Vec<Finding> {
    let full = |(folder, least): (PathBuf, u64)| {
        // The gateway makes a folder that is not there yet.
        let mut there = folder.ancestors();
        let folder = there.find(|folder| folder.exists())?;
        let system = rustix::fs::statvfs(folder).ok()?;
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        (free < least).then(|| {
            Finding::problem(
                Cause::Disk,
                format!("disk of {}", folder.display()),
                format!("{free} bytes are free"),
                "make room: the gateway cannot write there",
            )
        })
    };
    written_folders(config)
        .into_iter()
        .filter_map(full)
        .collect()
}

/// The folders of the control socket and of the counts of quotas, with the room that each needs. The key is only read.
fn written_folders(config: &Config) -> Vec<(PathBuf, u64)> {
    let socket = match &config.control {
        ControlPath::At(socket) => Some(socket.clone()),
        ControlPath::Default => Some(ControlPath::default_path()),
        ControlPath::Off => None,
    };
    let socket = socket.and_then(|socket| Some(socket.parent()?.to_owned()));
    let socket = socket.map(|folder| (folder, SOCKET_BYTES));
    let state = config
        .state
        .clone()
        .map(|folder| (folder, LEAST_FREE_BYTES));
    socket.into_iter().chain(state).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn cookies_of_a_flood_are_a_note_and_those_that_the_kernel_always_sends_are_not() {
        use super::super::Level;
        let netstat =
            "TcpExt: SyncookiesSent SyncookiesRecv\nTcpExt: 41 7\nIpExt: InNoRoutes\nIpExt: 3\n";
        let sent = tcp_counter(netstat, "SyncookiesSent");
        assert_eq!(sent, Some(41));
        assert_eq!(tcp_counter(netstat, "SyncookiesRecv"), Some(7));
        assert_eq!(tcp_counter(netstat, "InNoRoutes"), None);
        assert_eq!(tcp_counter("TcpExt: A B\nTcpExt: 1\n", "B"), None);
        let level = |setting, sent| cookies_found(setting, sent).map(|found| found.level);
        assert_eq!(level("2", sent), None, "each connection has one");
        assert_eq!(level("1", sent), Some(Level::Note));
        assert_eq!(level("1", Some(0)), None);
        assert_eq!(level("1", None), None);
        assert_eq!(level("0", sent), None, "from before the change");
    }

    /// A key may lie on a file system that is full and read-only.
    #[test]
    fn room_is_wanted_where_something_is_written() {
        let peer = starhaul_quic::Identity::generate().public_key();
        let config = |more: &str| {
            let text = format!(
                "listen = \"127.0.0.1:0\"\n{more}\n[identity]\nfile = \"/keys/key\"\n[[peer]]\nname = \"p\"\npublic_key = \"{peer}\"\n"
            );
            Config::parse(&text, Path::new("/config/gateway.toml")).unwrap()
        };
        let wanted = |more: &str| {
            let folders = written_folders(&config(more)).into_iter();
            folders
                .map(|(folder, least)| (folder.display().to_string(), least))
                .collect::<Vec<_>>()
        };
        assert!(wanted("control = \"off\"").is_empty());
        let both = "control = \"/sockets/a.sock\"\nstate = \"/state\"";
        let [socket, state] = ["/sockets", "/state"].map(str::to_owned);
        assert_eq!(
            wanted(both),
            [(socket, SOCKET_BYTES), (state, LEAST_FREE_BYTES)]
        );
    }
}
