//! The train of packets by which a long path is measured before anything else is known of it.

use std::time::Duration;

use starhaul_cc::ControllerConfig;
use starhaul_paths::PathId;
use starhaul_session::{Event, LAST_RESORT, Mode};
use starhaul_units::Bandwidth;

use super::{
    net::{CLIENT, Net, SERVER, path_spec, server_identity},
    transfer::Transfer,
};
use crate::NodeEvent;

const FIRST_WINDOW: u64 = 12_000;

/// A net of one link whose client has just connected, with this controller in both directions.
fn connected(seed: u64, link: &str, controller: &str, limit: Option<Bandwidth>) -> Net {
    let controller: ControllerConfig = controller.parse().unwrap();
    let mut net = Net::new(seed, &[link]);
    net.accept_with(controller.clone());
    let (local, mut spec) = path_spec(0);
    spec.controller = controller;
    net.connect_with(server_identity().public_key(), vec![(local, spec)]);
    let (now, session) = (net.sim.now(), net.session);
    let node = &mut net.client().node;
    node.set_path_rate_limit(now, session, PathId(0), limit)
        .unwrap();
    while !net.client().connected() {
        net.run_ms(5);
    }
    net
}

fn cwnd(net: &mut Net, side: usize) -> u64 {
    net.status(side)[0].cwnd
}

/// Slow start alone has delivered less than 200 kB by then, whatever its controller.
#[test]
fn a_transfer_over_a_long_path_does_not_begin_with_ten_packets() {
    for controller in [
        "bbr", "bbr3", "leocc2", "leocc", "cubic", "newreno", "hybla", "vegas", "copa", "satcp",
    ] {
        for side in [CLIENT, SERVER] {
            let mut net = connected(1, "rate=10mbit,delay=300ms", controller, None);
            // The server has the session a way later.
            net.run_ms(400);
            let mut transfer = Transfer::open(&mut net, side, u64::MAX);
            transfer.run_ms(&mut net, 2_500);
            let read = transfer.read;
            assert!(read > 500_000, "{controller}, side {side}: {read}");
        }
    }
}

/// What a path carries is learnt once for each network, whatever the distance between its ends; what the rest of the path lets through at
/// once is no rate.
#[test]
fn the_window_fits_what_the_path_carries() {
    for (rate_mbit, delay_ms) in [(1, 300), (3, 60), (3, 600), (20, 120), (1000, 300)] {
        let link = format!("rate={rate_mbit}mbit,delay={delay_ms}ms,queue=1000p");
        let mut net = connected(2, &link, "bbr", None);
        net.run_ms(3 * delay_ms);
        let carried = rate_mbit * 125 * 2 * delay_ms;
        let cwnd = cwnd(&mut net, CLIENT);
        let what = format!("{link}: {cwnd} of {carried}");
        let most = carried.clamp(FIRST_WINDOW, 33 * FIRST_WINDOW);
        assert!(cwnd <= most, "{what}");
        let least = (carried * 2 / 5).clamp(FIRST_WINDOW, 25 * FIRST_WINDOW);
        assert!(cwnd >= least, "{what}");
    }
}

/// Packets of the size of a train's that a side sent.
fn trained(net: &mut Net, side: usize) -> usize {
    let sent = &net.party(side).sent;
    sent.iter()
        .filter(|(.., size)| (740..800).contains(size))
        .count()
}

/// Bytes that a side sent until it was idle.
fn sent(net: &mut Net, side: usize) -> usize {
    net.run_ms(700);
    net.party(side).sent.iter().map(|(.., size)| size).sum()
}

#[test]
fn short_and_limited_paths_are_spared() {
    let limit = Some(Bandwidth::from_mbit(5));
    let bytes = |delay: u32, limit, side| {
        let link = format!("rate=10mbit,delay={delay}ms");
        sent(&mut connected(3, &link, "cubic", limit), side)
    };
    for (side, delay, limit) in [(CLIENT, 20, None), (SERVER, 20, None), (CLIENT, 60, limit)] {
        let (long, spared) = (bytes(60, None, side), bytes(delay, limit, side));
        let extra = 7_000..9_000;
        assert!(
            spared < long && extra.contains(&(long - spared)),
            "{long} and {spared} of side {side}, {delay} ms"
        );
    }
}

/// The time after which a first message has arrived.
fn message_takes(limit: Option<Bandwidth>) -> Duration {
    let mut net = connected(4, "rate=10mbit,delay=300ms", "cubic", limit);
    assert_eq!(
        trained(&mut net, CLIENT),
        if limit.is_some() { 0 } else { 10 }
    );
    let begin = net.sim.now();
    let stream = net.open_stream(CLIENT, Mode::None);
    net.send_block(CLIENT, stream, vec![7; 8_000]);
    while net.server().blocks().is_empty() {
        net.run_ms(1);
    }
    net.sim.now() - begin
}

