//! Packets are as large as each path carries them, whatever is lost on it, and what was cut for larger ones still arrives.

use std::time::{Duration, Instant};

use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_session::{Event, Mode, Outcome};
use starhaul_units::Bandwidth;

use super::{
    net::{CLIENT, Net, Party, SERVER, client_config, path_spec, server_config, server_identity},
    transfer::Transfer,
};
use crate::{Node, NodeEvent};

const LEO: &str = "rate=10mbit,delay=20ms";

/// Connects over all links at a rate that loss does not change.
fn connect_at_rate(net: &mut Net, mbit: u64) {
    let path = |number| {
        let mut path = path_spec(number);
        let rate = RateFeed::new(Bandwidth::from_mbit(mbit));
        path.1.controller = ControllerConfig::Dedicated(rate);
        path
    };
    let count = u32::try_from(net.links.len()).unwrap();
    net.connect_with(
        server_identity().public_key(),
        (0..count).map(path).collect(),
    );
}

/// What each side sends over a path.
fn sizes(net: &mut Net, path: usize) -> [u16; 2] {
    [CLIENT, SERVER].map(|side| net.status(side)[path].packet_bytes)
}

#[test]
fn each_path_finds_the_largest_packets_that_it_carries() {
    // IPv4 and UDP take 28 bytes of each.
    for (mtu, found) in [
        (1500, 1472),
        (1492, 1464),
        (1480, 1452),
        (1420, 1392),
        (1400, 1372),
        (1396, 1352),
        (1300, 1252),
        (1280, 1252),
        (1276, 1232),
        (1228, 1200),
    ] {
        let mut net = Net::new(1, &[LEO, "rate=10mbit,delay=300ms"]);
        for path in [0, 1] {
            net.set_mtu(path, mtu, mtu);
        }
        net.connect();
        net.run_ms(4000);
        assert_eq!(sizes(&mut net, 0), [found; 2], "MTU {mtu}");
        net.run_ms(16_000);
        assert_eq!(sizes(&mut net, 1), [found; 2], "MTU {mtu} over GEO");
        assert_eq!(net.client().ups_and_downs(0), (1, 0));
        let stats = net.status(CLIENT)[0].stats.clone().unwrap();
        assert_eq!(stats.datagrams_lost, 0, "probes are no loss");
    }
}

/// Acknowledgements and whatever else the stack has to say leave in packets of their own: beside full datagrams they would make packets
/// that the path does not carry.
#[test]
fn next_to_nothing_is_lost_in_full_packets_both_ways() {
    for mtu in [1500, 1400, 1280] {
        let mut net = Net::new(1, &["rate=10mbit,delay=15ms", "rate=10mbit,delay=60ms"]);
        for path in [0, 1] {
            net.set_mtu(path, mtu, mtu);
        }
        connect_at_rate(&mut net, 8);
        net.run_ms(5000);
        let before = net.sim.network.stats().too_large;
        let back = net.open_stream(SERVER, Mode::Retransmit);
        let mut upload = Transfer::upload(&mut net);
        for number in 0..500 {
            net.send_block(SERVER, back, vec![1; number * 31 % 4000 + 1]);
            upload.run_ms(&mut net, 10);
        }
        let lost = net.sim.network.stats().too_large - before;
        assert!(lost <= 3, "MTU {mtu}: {lost} of 10 000 packets");
        assert!(upload.read > 8_000_000, "MTU {mtu}: {}", upload.read);
        let sent = net.client().sent.iter();
        let beyond = sent.filter(|(_, _, size)| *size > 1472).count();
        assert!(beyond <= 3, "{beyond} packets beyond the limit");
    }
}

#[test]
fn each_direction_finds_its_own() {
    let mut net = Net::new(1, &[LEO]);
    net.set_mtu(0, 1280, 1400);
    net.connect();
    net.run_ms(4000);
    assert_eq!(sizes(&mut net, 0), [1252, 1372]);
}

#[test]
fn nothing_larger_than_sure_leaves_before_a_path_is_up_and_nothing_larger_than_the_limit_ever() {
    let start = Instant::now();
    let mut configs = [client_config(), server_config()];
    for config in &mut configs {
        config.packet_bytes = 1400;
    }
    let [client, server] = configs.map(|config| Party::new(Node::new(config, start).unwrap()));
    let mut net = Net::with_parties(1, start, client, server, &[LEO]);
    let mut path = path_spec(0);
    path.1.name = "n".repeat(64);
    net.connect_with(server_identity().public_key(), vec![path]);
    while net.up(CLIENT).is_empty() || net.up(SERVER).is_empty() {
        for side in [CLIENT, SERVER] {
            if net.up(side).is_empty() {
                let largest = net.party(side).sent.iter().map(|(_, _, size)| *size).max();
                assert!(largest.unwrap_or(0) <= 1200, "{largest:?}");
            }
        }
        net.run_ms(1);
    }
    Transfer::upload(&mut net).run_ms(&mut net, 2000);
    assert_eq!(sizes(&mut net, 0), [1400; 2]);
    let sent = net.client().sent.iter().map(|(_, _, size)| *size);
    let largest = sent.max().unwrap();
    assert!((1385..=1400).contains(&largest), "{largest}");
}

