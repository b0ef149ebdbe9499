//! Reconfigurations of satellite paths reach the controllers of the paths concerned, and no others.

use std::time::Duration;

use starhaul_cc::{PathEnd, PathSignal, Reconfiguration, ReconfigurationSource};
use starhaul_paths::PathId;
use starhaul_session::{Mode, StreamId};

use super::net::{CLIENT, Net, SERVER, path_spec, server_identity};
use crate::{LocalId, PathStatus, SessionHandle, SignalTarget};

const LEO: &str = "rate=20mbit,delay=20ms";

/// All paths over the first socket.
const FIRST: SignalTarget = SignalTarget::Local(LocalId(0));

/// The RTT of the satellite segment at the end that signals it.
fn segment(rtt: Duration) -> PathSignal {
    let end = PathEnd::Local;
    PathSignal::SegmentRtt { end, rtt }
}

/// The client keeps its paths full.
struct Bulk {
    net: Net,
    stream: StreamId,
}

impl Bulk {
    /// Paths under the given controllers, after startup.
    fn new(controllers: &[&str], spec: &str) -> Self {
        let mut net = Net::new(5, &vec![spec; controllers.len()]);
        let paths = (0..).zip(controllers).map(|(number, name)| {
            let mut path = path_spec(number);
            path.1.cost = 0.0;
            path.1.controller = name.parse().unwrap();
            path
        });
        net.connect_with(server_identity().public_key(), paths.collect());
        net.run_ms(500);
        let stream = net.open_stream(CLIENT, Mode::Reliable);
        let mut bulk = Self { net, stream };
        bulk.run_ms(4000);
        bulk
    }

    fn run_ms(&mut self, millis: u64) {
        for _ in 0..millis.div_ceil(5) {
            let (now, session) = (self.net.sim.now(), self.net.session);
            let sender = self.net.client().node.session(session).unwrap();
            let room = 2_000_000_usize.saturating_sub(sender.held_bytes().0);
            sender.write(now, self.stream, &vec![7; room]).unwrap();
            let receiver = self.net.server().node.session(session).unwrap();
            while let Ok(Some(bytes)) = receiver.read(now, self.stream, 1 << 20)
                && !bytes.is_empty()
            {}
            self.net.run_ms(5);
        }
    }

    fn paths(&mut self) -> Vec<PathStatus> {
        self.net.status(CLIENT)
    }

    fn states(&mut self) -> Vec<&'static str> {
        let paths = self.paths();
        paths.iter().map(|path| path.controller_state).collect()
    }

    /// A reconfiguration that ended just now.
    fn event(&self) -> Reconfiguration {
        Reconfiguration {
            at: self.net.sim.now(),
            outage: Duration::from_millis(68),
            source: ReconfigurationSource::Probe,
            confidence: 0.9,
        }
    }
}

#[test]
fn a_path_that_is_told_adapts_and_its_neighbour_does_not() {
    let mut bulk = Bulk::new(&["leocc2", "leocc2"], LEO);
    let (event, session) = (bulk.event(), bulk.net.session);
    let node = &mut bulk.net.client().node;
    let told = node.signal(
        event.at,
        SignalTarget::Path(session, PathId(1)),
        PathSignal::Reconfiguration(event),
    );
    assert_eq!(told, 1);
    let [left, right] = &bulk.paths()[..] else {
        panic!("two paths")
    };
    assert!(left.controller_state.starts_with("cruise"), "{left:?}");
    assert_eq!(
        (left.reconfigurations.count, left.reconfigurations.last),
        (0, None)
    );
    assert_eq!(right.controller_state, "adaptation");
    assert_eq!(
        (right.reconfigurations.count, right.reconfigurations.last),
        (1, Some(event))
    );
    let model = right.model.unwrap();
    assert_eq!(model.last_reconfiguration, Some(event.at));
    bulk.run_ms(1500);
    for path in bulk.paths() {
        let model = path.model.unwrap();
        assert!(path.controller_state.starts_with("cruise"), "{path:?}");
        let aggressive = model.bandwidth_aggressive.unwrap().mbit();
        assert!((15.0..=22.0).contains(&aggressive), "{path:?}");
        assert!(
            model.rtt_band.unwrap().0 >= Duration::from_millis(40),
            "{path:?}"
        );
    }
}

#[test]
fn a_prober_tells_every_path_that_leaves_by_its_interface() {
    let mut bulk = Bulk::new(&["leocc", "leocc"], LEO);
    // Another session over the first interface.
    let first = bulk.net.session;
    let peer = server_identity().public_key();
    bulk.net.connect_with(peer, vec![path_spec(0)]);
    let second = std::mem::replace(&mut bulk.net.session, first);
    bulk.run_ms(500);
    let (event, rtt) = (bulk.event(), Duration::from_millis(31));
    let node = &mut bulk.net.client().node;
    node.signal(event.at, FIRST, segment(rtt));
    node.signal(event.at, FIRST, PathSignal::Reconfiguration(event));
    let told = |path: &PathStatus| (path.reconfigurations.count, path.segment_rtt);
    let both = node.path_status(first);
    assert_eq!(told(&both[0]), (1, Some(rtt)));
    assert_eq!(told(&both[1]), (0, None));
    assert_eq!(told(&node.path_status(second)[0]), (1, Some(rtt)));
    assert_eq!(bulk.states()[0], "adaptation");
    assert_ne!(bulk.states()[1], "adaptation");
}

