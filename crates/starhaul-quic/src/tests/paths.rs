//! Sessions open over any path, and paths come and go.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use starhaul_cc::{ControllerConfig, LeoCcOptions};
use starhaul_paths::PathId;
use starhaul_session::Mode;
use starhaul_sim::NodeId;

use super::net::{
    CLIENT, Net, Party, SERVER, client_address, client_config, client_identity, path_spec,
    server_address, server_config, server_identity,
};
use super::transfer::Transfer;
use crate::{CloseCode, Error, LinkKind, LocalId, Node, NodeEvent, PathSpec};

const LEO: &str = "rate=20mbit,delay=20ms";
const GEO: &str = "rate=10mbit,delay=300ms";

#[test]
fn all_paths_join_one_session_and_both_sides_agree() {
    let mut net = Net::new(1, &[LEO, GEO, LEO]);
    net.connect();
    net.run_ms(3000);
    assert!(net.client().connected());
    assert_eq!(net.server().accepted(), [client_identity().public_key()]);
    for side in [CLIENT, SERVER] {
        let status = net.status(side);
        let names: Vec<_> = status.iter().map(|path| &path.name[..]).collect();
        assert_eq!(names, ["link 0", "link 1", "link 2"]);
        for path in status {
            assert!(path.up && path.cwnd > 0, "{path:?}");
            assert_eq!(path.controller, "cubic");
            let expected = [client_address, server_address][1 - side](path.path.0);
            assert_eq!(path.remote, expected);
            assert!(net.party(side).ups_and_downs(path.path.0) == (1, 0));
        }
    }
}

#[test]
fn eight_paths_join_and_each_carries_its_part_of_a_stream() {
    const PATHS: u32 = 8;
    let specs: Vec<String> = (0..PATHS)
        .map(|path| format!("rate=4mbit,delay={}ms,queue=40p", 10 * (path + 1)))
        .collect();
    let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
    let mut net = Net::new(8, &specs);
    // Of one price, for a dearer one would be used where it saves much time.
    let paths = (0..PATHS).map(path_spec).map(|(local, spec)| {
        let spec = PathSpec { cost: 0.0, ..spec };
        (local, spec)
    });
    net.connect_with(server_identity().public_key(), paths.collect());
    net.run_ms(3000);
    for side in [CLIENT, SERVER] {
        assert_eq!(net.up(side), (0..PATHS).collect::<Vec<_>>());
    }
    let carried = |net: &mut Net| -> Vec<u64> {
        let session = net.session;
        let paths = net.client().node.session(session).unwrap().path_stats();
        paths.iter().map(|path| path.bytes_sent).collect()
    };
    let mut upload = Transfer::upload(&mut net);
    upload.run_ms(&mut net, 4_000);
    let (before, read) = (carried(&mut net), upload.read);
    upload.run_ms(&mut net, 6_000);
    // Each can carry 3 MB in that time, and all together 24.
    for (path, (now, before)) in carried(&mut net).into_iter().zip(before).enumerate() {
        assert!(
            now - before > 500_000,
            "path {path}: {} bytes",
            now - before
        );
    }
    let read = upload.read - read;
    assert!(read > 15_000_000, "{read} bytes");
}

/// The near path is refused before the far one is, and the key is trusted between the two.
#[test]
fn a_path_that_was_refused_before_the_session_opened_is_tried_again() {
    let mut net = Net::new(1, &[LEO, GEO]);
    net.server().node.set_trusted(Vec::new()).unwrap();
    net.connect();
    net.run_ms(200);
    let trusted = vec![client_identity().public_key()];
    net.server().node.set_trusted(trusted).unwrap();
    net.run_ms(15_000);
    assert_eq!((net.up(CLIENT), net.up(SERVER)), (vec![0, 1], vec![0, 1]));
}