/// Until the client's only path, over which it uploads, has packets of this size.
fn upload_until(net: &mut Net, wanted: u16, most_ms: u64) -> Transfer {
    while net.up(CLIENT).is_empty() || net.up(SERVER).is_empty() {
        net.run_ms(1);
    }
    let (since, mut upload) = (net.sim.now(), Transfer::upload(net));
    while sizes(net, 0)[0] != wanted {
        upload.run_ms(net, 10);
        let waited = net.sim.now() - since;
        assert!(
            waited < Duration::from_millis(most_ms),
            "{:?}",
            net.status(CLIENT)[0]
        );
    }
    upload
}

/// Neither what is lost at random nor bursts make a path narrower, and they delay the search only a little.
#[test]
fn loss_does_not_narrow_a_path() {
    for loss in [
        "10%",
        "20%",
        "ge:10%:4",
        "ge:20%:4",
        "ge:10%:30",
        "ge:20%:30",
    ] {
        for (seed, mtu, found) in [
            (0, 1500, 1472),
            (1, 1500, 1472),
            (2, 1400, 1372),
            (3, 1280, 1252),
        ] {
            let spec =
                format!("rate=4mbit,delay=20ms,loss={loss} | rate=4mbit,delay=20ms,loss=10%");
            let mut net = Net::new(seed, &[&spec]);
            net.set_mtu(0, mtu, mtu);
            connect_at_rate(&mut net, 3);
            let mut upload = upload_until(&mut net, found, 20_000);
            for second in 0..30 {
                for _ in 0..10 {
                    upload.run_ms(&mut net, 100);
                    let sent = sizes(&mut net, 0)[0];
                    assert_eq!(sent, found, "{loss}, seed {seed}, second {second}");
                }
            }
            assert!(
                upload.read > 1_000_000,
                "{loss}, seed {seed}: {}",
                upload.read
            );
        }
    }
}

/// An upload over the only path goes on within some round trips, in packets that fit.
#[test]
fn an_upload_survives_a_path_that_becomes_narrower() {
    for (spec, mtu, found, round_trip) in [
        (LEO, 1280, 1252, 40),
        (LEO, 1400, 1372, 40),
        (LEO, 1228, 1200, 40),
        ("rate=10mbit,delay=20ms,loss=ge:10%:8", 1280, 1252, 40),
        ("rate=10mbit,delay=300ms", 1280, 1252, 600),
    ] {
        let mut net = Net::new(3, &[spec]);
        connect_at_rate(&mut net, 8);
        net.run_ms(20 * round_trip);
        let mut upload = Transfer::upload(&mut net);
        upload.run_ms(&mut net, 3000 + 10 * round_trip);
        assert_eq!(sizes(&mut net, 0), [1472; 2], "{spec}");
        net.set_mtu(0, mtu, mtu);
        // What was under way still arrives.
        upload.run_ms(&mut net, 2 * round_trip);
        let before = upload.read;
        let mut stood = 0;
        while upload.read < before + 20_000 {
            upload.run_ms(&mut net, 10);
            stood += 10;
            assert!(
                stood < 15 * round_trip + 500,
                "{spec}, MTU {mtu}: stands still"
            );
        }
        let path = &net.status(CLIENT)[0];
        assert!(path.up && path.packet_bytes <= found, "{path:?}");
        upload.run_ms(&mut net, 30_000);
        let sent = net.status(CLIENT)[0].packet_bytes;
        assert_eq!(sent, found, "{spec}, MTU {mtu}");
        assert_eq!(net.client().ups_and_downs(0), (1, 0), "{spec}, MTU {mtu}");
        assert!(
            upload.read > before + 1_000_000,
            "{spec}: {}",
            upload.read - before
        );
    }
}

