//! Kernels that answer with cookies or mind marks everywhere, a flood, and packets that were cut on their way: connections are taken all
//! the same.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd as _, AsRawFd as _},
    process::Command,
};

use starhaul_needs::{Need, skip};
use starhaul_replay::NetworkNamespace;

use super::{
    super::{
        PATIENCE,
        gateway::Pair,
        network::{Network, Side},
        wait_for,
    },
    CLIENT, Hosts, RULE, SERVER, can_intercept, carries_much, rules,
};

const ALLOWED: &str = "allow = [\"10.88.2.0/24:8000\"]\n";

/// A network in which connections can be intercepted, and its hosts.
fn network() -> Option<(Network, Hosts)> {
    let network = Network::create(1)?;
    if !can_intercept(&network) {
        return None;
    }
    let hosts = Hosts::create(&network);
    Some((network, hosts))
}

/// The field's gateway with these rules, and the ground's with these keys of `[egress]`.
fn start(network: &Network, field: &str, egress: &str) -> Pair {
    let pair = Pair::start_changed(network, |side, launch| match side {
        Side::Field => launch.configuration += field,
        Side::Ground => {
            let allowed = "allow = [\"127.0.0.0/8:*\"]\n";
            launch.configuration = launch.configuration.replace(allowed, egress);
        }
    });
    pair.wait_until_up(&["link0"]);
    for (side, tables) in [
        (Side::Field, field.matches("[[tproxy]]").count()),
        (Side::Ground, egress.matches("clients").count()),
    ] {
        wait_for("the rules", || {
            let made = rules(network, side).matches("table inet").count();
            (made == tables).then_some(())
        });
    }
    pair
}

fn ip(host: &NetworkNamespace, arguments: &str) {
    let mut ip = Command::new("ip");
    ip.args(arguments.split_whitespace());
    let status = host.inside(|| ip.status()).unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Sets what a kernel has below `/proc/sys/net`.
fn set(host: &NetworkNamespace, name: &str, value: &str) {
    let file = format!("/proc/sys/net/{name}");
    let written = host.inside(|| fs::write(&file, value));
    written.unwrap_or_else(|error| panic!("{file}: {error}"));
}

/// A server that listens at this address.
fn listen(host: &NetworkNamespace, address: &str) -> TcpListener {
    let listener = host.inside(|| TcpListener::bind(address)).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let (stream, from) = wait_for("a connection at the server", || listener.accept().ok());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (stream, from)
}

/// A connection of the client arrives at the server, and what each of them sends at the other one; returns where it came from.
fn exchange(hosts: &Hosts, server: &str, listener: &TcpListener) -> SocketAddr {
    let mut near = hosts.connect(server).unwrap();
    near.write_all(b"there").unwrap();
    let (mut far, from) = accept(listener);
    let mut received = [0; 5];
    far.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"there");
    far.write_all(b"again").unwrap();
    near.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"again");
    from
}

/// Gives the hosts and their routers IPv6, too; `false`, with a reported reason, where the kernel has none.
fn add_ipv6(network: &Network, hosts: &Hosts) -> bool {
    for (side, host, number) in [
        (Side::Field, &hosts.client, 1),
        (Side::Ground, &hosts.server, 2),
    ] {
        // Without duplicate address detection, which takes a second.
        let router = format!("address add fd88:{number}::1/64 dev lan nodad");
        if let Err(refusal) = network.try_ip(side, &router) {
            skip(Need::Ipv6, refusal);
            return false;
        }
        ip(
            host,
            &format!("address add fd88:{number}::2/64 dev wan nodad"),
        );
        ip(
            host,
            &format!("-6 route add default via fd88:{number}::1 dev wan"),
        );
    }
    true
}

/// Connections of the field that were completed by a SYN cookie.
fn completed_by_cookies(network: &Network) -> u64 {
    let mut counters = Command::new("cat");
    let counters = network.run(Side::Field, counters.arg("/proc/net/netstat"));
    let counters = String::from_utf8(counters.unwrap().stdout).unwrap();
    let mut lines = counters.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut names = names.split(' ');
    let place = names.position(|name| name == "SyncookiesRecv").unwrap();
    values.split(' ').nth(place).unwrap().parse().unwrap()
}

