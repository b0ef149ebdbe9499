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

/// The rule of a tunnel, with these lines.
fn rule(lines: &str) -> TunnelRule {
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[identity]\nfile = \"k\"\n[[peer]]\nname = \"ground\"\n\
         public_key = \"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"\n[[tun]]\nname = \"vpn\"\ndevice = \"star0\"\n\
         addresses = [\"10.9.0.2/24\", \"fd09::2/64\"]\n{lines}"
    );
    let config = Config::parse(&text, Path::new("/etc/starhaul/gw.toml")).unwrap();
    config.tunnels[0].clone()
}

#[test]
fn a_tunnel_to_all_networks_goes_before_the_default_routes_of_the_host() {
    in_namespace(async || {
        ip("link add d0 type veth peer name d1");
        ip("link set d0 up");
        ip("link set d1 up");
        for metric in [100, 1024] {
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
