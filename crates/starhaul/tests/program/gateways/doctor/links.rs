//! Faults of links and paths.

use std::{net::Ipv4Addr, process::Command, time::Duration};

use starhaul_needs::{Need, skip};

use super::{
    super::{
        gateway::{PORT, Pair, paths},
        names::NameServers,
        network::{Network, Side},
        transfer::Transfer,
        wait_for,
    },
    bench::Bench,
};

/// A pair over this many links, which are up.
pub(super) fn pair(links: u8) -> Option<Bench> {
    let network = Network::create(links)?;
    let pair = Pair::start(&network);
    let names: Vec<_> = (0..links).map(|link| format!("link{link}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    pair.wait_until_up(&names);
    Some(Bench::new(network, pair))
}

/// Runs a script of the shell on one side.
pub(super) fn run(network: &Network, side: Side, script: &str) -> Result<(), String> {
    let output = network.run(side, Command::new("sh").args(["-ec", script]));
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Adds rules of nft on one side; `None`, with a reported reason, if this system has none.
fn rules(network: &Network, side: Side, chain: &str, rule: &str) -> Option<()> {
    let script = format!(
        "nft add table ip t\nnft 'add chain ip t c {{ {chain} }}'\nnft 'add rule ip t c {rule}'"
    );
    let added = run(network, side, &script);
    added
        .map_err(|error| skip(Need::Nftables, error.trim()))
        .ok()
}

fn unruled(network: &Network, side: Side) {
    run(network, side, "nft delete table ip t").unwrap();
}

const INPUT: &str = "type filter hook input priority 0;";
const OUTPUT: &str = "type filter hook output priority 0;";

pub(super) fn narrow() {
    let Some(network) = Network::create(2) else {
        return;
    };
    network.set_mtu(Side::Ground, 0, 1280);
    let pair = Pair::start(&network);
    pair.wait_until_up(&["link0", "link1"]);
    let bench = Bench::new(network, pair);
    let named = bench.expect("mtu");
    assert_eq!(named.subject, "path link0");
}

pub(super) fn blocked() {
    let Some(network) = Network::create(1) else {
        return;
    };
    if rules(
        &network,
        Side::Ground,
        INPUT,
        &format!("udp dport {PORT} drop"),
    )
    .is_none()
    {
        return;
    }
    let pair = Pair::start(&network);
    Bench::new(network, pair).expect("udp_blocked");
}

pub(super) fn blocked_here() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let rule = format!("udp dport {PORT} drop");
    if rules(&network, Side::Field, OUTPUT, &rule).is_none() {
        return;
    }
    let pair = Pair::start(&network);
    Bench::new(network, pair).expect("firewall");
}

pub(super) fn lossy() {
    let Some(bench) = pair(1) else { return };
    for side in [Side::Field, Side::Ground] {
        // Otherwise a batch is one packet to the rule.
        bench.network.ip(side, "link set wan0 gso_max_segs 1");
    }
    let rule = format!("udp dport {PORT} numgen random mod 100 == 0 drop");
    if rules(&bench.network, Side::Ground, INPUT, &rule).is_none() {
        return;
    }
    let upload = Transfer::upload(&bench.network);
    upload.wait_for_progress(4 << 20);
    bench.expect("loss");
    upload.finish();
}

pub(super) fn one_way() {
    let Some(bench) = pair(2) else { return };
    let rule = format!("iifname wan0 udp sport {PORT} drop");
    let upload = Transfer::upload(&bench.network);
    upload.wait_for_progress(1 << 20);
    wait_for("the way that works is named", || {
        // Once its connection has timed out a path is only down: then it is another try.
        bench.pair.wait_until_up(&["link0"]);
        if rules(&bench.network, Side::Field, INPUT, &rule).is_none() {
            return Some(());
        }
        bench.pair.wait_for_state(&["link0"], "suspect");
        let named = bench.expect_after("one_way", &["udp_blocked", "path_silent"]);
        assert_eq!(named.subject, "path link0");
        assert!(named.found.contains("what we send arrives"), "{named:?}");
        unruled(&bench.network, Side::Field);
        Some(())
    });
    upload.finish();
}

pub(super) fn silent() {
    let Some(bench) = pair(2) else { return };
    bench.network.cut(0);
    let named = bench.expect_after("no_answer", &["path_silent"]);
    assert_eq!(named.subject, "path link0");
}

pub(super) fn forgetful_nat() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let chain = "type nat hook postrouting priority 100;";
    if rules(&network, Side::Field, chain, "masquerade random").is_none() {
        return;
    }
    let forget = "cd /proc/sys/net/netfilter && echo 1 >nf_conntrack_udp_timeout && echo 1 >nf_conntrack_udp_timeout_stream";
    if let Err(error) = run(&network, Side::Field, forget) {
        return skip(Need::Nftables, error);
    }
    let pair = Pair::start_changed(&network, |_, launch| {
        launch.configuration = format!("keepalive = \"3s\"\n{}", launch.configuration);
    });
    pair.wait_until_up(&["link0"]);
    Bench::new(network, pair).expect("nat");
}

pub(super) fn no_interface() {
    let Some(bench) = pair(2) else { return };
    bench.network.delete_link(1);
    let named = bench.expect("interface");
    assert_eq!(named.subject, "interface wan1 of path link1");
}

pub(super) fn interface_down() {
    let Some(bench) = pair(2) else { return };
    bench.network.ip(Side::Field, "link set wan1 down");
    bench.expect("interface_down");
}

pub(super) fn no_route() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let elsewhere = format!(
        "{}[[session.path]]\nname = \"far\"\nremote = \"192.0.2.1:{PORT}\"\n",
        paths(&network)
    );
    let pair = Pair::start_with(&network, &elsewhere, "", "");
    pair.wait_until_up(&["link0"]);
    let named = Bench::new(network, pair).expect("route");
    assert_eq!(named.subject, "path far");
}

