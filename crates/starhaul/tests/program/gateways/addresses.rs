//! Interfaces and addresses come and go under a transfer.

use std::net::IpAddr;

use starhaul_net::{NetworkChange, NetworkMonitor};

use super::{
    gateway::{PORT, Pair},
    network::{Network, Side},
    transfer::Transfer,
    wait_for,
};

/// Bytes that must arrive to show progress: more than all buffers on the path hold.
const PROGRESS: u64 = 2 << 20;

/// A pair with both paths up, and a download over them.
fn downloading(network: &Network) -> (Pair, Transfer) {
    let pair = Pair::start(network);
    pair.wait_until_up(&["link0", "link1"]);
    let download = Transfer::download(network);
    download.wait_for_progress(PROGRESS);
    (pair, download)
}

/// How often the field logged that a path came up.
fn times_up(pair: &Pair, path: &str) -> usize {
    let log = pair.field.log();
    log.lines()
        .filter(|line| line.contains("path up") && line.contains(path))
        .count()
}

/// Waits until the ground sees the field's end of the path at this address.
fn wait_for_remote(pair: &Pair, path: &str, address: &str) {
    wait_for(&format!("{path} comes from {address}"), || {
        let remote = pair.ground.path(path)["remote"].clone();
        remote.as_str()?.starts_with(address).then_some(())
    });
}

#[test]
fn an_interface_deleted_and_made_again_carries_its_path_again() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let (pair, download) = downloading(&network);
    network.delete_link(0);
    // Until the connection is given up, so that only a new one can help.
    pair.wait_for_state(&["link0"], "down");
    let problem = pair.field.path("link0")["last_error"].clone();
    let problem = problem.as_str().unwrap_or_default();
    assert!(problem.contains("wan0"), "names the interface: {problem}");
    network.add_link(0);
    pair.wait_until_up(&["link0", "link1"]);
    download.wait_for_progress(PROGRESS);
    download.finish();
}

#[test]
fn an_interface_that_is_gone_for_a_moment_keeps_its_connection() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let (pair, download) = downloading(&network);
    network.delete_link(0);
    download.wait_for_progress(PROGRESS);
    network.add_link(0);
    network.delete_link(1);
    // All that arrives from here on can only come over the new interface.
    pair.wait_until_up(&["link0"]);
    download.wait_for_progress(PROGRESS);
    assert_eq!(times_up(&pair, "link0"), 1, "a new connection was made");
    download.finish();
}

#[test]
fn a_path_whose_address_changes_keeps_its_connection() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let (pair, download) = downloading(&network);
    network.change_address(Side::Field, 0, 9);
    wait_for_remote(&pair, "link0", "10.77.0.9:");
    pair.wait_until_up(&["link0", "link1"]);
    download.wait_for_progress(PROGRESS);
    assert_eq!(times_up(&pair, "link0"), 1, "a new connection was made");
    download.finish();
}

#[test]
fn a_session_outlives_a_change_of_all_its_addresses() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let (pair, download) = downloading(&network);
    for link in 0..2 {
        network.change_address(Side::Field, link, 9);
    }
    for (path, address) in [("link0", "10.77.0.9:"), ("link1", "10.77.1.9:")] {
        wait_for_remote(&pair, path, address);
    }
    pair.wait_until_up(&["link0", "link1"]);
    download.wait_for_progress(PROGRESS);
    download.finish();
}

/// A new address is tentative for a second or two: sockets cannot use it before duplicate address detection ends.
#[test]
fn ipv6_paths_outlive_a_change_of_address_and_an_interface_made_again() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return starhaul_needs::skip(starhaul_needs::Need::Ipv6, "this kernel has none");
    }
    let Some(network) = Network::create(2) else {
        return;
    };
    for link in 0..2 {
        network.add_ipv6(Side::Ground, link, 1);
        network.add_ipv6(Side::Field, link, 2);
    }
    let pair = Pair::start_ipv6(&network);
    pair.wait_until_up(&["link0", "link1"]);
    let download = Transfer::download(&network);
    download.wait_for_progress(PROGRESS);

    network.ip(Side::Field, "address flush dev wan0");
    network.add_ipv6(Side::Field, 0, 9);
    wait_for_remote(&pair, "link0", "[fd77::9]:");
    pair.wait_until_up(&["link0", "link1"]);
    download.wait_for_progress(PROGRESS);

    network.delete_link(1);
    pair.wait_for_state(&["link1"], "down");
    network.add_link(1);
    network.add_ipv6(Side::Ground, 1, 1);
    network.add_ipv6(Side::Field, 1, 2);
    pair.wait_until_up(&["link0", "link1"]);
    download.wait_for_progress(PROGRESS);
    download.finish();
}

