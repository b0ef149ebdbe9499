//! What a path costs over which nothing flows, and how soon it is noticed that it died meanwhile.

use std::time::{Duration, Instant};

use starhaul_session::Mode;

use super::net::{CLIENT, Net, Party, SERVER, client_config, server_config};
use crate::Node;

const LEO: &str = "rate=20mbit,delay=20ms";
const GEO: &str = "rate=10mbit,delay=300ms";
/// IPv4 and UDP headers of a packet.
const HEADERS: usize = 28;

/// Bytes per second that a side sent on a path in the last `seconds`, headers included.
fn bytes_per_second(net: &mut Net, side: usize, path: u32, seconds: u32) -> f64 {
    let since = net.sim.now() - Duration::from_secs(seconds.into());
    let sent = net.party(side).sent.iter();
    let here = sent.filter(|(at, local, _)| *at >= since && *local == path);
    let bytes: usize = here.map(|(_, _, size)| size + HEADERS).sum();
    bytes as f64 / f64::from(seconds)
}

/// The dearest path and direction over the last `seconds`.
fn dearest(net: &mut Net, seconds: u32) -> f64 {
    let paths = 0..u32::try_from(net.links.len()).unwrap();
    let costs = paths.flat_map(|path| [(CLIENT, path), (SERVER, path)]);
    let costs = costs.collect::<Vec<_>>().into_iter();
    costs
        .map(|(side, path)| bytes_per_second(net, side, path, seconds))
        .fold(0.0, f64::max)
}

#[test]
fn an_idle_path_costs_little() {
    // The acknowledgements of all paths leave over the fastest one.
    for (specs, most) in [(&[LEO][..], 90.0), (&[LEO, GEO], 150.0)] {
        let mut net = Net::new(1, specs);
        net.connect();
        net.run_ms(120_000);
        let cost = dearest(&mut net, 60);
        println!(
            "{} path(s): {cost:.1} B/s in the dearest direction",
            specs.len()
        );
        assert!(cost < most, "{specs:?}: {cost:.1} B/s");
        let everyone = (0..u32::try_from(specs.len()).unwrap()).collect::<Vec<_>>();
        assert_eq!(
            (net.up(CLIENT), net.up(SERVER)),
            (everyone.clone(), everyone)
        );
    }
}

/// Nodes that probe an idle path so seldom, in seconds.
fn with_keepalive(client: u64, server: u64, specs: &[&str]) -> Net {
    let start = Instant::now();
    let party = |mut config: crate::NodeConfig, seconds| {
        config.session.keepalive = Duration::from_secs(seconds);
        Party::new(Node::new(config, start).unwrap())
    };
    let (client, server) = (
        party(client_config(), client),
        party(server_config(), server),
    );
    Net::with_parties(1, start, client, server, specs)
}

/// The figures of the manual (docs/gateway.md), of a path that is alone.
#[test]
fn an_idle_path_costs_what_the_manual_says() {
    for (keepalive, said) in [(1, 360.0), (5, 72.0), (25, 15.0), (60, 6.0)] {
        let mut net = with_keepalive(keepalive, keepalive, &[LEO]);
        net.connect();
        net.run_ms(900_000);
        let cost = dearest(&mut net, 600);
        println!("{keepalive} s: {cost:.1} B/s");
        assert!(
            (cost - said).abs() < said / 8.0,
            "{keepalive} s: {cost:.1} B/s"
        );
    }
}

#[test]
fn what_it_costs_can_be_set_and_the_more_careful_side_decides() {
    for (client, server, most) in [
        (25, 25, 35.0),
        (1, 1, 750.0),
        (60, 60, 16.0),
        (2, 60, 250.0),
    ] {
        let mut net = with_keepalive(client, server, &[LEO, GEO]);
        net.connect();
        // Long enough for the interval to grow.
        net.run_ms(600_000);
        let cost = dearest(&mut net, 240);
        println!("{client} s and {server} s: {cost:.1} B/s in the dearest direction");
        assert!(cost < most, "{client} s and {server} s: {cost:.1} B/s");
        for side in [CLIENT, SERVER] {
            assert_eq!(net.up(side), [0, 1]);
            for path in [0, 1] {
                assert_eq!(net.party(side).ups_and_downs(path), (1, 0), "never lost");
            }
        }
        // A path that dies is noticed within the shorter interval, and tried anew after at most twice the longer one more.
        net.cut(0);
        let sooner = client.min(server);
        net.run_ms(sooner * 1000 + 1_500);
        let suspect = [CLIENT, SERVER].map(|side| {
            let stats = net.status(side)[0].stats.clone();
            stats.is_none_or(|stats| stats.suspect)
        });
        assert!(
            suspect.contains(&true),
            "{client} s and {server} s: {suspect:?}"
        );
        net.run_ms(10_000 + sooner * 2_000);
        assert_eq!((net.up(CLIENT), net.up(SERVER)), (vec![1], vec![1]));
    }
}

#[test]
fn losses_on_an_idle_path_do_not_end_it() {
    for keepalive in [5, 25] {
        let lossy = "rate=20mbit,delay=20ms,loss=30%";
        let mut net = with_keepalive(keepalive, keepalive, &[lossy, lossy]);
        net.connect();
        net.run_ms(1_200_000);
        for side in [CLIENT, SERVER] {
            for path in [0, 1] {
                assert_eq!(net.party(side).ups_and_downs(path).1, 0, "{keepalive} s");
            }
        }
    }
}

#[test]
fn an_idle_path_that_dies_is_noticed_and_one_that_lives_is_not_given_up() {
    for path in [0, 1] {
        let mut net = Net::new(1, &[LEO, GEO]);
        net.connect();
        net.run_ms(60_000);
        net.cut(path);
        // The next probe, its round trip and a margin.
        net.run_ms(5_000 + 1_500);
        for side in [CLIENT, SERVER] {
            let status = net.status(side);
            let suspect = |index: usize| {
                let status: &crate::PathStatus = &status[index];
                status.stats.as_ref().is_none_or(|stats| stats.suspect)
            };
            assert!(suspect(path), "the dead path, at side {side}");
            assert!(!suspect(1 - path), "the other one, at side {side}");
        }
        // And ten seconds later it is tried anew.
        net.run_ms(10_000);
        for side in [CLIENT, SERVER] {
            assert_eq!(net.up(side), [u32::try_from(1 - path).unwrap()]);
        }
        net.restore(path);
        net.run_ms(8_000);
        assert_eq!((net.up(CLIENT), net.up(SERVER)), (vec![0, 1], vec![0, 1]));
    }
}

#[test]
fn who_begins_to_send_learns_at_once_which_other_paths_live() {
    let mut net = Net::new(1, &[LEO, LEO]);
    net.connect();
    let stream = net.open_stream(CLIENT, Mode::FecRetransmit);
    net.run_ms(60_000);
    let dead = 1;
    net.cut(dead);
    net.run_ms(100);
    net.send_block(CLIENT, stream, vec![7; 100]);
    net.run_ms(200);
    let status = net.status(CLIENT);
    let suspect = status[dead]
        .stats
        .as_ref()
        .is_none_or(|stats| stats.suspect);
    assert!(suspect, "200 ms after the first byte");
    assert_eq!(net.server().blocks().len(), 1);
}
