//! Blocks from end to end, and the promises of the way they are sent.

use std::time::Duration;

use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_session::{BlockOptions, Mode};
use starhaul_units::Bandwidth;

use super::{
    net::{CLIENT, Net, SERVER, path_spec, server_identity},
    transfer::Transfer,
};

fn block(number: u32, size: usize) -> Vec<u8> {
    let mut data = vec![u8::try_from(number % 251).unwrap(); size];
    data[..4].copy_from_slice(&number.to_be_bytes());
    data
}

/// Sends `count` blocks from one side, one each millisecond, and returns the numbers of those that
/// arrived whole.
fn transfer(net: &mut Net, from: usize, count: u32, size: usize) -> Vec<u32> {
    let stream = net.open_stream(from, Mode::Retransmit);
    for number in 0..count {
        net.send_block(from, stream, block(number, size));
        net.run_ms(1);
    }
    net.run_ms(4000);
    let blocks = net.party(1 - from).blocks();
    let mut numbers = Vec::new();
    for data in blocks {
        let number = u32::from_be_bytes(data[..4].try_into().unwrap());
        assert_eq!(data[..], block(number, size)[..]);
        numbers.push(number);
    }
    numbers.sort_unstable();
    numbers
}

#[test]
fn blocks_arrive_byte_for_byte_in_both_directions() {
    for from in [CLIENT, SERVER] {
        let mut net = Net::new(7, &["rate=20mbit,delay=20ms", "rate=10mbit,delay=50ms"]);
        net.connect();
        net.run_ms(1000);
        let arrived = transfer(&mut net, from, 500, 1000);
        assert_eq!(arrived, (0..500).collect::<Vec<_>>());
    }
}

#[test]
fn lost_packets_are_noticed_and_their_blocks_arrive_all_the_same() {
    let mut net = Net::new(7, &["rate=20mbit,delay=20ms,loss=3%"]);
    net.connect();
    net.run_ms(2000);
    let arrived = transfer(&mut net, CLIENT, 500, 1000);
    assert_eq!(arrived, (0..500).collect::<Vec<_>>());
}

#[test]
fn a_path_that_dies_under_load_costs_no_block() {
    let mut net = Net::new(7, &["rate=20mbit,delay=20ms", "rate=20mbit,delay=30ms"]);
    net.connect();
    net.run_ms(1000);
    let stream = net.open_stream(CLIENT, Mode::Reliable);
    let data: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 241) as u8).collect();
    let (mut written, mut read) = (0, Vec::new());
    for millisecond in 0..30_000 {
        if millisecond == 150 {
            net.cut(0);
        }
        let (now, session) = (net.sim.now(), net.session);
        let sender = net.client().node.session(session).unwrap();
        written += sender.write(now, stream, &data[written..]).unwrap();
        net.run_ms(1);
        let now = net.sim.now();
        let receiver = net.server().node.session(session).unwrap();
        if millisecond > 100 {
            while let Some(bytes) = receiver.read(now, stream, 1 << 16).unwrap() {
                read.extend_from_slice(&bytes);
            }
        }
        if read.len() == data.len() {
            break;
        }
    }
    assert!(read == data, "{} of {} bytes", read.len(), data.len());
}

#[test]
fn packets_under_load_leave_in_batches_and_never_beyond_the_window() {
    let mut net = Net::new(7, &["rate=200mbit,delay=10ms"]);
    let mut path = path_spec(0);
    path.1.controller = ControllerConfig::Dedicated(RateFeed::new(Bandwidth::from_mbit(160)));
    net.connect_with(server_identity().public_key(), vec![path]);
    net.run_ms(1000);
    let stream = net.open_stream(CLIENT, Mode::Retransmit);
    let first = net.client().batches.len();
    for number in 0..4000 {
        net.send_block(CLIENT, stream, block(number, 1000));
        if number % 100 == 0 {
            net.run_ms(4);
            let path = &net.status(CLIENT)[0];
            assert!(path.bytes_in_flight <= path.cwnd, "{path:?}");
        }
    }
    net.run_ms(2000);
    assert_eq!(net.server().blocks().len(), 4000);
    let batches = net.client().batches[first..].iter();
    let large: usize = batches.filter(|count| **count >= 8).sum();
    assert!(large >= 3000, "{large} packets in large batches");
}

