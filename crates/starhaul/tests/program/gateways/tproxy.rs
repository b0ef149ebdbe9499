//! TCP connections that pass a router are taken there, and opened again beside their target in the client's name.

mod kernels;

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::fd::{AsFd as _, AsRawFd as _},
    process::{Command, Stdio},
};

use starhaul_needs::{Need, skip};
use starhaul_replay::NetworkNamespace;

use super::{
    PATIENCE,
    gateway::{Gateway, Pair, paths},
    network::{Network, Side},
    wait_for,
};

const CLIENT: &str = "10.88.1.2";
const SERVER: &str = "10.88.2.2:8000";
const RULE: &str = "[[tproxy]]\nname = \"lan\"\nlisten = \"0.0.0.0:4700\"\nnetworks = [\"10.88.2.0/24\"]\nports = [\"8000\"]\ninterface = \"lan\"\n";

/// A host behind each side, whose default route leads there.
struct Hosts {
    client: NetworkNamespace,
    server: NetworkNamespace,
}

impl Hosts {
    fn create(network: &Network) -> Self {
        let host = |side, number: u8| {
            let host = NetworkNamespace::create().unwrap();
            let there = format!(
                "/proc/{}/fd/{}",
                std::process::id(),
                host.as_fd().as_raw_fd()
            );
            network.ip(
                side,
                &format!("link add lan type veth peer name wan netns {there}"),
            );
            network.ip(side, &format!("address add 10.88.{number}.1/24 dev lan"));
            network.ip(side, "link set lan up");
            for setting in [
                format!("address add 10.88.{number}.2/24 dev wan"),
                "link set wan up".to_owned(),
                format!("route add default via 10.88.{number}.1"),
            ] {
                let mut ip = Command::new("ip");
                ip.args(setting.split_whitespace());
                assert!(host.inside(|| ip.status()).unwrap().success(), "{setting}");
            }
            host
        };
        Self {
            client: host(Side::Field, 1),
            server: host(Side::Ground, 2),
        }
    }