/// Everything in flight is lost, and nothing but a probe may leave until something is acknowledged.
#[test]
fn a_path_whose_window_is_full_is_found_again_as_soon_as_another() {
    for seed in 1..5 {
        let mut net = Net::new(seed, &[LEO]);
        net.connect();
        net.run_ms(1000);
        let mut upload = Transfer::upload(&mut net);
        upload.run_ms(&mut net, 3000);
        net.cut(0);
        upload.run_ms(&mut net, 2500 + seed * 200);
        let before = upload.read;
        net.restore(0);
        // A probe each 400 ms, two round trips, and as many as the first of what was lost takes.
        upload.run_ms(&mut net, 900);
        assert!(upload.read > before, "seed {seed}: it still stands");
    }
}

#[test]
fn a_session_opens_over_one_round_trip_more_than_tls() {
    let mut net = Net::new(1, &["rate=100mbit,delay=50ms"]);
    net.connect();
    // One for TLS, one for OPEN and WELCOME.
    net.run_ms(190);
    assert!(!net.client().connected());
    net.run_ms(30);
    assert!(net.client().connected());
    assert_eq!(net.up(CLIENT), [0]);
}

#[test]
fn any_path_may_be_the_first_one_up() {
    for dead in 0..3 {
        let mut net = Net::new(dead, &[LEO, LEO, LEO]);
        let alive = usize::try_from(dead).unwrap();
        for path in (0..3).filter(|path| *path != alive) {
            net.cut(path);
        }
        net.connect();
        net.run_ms(1000);
        let expected = [u32::try_from(alive).unwrap()];
        assert_eq!(net.up(CLIENT), expected);
        assert_eq!(net.up(SERVER), expected);
        // The others join when they come to life.
        (0..3).for_each(|path| net.restore(path));
        net.run_ms(15_000);
        assert_eq!(
            (net.up(CLIENT), net.up(SERVER)),
            (vec![0, 1, 2], vec![0, 1, 2])
        );
    }
}

#[test]
fn another_path_takes_over_when_the_opening_one_dies_before_the_answer() {
    // Over a sweep of instants, some between the client's OPEN and the server's WELCOME.
    for cut_at in (20..140).step_by(10) {
        let mut net = Net::new(cut_at, &[LEO, "rate=10mbit,delay=40ms"]);
        net.connect();
        net.run_ms(cut_at);
        net.cut(0);
        net.run_ms(25_000);
        assert_eq!(net.up(CLIENT), [1], "cut at {cut_at} ms");
        assert_eq!(net.client().closed(), None, "cut at {cut_at} ms");
        let session = net.session;
        let last = net.server().accepted().len() as u64 - 1;
        net.session = crate::SessionHandle(last);
        assert_eq!(net.up(SERVER), [1], "cut at {cut_at} ms");
        net.session = session;
    }
}

#[test]
fn a_lost_path_returns_by_itself() {
    let mut net = Net::new(1, &[LEO, GEO]);
    net.connect();
    net.run_ms(3000);
    net.cut(0);
    net.run_ms(20_000);
    for side in [CLIENT, SERVER] {
        assert_eq!(net.up(side), [1]);
        assert_eq!(net.party(side).ups_and_downs(0), (1, 1), "told once");
    }
    net.restore(0);
    net.run_ms(4000);
    for side in [CLIENT, SERVER] {
        assert_eq!(net.up(side), [0, 1]);
        assert_eq!(net.party(side).ups_and_downs(0), (2, 1));
        assert_eq!(net.party(side).closed(), None);
    }
}

#[test]
fn a_path_that_is_down_says_nothing_of_a_controller_however_it_is_tried() {
    let mut net = Net::new(1, &[LEO, GEO]);
    net.connect();
    net.run_ms(3000);
    net.cut(0);
    net.run_ms(12_000);
    for _ in 0..100 {
        net.run_ms(100);
        for side in [CLIENT, SERVER] {
            for path in net.status(side).into_iter().filter(|path| !path.up) {
                let said = (path.controller, path.controller_state, path.cwnd);
                assert_eq!(said, ("", "", 0), "side {side}");
            }
        }
    }
}