pub(super) fn strict_filter() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let remote = Network::address(Side::Ground, 1);
    network.ip(Side::Field, &format!("route add {remote}/32 dev wan0"));
    // The greater of both counts, and a new namespace may have that of the host.
    let strict = "cd /proc/sys/net/ipv4/conf && echo 0 >all/rp_filter && echo 1 >wan1/rp_filter";
    run(&network, Side::Field, strict).unwrap();
    let pair = Pair::start(&network);
    pair.wait_until_up(&["link0"]);
    let named = Bench::new(network, pair).expect("reverse_path");
    assert_eq!(named.subject, "path link1");
    let setting = "net.ipv4.conf.wan1.rp_filter=2";
    assert!(named.advice.contains(setting), "{named:?}");
}

fn with_name(network: &Network) -> Pair {
    let named = format!(
        "{}[[session.path]]\nname = \"named\"\nremote = \"ground.invalid:{PORT}\"\n",
        paths(network)
    );
    let pair = Pair::start_with(network, &named, "", "");
    pair.wait_until_up(&["link0"]);
    pair
}

pub(super) fn no_such_name() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let pair = with_name(&network);
    Bench::new(network, pair).expect("name");
}

pub(super) fn silent_resolver() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let _servers = NameServers::start(&network, Ipv4Addr::LOCALHOST);
    let pair = with_name(&network);
    let named = Bench::new(network, pair).expect("name");
    assert!(named.found.contains("no name server answers"), "{named:?}");
}

pub(super) fn limited() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let paths = paths(&network) + "limit = \"2mbit\"\n";
    let pair = Pair::start_with(&network, &paths, "", "");
    pair.wait_until_up(&["link0"]);
    let bench = Bench::new(network, pair);
    let upload = Transfer::upload(&bench.network);
    upload.wait_for_progress(1 << 18);
    bench.expect_bottleneck("path_limit");
    drop(bench);
    drop(upload);
}

pub(super) fn told_a_low_rate() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let paths = paths(&network) + "controller = \"dedicated\"\nrate = \"2mbit\"\n";
    let pair = Pair::start_with(&network, &paths, "", "");
    pair.wait_until_up(&["link0"]);
    let bench = Bench::new(network, pair);
    let upload = Transfer::upload(&bench.network);
    upload.wait_for_progress(1 << 18);
    bench.expect_bottleneck("controller");
    drop(bench);
    drop(upload);
}

/// How long connections are tried again.
pub(super) const AGAIN: Duration = Duration::from_millis(200);

/// The path ends at its quota and the other one carries on: only the quota is named.
pub(super) fn quota_reached() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let keys = paths(&network).replacen("remote", "monthly = \"8MB\"\nremote", 1);
    let pair = Pair::start_with(&network, &keys, "", "");
    pair.wait_until_up(&["link0", "link1"]);
    let download = Transfer::download(&network);
    wait_for("the quota is reached", || {
        (pair.field.service("link0")["out"] == "quota").then_some(())
    });
    download.finish();
    let named = Bench::new(network, pair).expect("quota");
    assert_eq!(named.subject, "path link0");
    assert!(named.found.contains("quota reached"), "{named:?}");
}