    fn connect(&self, address: &str) -> io::Result<TcpStream> {
        let address = address.parse().unwrap();
        let connect = || TcpStream::connect_timeout(&address, PATIENCE);
        let stream = self.client.inside(connect)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}

fn rules(network: &Network, side: Side) -> String {
    let mut nft = Command::new("nft");
    let listed = network.run(side, nft.args(["list", "ruleset"])).unwrap();
    let mut ip = Command::new("ip");
    let routing = network.run(side, ip.args(["rule", "show"])).unwrap();
    [listed.stdout, routing.stdout]
        .map(|text| String::from_utf8(text).unwrap())
        .concat()
}

/// Waits until the rules of so many owners on one side are all there: an owner adds one after the other, this routing rule as the last.
fn wait_for_rules(network: &Network, side: Side, owners: usize) {
    wait_for("the rules", || {
        let whole = rules(network, side).matches(" iif lo lookup main").count();
        (whole == owners).then_some(())
    });
}

/// Whether the kernel can intercept TCP.
fn can_intercept(network: &Network) -> bool {
    let rules = "create table inet try; create chain inet try p { type filter hook prerouting priority mangle; }; \
                 add rule inet try p fib daddr type != local tcp dport 9 tproxy ip to :9 accept; \
                 add rule inet try p meta l4proto tcp socket transparent 1 accept; delete table inet try";
    let mut nft = Command::new("nft");
    let tried = network.run(Side::Ground, nft.arg(rules));
    match tried {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            skip(Need::Nftables, String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            skip(Need::Nftables, error);
            false
        }
    }
}

#[test]
fn passing_connections_arrive_from_their_clients_and_no_rule_is_left() {
    let Some(network) = Network::create(1) else {
        return;
    };
    if !can_intercept(&network) {
        return;
    }
    let hosts = Hosts::create(&network);
    let before = [Side::Field, Side::Ground].map(|side| rules(&network, side));
    let field = format!("{RULE}keep_client = true\n");
    let ground = "clients = [\"10.88.1.0/24\"]\n";
    let mut pair = Pair::start_with(&network, &paths(&network), &field, ground);
    pair.wait_until_up(&["link0"]);
    let listener = hosts.server.inside(|| TcpListener::bind(SERVER)).unwrap();

    // The ground does not allow the target yet.
    let refused = hosts
        .connect(SERVER)
        .and_then(|mut connection| connection.read(&mut [0]));
    let refused = refused.map_err(|error| error.kind());
    assert_eq!(refused, Err(io::ErrorKind::ConnectionReset));
    pair.ground
        .reload(|old| old.replace("127.0.0.0/8:*", "10.88.2.0/24:8000"));
    wait_for("the change", || {
        pair.ground
            .log()
            .contains("configuration read again")
            .then_some(())
    });

    let mut near = hosts.connect(SERVER).unwrap();
    let (mut far, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), CLIENT);
    let data: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
    let mut writing = near.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut received = vec![0; data.len()];
            far.read_exact(&mut received).unwrap();
            far.write_all(&received).unwrap();
        });
        scope.spawn(|| writing.write_all(&data).unwrap());
        let mut returned = vec![0; data.len()];
        near.read_exact(&mut returned).unwrap();
        assert!(returned == data, "other bytes came back");
    });

    // What is open goes on when neither side's configuration has its networks any more.
    for (side, gateway, old, new) in [
        (
            Side::Field,
            &pair.field,
            "\"10.88.2.0/24\"",
            "\"10.88.3.0/24\"",
        ),
        (
            Side::Ground,
            &pair.ground,
            "\"10.88.1.0/24\"",
            "\"10.88.4.0/24\"",
        ),
    ] {
        let read = |gateway: &Gateway| gateway.log().matches("configuration read again").count();
        for (old, new) in [(old, new), (new, old)] {
            let before = read(gateway);
            gateway.reload(|text| text.replace(old, new));
            wait_for("the change", || (read(gateway) > before).then_some(()));
            wait_for("the rules of the change", || {
                rules(&network, side)
                    .contains(new.trim_matches('"'))
                    .then_some(())
            });
            let mut received = [0; 10];
            near.write_all(b"still here").unwrap();
            far.read_exact(&mut received).unwrap();
            far.write_all(&received).unwrap();
            near.read_exact(&mut received).unwrap();
            assert_eq!(&received, b"still here");
        }
    }

    // A service of the far gateway itself cannot answer in a client's name.
    let own = hosts.connect("10.88.2.1:8000");
    let ended = own.and_then(|mut connection| connection.read(&mut [0]));
    assert_eq!(
        ended.map_err(|error| error.kind()),
        Err(io::ErrorKind::ConnectionReset)
    );
    wait_for("the advice", || {
        let log = pair.ground.log();
        log.contains("set keep_client = false there").then_some(())
    });

    // A connection to the router itself leads nowhere, and not around in a circle.
    let direct = hosts.connect("10.88.1.1:4700");
    let ended = direct.and_then(|mut connection| connection.read(&mut [0]));
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    wait_for("both are counted", || {
        let failed = &pair.field.status()["ingress"][1]["failed_connections"];
        (*failed == 3).then_some(())
    });

    // Without the key, the far gateway's own address is seen.
    let changes = || {
        pair.field
            .log()
            .matches("on the socket that was there")
            .count()
    };
    let before_it = changes();
    pair.field
        .reload(|old| old.replace("keep_client = true", ""));
    wait_for("the change", || (changes() > before_it).then_some(()));
    let _near = hosts.connect(SERVER).unwrap();
    let (_far, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), "10.88.2.1");

    // Rules go with the configuration, and with the gateway, however that ends.
    pair.field.reload(|old| old.replace(RULE, ""));
    wait_for("the field's rules go", || {
        (rules(&network, Side::Field) == before[0]).then_some(())
    });
    assert_ne!(rules(&network, Side::Ground), before[1]);
    pair.ground.signal("KILL");
    assert!(pair.ground.wait(PATIENCE).is_some());
    wait_for("the ground's rules go", || {
        (rules(&network, Side::Ground) == before[1]).then_some(())
    });
}

