//! Reconfigurations of satellite paths reach the controllers of the paths concerned, and no others.

use std::time::Duration;

use starhaul_cc::{Reconfiguration, ReconfigurationSource};
use starhaul_paths::PathId;
use starhaul_session::{Mode, StreamId};

use super::net::{CLIENT, Net, path_config, server_identity};
use crate::{Error, LocalId, PathStatus, SessionHandle};

const LEO: &str = "rate=20mbit,delay=20ms";

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
            let mut path = path_config(number);
            path.cost = 0.0;
            path.controller = name.parse().unwrap();
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
    let told = node.on_reconfiguration(event.at, session, PathId(1), event);
    assert_eq!(told, Ok(()));
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
    bulk.net.connect_with(peer, vec![path_config(0)]);
    let second = std::mem::replace(&mut bulk.net.session, first);
    bulk.run_ms(500);
    let (event, segment) = (bulk.event(), Duration::from_millis(31));
    let node = &mut bulk.net.client().node;
    node.on_local_segment_rtt(event.at, LocalId(0), segment);
    node.on_local_reconfiguration(event.at, LocalId(0), event);
    let told = |path: &PathStatus| (path.reconfigurations.count, path.segment_rtt);
    let both = node.path_status(first);
    assert_eq!(told(&both[0]), (1, Some(segment)));
    assert_eq!(told(&both[1]), (0, None));
    assert_eq!(told(&node.path_status(second)[0]), (1, Some(segment)));
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
            node.on_reconfiguration(event.at, session, PathId(0), event)
                .unwrap();
        }
        bulk.run_ms(1000);
        let path = bulk.paths().remove(0);
        (
            path.reconfigurations.count,
            path.model,
            path.cwnd,
            path.stats.unwrap().bytes_sent,
        )
    };
    let (untold, told) = (run(false), run(true));
    assert_eq!((untold.0, told.0), (0, 1), "but people see it");
    assert_eq!((untold.1, untold.2, untold.3), (told.1, told.2, told.3));
}

#[test]
fn who_tells_of_an_unknown_path_hears_so() {
    let mut bulk = Bulk::new(&["leocc"], LEO);
    let (event, session) = (bulk.event(), bulk.net.session);
    let node = &mut bulk.net.client().node;
    let told = node.on_reconfiguration(event.at, session, PathId(9), event);
    assert_eq!(told, Err(Error::UnknownPath(PathId(9))));
    let nobody = SessionHandle(77);
    let told = node.on_segment_rtt(event.at, nobody, PathId(0), Duration::ZERO);
    assert_eq!(told, Err(Error::UnknownSession(nobody)));
    // An interface without paths is nothing wrong.
    node.on_local_reconfiguration(event.at, LocalId(55), event);
    assert_eq!(bulk.paths()[0].reconfigurations.count, 0);
}
