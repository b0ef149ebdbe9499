//! IP tunnels: unmodified applications send through the devices of both sides while the network below changes.

use std::{
    fs, io,
    net::{SocketAddr, TcpStream, UdpSocket},
    path::Path,
    thread,
    time::Duration,
};

use serde_json::Value;
use socket2::SockRef;

use super::{
    PATIENCE,
    gateway::{Gateway, Pair, paths},
    network::{Network, Side},
    transfer::Transfer,
    wait_for,
};

pub(super) const FIELD: &str =
    "[[tun]]\nname = \"vpn\"\ndevice = \"star0\"\naddresses = [\"10.9.0.2/24\", \"fd09::2/64\"]\n";
pub(super) const GROUND: &str =
    "[[tun]]\nname = \"vpn\"\ndevice = \"star0\"\naddresses = [\"10.9.0.1/24\", \"fd09::1/64\"]\n";

/// The byte of an IP header that says expedited forwarding (RFC 3246): a DSCP of 46.
const EXPEDITED: u32 = 46 << 2;

/// A pair with a tunnel that works.
fn start(network: &Network, field: &str, ground: &str) -> Pair {
    let pair = Pair::start_with(network, &paths(network), field, ground);
    let echo = Echo::start(network, "10.9.0.1:7");
    echo.wait_for_answers(b"hello");
    pair
}

fn tunnel(gateway: &Gateway) -> Value {
    gateway.status()["tunnels"][0].clone()
}

/// A server on the ground that sends datagrams back, and a client in the field.
struct Echo {
    client: UdpSocket,
}

impl Echo {
    fn start(network: &Network, server: &str) -> Self {
        let address: SocketAddr = server.parse().unwrap();
        // A gateway listens on its control socket before its devices are there.
        let server = wait_for("the server's address", || {
            network.ground.inside(|| UdpSocket::bind(address)).ok()
        });
        thread::spawn(move || {
            let mut buffer = vec![0; 65_535];
            // It ends with its namespace.
            while let Ok((length, from)) = server.recv_from(&mut buffer) {
                let _ = server.send_to(&buffer[..length], from);
            }
        });
        let any = if address.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let client = network.field.inside(|| UdpSocket::bind(any)).unwrap();
        client
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        wait_for("the client's route", || client.connect(address).ok());
        Self { client }
    }

    /// Sends until the same comes back: datagrams may be lost.
    fn wait_for_answers(&self, data: &[u8]) {
        let mut buffer = vec![0; 65_535];
        wait_for("an answer over the tunnel", || {
            self.client.send(data).ok()?;
            let length = self.client.recv(&mut buffer).ok()?;
            (buffer[..length] == *data).then_some(())
        });
    }
}

#[test]
fn datagrams_of_any_size_cross_the_tunnel_in_both_versions_of_ip() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let pair = start(&network, FIELD, GROUND);
    for server in ["10.9.0.1:9000", "[fd09::1]:9000"] {
        let echo = Echo::start(&network, server);
        // Within one packet of a path, within the tunnel's MTU, and in fragments.
        for length in [0, 1, 1000, 1400, 1472, 9000] {
            let data: Vec<u8> = (0..length).map(|byte: u32| byte.to_le_bytes()[0]).collect();
            echo.wait_for_answers(&data);
        }
    }
    let (field, ground) = (tunnel(&pair.field), tunnel(&pair.ground));
    assert_eq!(
        (&field["device"], &field["peer"]),
        (&"star0".into(), &"ground".into())
    );
    for end in [field, ground] {
        assert!(end["packets_in"].as_u64() > Some(20), "{end}");
        assert!(end["packets_out"].as_u64() > Some(20), "{end}");
    }
}

/// That is the least that a path carries, as over mobile networks behind tunnels of their own.
#[test]
fn packets_of_1500_bytes_cross_paths_that_carry_1200() {
    let Some(network) = Network::create(2) else {
        return;
    };
    for (link, side) in [
        (0, Side::Field),
        (0, Side::Ground),
        (1, Side::Field),
        (1, Side::Ground),
    ] {
        network.set_mtu(side, link, 1228);
    }
    let pair = start(&network, FIELD, GROUND);
    pair.wait_until_up(&["link0", "link1"]);
    for server in ["10.9.0.1:9000", "[fd09::1]:9000"] {
        let echo = Echo::start(&network, server);
        // Up to the tunnel's MTU in both versions of IP, and in fragments of it.
        for length in [1200, 1452, 1472, 9000] {
            let data: Vec<u8> = (0..length).map(|byte: u32| byte.to_le_bytes()[0]).collect();
            echo.wait_for_answers(&data);
        }
    }
    let download = Transfer::download_from(&network, "10.9.0.1:8001");
    download.wait_for_progress(2 << 20);
    download.finish();
    for gateway in [&pair.field, &pair.ground] {
        for path in ["link0", "link1"] {
            assert_eq!(gateway.path(path)["packet_bytes"], 1200, "{path}");
        }
        assert_eq!(tunnel(gateway)["dropped"]["malformed"], 0);
    }
}