/// As the firewall of a distribution does when its rules are loaded again.
#[test]
fn rules_that_another_program_removes_come_again() {
    let Some(network) = Network::create(1) else {
        return;
    };
    if !can_intercept(&network) {
        return;
    }
    let _hosts = Hosts::create(&network);
    let ground = "clients = [\"10.88.1.0/24\"]\n";
    let pair = Pair::start_with(&network, &paths(&network), RULE, ground);
    pair.wait_until_up(&["link0"]);
    for side in [Side::Field, Side::Ground] {
        wait_for_rules(&network, side, 1);
        let before = rules(&network, side);
        let mark = before.split("fwmark ").nth(1).unwrap();
        let mark = mark.split_whitespace().next().unwrap().to_owned();
        let mut nft = Command::new("nft");
        let flushed = network.run(side, nft.args(["flush", "ruleset"])).unwrap();
        assert!(flushed.status.success());
        // Two: one keeps what did not come from the network, the other one is for what did.
        network.ip(side, &format!("rule del fwmark {mark} lookup main"));
        network.ip(side, &format!("rule del fwmark {mark}"));
        wait_for("the rules come again", || {
            (rules(&network, side) == before).then_some(())
        });
    }
}

/// The ICMP error of a router that cannot pass a packet on is for a socket with a foreign address.
#[test]
fn a_download_passes_a_link_with_a_smaller_mtu_before_the_client() {
    let Some(network) = Network::create(1) else {
        return;
    };
    if !can_intercept(&network) {
        return;
    }
    let hosts = Hosts::create(&network);
    // What was the client is a router now, and the client is behind it.
    let (router, client) = (&hosts.client, NetworkNamespace::create().unwrap());
    let there = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        client.as_fd().as_raw_fd()
    );
    let run = |host: &NetworkNamespace, program: &str, arguments: &str| {
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace());
        let status = host.inside(|| command.status()).unwrap();
        assert!(status.success(), "{program} {arguments}");
    };
    for setting in [
        format!("link add next type veth peer name wan netns {there}"),
        "address add 10.88.5.1/24 dev next".to_owned(),
        "link set next mtu 1300 up".to_owned(),
    ] {
        run(router, "ip", &setting);
    }
    let mut forward = Command::new("sh");
    forward.args(["-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"]);
    assert!(router.inside(|| forward.status()).unwrap().success());
    for setting in [
        "address add 10.88.5.2/24 dev wan",
        "link set wan up",
        "route add default via 10.88.5.1",
    ] {
        run(&client, "ip", setting);
    }
    network.ip(Side::Field, "route add 10.88.5.0/24 via 10.88.1.2 dev lan");
    let pair = Pair::start_with(&network, &paths(&network), RULE, "");
    pair.wait_until_up(&["link0"]);
    pair.ground
        .reload(|old| old.replace("127.0.0.0/8:*", "10.88.2.0/24:8000"));
    wait_for("the change", || {
        let log = pair.ground.log();
        log.contains("configuration read again").then_some(())
    });
    let listener = hosts.server.inside(|| TcpListener::bind(SERVER)).unwrap();
    let address = SERVER.parse().unwrap();
    let connect = || TcpStream::connect_timeout(&address, PATIENCE);
    let mut near = client.inside(connect).unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    carries_much(&mut far, &mut near);
}

/// What one end writes comes at the other, in many packets.
fn carries_much(from: &mut TcpStream, to: &mut TcpStream) {
    let data: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&data).unwrap());
        let mut received = vec![0; data.len()];
        to.read_exact(&mut received).unwrap();
        assert!(received == data, "other bytes came");
    });
}

