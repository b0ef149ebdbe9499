//! Devices, in network namespaces of their own.

use std::{path::Path, process::Command};

use starhaul_needs::{Need, skip};
use starhaul_replay::NetworkNamespace;

use super::*;
use crate::config::Config;

/// Runs a test in a namespace that goes with it.
fn in_namespace(test: impl AsyncFnOnce() + Send) {
    if Command::new("ip").arg("-V").output().is_err() {
        return skip(Need::Netns, "the program ip is missing (Debian's iproute2)");
    }
    let namespace = match NetworkNamespace::create() {
        Ok(namespace) => namespace,
        Err(why) => return skip(Need::Netns, why),
    };
    let ended = namespace.inside(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build()?.block_on(test());
        Ok(())
    });
    ended.unwrap();
}

/// Runs `ip` with these arguments; returns what it says.
fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let refusal = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {refusal}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Lets this namespace pass packets on.
fn forward() {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
}

/// A datagram from a host behind the peer.
fn datagram_to(destination: [u8; 4]) -> Vec<u8> {
    let mut packet = Vec::new();
    etherparse::PacketBuilder::ipv4([192, 168, 60, 5], destination, 64)
        .udp(1, 2)
        .write(&mut packet, b"x")
        .unwrap();
    packet
}

/// The tunnels of a gateway.
#[derive(Default)]
struct Running {
    tunnels: Tunnels,
    registry: Registry,
    peer: Option<Arc<PeerState>>,
}

impl Running {
    /// Goes on to a configuration with this tunnel alone.
    async fn change(&mut self, rule: TunnelRule) {
        let peer = self.peer.get_or_insert_with(|| {
            let key = config("").peers[0].public_key;
            let peer = PeerState::new("ground", key, Arc::default(), Arc::default());
            Arc::new(peer)
        });
        let next = self.tunnels.prepare(vec![(rule, peer.clone())]).unwrap();
        let (_, failed) = self.tunnels.change(next, &self.registry).await;
        assert!(failed.is_empty(), "{failed:?}");
    }
}

/// The rule of a tunnel, with these lines.
fn rule(lines: &str) -> TunnelRule {
    config(lines).tunnels[0].clone()
}

fn config(lines: &str) -> Config {
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[identity]\nfile = \"k\"\n[[peer]]\nname = \"ground\"\n\
         public_key = \"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"\n[[tun]]\nname = \"vpn\"\ndevice = \"star0\"\n\
         addresses = [\"10.9.0.2/24\", \"fd09::2/64\"]\n{lines}"
    );
    Config::parse(&text, Path::new("/etc/starhaul/gw.toml")).unwrap()
}

#[test]
fn a_tunnel_to_all_networks_goes_before_the_default_routes_of_the_host() {
    in_namespace(async || {
        ip("link add d0 type veth peer name d1");
        ip("link set d0 up");
        ip("link set d1 up");
        // As `ifupdown` adds it: without a metric.
        ip("-4 route add default dev d0");
        for metric in [1, 100, 1024] {
            ip(&format!("-4 route add default dev d0 metric {metric}"));
            ip(&format!("-6 route add default dev d0 metric {metric}"));
        }
        let all = rule("networks = [\"0.0.0.0/0\", \"::/0\"]");
        let _device = Device::create(&all.device).unwrap();
        for address in ["192.0.2.1", "2001:db8::1"] {
            let route = ip(&format!("route get {address}"));
            assert!(route.contains("dev star0"), "{route}");
        }
    });
}