#[test]
fn a_path_that_was_down_when_its_address_changed_returns() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let (pair, download) = downloading(&network);
    network.ip(Side::Field, "address flush dev wan0");
    pair.wait_for_state(&["link0"], "down");
    network.ip(Side::Field, "address add 10.77.0.9/24 dev wan0");
    wait_for_remote(&pair, "link0", "10.77.0.9:");
    pair.wait_until_up(&["link0", "link1"]);
    download.wait_for_progress(PROGRESS);
    download.finish();
}

#[test]
fn a_path_with_a_fixed_local_address_returns_with_it() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let path = |link| {
        format!(
            "[[session.path]]\nname = \"link{link}\"\nlocal = \"{}\"\nremote = \"{}:{PORT}\"\n",
            Network::address(Side::Field, link),
            Network::address(Side::Ground, link),
        )
    };
    let pair = Pair::start_with(&network, &(path(0) + &path(1)), "", "");
    pair.wait_until_up(&["link0", "link1"]);
    let download = Transfer::download(&network);
    download.wait_for_progress(PROGRESS);
    network.change_address(Side::Field, 0, 9);
    pair.wait_for_state(&["link0"], "down");
    let problem = pair.field.path("link0")["last_error"].clone();
    let problem = problem.as_str().unwrap_or_default();
    assert!(
        problem.contains("10.77.0.2"),
        "names the address: {problem}"
    );
    network.change_address(Side::Field, 0, 2);
    pair.wait_until_up(&["link0", "link1"]);
    download.wait_for_progress(PROGRESS);
    download.finish();
}

#[test]
fn the_side_that_accepts_may_lose_and_regain_its_address() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let (pair, download) = downloading(&network);
    network.change_address(Side::Ground, 0, 9);
    pair.wait_for_state(&["link0"], "suspect");
    download.wait_for_progress(PROGRESS);
    network.change_address(Side::Ground, 0, 1);
    pair.wait_until_up(&["link0", "link1"]);
    download.wait_for_progress(PROGRESS);
    download.finish();
}

#[test]
fn news_beyond_what_the_kernel_keeps_are_told_as_missed_and_later_ones_are_heard() {
    let Some(network) = Network::create(0) else {
        return;
    };
    let mut monitor = network
        .field
        .inside(|| Ok(NetworkMonitor::open().unwrap()))
        .unwrap();
    let mut news = || {
        let mut all = Vec::new();
        loop {
            let before = all.len();
            monitor.recv(|change| all.push(change)).unwrap();
            if all.len() == before {
                return all;
            }
        }
    };
    let batch = tempfile::NamedTempFile::new().unwrap();
    let addresses = (0..4000).map(|n| format!("10.{}.{}.1/32", 100 + n / 250, n % 250));
    let commands = addresses.map(|address| format!("address add {address} dev lo\n"));
    std::fs::write(&batch, commands.collect::<String>()).unwrap();
    let file = batch.path().display();
    network.ip(Side::Field, &format!("-batch {file}"));
    assert!(news().contains(&NetworkChange::Missed));
    network.ip(Side::Field, "address add 192.0.2.1/32 dev lo");
    let later = news();
    let wanted = IpAddr::from([192, 0, 2, 1]);
    let is_it = |change: &NetworkChange| matches!(change, NetworkChange::Address { address, .. } if *address == wanted);
    assert!(later.iter().any(is_it), "{later:?}");
}