#[test]
fn a_session_outlives_the_path_that_opened_it() {
    let mut net = Net::new(1, &[LEO, GEO]);
    net.connect();
    net.run_ms(3000);
    // The opening path goes for good, then the other one for a while: it joins with the first one's key.
    net.cut(0);
    net.run_ms(15_000);
    net.cut(1);
    net.run_ms(15_000);
    assert!(net.up(CLIENT).is_empty());
    net.restore(1);
    net.run_ms(6000);
    assert_eq!((net.up(CLIENT), net.up(SERVER)), (vec![1], vec![1]));
    assert_eq!(net.server().accepted().len(), 1);
}

#[test]
fn a_session_without_any_path_ends_on_both_sides() {
    let mut net = Net::new(1, &[LEO]);
    net.connect();
    net.run_ms(1000);
    net.cut(0);
    net.run_ms(80_000);
    for side in [CLIENT, SERVER] {
        assert_eq!(net.party(side).closed(), Some(Some(Error::NoPath)));
    }
    assert_eq!(net.client().node.poll_timeout(), None, "nothing is left");
    assert_eq!(net.server().node.poll_timeout(), None, "nothing is left");
}

#[test]
fn closing_tells_the_peer_and_leaves_nothing_behind() {
    for closer in [CLIENT, SERVER] {
        let mut net = Net::new(1, &[LEO, GEO]);
        net.connect();
        net.run_ms(3000);
        let (now, session) = (net.sim.now(), net.session);
        net.party(closer).node.close(now, session, "done");
        net.run_ms(400);
        for side in [CLIENT, SERVER] {
            assert_eq!(net.party(side).closed(), Some(None));
            assert!(net.party(side).node.session(session).is_none());
        }
        net.run_ms(10_000);
        for side in [CLIENT, SERVER] {
            assert_eq!(net.party(side).node.poll_timeout(), None);
        }
    }
}

#[test]
fn a_removed_path_goes_on_both_sides_and_another_may_be_added() {
    for remover in [CLIENT, SERVER] {
        let mut net = Net::new(1, &[LEO, LEO]);
        net.connect();
        net.run_ms(1000);
        let (now, session) = (net.sim.now(), net.session);
        let removed = net.party(remover).node.remove_path(now, session, PathId(0));
        assert_eq!(removed, Ok(()));
        net.run_ms(5000);
        assert_eq!((net.up(CLIENT), net.up(SERVER)), (vec![1], vec![1]));
        assert_eq!(net.status(CLIENT).len(), 1, "not tried again");
        let now = net.sim.now();
        let added = net.client().node.add_path(now, session, path_spec(0));
        assert_eq!(added, Ok(PathId(2)), "numbers are not used again");
        net.run_ms(500);
        assert_eq!((net.up(CLIENT), net.up(SERVER)), (vec![1, 2], vec![1, 2]));
    }
}

/// Otherwise the server would tell for the rest of the session that it is down.
#[test]
fn a_path_that_is_removed_while_it_is_dead_is_gone_at_the_other_side() {
    let mut net = Net::new(1, &[LEO, LEO]);
    net.connect();
    net.run_ms(1000);
    net.cut(1);
    net.run_ms(15_000);
    assert_eq!(net.status(SERVER).len(), 2);
    let (now, session) = (net.sim.now(), net.session);
    let removed = net.client().node.remove_path(now, session, PathId(1));
    assert_eq!(removed, Ok(()));
    net.run_ms(500);
    for side in [CLIENT, SERVER] {
        assert_eq!(net.status(side).len(), 1, "side {side}");
        assert_eq!(net.party(side).ups_and_downs(1), (1, 1));
    }
    assert_eq!((net.up(CLIENT), net.up(SERVER)), (vec![0], vec![0]));
}

