//! Faults of applications and rules.

use std::{
    io::{ErrorKind, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
};

use super::{
    super::{
        gateway::{Pair, paths},
        network::{Network, Side},
        wait_for,
    },
    bench::Bench,
    hosts::Meanwhile,
    links::{AGAIN, pair},
};

/// The two ends of a connection through the rule: of the field, and of the ground.
fn connect(network: &Network) -> (TcpStream, TcpStream) {
    let listen = || TcpListener::bind("127.0.0.1:8000");
    let listener = network.ground.inside(listen).unwrap();
    let connect = || TcpStream::connect("127.0.0.1:8080");
    let near = network.field.inside(connect).unwrap();
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

/// Writes until nothing more is taken.
fn fill(mut stream: TcpStream) -> Meanwhile {
    stream.set_nonblocking(true).unwrap();
    Meanwhile::every(AGAIN / 10, move || {
        loop {
            match stream.write(&[7; 1 << 16]) {
                Ok(taken) => assert!(taken > 0, "it is closed"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                    return;
                }
            }
        }
    })
}

pub(super) fn far_reader() {
    let Some(bench) = pair(1) else { return };
    let (near, far) = connect(&bench.network);
    let filling = fill(near);
    let named = bench.expect("reader");
    assert_eq!(named.subject, "rule transfer");
    assert!(named.found.contains("at the peer"), "{named:?}");
    drop((filling, far));
}

pub(super) fn near_reader() {
    let Some(bench) = pair(1) else { return };
    let (near, far) = connect(&bench.network);
    let filling = fill(far);
    let named = bench.expect("reader");
    assert!(named.found.contains("application here"), "{named:?}");
    drop((filling, near));
}

/// Connects to this port of the field again and again.
fn knock(network: &Network, port: u16) -> Meanwhile {
    let network = Arc::new(network.namespace(Side::Field).try_clone().unwrap());
    Meanwhile::every(AGAIN, move || {
        let _ = network.inside(|| TcpStream::connect(("127.0.0.1", port)));
    })
}

fn with_rule(rule: &str) -> Option<Bench> {
    let network = Network::create(1)?;
    let pair = Pair::start_with(&network, &paths(&network), rule, "");
    pair.wait_until_up(&["link0"]);
    Some(Bench::new(network, pair))
}

pub(super) fn not_allowed() {
    let rule = "[[tcp]]\nname = \"web\"\nlisten = \"127.0.0.1:8081\"\ntarget = \"10.1.2.3:80\"\n";
    let Some(bench) = with_rule(rule) else { return };
    let knocking = knock(&bench.network, 8081);
    let named = bench.expect("egress_refuses");
    assert_eq!(named.subject, "rule web");
    drop(knocking);
}

pub(super) fn refused() {
    let Some(bench) = pair(1) else { return };
    let knocking = knock(&bench.network, 8080);
    let named = bench.expect("target_refuses");
    assert_eq!(named.subject, "rule transfer");
    drop(knocking);
}

pub(super) fn limit() {
    let rule = "[[tcp]]\nname = \"few\"\nlisten = \"127.0.0.1:8081\"\ntarget = \"127.0.0.1:8001\"\nmax_connections = 1\n";
    let Some(bench) = with_rule(rule) else { return };
    let listen = || TcpListener::bind("127.0.0.1:8001");
    // The kernel accepts for it.
    let listener = bench.network.ground.inside(listen).unwrap();
    let knocking = knock(&bench.network, 8081);
    let named = bench.expect("limit");
    assert!(named.found.contains("connections of few"), "{named:?}");
    drop((knocking, listener));
}

pub(super) fn no_device() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let tunnel = |host: u8| {
        format!("[[tun]]\nname = \"vpn\"\ndevice = \"star0\"\naddresses = [\"10.9.0.{host}/24\"]\n")
    };
    let pair = Pair::start_with(&network, &paths(&network), &tunnel(2), &tunnel(1));
    pair.wait_until_up(&["link0"]);
    wait_for("the device", || {
        network.try_ip(Side::Field, "link delete star0").ok()
    });
    // Another program takes its name before the gateway makes it again.
    wait_for("the name", || {
        let taken = network.try_ip(Side::Field, "link add star0 type veth");
        taken
            .or_else(|_| network.try_ip(Side::Field, "link delete star0"))
            .ok()?;
        pair.field.status()["tunnels"][0]["device"]
            .is_null()
            .then_some(())
    });
    let named = Bench::new(network, pair).expect("tunnel_device");
    assert_eq!(named.subject, "tun vpn");
}
