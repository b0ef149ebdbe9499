//! The train of packets by which a long path is measured before anything else is known of it.

use std::time::Duration;

use starhaul_cc::ControllerConfig;
use starhaul_paths::PathId;
use starhaul_session::Mode;
use starhaul_units::Bandwidth;

use super::{
    net::{CLIENT, Net, SERVER, path_spec, server_identity},
    transfer::Transfer,
};

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
        let most = carried.max(FIRST_WINDOW).min(33 * FIRST_WINDOW);
        assert!(cwnd <= most, "{what}");
        let least = (carried * 2 / 5).clamp(FIRST_WINDOW, 25 * FIRST_WINDOW);
        assert!(cwnd >= least, "{what}");
    }
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
        let extra = 10_000..15_000;
        assert!(
            spared < long && extra.contains(&(long - spared)),
            "{long} and {spared} of side {side}, {delay} ms"
        );
    }
}

/// The time after which a first message has arrived.
fn message_takes(limit: Option<Bandwidth>) -> Duration {
    let mut net = connected(4, "rate=10mbit,delay=300ms", "cubic", limit);
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
    // 12 kB at 10 Mbit/s.
    let most = alone + Duration::from_millis(11);
    assert!(beside <= most, "{beside:?}, {alone:?} without a train");
}

/// A queue of four packets loses most of the train, and of what follows nothing.
#[test]
fn losses_of_a_train_are_no_congestion() {
    let mut net = connected(5, "rate=10mbit,delay=300ms,queue=4p", "newreno", None);
    net.run_ms(2_000);
    assert!(cwnd(&mut net, CLIENT) >= FIRST_WINDOW);
    let state = net.status(CLIENT)[0].controller_state;
    assert_eq!(state, "slow_start");
    let lost = net.status(CLIENT)[0].totals.datagrams_lost;
    assert_eq!(lost, 0, "told the session");
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