/// The server does not hear of the removal, and its table must not fill.
#[test]
fn paths_removed_while_dead_leave_room_for_others() {
    // Long after the server lost them too, and before.
    for (wait_ms, cycles) in [(12_000, 20), (300, 24)] {
        let mut net = Net::new(1, &[LEO, LEO]);
        net.connect();
        net.run_ms(1000);
        let session = net.session;
        let mut last = PathId(1);
        for cycle in 0..cycles {
            net.cut(1);
            net.run_ms(wait_ms);
            let now = net.sim.now();
            let removed = net.client().node.remove_path(now, session, last);
            assert_eq!(removed, Ok(()), "cycle {cycle}");
            net.run_ms(100);
            net.restore(1);
            let now = net.sim.now();
            last = net
                .client()
                .node
                .add_path(now, session, path_spec(1))
                .unwrap();
            net.run_ms(400);
        }
        net.run_ms(15_000);
        for side in [CLIENT, SERVER] {
            assert_eq!(net.up(side), [0, last.0], "side {side}, {wait_ms} ms");
        }
    }
}

#[test]
fn a_socket_that_was_removed_is_forgotten() {
    let mut net = Net::new(1, &[LEO, LEO]);
    net.connect();
    net.run_ms(1000);
    let (now, session) = (net.sim.now(), net.session);
    for number in 2..200 {
        let local = LocalId(number);
        let node = &mut net.client().node;
        node.add_local(local, false);
        let mut path = path_spec(1);
        path.0 = local;
        let path = node.add_path(now, session, path).unwrap();
        node.remove_path(now, session, path).unwrap();
        node.remove_local(local);
    }
    net.run_ms(20_000);
    assert_eq!((net.up(CLIENT), net.up(SERVER)), (vec![0, 1], vec![0, 1]));
    let told = format!("{:?}", net.client().node);
    assert!(told.contains("locals: [LocalId(0), LocalId(1)]"), "{told}");
}

#[test]
fn removing_the_path_that_opens_the_session_lets_another_open_it() {
    for removed_at in [0, 30, 50, 70] {
        let mut net = Net::new(1, &[LEO, "rate=20mbit,delay=25ms"]);
        net.connect();
        net.run_ms(removed_at);
        let (now, session) = (net.sim.now(), net.session);
        let removed = net.client().node.remove_path(now, session, PathId(0));
        assert_eq!(removed, Ok(()));
        net.run_ms(2000);
        assert_eq!(net.up(CLIENT), [1], "removed at {removed_at} ms");
    }
}

#[test]
fn a_path_whose_address_changes_goes_on() {
    let mut net = Net::new(1, &[LEO]);
    net.connect();
    net.run_ms(1000);
    let elsewhere: SocketAddr = "10.9.0.1:3000".parse().unwrap();
    let links = net.links[0];
    net.sim.network.bind(NodeId(CLIENT), 0, elsewhere);
    let network = &mut net.sim.network;
    network.set_route(elsewhere, server_address(0), &[links.forward]);
    network.set_route(server_address(0), elsewhere, &[links.backward]);
    net.run_ms(5000);
    assert_eq!(net.status(SERVER)[0].remote, elsewhere);
    assert_eq!(net.server().ups_and_downs(0), (1, 0));
}

#[test]
fn a_path_that_waits_is_tried_at_once_when_the_network_is_better() {
    let mut net = Net::new(1, &[LEO, GEO]);
    net.connect();
    net.run_ms(3000);
    net.cut(0);
    type Tell = fn(&mut Node, Instant, LocalId);
    let tells: [(bool, Tell); 3] = [
        (false, |node, now, local| {
            node.on_local_change(now, local, false)
        }),
        (true, |node, now, local| {
            node.on_local_change(now, local, true)
        }),
        (true, Node::retry_paths),
    ];
    for (in_pause, tell) in tells {
        net.cut(0);
        // Until its pauses are the longest, then until it begins one, or until the first packet of an attempt is lost.
        net.run_ms(60_000);
        let session = net.session;
        while net.client().node.is_trying(session, PathId(0)) == in_pause {
            net.run_ms(1);
        }
        net.run_ms(100);
        net.restore(0);
        let now = net.sim.now();
        tell(&mut net.client().node, now, LocalId(0));
        net.run_ms(250);
        for side in [CLIENT, SERVER] {
            assert_eq!(net.up(side), [0, 1], "in a pause: {in_pause}");
        }
    }
}

