//! A client's address changes under a living connection.

use std::net::SocketAddr;

use starhaul_session::Mode;
use starhaul_sim::{NodeId, PathLinks};

use super::{
    net::{CLIENT, Net, SERVER, path_spec, server_address, server_identity},
    transfer::Transfer,
};
use crate::LocalId;

const LEO: &str = "rate=20mbit,delay=20ms";

/// From now on the client sends on link 0 from there.
fn move_client(net: &mut Net, elsewhere: &str) -> SocketAddr {
    let elsewhere: SocketAddr = elsewhere.parse().unwrap();
    let links = net.links[0];
    net.sim.network.bind(NodeId(CLIENT), 0, elsewhere);
    let network = &mut net.sim.network;
    network.set_route(elsewhere, server_address(0), &[links.forward]);
    network.set_route(server_address(0), elsewhere, &[links.backward]);
    elsewhere
}

#[test]
fn a_client_that_only_receives_shows_its_new_address_at_once() {
    for (elsewhere, told) in [
        ("10.9.0.1:3000", true),
        ("10.0.0.1:3000", true),
        ("10.9.0.1:3000", false),
        // A NAT on the way forgot the flow: the client knows nothing of its other port.
        ("10.0.0.1:3000", false),
    ] {
        let mut net = Net::new(1, &[LEO]);
        net.connect();
        net.run_ms(5000);
        let elsewhere = move_client(&mut net, elsewhere);
        let now = net.sim.now();
        if told {
            net.client().node.on_local_change(now, LocalId(0), true);
        }
        // 20 ms of delay there, and some for a keep-alive that happens to leave.
        net.run_ms(25);
        assert_eq!(net.status(SERVER)[0].remote == elsewhere, told);
        net.run_ms(5000);
        for side in [CLIENT, SERVER] {
            assert_eq!(net.party(side).ups_and_downs(0), (1, 0));
        }
        let stream = net.open_stream(SERVER, Mode::FecRetransmit);
        (0..50).for_each(|_| net.send_block(SERVER, stream, vec![7; 20_000]));
        net.run_ms(5000);
        assert_eq!(net.client().blocks().len(), 50, "{elsewhere}");
    }
}

/// The client learns of its new address while the way to it is down still: the server's first packet there is lost, and the
/// client, which only receives, sends too little for another of that size (RFC 9000 §8.1).
#[test]
fn a_moved_client_is_served_again_though_the_first_packet_to_it_is_lost() {
    for seed in 0..20 {
        let link = "rate=100mbit,delay=1ms";
        let mut net = Net::new(seed, &[link, link]);
        net.connect();
        net.run_ms(500);
        let stream = net.open_stream(SERVER, Mode::FecRetransmit);
        let download = |net: &mut Net, millis: u64| {
            for _ in 0..millis / 10 {
                net.send_block(SERVER, stream, vec![7; 20_000]);
                net.run_ms(10);
            }
        };
        download(&mut net, 200);
        net.cut(0);
        download(&mut net, 800);
        let elsewhere = move_client(&mut net, "10.0.0.1:3000");
        let back = |net: &mut Net, links: PathLinks| {
            let now = net.sim.now();
            net.sim.network.restore(now, links);
        };
        let show = |net: &mut Net| {
            let now = net.sim.now();
            net.client().node.on_local_change(now, LocalId(0), true);
        };
        let [there, here] = {
            let PathLinks { forward, backward } = net.links[0];
            [forward, backward].map(|link| PathLinks {
                forward: link,
                backward: link,
            })
        };
        show(&mut net);
        if seed % 3 == 0 {
            download(&mut net, 100);
            show(&mut net);
        }
        back(&mut net, there);
        download(&mut net, 100);
        net.cut(1);
        download(&mut net, seed * 37 % 1500 / 10 * 10);
        back(&mut net, here);
        let before = net.client().blocks().len();
        download(&mut net, 3000);
        let got = net.client().blocks().len() - before;
        assert!(got >= 100, "seed {seed}: {got} blocks");
        assert_eq!(net.status(SERVER)[0].remote, elsewhere, "seed {seed}");
        assert_eq!(net.server().ups_and_downs(0), (1, 0), "seed {seed}");
    }
}

/// What the former network carried in a round trip would wait in the queue of the other for seconds.
#[test]
fn a_client_that_moves_sends_as_over_a_new_path() {
    for controller in ["bbr", "cubic", "leocc2"] {
        let mut net = Net::new(3, &["rate=100mbit,delay=20ms"]);
        let mut path = path_spec(0);
        path.1.controller = controller.parse().unwrap();
        net.connect_with(server_identity().public_key(), vec![path]);
        net.run_ms(500);
        let mut transfer = Transfer::open(&mut net, CLIENT, u64::MAX);
        transfer.run_ms(&mut net, 5_000);
        let before = net.status(CLIENT)[0].cwnd;
        assert!(before > 300_000, "{controller}: {before}");
        move_client(&mut net, "10.9.0.1:3000");
        let now = net.sim.now();
        net.client().node.on_local_change(now, LocalId(0), true);
        transfer.run_ms(&mut net, 30);
        // Ten packets, and what the stack sends by itself.
        let first: usize = (net.client().sent.iter())
            .filter(|(at, ..)| *at >= now)
            .map(|(.., bytes)| bytes)
            .sum();
        assert!(
            (5_000..25_000).contains(&first),
            "{controller}: {first} bytes"
        );
        transfer.run_ms(&mut net, 3_000);
        let then = net.sim.now();
        let read = transfer.read;
        transfer.run_ms(&mut net, 2_000);
        let mbit = (transfer.read - read) as f64 * 8e-6 / (net.sim.now() - then).as_secs_f64();
        assert!(mbit > 60.0, "{controller}: {mbit:.1} Mbit/s");
    }
}