/// As in a flood: of a connection that it answers so the kernel keeps nothing, and the client's third packet belongs to no socket. Where its
/// destination has the port of the rule's own socket, it looks like one for that.
#[test]
fn connections_that_the_kernel_answers_with_cookies_are_taken() {
    let Some((network, hosts)) = network() else {
        return;
    };
    let has_ipv6 = add_ipv6(&network, &hosts);
    let mut field = RULE.replace("0.0.0.0:4700", "0.0.0.0:8000");
    let mut allowed = ALLOWED.to_owned();
    if has_ipv6 {
        let rule = RULE.replace("\"lan\"\nlisten", "\"lan6\"\nlisten");
        let rule = rule.replace("0.0.0.0:4700", "[::]:4700");
        field += &rule.replace("10.88.2.0/24", "fd88:2::/64");
        allowed = allowed.replace("]\n", ", \"[fd88:2::/64]:8000\"]\n");
    }
    set(&network.field, "ipv4/tcp_syncookies", "2");
    let _pair = start(&network, &field, &allowed);

    let listener = listen(&hosts.server, SERVER);
    exchange(&hosts, SERVER, &listener);
    assert!(completed_by_cookies(&network) > 0);
    if has_ipv6 {
        let server = "[fd88:2::2]:8000";
        let listener = listen(&hosts.server, server);
        let before = completed_by_cookies(&network);
        exchange(&hosts, server, &listener);
        assert!(completed_by_cookies(&network) > before);
    }
}

/// What the rules remember has a bound, and a connection for which there is no room is one that the kernel may keep itself.
#[test]
fn a_flood_that_takes_all_room_keeps_no_other_connection_out() {
    let Some((network, hosts)) = network() else {
        return;
    };
    let pair = start(&network, RULE, ALLOWED);
    let listener = listen(&hosts.server, SERVER);
    let opened: Vec<_> = (0..=u16::MAX)
        .map(u16::to_be_bytes)
        .map(|[high, low]| format!("198.18.{high}.{low} . 1 . 10.88.2.2 . 8000 timeout 1h"))
        .collect();
    let add = |opened: &str| {
        let file = pair.directory().join("opened");
        let all = format!("add element inet starhaul_45110 opening {{ {opened} }}\n");
        fs::write(&file, all).unwrap();
        let mut nft = Command::new("nft");
        network.run(Side::Field, nft.arg("-f").arg(file)).unwrap()
    };
    let added = add(&opened.join(", "));
    assert!(added.status.success(), "{added:?}");
    let more = add("198.19.0.1 . 1 . 10.88.2.2 . 8000");
    assert!(!more.status.success(), "there is room");
    exchange(&hosts, SERVER, &listener);
}

/// The check of a packet's way back, as `wg-quick` sets it, and sockets that send with the mark of what came.
#[test]
fn connections_are_taken_where_all_that_the_kernel_does_minds_marks() {
    let Some((network, hosts)) = network() else {
        return;
    };
    for side in [&network.field, &network.ground] {
        set(side, "ipv4/conf/all/src_valid_mark", "1");
        set(side, "ipv4/tcp_fwmark_accept", "1");
    }
    let field = format!("{RULE}keep_client = true\n");
    let egress = format!("{ALLOWED}clients = [\"10.88.1.0/24\"]\n");
    let _pair = start(&network, &field, &egress);
    let listener = listen(&hosts.server, SERVER);
    let from = exchange(&hosts, SERVER, &listener);
    assert_eq!(from.ip().to_string(), CLIENT);
}

/// Of a server that lets routers cut its packets, before a link with a smaller MTU: only the first fragment tells of the socket at the far
/// gateway that it is for.
#[test]
fn a_download_whose_packets_come_in_fragments_arrives() {
    const BEHIND: &str = "10.88.6.2:8000";
    let Some((network, hosts)) = network() else {
        return;
    };
    // What was the server is a router now, and the server is behind it.
    let (router, server) = (&hosts.server, NetworkNamespace::create().unwrap());
    let there = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        server.as_fd().as_raw_fd()
    );
    ip(
        router,
        &format!("link add next type veth peer name wan netns {there}"),
    );
    for setting in [
        "address add 10.88.6.1/24 dev next",
        "link set next up",
        "link set wan mtu 1000",
    ] {
        ip(router, setting);
    }
    set(router, "ipv4/ip_forward", "1");
    for setting in [
        "address add 10.88.6.2/24 dev wan",
        "link set wan up",
        "route add default via 10.88.6.1",
    ] {
        ip(&server, setting);
    }
    set(&server, "ipv4/ip_no_pmtu_disc", "1");
    network.ip(Side::Ground, "route add 10.88.6.0/24 via 10.88.2.2 dev lan");

    let rule = RULE.replace("10.88.2.0/24", "10.88.6.0/24");
    let egress = "allow = [\"10.88.6.0/24:8000\"]\nclients = [\"10.88.1.0/24\"]\n";
    let _pair = start(&network, &format!("{rule}keep_client = true\n"), egress);
    let listener = listen(&server, BEHIND);
    let mut near = hosts.connect(BEHIND).unwrap();
    let (mut far, from) = accept(&listener);
    assert_eq!(from.ip().to_string(), CLIENT);
    carries_much(&mut far, &mut near);
}