/// As a VPN that leads all packets into its tunnel but those that it marked.
#[test]
fn a_routing_rule_that_comes_later_does_not_go_before() {
    let Some(network) = Network::create(1) else {
        return;
    };
    if !can_intercept(&network) {
        return;
    }
    let hosts = Hosts::create(&network);
    let before = rules(&network, Side::Field);
    // Two owners, which do not overtake each other.
    let other = RULE.replace("\"lan\"\nlisten", "\"lan2\"\nlisten");
    let other = other.replace("4700", "4701").replace("8000", "8001");
    let field = format!("{RULE}{other}");
    let pair = Pair::start_with(&network, &paths(&network), &field, "");
    pair.wait_until_up(&["link0"]);
    wait_for_rules(&network, Side::Field, 2);
    network.ip(Side::Field, "route add blackhole 10.88.2.0/24 table 77");
    network.ip(Side::Field, "rule add to 10.88.2.0/24 lookup 77");
    let places = || {
        let mut ip = Command::new("ip");
        let shown = network.run(Side::Field, ip.args(["rule", "show"])).unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        let at = |what: &str| shown.lines().position(|line| line.contains(what));
        // One that moves to the front may be missing for a moment.
        (["lookup 45110", "lookup 45111"].map(at), at("lookup 77"))
    };
    wait_for("ours in front", || {
        let (ours, other) = places();
        let is_before = |place: &Option<usize>| place.is_some() && *place < other;
        ours.iter().all(is_before).then_some(())
    });
    // The far gateway allows no target, which only an intercepted connection learns.
    let refused = hosts
        .connect(SERVER)
        .and_then(|mut connection| connection.read(&mut [0]));
    let refused = refused.map_err(|error| error.kind());
    assert_eq!(refused, Err(io::ErrorKind::ConnectionReset));
    network.ip(Side::Field, "rule del to 10.88.2.0/24 lookup 77");
    pair.field.reload(|old| old.replace(&field, ""));
    wait_for("the field's rules go", || {
        (rules(&network, Side::Field) == before).then_some(())
    });
}

/// All processes below one, each before those below it.
fn below(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    let children = threads.into_iter().flatten().flatten().flat_map(|thread| {
        // A thread or a process may end meanwhile.
        let children = std::fs::read_to_string(thread.path().join("children"));
        let children = children.unwrap_or_default();
        let children = children.split_whitespace();
        children
            .map(|child| child.parse().unwrap())
            .collect::<Vec<u32>>()
    });
    children
        .flat_map(|child| std::iter::once(child).chain(below(child)))
        .collect()
}

/// Kills these processes at once. What the holder has just called may end by itself before.
fn kill(processes: &[u32]) {
    assert!(!processes.is_empty(), "nobody holds the rules");
    let mut kill = Command::new("kill");
    kill.arg("-KILL").args(processes.iter().map(u32::to_string));
    kill.stderr(Stdio::null()).status().unwrap();
}

#[test]
fn rules_whose_holder_alone_was_killed_go_with_the_gateways_use_of_them() {
    let Some(network) = Network::create(1) else {
        return;
    };
    if !can_intercept(&network) {
        return;
    }
    let before = rules(&network, Side::Field);
    let pair = Pair::start_with(&network, &paths(&network), RULE, "");
    wait_for_rules(&network, Side::Field, 1);
    pair.wait_until_up(&["link0"]);
    kill(&below(pair.field.process()));
    assert_ne!(rules(&network, Side::Field), before);
    pair.field.reload(|old| old.replace(RULE, ""));
    wait_for("the rules go", || {
        (rules(&network, Side::Field) == before).then_some(())
    });
}