#[test]
fn a_connection_in_the_tunnel_outlives_the_interface_of_a_path_and_a_change_of_its_class() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let pair = start(&network, FIELD, GROUND);
    pair.wait_until_up(&["link0", "link1"]);
    let (download, size) = (Transfer::download_from(&network, "10.9.0.1:8001"), 1 << 20);
    download.wait_for_progress(size);
    network.delete_link(0);
    download.wait_for_progress(size);
    network.add_link(0);
    pair.wait_until_up(&["link0"]);
    network.cut(1);
    download.wait_for_progress(size);
    network.mend(1);
    // From now on TCP travels as blocks.
    for gateway in [&pair.field, &pair.ground] {
        gateway.reload(|old| {
            old + "[[tun.class]]\nname = \"web\"\nprotocol = \"tcp\"\ndeadline = \"800ms\"\nordered = true\n"
        });
        wait_for("the change", || {
            gateway.log().contains("tun vpn changed").then_some(())
        });
    }
    download.wait_for_progress(size);
    let flows = |gateway: &Gateway| gateway.status()["peers"][0]["flows"].clone();
    wait_for("blocks of the class", || {
        let flows = flows(&pair.ground);
        let sent = flows
            .as_array()?
            .iter()
            .filter(|flow| flow["rule_of"] == "us");
        sent.filter_map(|flow| flow["blocks"]["on_time"].as_u64())
            .find(|blocks| *blocks > 100)
    });
    download.finish();
}

#[test]
fn a_class_has_streams_of_its_own() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let classes = "[[tun.class]]\nname = \"voice\"\nprotocol = \"udp\"\nports = [\"5004-5010\"]\npriority = 0\ndeadline = \"300ms\"\n\
                   [[tun.class]]\nname = \"marked\"\nprotocol = \"udp\"\ndscp = [\"ef\"]\npriority = 9\ndeadline = \"450ms\"\nmode = \"duplicate\"\n";
    let records = tempfile::tempdir().unwrap();
    let pair = Pair::start_changed(&network, |side, launch| match side {
        Side::Field => {
            launch.configuration += &format!("{FIELD}{classes}");
            let folder = records.path().to_str().unwrap();
            launch.arguments = ["--qlog", folder].map(str::to_owned).to_vec();
        }
        Side::Ground => launch.configuration += GROUND,
    });
    Echo::start(&network, "10.9.0.1:5006").wait_for_answers(&[7; 200]);
    for server in ["10.9.0.1:9011", "[fd09::1]:9011"] {
        let echo = Echo::start(&network, server);
        let socket = SockRef::from(&echo.client);
        match server.starts_with('[') {
            true => socket.set_tclass_v6(EXPEDITED).unwrap(),
            false => socket.set_tos_v4(EXPEDITED).unwrap(),
        }
        echo.wait_for_answers(&[7; 200]);
    }
    let flows = pair.field.status()["peers"][0]["flows"].clone();
    // A packet by its port, and one of each version of IP by its mark.
    for (priority, least) in [(0_i64, 1), (9, 2)] {
        let mut all = flows.as_array().unwrap().iter();
        let of_class = all.find(|flow| flow["priority"] == priority);
        let of_class =
            of_class.unwrap_or_else(|| panic!("no stream of priority {priority}: {flows}"));
        assert_eq!(of_class["rule"], "vpn");
        let sent = of_class["blocks"]["blocks_sent"].as_u64();
        assert!(sent >= Some(least), "priority {priority}: {flows}");
    }
    // What the session was told of each: how long its blocks are of use, and how they are protected.
    let events = session_events(records.path());
    for (priority, deadline, mode) in [(0_i64, 300.0, "fec+retransmit"), (9, 450.0, "duplicate")] {
        let of = |name: &str, key: &str, value: &Value| -> Vec<&Value> {
            let named = events.iter().filter(|event| event["name"] == name);
            let data = named.map(|event| &event["data"]);
            data.filter(|data| data[key] == *value).collect()
        };
        let blocks = of("starhaul:block_queued", "priority", &priority.into());
        assert!(!blocks.is_empty(), "priority {priority}: {events:?}");
        for block in blocks {
            assert_eq!(block["deadline"].as_f64(), Some(deadline), "{block}");
            let opened = of("starhaul:stream_opened", "stream", &block["stream"]);
            let modes: Vec<_> = opened.iter().map(|stream| &stream["mode"]).collect();
            assert_eq!(modes, [mode], "{block}");
        }
    }
}