#[test]
fn a_first_message_finds_room_beside_the_train() {
    // A limit as great as the link's rate only takes the train away.
    let alone = message_takes(Some(Bandwidth::from_mbit(10)));
    let beside = message_takes(None);
    // 8 kB at 10 Mbit/s.
    let most = alone + Duration::from_millis(8);
    assert!(beside <= most, "{beside:?}, {alone:?} without a train");
}

/// A queue of four packets loses most of the train, which is no congestion: the window grows from where it began.
#[test]
fn losses_of_a_train_are_no_congestion() {
    let mut net = connected(5, "rate=10mbit,delay=300ms,queue=4p", "newreno", None);
    assert_eq!(trained(&mut net, CLIENT), 10);
    net.run_ms(2_000);
    let link = net.links[0].forward;
    assert!(
        net.sim.network[link].stats().dropped_queue >= 5,
        "its losses"
    );
    assert!(cwnd(&mut net, CLIENT) >= FIRST_WINDOW);
    let state = net.status(CLIENT)[0].controller_state;
    assert_eq!(state, "slow_start");
    let lost = net.status(CLIENT)[0].totals.datagrams_lost;
    assert_eq!(lost, 0, "told the session");
}

/// Where each byte is paid for, nothing leaves that is not needed.
#[test]
fn a_path_of_the_last_resort_is_not_measured() {
    for (cost, packets) in [(1.0, 10), (LAST_RESORT, 0)] {
        let mut net = Net::new(7, &["rate=10mbit,delay=300ms"]);
        let (local, mut spec) = path_spec(0);
        spec.cost = cost;
        net.connect_with(server_identity().public_key(), vec![(local, spec)]);
        net.run_ms(3_000);
        for side in [CLIENT, SERVER] {
            assert_eq!(trained(&mut net, side), packets, "side {side}, cost {cost}");
        }
    }
}

/// The pacer of a path that has just come up lets a packet go each 50 ms. The outcomes of blocks are told as soon as they arrive all the
/// same.
#[test]
fn acknowledgements_pass_data_that_wait_for_the_pacer() {
    const BLOCKS: usize = 12;
    let mut net = connected(8, "rate=10mbit,delay=300ms", "cubic", None);
    let stream = net.open_stream(CLIENT, Mode::None);
    let (mut sent, mut arrived, mut told) = (0, Vec::new(), Vec::new());
    let mut answering = None;
    while told.len() < BLOCKS {
        if sent < BLOCKS {
            sent += 1;
            net.send_block(CLIENT, stream, vec![7; 100]);
        }
        let session = net.session;
        if answering.is_none() && net.server().node.session(session).is_some() {
            // Its data keep its pacer busy.
            let stream = net.open_stream(SERVER, Mode::None);
            net.send_block(SERVER, stream, vec![9; 6_000]);
            answering = Some(stream);
        }
        for _ in 0..10 {
            net.run_ms(1);
            let now = net.sim.now();
            arrived.resize(net.server().blocks().len(), now);
            told.resize(ended(&mut net), now);
        }
    }
    let ways = told
        .iter()
        .zip(&arrived)
        .map(|(told, arrived)| *told - *arrived);
    let ways: Vec<_> = ways.collect();
    assert!(
        ways.iter().all(|way| *way < Duration::from_millis(300 + 5)),
        "{ways:?}"
    );
}

/// Blocks of the client whose outcome it knows.
fn ended(net: &mut Net) -> usize {
    let events = &net.client().events;
    let is_outcome = |event: &&NodeEvent| {
        matches!(
            event,
            NodeEvent::Session {
                event: Event::BlockOutcome { .. },
                ..
            }
        )
    };
    events.iter().filter(is_outcome).count()
}

/// A path that comes back by another network is measured anew.
#[test]
fn each_life_of_a_path_is_measured() {
    let mut net = connected(6, "rate=10mbit,delay=150ms", "cubic", None);
    net.run_ms(1_000);
    let before = cwnd(&mut net, CLIENT);
    net.cut(0);
    net.run_ms(60_000);
    assert!(net.up(CLIENT).is_empty());
    net.restore(0);
    let patience = Duration::from_secs(60);
    let until = net.sim.now() + patience;
    while net.up(CLIENT).is_empty() && net.sim.now() < until {
        net.run_ms(10);
    }
    net.run_ms(1_000);
    let after = cwnd(&mut net, CLIENT);
    assert!(
        before > 5 * FIRST_WINDOW && after.abs_diff(before) < before / 4,
        "{before}, {after}"
    );
}