#[test]
fn a_controller_that_does_not_listen_goes_on_as_before() {
    let run = |told: bool| {
        let mut bulk = Bulk::new(&["cubic"], LEO);
        if told {
            let (event, session) = (bulk.event(), bulk.net.session);
            let node = &mut bulk.net.client().node;
            let target = SignalTarget::Path(session, PathId(0));
            node.signal(event.at, target, PathSignal::Reconfiguration(event));
        }
        bulk.run_ms(1000);
        bulk.paths().remove(0)
    };
    let (untold, told) = (run(false), run(true));
    let counts = [&untold, &told].map(|path| path.reconfigurations.count);
    assert_eq!(counts, [0, 1], "but people see it");
    assert_eq!(told.controller_state, untold.controller_state);
    // The peer was told, which takes some packets.
    let difference = told.cwnd.abs_diff(untold.cwnd);
    assert!(difference < untold.cwnd / 500, "{told:?} {untold:?}");
}

#[test]
fn a_signal_of_an_unknown_path_concerns_none() {
    let mut bulk = Bulk::new(&["leocc"], LEO);
    let (event, session) = (bulk.event(), bulk.net.session);
    let node = &mut bulk.net.client().node;
    for target in [
        SignalTarget::Path(session, PathId(9)),
        SignalTarget::Path(SessionHandle(77), PathId(0)),
        SignalTarget::Local(LocalId(55)),
    ] {
        for signal in [PathSignal::Reconfiguration(event), segment(Duration::ZERO)] {
            assert_eq!(node.signal(event.at, target, signal), 0);
        }
        assert_eq!(node.used_at(target), None);
    }
    assert_eq!(bulk.paths()[0].reconfigurations.count, 0);
}

/// The way of acknowledgements loses a third.
const LEO_LOSING_ACKS: &str = "rate=20mbit,delay=20ms|rate=20mbit,delay=20ms,loss=33%";

/// Runs until the client's first path adapts; after how many milliseconds it did, if it did in a second.
fn adapts_after_ms(bulk: &mut Bulk) -> Option<u64> {
    (1..200).map(|step| step * 5).find(|_| {
        bulk.run_ms(5);
        bulk.states()[0] == "adaptation"
    })
}

#[test]
fn a_dish_at_the_receiver_makes_the_sender_adapt_though_acknowledgements_are_lost() {
    let mut bulk = Bulk::new(&["leocc2"], LEO_LOSING_ACKS);
    assert!(bulk.states()[0].starts_with("cruise"), "{:?}", bulk.paths());
    let event = bulk.event();
    let node = &mut bulk.net.server().node;
    node.signal(event.at, FIRST, PathSignal::Reconfiguration(event));
    let after = adapts_after_ms(&mut bulk);
    assert!(after.is_some_and(|ms| ms <= 120), "{after:?} ms");
    let path = bulk.paths().remove(0);
    let heard = path.reconfigurations.last.unwrap();
    assert_eq!(heard.source, ReconfigurationSource::Peer);
    assert_eq!(heard.outage, event.outage);
    let wrong = heard.at.max(event.at) - heard.at.min(event.at);
    assert!(wrong <= Duration::from_millis(10), "wrong by {wrong:?}");
    // Said again and again, and acted on once.
    bulk.run_ms(2000);
    let path = bulk.paths().remove(0);
    assert_eq!(path.reconfigurations.count, 1);
    assert!(path.controller_state.starts_with("cruise"), "{path:?}");
    assert_eq!(bulk.net.status(SERVER)[0].reconfigurations.count, 1);
}

#[test]
fn an_event_that_both_ends_detect_counts_once_at_each() {
    for first in [CLIENT, SERVER] {
        let mut bulk = Bulk::new(&["leocc"], LEO);
        for side in [first, 1 - first] {
            let event = bulk.event();
            let node = &mut bulk.net.party(side).node;
            node.signal(event.at, FIRST, PathSignal::Reconfiguration(event));
            bulk.run_ms(30);
        }
        bulk.run_ms(500);
        for side in [CLIENT, SERVER] {
            let told = bulk.net.status(side)[0].reconfigurations;
            assert_eq!(told.count, 1, "{told:?}");
        }
    }
}

#[test]
fn the_satellite_segments_of_both_ends_add_up() {
    let mut bulk = Bulk::new(&["leocc"], LEO);
    let (now, ms) = (bulk.net.sim.now(), Duration::from_millis);
    let server = &mut bulk.net.server().node;
    server.signal(now, FIRST, segment(ms(25)));
    bulk.run_ms(100);
    assert_eq!(bulk.paths()[0].segment_rtt, Some(ms(25)));
    let (now, session) = (bulk.net.sim.now(), bulk.net.session);
    let client = &mut bulk.net.client().node;
    let path = SignalTarget::Path(session, PathId(0));
    assert_eq!(client.signal(now, path, segment(ms(10))), 1);
    assert_eq!(bulk.paths()[0].segment_rtt, Some(ms(35)));
}