/// What the field's session did so far; a gateway may be writing the last line.
fn session_events(records: &Path) -> Vec<Value> {
    let files = fs::read_dir(records).unwrap().map(|entry| entry.unwrap());
    let mut sessions = files.filter(|file| {
        let name = file.file_name().into_string().unwrap();
        name.starts_with("session-") && !name.contains("-path-")
    });
    let session = sessions.next().expect("the session leaves a record");
    let text = fs::read_to_string(session.path()).unwrap();
    let events = text.split('\u{1e}').skip(1);
    events
        .filter_map(|event| serde_json::from_str(event).ok())
        .collect()
}

#[test]
fn only_the_networks_behind_the_peer_are_reached_and_heard() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let pair = start(&network, FIELD, GROUND);
    // The operator's own route leads more into the tunnel than its rule allows.
    network.ip(Side::Field, "route add 10.50.0.0/24 dev star0");
    let socket = network
        .field
        .inside(|| UdpSocket::bind("0.0.0.0:0"))
        .unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect("10.50.0.1:9").unwrap();
    socket.send(b"to nobody").unwrap();
    let error = socket.recv(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::HostUnreachable, "{error}");
    assert_eq!(tunnel(&pair.field)["dropped"]["forbidden"], 1);

    // A source that is not of the field's network.
    network.ip(Side::Field, "address add 10.66.0.1/32 dev lo");
    let stranger = network
        .field
        .inside(|| UdpSocket::bind("10.66.0.1:0"))
        .unwrap();
    let target = network
        .ground
        .inside(|| UdpSocket::bind("10.9.0.1:9001"))
        .unwrap();
    stranger
        .send_to(b"from elsewhere", "10.9.0.1:9001")
        .unwrap();
    wait_for("the packet is refused", || {
        (tunnel(&pair.ground)["dropped"]["forbidden"] == 1).then_some(())
    });
    target.set_nonblocking(true).unwrap();
    let heard = target.recv(&mut [0; 20]).map_err(|error| error.kind());
    assert_eq!(heard, Err(io::ErrorKind::WouldBlock));
}

#[test]
fn senders_are_told_when_the_peer_is_away_and_the_tunnel_comes_back() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let mut pair = start(&network, FIELD, GROUND);
    let echo = Echo::start(&network, "10.9.0.1:9002");
    echo.wait_for_answers(b"there");
    let directory = pair.directory().to_owned();
    let text = fs::read_to_string(directory.join("ground.toml")).unwrap();
    pair.ground.signal("TERM");
    assert!(pair.ground.wait(PATIENCE).is_some());
    let away = "10.9.0.1:9".parse().unwrap();
    let connect = || TcpStream::connect_timeout(&away, Duration::from_secs(1));
    wait_for("the sender is told", || {
        let error = network.field.inside(connect).unwrap_err();
        (error.kind() == io::ErrorKind::HostUnreachable).then_some(())
    });
    assert!(tunnel(&pair.field)["dropped"]["no_session"].as_u64() > Some(0));
    // Its device went with it, and so did the echo's address.
    pair.ground = Gateway::start(&network, Side::Ground, directory, &text);
    Echo::start(&network, "10.9.0.1:9003").wait_for_answers(b"back");
}

#[test]
fn devices_go_with_their_gateway_and_come_back_when_deleted() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let pair = start(&network, FIELD, GROUND);
    let before = "link show star0";
    network.ip(Side::Field, before);
    network.ip(Side::Field, "link delete star0");
    wait_for("the device is there again", || {
        network.try_ip(Side::Field, before).ok()
    });
    Echo::start(&network, "10.9.0.1:9004").wait_for_answers(b"again");
    // A rule that is gone takes its device along, and nothing else.
    network.ip(Side::Field, "route add 10.51.0.0/24 dev lo");
    pair.field.reload(|old| old.replace(FIELD, ""));
    wait_for("the device goes", || {
        network.try_ip(Side::Field, before).err()
    });
    // The ground's goes even without any chance to clean up.
    pair.ground.signal("KILL");
    wait_for("the other one goes", || {
        network.try_ip(Side::Ground, before).err()
    });
    let routes = network.run(
        Side::Field,
        std::process::Command::new("ip").args(["route", "show", "10.51.0.0/24"]),
    );
    assert!(
        !routes.unwrap().stdout.is_empty(),
        "the operator's own route is left alone"
    );
}