#[test]
fn a_restarted_server_ends_the_session_at_once() {
    let mut net = Net::new(1, &[LEO]);
    net.connect();
    net.run_ms(1000);
    let mut config = super::net::server_config();
    config.rng_seed = [99; 32];
    let now = net.sim.now();
    net.server().node = crate::Node::new(config, now).unwrap();
    net.server().node.add_local(LocalId(0), true);
    net.run_ms(3000);
    let refused = Error::Refused(CloseCode::UnknownSession);
    assert_eq!(net.client().closed(), Some(Some(refused)));
}

#[test]
fn wrong_settings_are_refused_with_their_reason() {
    let mut net = Net::new(1, &[LEO]);
    let (now, peer) = (net.sim.now(), crate::Identity::generate().public_key());
    let node = &mut net.client().node;
    let path = path_spec(0);
    let mut connect = |paths| node.connect(now, peer, paths).unwrap_err();
    assert_eq!(connect(vec![]), Error::NoPaths);
    assert_eq!(connect(vec![path.clone(); 17]), Error::TooManyPaths);
    let bad = |change: fn(&mut (LocalId, crate::PathSpec))| {
        let mut path = path.clone();
        change(&mut path);
        vec![path]
    };
    assert_eq!(connect(bad(|path| path.1.cost = -1.0)), Error::InvalidCost);
    assert_eq!(
        connect(bad(|path| path.1.name = "x".repeat(65))),
        Error::InvalidName
    );
    let unknown = LocalId(7);
    assert_eq!(
        connect(bad(|path| path.0 = LocalId(7))),
        Error::UnknownLocal(unknown)
    );
    let nowhere = "0.0.0.0:1".parse().unwrap();
    assert_eq!(
        connect(bad(|path| path.1.remote = "0.0.0.0:1".parse().unwrap())),
        Error::InvalidRemote(nowhere)
    );
    assert!(net.client().events.is_empty());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut net = Net::new(3, &["rate=5mbit,delay=30ms,loss=3%", GEO]);
        net.connect();
        net.run_ms(20_000);
        let (start, client) = (net.start, net.client());
        let sent = client.sent.iter();
        let sent: Vec<(Duration, u32, usize)> = sent
            .map(|(at, local, size)| (*at - start, *local, *size))
            .collect();
        let events = client.events.iter().map(|event| match event {
            NodeEvent::Session { .. } => "session".to_owned(),
            other => format!("{other:?}"),
        });
        (sent, events.collect::<Vec<_>>())
    };
    assert_eq!(run(), run());
}