#[test]
fn a_busy_session_does_not_starve_another() {
    let mut net = Net::new(7, &["rate=50mbit,delay=10ms", "rate=50mbit,delay=10ms"]);
    let peer = server_identity().public_key();
    net.connect_with(peer, vec![path_spec(0)]);
    let busy = net.session;
    net.connect_with(peer, vec![path_spec(1)]);
    net.run_ms(500);
    let quiet = net.session;
    net.session = busy;
    let flood = net.open_stream(CLIENT, Mode::Retransmit);
    (0..5000).for_each(|number| net.send_block(CLIENT, flood, block(number, 1000)));
    net.session = quiet;
    let stream = net.open_stream(CLIENT, Mode::Retransmit);
    net.send_block(CLIENT, stream, b"hello".to_vec());
    net.run_ms(25);
    assert!(
        net.server()
            .blocks()
            .iter()
            .any(|data| &data[..] == b"hello")
    );
}

/// Datagrams that one side's session was told to be lost, and that it sent.
fn lost_and_sent(net: &mut Net, side: usize) -> (u64, u64) {
    let stats = net.status(side)[0].stats.clone().unwrap();
    (stats.datagrams_lost, stats.datagrams_sent)
}

#[test]
fn every_datagram_meets_its_own_fate() {
    // Blocks of all sizes in both directions, so that acknowledgements, small and large datagrams
    // mix in the packets.
    let run = |spec| {
        let mut net = Net::new(5, &[spec]);
        net.connect();
        net.run_ms(2000);
        let streams = [CLIENT, SERVER].map(|side| net.open_stream(side, Mode::None));
        for number in 0..600_usize {
            for side in [CLIENT, SERVER] {
                let size = 4 + number * number * 7 % 3000;
                net.send_block(side, streams[side], vec![1; size]);
            }
            net.run_ms(3);
        }
        net.run_ms(3000);
        net
    };
    let mut clean = run("rate=50mbit,delay=20ms");
    for side in [CLIENT, SERVER] {
        let (lost, sent) = lost_and_sent(&mut clean, side);
        assert_eq!(lost, 0, "of {sent}");
        assert_eq!(clean.party(side).blocks().len(), 600);
    }
    let mut lossy = run("rate=50mbit,delay=20ms,loss=4%");
    for side in [CLIENT, SERVER] {
        let (lost, sent) = lost_and_sent(&mut lossy, side);
        let share = lost as f64 / sent as f64;
        assert!((0.02..0.06).contains(&share), "{lost} of {sent}");
    }
}
#[test]
fn two_paths_carry_nearly_the_sum_of_both() {
    let mut net = Net::new(7, &["rate=10mbit,delay=15ms", "rate=10mbit,delay=60ms"]);
    net.connect();
    net.run_ms(1000);
    let stream = net.open_stream(CLIENT, Mode::Reliable);
    let data = vec![3; 1 << 20];
    let mut received = 0;
    for _ in 0..6000 {
        let (now, session) = (net.sim.now(), net.session);
        let sender = net.client().node.session(session).unwrap();
        sender.write(now, stream, &data).unwrap();
        net.run_ms(1);
        let now = net.sim.now();
        let receiver = net.server().node.session(session).unwrap();
        while let Ok(Some(bytes)) = receiver.read(now, stream, 1 << 20) {
            received += bytes.len();
        }
    }
    let rate = Bandwidth::from_bytes_over(received as u64, Duration::from_secs(6));
    assert!(rate > Bandwidth::from_mbit(16), "{rate}");
}

#[test]
fn many_losses_in_one_acknowledgement_do_not_stop_a_path() {
    // Without a rate, whole batches arrive at once and are acknowledged at once.
    let mut net = Net::new(7, &["delay=20ms,loss=10%"]);
    let mut path = path_spec(0);
    path.1.controller = ControllerConfig::Dedicated(RateFeed::new(Bandwidth::from_mbit(2000)));
    net.connect_with(server_identity().public_key(), vec![path]);
    net.run_ms(2000);
    let stream = net.open_stream(CLIENT, Mode::Retransmit);
    (0..200).for_each(|number| net.send_block(CLIENT, stream, block(number, 24_000)));
    net.run_ms(2000);
    assert_eq!(net.server().blocks().len(), 200);
}