#[test]
fn a_peer_without_the_tunnel_says_so() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let pair = Pair::start_with(&network, &paths(&network), FIELD, "");
    pair.wait_until_up(&["link0"]);
    wait_for("a line in the log", || {
        let log = pair.ground.log();
        log.contains("there is none of this name with peer")
            .then_some(())
    });
    // As soon as it has one, packets arrive.
    pair.ground.reload(|old| old + GROUND);
    wait_for("the device", || {
        network.try_ip(Side::Ground, "link show star0").ok()
    });
    Echo::start(&network, "10.9.0.1:9005").wait_for_answers(b"now");
}

#[test]
fn a_packet_to_an_address_of_the_tunnel_that_nobody_has_does_not_go_round() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let pair = start(&network, FIELD, GROUND);
    for side in [Side::Field, Side::Ground] {
        for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &format!("echo 1 >/proc/sys/net/{file}")]);
            assert!(network.run(side, &mut shell).unwrap().status.success());
        }
    }
    for (own, nobody, forbidden) in [
        ("10.9.0.2:0", "10.9.0.77:9", 1),
        ("[fd09::2]:0", "[fd09::77]:9", 2),
    ] {
        let socket = network.field.inside(|| UdpSocket::bind(own)).unwrap();
        socket.send_to(b"to nobody", nobody).unwrap();
        wait_for("the packet is refused", || {
            let dropped = &tunnel(&pair.ground)["dropped"];
            (dropped["forbidden"] == forbidden).then_some(())
        });
    }
    assert_eq!(tunnel(&pair.field)["dropped"]["forbidden"], 0);

    // One that claims to be the ground itself does not turn the ground's own packets away.
    network.ip(Side::Field, "address add 10.9.0.1/32 dev lo");
    let forger = network
        .field
        .inside(|| UdpSocket::bind("10.9.0.1:0"))
        .unwrap();
    forger.send_to(b"forged", "10.9.0.3:9").unwrap();
    wait_for("the forged packet", || {
        let dropped = &tunnel(&pair.ground)["dropped"];
        (dropped["forbidden"] == 3).then_some(())
    });
    network.ip(Side::Field, "address del 10.9.0.1/32 dev lo");
    Echo::start(&network, "10.9.0.1:9010").wait_for_answers(b"still here");
}

#[test]
fn a_tunnel_that_takes_the_packets_of_its_own_session_says_so() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let field = Network::address(Side::Field, 0);
    let ground = format!("{GROUND}networks = [\"10.9.0.0/24\", \"{field}/32\"]\n");
    let pair = Pair::start_with(&network, &paths(&network), FIELD, &ground);
    let line = "packets of the session itself are led into its tunnel";
    wait_for("a line in the log", || {
        pair.ground.log().contains(line).then_some(())
    });
    pair.ground
        .reload(|old| old.replace(&format!(", \"{field}/32\""), ""));
    pair.wait_until_up(&["link0"]);
    assert!(!pair.field.log().contains(line));
}

#[test]
fn a_changed_device_comes_once_its_name_is_free() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let pair = start(&network, FIELD, GROUND);
    network.ip(Side::Field, "link add star1 type veth peer name star2");
    pair.field.reload(|old| old.replace("star0", "star1"));
    wait_for("the change", || {
        let log = pair.field.log();
        log.contains("tun vpn to peer ground, without its device")
            .then_some(())
    });
    assert!(tunnel(&pair.field)["device"].is_null());
    network.ip(Side::Field, "link delete star1");
    wait_for("the device", || {
        (tunnel(&pair.field)["device"] == "star1").then_some(())
    });
    Echo::start(&network, "10.9.0.1:9006").wait_for_answers(b"late");
}

#[test]
fn classes_beyond_the_streams_of_a_peer_are_served_when_there_is_room() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let ground = format!("max_streams = 1\n{GROUND}");
    let pair = Pair::start_with(&network, &paths(&network), FIELD, &ground);
    // TCP and all else: two streams, of which one is refused.
    wait_for("a line in the log", || {
        let log = pair.ground.log();
        log.contains("[egress] max_streams raises it").then_some(())
    });
    pair.ground
        .reload(|old| old.replace("max_streams = 1\n", ""));
    Echo::start(&network, "10.9.0.1:9007").wait_for_answers(b"datagram");
    let address: SocketAddr = "10.9.0.1:9008".parse().unwrap();
    let _listener = network
        .ground
        .inside(|| std::net::TcpListener::bind(address))
        .unwrap();
    let connected = network
        .field
        .inside(|| TcpStream::connect_timeout(&address, PATIENCE));
    assert!(connected.is_ok(), "{connected:?}");
}