/// An acceptor chooses the controller of its direction by the kind of link that the opener says.
#[test]
fn the_accepting_end_of_a_leo_path_takes_its_controller_for_leo() {
    let mut config = server_config();
    config.accept_leo_controller = Some(ControllerConfig::LeoCc(LeoCcOptions::TARGET_QUEUE));
    for (old, expected) in [(false, ["leocc2", "cubic"]), (true, ["cubic", "cubic"])] {
        let start = Instant::now();
        let mut server = Node::new(config.clone(), start).unwrap();
        let client = Party::new(Node::new(client_config(), start).unwrap());
        if old {
            server.age();
        }
        let spec = "rate=20mbit,delay=20ms";
        let mut net = Net::with_parties(7, start, client, Party::new(server), &[spec, spec]);
        // One of them opens the session and the other joins it.
        let mut leo = path_spec(0);
        leo.1.link = LinkKind::Leo;
        net.connect_with(server_identity().public_key(), vec![leo, path_spec(1)]);
        net.run_ms(500);
        let stream = net.open_stream(SERVER, Mode::Reliable);
        let (now, session) = (net.sim.now(), net.session);
        let sender = net.server().node.session(session).unwrap();
        sender.write(now, stream, &[7; 50_000]).unwrap();
        net.run_ms(1000);
        let paths = net.status(SERVER);
        let controllers: Vec<_> = paths.iter().map(|path| path.controller).collect();
        assert_eq!(controllers, expected, "old: {old}");
        assert!(paths.iter().all(|path| path.up), "{paths:?}");
        let now = net.sim.now();
        let receiver = net.client().node.session(session).unwrap();
        let mut read = 0;
        while let Ok(Some(bytes)) = receiver.read(now, stream, 1 << 20)
            && !bytes.is_empty()
        {
            read += bytes.len();
        }
        assert_eq!(read, 50_000, "old: {old}");
    }
}

#[test]
fn a_path_keeps_its_new_cost_and_its_totals_over_its_lives_at_both_ends() {
    let mut net = Net::new(1, &[LEO, GEO]);
    net.connect();
    net.run_ms(3000);
    let set = |net: &mut Net, cost: f64| {
        let (now, session) = (net.sim.now(), net.session);
        let node = &mut net.client().node;
        node.set_path_cost(now, session, PathId(0), cost)
    };
    let costs = |net: &mut Net| {
        [CLIENT, SERVER].map(|side| {
            let stats = net.status(side).swap_remove(0).stats;
            stats.map(|stats| stats.cost)
        })
    };
    set(&mut net, 3.0).unwrap();
    net.run_ms(1000);
    assert_eq!(costs(&mut net), [Some(3.0); 2]);
    assert!(matches!(set(&mut net, -1.0), Err(Error::InvalidCost)));
    for side in [CLIENT, SERVER] {
        assert_eq!(
            net.party(side).ups_and_downs(0),
            (1, 0),
            "the same connection"
        );
    }

    let totals =
        |net: &mut Net| [CLIENT, SERVER].map(|side| net.status(side).swap_remove(0).totals);
    let before = totals(&mut net);
    net.cut(0);
    net.run_ms(20_000);
    assert_eq!(costs(&mut net), [None; 2]);
    let down = totals(&mut net);
    set(&mut net, 7.0).unwrap();
    net.restore(0);
    net.run_ms(4000);
    assert_eq!(costs(&mut net), [Some(7.0); 2]);
    let after = totals(&mut net);
    for side in [CLIENT, SERVER] {
        assert!(before[side].bytes_sent > 0 && before[side].bytes_received > 0);
        assert!(down[side].bytes_sent >= before[side].bytes_sent);
        assert!(after[side].bytes_sent > down[side].bytes_sent);
        assert!(after[side].bytes_received > down[side].bytes_received);
    }
}

#[test]
fn a_controller_is_changed_on_the_living_path() {
    let mut net = Net::new(1, &[LEO]);
    net.connect();
    net.run_ms(1000);
    let stream = net.open_stream(CLIENT, Mode::FecRetransmit);
    for controller in ["bbr", "newreno"] {
        let (now, session) = (net.sim.now(), net.session);
        let config = controller.parse().unwrap();
        let node = &mut net.client().node;
        node.set_path_controller(now, session, PathId(0), config)
            .unwrap();
        net.send_block(CLIENT, stream, vec![7; 200_000]);
        net.run_ms(3000);
        assert_eq!(net.status(CLIENT)[0].controller, controller);
    }
    assert_eq!(net.server().blocks().len(), 2);
    assert_eq!(net.client().ups_and_downs(0), (1, 0), "the same connection");
}