/// Without a unit that removes them, they would go on taking what passes.
#[test]
fn rules_that_a_killed_life_left_go_when_the_next_one_begins() {
    let Some(network) = Network::create(1) else {
        return;
    };
    if !can_intercept(&network) {
        return;
    }
    let before = rules(&network, Side::Field);
    let other = RULE.replace("\"lan\"\nlisten", "\"lan2\"\nlisten");
    let other = other.replace("4700", "4701").replace("8000", "8001");
    let field = format!("{RULE}{other}");
    let mut pair = Pair::start_with(&network, &paths(&network), &field, "");
    let tables = || rules(&network, Side::Field).matches("table inet").count();
    wait_for_rules(&network, Side::Field, 2);
    pair.wait_until_up(&["link0"]);
    // The holders first, for they would see the gateway end.
    let gateway = pair.field.process();
    let mut all = below(gateway);
    all.push(gateway);
    kill(&all);
    assert!(pair.field.wait(PATIENCE).is_some());
    assert_eq!(tables(), 2);
    wait_for("the last of the holders' processes ends", || {
        let mut sockets = Command::new("cat");
        let sockets = network.run(Side::Field, sockets.arg("/proc/net/unix"));
        let sockets = String::from_utf8(sockets.unwrap().stdout).unwrap();
        (!sockets.contains("@starhaul_451")).then_some(())
    });
    // The next one has one rule only.
    let file = pair.directory().join("field.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let directory = pair.directory().to_owned();
    let text = text.replace(&other, "");
    let next = Gateway::start(&network, Side::Field, directory, &text);
    wait_for("the rules of the next life alone", || {
        let rules = rules(&network, Side::Field);
        let is_alone = rules.matches("table inet").count() == 1;
        (is_alone && rules.contains("table inet starhaul_45110")).then_some(())
    });
    next.reload(|old| old.replace(RULE, ""));
    wait_for("the rules go", || {
        (rules(&network, Side::Field) == before).then_some(())
    });
}

/// As systemd does with a service that does not end, or has no memory left.
#[test]
fn rules_whose_holder_was_killed_too_go_as_the_unit_says() {
    let Some(network) = Network::create(1) else {
        return;
    };
    if !can_intercept(&network) {
        return;
    }
    let before = rules(&network, Side::Field);
    let folder = tempfile::tempdir().unwrap();
    let runtime = format!("RUNTIME_DIRECTORY={}", folder.path().display());
    let mut pair = Pair::start_changed(&network, |side, launch| {
        if side == Side::Field {
            launch.configuration += RULE;
            launch.by_script(&format!("{runtime} exec \"$@\""));
        }
    });
    let left = || std::fs::read_dir(folder.path()).unwrap().count();
    let wait_for_all = || {
        wait_for_rules(&network, Side::Field, 1);
        assert_eq!(left(), 1);
    };
    wait_for_all();
    // What goes in order leaves nothing to be undone.
    pair.field.reload(|old| old.replace(RULE, ""));
    wait_for("the rules go", || {
        (rules(&network, Side::Field) == before && left() == 0).then_some(())
    });
    pair.field.reload(|old| old + RULE);
    wait_for_all();

    // The holder first, for it would see the gateway end.
    let gateway = pair.field.process();
    let mut all = below(gateway);
    all.push(gateway);
    kill(&all);
    assert!(pair.field.wait(PATIENCE).is_some());
    assert_ne!(rules(&network, Side::Field), before);
    let unit = include_str!("../../../../../contrib/systemd/starhaul-router.service");
    let begin = "ExecStopPost=-/bin/sh -c '";
    let mut lines = unit.lines().filter_map(|line| line.strip_prefix(begin));
    let script = lines.next().unwrap().trim_end_matches('\'');
    let mut shell = Command::new("sh");
    shell.args(["-c", &script.replace("$$", "$")]);
    shell.env("RUNTIME_DIRECTORY", folder.path());
    let output = network.run(Side::Field, &mut shell).unwrap();
    assert_eq!(rules(&network, Side::Field), before, "{output:?}");
}