#[test]
fn a_changed_device_is_there_though_packets_for_the_former_are_under_way() {
    in_namespace(async || {
        let (mut running, mut former) = (Running::default(), Vec::new());
        for (lines, mtu) in [
            ("mtu = 1400", "mtu 1400"),
            // The same device for another tunnel.
            ("mtu = 1400\nmode = \"reliable\"", "mtu 1400"),
            ("mtu = 1300", "mtu 1300"),
        ] {
            running.change(rule(lines)).await;
            let link = ip("link show star0");
            assert!(link.contains(mtu), "{link}");
            // Who passes packets of the peer to it has it for as long.
            former.push(running.registry.find("ground", "vpn").unwrap());
        }
        running.tunnels.end(&running.registry).await;
        let until = Instant::now() + Duration::from_secs(60);
        while ip("link show").contains("star0") {
            assert!(Instant::now() < until, "the device is still there");
            // A process that another test starts has this one's files until it is another program.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

const NETWORKS: &str =
    "networks = [\"10.9.0.0/24\", \"fd09::/64\", \"10.8.0.0/16\", \"fd08::/64\"]";

/// Addresses and routes of the device with these networks that are missing.
fn missing() -> Vec<&'static str> {
    let (addresses, mut routes) = (ip("address show dev star0"), ip("-4 route show dev star0"));
    routes += &ip("-6 route show dev star0");
    let addresses = ["10.9.0.2/24", "fd09::2/64"].map(|part| (part, addresses.contains(part)));
    let routes = ["10.9.0.0/24", "fd09::/64", "10.8.0.0/16", "fd08::/64"]
        .map(|part| (part, routes.contains(part)));
    let all = addresses.into_iter().chain(routes);
    all.filter_map(|(part, is_there)| (!is_there).then_some(part))
        .collect()
}

#[test]
fn a_device_gets_back_what_it_lost_and_stays_down_where_it_was_set_down() {
    in_namespace(async || {
        let rule = rule(NETWORKS).device;
        let device = Device::create(&rule).unwrap();
        assert_eq!(missing(), [""; 0]);
        assert!(!device.restore(&rule).unwrap(), "nothing was gone");
        ip("link set star0 down");
        assert!(!device.restore(&rule).unwrap(), "it is down");
        assert!(!ip("link show star0").contains(",UP"));
        let lost: [(&[&str], &str); 4] = [
            (&["link set star0 up"], "fd09::2/64"),
            (&["address flush dev star0"], "10.9.0.2/24"),
            (
                &["-4 route flush dev star0", "-6 route flush dev star0"],
                "fd09::/64",
            ),
            (&["-6 route delete fd08::/64"], "fd08::/64"),
        ];
        for (commands, part) in lost {
            commands.iter().for_each(|command| drop(ip(command)));
            let gone = missing();
            assert!(gone.contains(&part), "{commands:?}: {gone:?}");
            assert!(device.restore(&rule).unwrap());
            assert_eq!(missing(), [""; 0], "after {commands:?}");
            assert!(!device.restore(&rule).unwrap(), "all was there");
        }
    });
}

#[test]
fn without_ipv6_on_this_host_a_tunnel_of_both_versions_carries_ipv4() {
    in_namespace(async || {
        // A kernel without IPv6 has no such file.
        let switch = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        let _ = std::fs::write(switch, "1");
        let both = rule(NETWORKS).device;
        let device = Device::create(&both).unwrap();
        assert_eq!(missing(), ["fd09::2/64", "fd09::/64", "fd08::/64"]);
        assert!(!device.restore(&both).unwrap(), "nothing was gone");
        let mut alone = both.clone();
        alone.name = "star1".to_owned();
        alone.addresses.retain(|own| own.addr().is_ipv6());
        let refused = Device::create(&alone).unwrap_err().to_string();
        assert!(refused.starts_with("address fd09::2/64: "), "{refused}");
    });
}

#[test]
fn a_tunnel_is_whole_again_after_its_interface_was_down() {
    in_namespace(async || {
        let mut running = Running::default();
        running.change(rule(NETWORKS)).await;
        ip("link set star0 down");
        ip("link set star0 up");
        assert!(missing().contains(&"fd08::/64"));
        let looked = Instant::now();
        while !missing().is_empty() {
            assert!(looked.elapsed() < CHECK_PAUSE * 4, "{:?}", missing());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn packets_of_hosts_behind_the_peer_do_not_circle_and_reach_who_is_elsewhere() {
    in_namespace(async || {
        forward();
        let mut running = Running::default();
        let networks = "networks = [\"10.9.0.0/24\", \"192.168.60.0/24\"]";
        running.change(rule(networks)).await;
        let tunnel = running.registry.find("ground", "vpn").unwrap();
        // A host of the tunnel's network has a way of its own, as through the tunnel of a further peer.
        ip("link add d0 type veth peer name d1");
        ip("link set d0 up");
        ip("link set d1 up");
        ip("route add 10.9.0.3/32 dev d0");
        let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        tunnel.deliver(&datagram_to([10, 9, 0, 3]));
        assert_eq!(counted(&tunnel.counters.packets_out), 1);
        // The second comes before the first is back.
        tunnel.deliver(&datagram_to([10, 9, 0, 77]));
        tunnel.deliver(&datagram_to([10, 9, 0, 78]));
        assert_eq!(counted(&tunnel.counters.packets_out), 3);
        let until = Instant::now() + Duration::from_secs(60);
        while counted(&tunnel.counters.forbidden) < 2 {
            assert!(Instant::now() < until, "one goes back to the peer");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The one that is elsewhere is none of them.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(counted(&tunnel.counters.forbidden), 2);
    });
}
