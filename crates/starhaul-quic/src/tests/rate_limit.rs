//! A limit of a path's rate: kept in every second, by either side, under any controller, over connections.

use std::time::{Duration, Instant};

use starhaul_cc::ControllerConfig;
use starhaul_paths::PathId;
use starhaul_units::Bandwidth;

use super::{
    net::{CLIENT, Net, SERVER},
    transfer::Transfer,
};

const LINK: &str = "rate=20mbit,delay=20ms";
const PATH: PathId = PathId(0);
/// What may leave beside the pace of a second: a burst, and packets that no pacer may hold.
const BESIDE: f64 = 10.0 * 1472.0;

fn limit(net: &mut Net, side: usize, rate: Option<Bandwidth>) {
    let (now, session) = (net.sim.now(), net.session);
    let node = &mut net.party(side).node;
    node.set_path_rate_limit(now, session, PATH, rate).unwrap();
}

/// Most and mean bytes of UDP payload that a side sent in a second since then.
fn seconds(net: &mut Net, side: usize, since: Instant) -> (f64, f64) {
    let now = net.sim.now();
    let sent = &net.party(side).sent;
    let between = |from: Instant, to: Instant| {
        let packets = sent.iter().filter(|(at, _, _)| *at >= from && *at < to);
        packets.map(|(_, _, size)| *size).sum::<usize>() as f64
    };
    let (mut most, mut from) = (0.0, since);
    while from + Duration::from_secs(1) <= now {
        most = f64::max(most, between(from, from + Duration::from_secs(1)));
        from += Duration::from_millis(100);
    }
    (most, between(since, now) / (now - since).as_secs_f64())
}

#[test]
fn a_limit_is_kept_in_every_second_and_used() {
    for controller in [
        ControllerConfig::NewReno,
        "bbr".parse().unwrap(),
        "cubic".parse().unwrap(),
        "leocc2".parse().unwrap(),
    ] {
        for side in [CLIENT, SERVER] {
            for kbit in [200, 3_000] {
                let rate = Bandwidth::from_kbit(kbit);
                let mut net = Net::new(7, &[LINK]);
                net.connect();
                net.run_ms(1_000);
                let (now, session) = (net.sim.now(), net.session);
                let node = &mut net.party(side).node;
                node.set_path_controller(now, session, PATH, controller.clone())
                    .unwrap();
                limit(&mut net, side, Some(rate));
                let mut transfer = Transfer::open(&mut net, side, u64::MAX);
                transfer.run_ms(&mut net, 5_000);
                let since = net.sim.now();
                transfer.run_ms(&mut net, 10_000);
                let (most, mean) = seconds(&mut net, side, since);
                let allowed = rate.bits_per_second() as f64 / 8.0;
                let what = format!("{} {kbit} kbit/s: {most} {mean}", controller.name());
                assert!(most <= allowed + BESIDE, "{what}");
                assert!(mean >= 0.9 * allowed, "{what}");
            }
        }
    }
}

#[test]
fn a_limit_outlives_connections_and_ends_when_it_is_lifted() {
    for side in [CLIENT, SERVER] {
        let mut net = Net::new(8, &[LINK]);
        net.connect();
        net.run_ms(1_000);
        limit(&mut net, side, Some(Bandwidth::from_mbit(2)));
        let mut transfer = Transfer::open(&mut net, side, u64::MAX);
        transfer.run_ms(&mut net, 3_000);
        net.cut(0);
        transfer.run_ms(&mut net, 40_000);
        assert!(net.up(CLIENT).is_empty() && net.up(SERVER).is_empty());
        net.restore(0);
        let until = net.sim.now() + Duration::from_secs(60);
        while net.up(CLIENT).is_empty() || net.up(SERVER).is_empty() {
            assert!(net.sim.now() < until, "the path does not come back");
            transfer.run_ms(&mut net, 100);
        }
        let since = net.sim.now();
        transfer.run_ms(&mut net, 5_000);
        let (most, mean) = seconds(&mut net, side, since);
        assert!(
            most <= 250_000.0 + BESIDE && mean > 200_000.0,
            "{most} {mean}"
        );
        let status = &net.status(side)[0];
        assert_eq!(status.rate_limit, Some(Bandwidth::from_mbit(2)));
        limit(&mut net, side, None);
        transfer.run_ms(&mut net, 5_000);
        let since = net.sim.now();
        transfer.run_ms(&mut net, 5_000);
        let (_, mean) = seconds(&mut net, side, since);
        assert!(mean > 1_500_000.0, "{mean}");
    }
}

/// A limit is no full path: windows do not grow by it, estimates do not fall to it, and a new one counts at once.
#[test]
fn a_limit_says_nothing_of_the_path() {
    for controller in ["newreno", "cubic", "copa", "bbr"] {
        let mut net = Net::new(9, &[LINK]);
        net.connect();
        net.run_ms(1_000);
        let (now, session) = (net.sim.now(), net.session);
        let node = &mut net.party(CLIENT).node;
        let config: ControllerConfig = controller.parse().unwrap();
        node.set_path_controller(now, session, PATH, config)
            .unwrap();
        let mut transfer = Transfer::open(&mut net, CLIENT, u64::MAX);
        transfer.run_ms(&mut net, 3_000);
        limit(&mut net, CLIENT, Some(Bandwidth::from_mbit(3)));
        transfer.run_ms(&mut net, 60_000);
        // 3 Mbit/s for the round trip of 40 ms are 15 kB; 20 Mbit/s and a full queue before are some 400.
        let window = net.status(CLIENT)[0].cwnd;
        assert!(window < 1_000_000, "{controller}: {window} bytes");
        limit(&mut net, CLIENT, Some(Bandwidth::from_kbit(1)));
        transfer.run_ms(&mut net, 2_000);
        limit(&mut net, CLIENT, None);
        let since = net.sim.now();
        transfer.run_ms(&mut net, 1_250);
        let (_, mean) = seconds(&mut net, CLIENT, since);
        assert!(mean > 1_000_000.0, "{controller}: {mean} bytes each second");
    }
}
