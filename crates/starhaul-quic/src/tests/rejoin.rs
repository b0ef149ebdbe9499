//! Paths that are lost and join again: what is left of their former life, and what overtakes the message that announces the new one.

use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_sim::PathLinks;
use starhaul_units::Bandwidth;

use super::{
    net::{CLIENT, Net, SERVER, client_address, path_spec, server_address, server_identity},
    transfer::Transfer,
};

const LEO: &str = "rate=20mbit,delay=20ms";
const GEO: &str = "rate=10mbit,delay=300ms";

fn assert_alive(net: &mut Net, what: &str) {
    for side in [CLIENT, SERVER] {
        assert_eq!(net.party(side).closed(), None, "{what}: side {side}");
    }
}

/// While a path was away, the acknowledgements of what left over it are still on their slow way back; the path is numbered from
/// where it was, so they are not taken for those of the new life.
#[test]
fn acknowledgements_of_a_former_life_are_not_those_of_the_new_one() {
    for (seed, ways) in [(1, [true, true]), (2, [false, true]), (3, [true, true])] {
        for outage_ms in [10_200, 10_700, 11_300] {
            let what = format!("seed {seed}, cut {ways:?} for {outage_ms} ms");
            let mut net = Net::new(seed, &[LEO, GEO]);
            net.connect();
            net.run_ms(3000);
            let mut upload = Transfer::upload(&mut net);
            upload.run_ms(&mut net, 3000);
            let PathLinks { forward, backward } = net.links[0];
            let cut = PathLinks {
                forward: if ways[0] { forward } else { backward },
                backward,
            };
            let now = net.sim.now();
            net.sim.network.cut(now, cut);
            upload.run_ms(&mut net, outage_ms);
            let now = net.sim.now();
            net.sim.network.restore(now, cut);
            upload.run_ms(&mut net, 8000);
            assert_alive(&mut net, &what);
            assert_eq!(net.up(CLIENT), [0, 1], "{what}");
            assert!(net.client().ups_and_downs(0).1 > 0, "{what}: never lost");
            let before = upload.read;
            upload.run_ms(&mut net, 2000);
            assert!(upload.read > before + 1_000_000, "{what}: stalled");
        }
    }
}

/// However long the only path was away, the peer is heard of again soon after it is back: the stack alone would repeat the handshake
/// after pauses of up to four seconds, and begin another after ten and two more.
#[test]
fn a_session_without_a_path_notices_soon_that_one_is_back() {
    for (link, most_ms) in [(LEO, 1300), (GEO, 3500)] {
        for outage_ms in (12_000..40_000).step_by(700) {
            let mut net = Net::new(1, &[link]);
            net.connect();
            net.run_ms(3000);
            net.cut(0);
            net.run_ms(outage_ms);
            assert_eq!(net.up(CLIENT), [0; 0], "{outage_ms} ms");
            net.restore(0);
            net.run_ms(most_ms);
            assert_eq!(net.up(CLIENT), [0], "{link}, cut for {outage_ms} ms");
            assert_alive(&mut net, link);
        }
    }
}

/// A path that comes back with an RTT longer than an answer is waited for is not kept out by handshakes that begin anew.
#[test]
fn a_path_that_comes_back_slower_than_answers_are_waited_for_joins() {
    for one_way_ms in [900, 1100, 1500, 1900] {
        let slow = format!("rate=10mbit,delay={one_way_ms}ms");
        let mut net = Net::new(1, &[LEO, &slow]);
        net.connect_with(server_identity().public_key(), vec![path_spec(0)]);
        net.run_ms(3000);
        net.cut(0);
        net.run_ms(20_000);
        assert_eq!(net.up(CLIENT), [0; 0], "{one_way_ms} ms");
        let (client, server, slow) = (client_address(0), server_address(0), net.links[1]);
        let network = &mut net.sim.network;
        network.set_route(client, server, &[slow.forward]);
        network.set_route(server, client, &[slow.backward]);
        net.run_ms(30_000);
        assert_eq!(net.up(CLIENT), [0], "{one_way_ms} ms each way");
        assert_alive(&mut net, &format!("{one_way_ms} ms each way"));
    }
}

/// The accepting side has a path to send on before the other side reads ACCEPT, which may be lost: until it heard of the other
/// side it must not send what the other side's stack would acknowledge and drop.
#[test]
fn nothing_is_lost_that_overtakes_the_word_of_acceptance() {
    for seed in 0..24 {
        let loss = if seed % 2 == 0 { "2%" } else { "20%" };
        let joining = format!("rate=80mbit,delay=25ms,loss={loss}");
        let mut net = Net::new(seed, &["rate=80mbit,delay=20ms", &joining]);
        let paths = [0, 1].map(|path| {
            let mut path = path_spec(path);
            path.1.cost = 0.0;
            path
        });
        let dedicated = ControllerConfig::Dedicated(RateFeed::new(Bandwidth::from_mbit(80)));
        net.accept_with(dedicated);
        net.cut(1);
        net.connect_with(server_identity().public_key(), paths.to_vec());
        net.run_ms(500);
        let mut download = Transfer::open(&mut net, SERVER, 8_000_000);
        download.run_ms(&mut net, 200);
        net.restore(1);
        download.run_ms(&mut net, 60_000);
        assert_alive(&mut net, &format!("seed {seed}"));
        let Transfer { read, total, .. } = download;
        assert_eq!(read, total, "seed {seed}: stalled");
    }
}