/// Outcomes of the client's blocks: how many there were, and how many of them were delivered.
fn outcomes(net: &mut Net) -> (usize, usize) {
    let events = net.client().events.iter();
    let outcomes = events.filter_map(|event| match event {
        NodeEvent::Session {
            event: Event::BlockOutcome { outcome, .. },
            ..
        } => Some(matches!(outcome, Outcome::Delivered { .. })),
        _ => None,
    });
    let outcomes: Vec<_> = outcomes.collect();
    let delivered = outcomes.iter().filter(|delivered| **delivered).count();
    (outcomes.len(), delivered)
}

/// Blocks that were cut for larger packets are cut anew and arrive, also those of which a part had arrived.
#[test]
fn blocks_are_cut_anew_for_a_path_that_became_narrower() {
    for (specs, seed) in [
        (&[LEO][..], 1),
        (&["rate=10mbit,delay=20ms,loss=ge:10%:8"], 2),
        (&[LEO, "rate=10mbit,delay=40ms"], 3),
    ] {
        let mut net = Net::new(seed, specs);
        connect_at_rate(&mut net, 8);
        let all = specs.len();
        while net.up(CLIENT).len() < all || (0..all).any(|path| sizes(&mut net, path)[0] < 1472) {
            net.run_ms(10);
        }
        let stream = net.open_stream(CLIENT, Mode::FecRetransmit);
        for number in 0..400 {
            if number == 100 {
                (0..specs.len()).for_each(|path| net.set_mtu(path, 1280, 1280));
            }
            net.send_block(CLIENT, stream, vec![7; 1000 + number * 37 % 20_000]);
            net.run_ms(20);
        }
        net.run_ms(8000);
        let (ended, delivered) = outcomes(&mut net);
        assert_eq!((ended, delivered), (400, 400), "{specs:?}");
        assert_eq!(net.server().blocks().len(), 400);
        assert_eq!(sizes(&mut net, 0)[0], 1252);
    }
}

/// The wide path dies while a block cut for it is under way; a narrow one is left.
#[test]
fn a_block_cut_for_a_wide_path_goes_over_a_narrow_one_when_that_is_all_there_is() {
    let mut net = Net::new(1, &[LEO, LEO]);
    net.set_mtu(1, 1280, 1280);
    net.connect_with(server_identity().public_key(), vec![path_spec(0)]);
    net.run_ms(3000);
    let stream = net.open_stream(CLIENT, Mode::Retransmit);
    net.send_block(CLIENT, stream, vec![5; 400_000]);
    net.run_ms(150);
    let (now, session) = (net.sim.now(), net.session);
    net.client()
        .node
        .add_path(now, session, path_spec(1))
        .unwrap();
    net.run_ms(50);
    net.cut(0);
    net.run_ms(4500);
    assert_eq!(outcomes(&mut net), (1, 1));
}

#[test]
fn a_path_that_becomes_wider_is_noticed_while_data_flow() {
    let mut net = Net::new(1, &["rate=2mbit,delay=20ms"]);
    net.set_mtu(0, 1400, 1400);
    connect_at_rate(&mut net, 1);
    net.run_ms(4000);
    let mut upload = Transfer::upload(&mut net);
    upload.run_ms(&mut net, 1000);
    net.set_mtu(0, 1500, 1500);
    upload.run_ms(&mut net, 130_000);
    assert_eq!(sizes(&mut net, 0)[0], 1472);
}

#[test]
fn an_idle_path_is_not_asked_again_and_again() {
    let mut net = Net::new(1, &[LEO]);
    net.set_mtu(0, 1400, 1400);
    net.connect();
    net.run_ms(5000);
    let before = net.client().sent.len();
    net.run_ms(1_800_000);
    let large = net.client().sent[before..]
        .iter()
        .filter(|(_, _, size)| *size > 1200);
    assert_eq!(large.count(), 0);
}

#[test]
fn packets_of_a_sure_size_are_never_probed() {
    let start = Instant::now();
    let mut configs = [client_config(), server_config()];
    for config in &mut configs {
        (config.packet_bytes, config.sure_packet_bytes) = (1300, 1300);
    }
    let [client, server] = configs.map(|config| Party::new(Node::new(config, start).unwrap()));
    let mut net = Net::with_parties(1, start, client, server, &[LEO]);
    net.connect();
    net.run_ms(2000);
    let largest = net.client().sent.iter().map(|(_, _, size)| *size).max();
    assert!(largest < Some(1250), "{largest:?}");
    assert_eq!(sizes(&mut net, 0), [1300; 2]);
    let at = net.client().sent.len();
    Transfer::upload(&mut net).run_ms(&mut net, 2000);
    let largest = net.client().sent[at..]
        .iter()
        .map(|(_, _, size)| *size)
        .max();
    assert!(largest > Some(1280) && largest <= Some(1300), "{largest:?}");
}