/// As in rain: before anything is lost, and only in the direction of which it is told.
#[test]
fn what_a_modem_tells_of_bit_errors_is_known_of_its_path() {
    let mut net = Net::new(7, &["rate=20mbit,delay=20ms"]);
    let feed = RateFeed::new(Bandwidth::from_mbit(10));
    let mut path = path_spec(0);
    path.1.controller = ControllerConfig::Dedicated(feed.clone());
    net.connect_with(server_identity().public_key(), vec![path]);
    net.run_ms(1_000);
    let stream = net.open_stream(CLIENT, Mode::Retransmit);
    for (number, bit_errors) in (0..).zip([None, Some(1e-5), None]) {
        feed.set_bit_error_rate(bit_errors);
        net.send_block(CLIENT, stream, block(number, 1_000));
        net.run_ms(500);
        let [ours, theirs] = [CLIENT, SERVER].map(|side| net.status(side)[0].stats.clone());
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
        assert_eq!((theirs.told_loss, theirs.loss_rate), (None, 0.0));
        let Some(told) = ours.told_loss else {
            assert_eq!((bit_errors, ours.loss_rate), (None, 0.0));
            continue;
        };
        // Of the ten or twelve thousand bits of a packet.
        assert!(
            bit_errors.is_some() && (0.09..0.14).contains(&told),
            "{told}"
        );
        assert!(ours.loss_rate > told / 2.0, "{ours:?}");
    }
}

/// The path carries a tenth of what its controller is told, behind a queue of some seconds, and a transfer has more to send.
#[test]
fn a_lone_path_keeps_its_queue_short_for_the_sake_of_deadlines() {
    let mut net = Net::new(7, &["rate=5mbit,delay=20ms,queue=2000p"]);
    let mut path = path_spec(0);
    path.1.controller = ControllerConfig::Dedicated(RateFeed::new(Bandwidth::from_mbit(50)));
    net.connect_with(server_identity().public_key(), vec![path]);
    net.run_ms(500);
    let stream = net.open_stream(CLIENT, Mode::Retransmit);
    let mut transfer = Transfer::upload(&mut net);
    let mut in_flight = Vec::new();
    for round in 0..500 {
        let (now, session) = (net.sim.now(), net.session);
        let session = net.client().node.session(session).unwrap();
        let options = BlockOptions {
            deadline: Some(Duration::from_millis(300)),
            ..BlockOptions::default()
        };
        let data = vec![7; 200].into();
        session.send_block(now, stream, data, options).unwrap();
        transfer.run_ms(&mut net, 20);
        if round > 250 {
            in_flight.push(net.status(CLIENT)[0].bytes_in_flight);
        }
    }
    // 40 ms of the way, and a third of what the deadline leaves, are 83 kB. Now and then it tries whether the path became longer.
    in_flight.sort_unstable();
    let median = in_flight[in_flight.len() / 2];
    assert!(median < 200_000, "{median} bytes in flight");
    assert!(transfer.read > 4_000_000, "{}", transfer.read);
}

/// Each tenth packet is overtaken by some eight, and comes in time for the round trip.
#[test]
fn packets_that_are_overtaken_are_not_sent_again() {
    let mut net = Net::new(
        5,
        &["rate=50mbit,delay=80ms,reorder=10%:2ms | rate=50mbit,delay=80ms"],
    );
    let mut path = path_spec(0);
    path.1.controller = "cubic".parse().unwrap();
    net.connect_with(server_identity().public_key(), vec![path]);
    net.run_ms(1_000);
    let stream = net.open_stream(CLIENT, Mode::Retransmit);
    let before = net.client().sent.len();
    for number in 0..5_000 {
        net.send_block(CLIENT, stream, block(number, 1_000));
        net.send_block(CLIENT, stream, block(number, 1_000));
        net.run_ms(1);
    }
    net.run_ms(4_000);
    assert_eq!(net.server().blocks().len(), 10_000);
    let packets = net.client().sent[before..].iter();
    let full = packets.filter(|(.., bytes)| *bytes > 1_000).count();
    assert!(full < 10_500, "{full} packets for 10000 blocks");
}
