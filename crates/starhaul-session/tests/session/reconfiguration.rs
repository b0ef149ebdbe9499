//! What one end's detector sees of a path reaches the other end, with its time, once, whatever is lost.

use std::time::{Duration, Instant};

use starhaul_cc::{PathEnd, PathSignal, Reconfiguration, ReconfigurationSource};
use starhaul_link::{LinkSpec, Loss};
use starhaul_session::{BlockOptions, Mode, PathId, SessionConfig, StreamConfig, StreamId};
use starhaul_units::Bandwidth;

use crate::pair::{Pair, ms};

const PATH: PathId = PathId(0);
const OUTAGE: Duration = ms(68);

/// A path of 20 Mbit/s whose way back loses this share of acknowledgements; the server's clock is its own.
fn pair(ack_loss: f64, seed: u64) -> Pair {
    let mut pair = Pair::with_clocks(SessionConfig::default(), ms(3000));
    let spec = LinkSpec::constant(Bandwidth::from_mbit(20), ms(25));
    let back = spec.clone().with_loss(Loss::bernoulli(ack_loss).unwrap());
    pair.lane_of([&spec, &back], 0.0, 0, seed);
    pair
}

/// The client sends a block each 2 ms for so long.
fn send_for(pair: &mut Pair, stream: StreamId, time: Duration) {
    for _ in 0..time.as_millis() / 2 {
        pair.send(stream, 1000, BlockOptions::default());
        pair.run_for(ms(2));
    }
}

/// The server's detector sees that the path came back 40 ms ago.
fn tell(pair: &mut Pair, source: ReconfigurationSource) -> Instant {
    let at = pair.now - ms(40);
    let event = Reconfiguration {
        at,
        outage: OUTAGE,
        source,
        confidence: 0.9,
    };
    pair.sessions[1].tell_signal(pair.now, PATH, PathSignal::Reconfiguration(event));
    at
}

fn segment(rtt: Duration) -> PathSignal {
    let end = PathEnd::Local;
    PathSignal::SegmentRtt { end, rtt }
}

fn signals(pair: &mut Pair, side: usize) -> Vec<(PathId, PathSignal)> {
    std::iter::from_fn(|| pair.sessions[side].poll_path_signal()).collect()
}

/// The one event that the client heard of.
fn heard(pair: &mut Pair) -> Reconfiguration {
    match signals(pair, 0)[..] {
        [(PATH, PathSignal::Reconfiguration(event))] => event,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_receivers_detector_reaches_the_sender_once_through_lost_acknowledgements() {
    for seed in 0..12 {
        let mut pair = pair(0.4, seed);
        let stream = pair.open(StreamConfig {
            mode: Mode::Retransmit,
            ..StreamConfig::default()
        });
        send_for(&mut pair, stream, ms(600));
        let at = tell(&mut pair, ReconfigurationSource::Probe);
        send_for(&mut pair, stream, ms(400));
        let event = heard(&mut pair);
        assert_eq!(event.source, ReconfigurationSource::Peer, "seed {seed}");
        assert_eq!(event.outage, OUTAGE, "seed {seed}");
        assert!((event.confidence - 0.9).abs() < 0.01, "seed {seed}");
        let wrong = event.at.max(at) - event.at.min(at);
        assert!(wrong <= ms(5), "seed {seed}: wrong by {wrong:?}");
    }
}

#[test]
fn an_idle_session_makes_an_acknowledgement_for_it() {
    let mut pair = pair(0.0, 1);
    pair.run_for(ms(300));
    tell(&mut pair, ReconfigurationSource::Schedule);
    pair.run_for(ms(30));
    heard(&mut pair);
    pair.run_for(ms(1000));
    assert_eq!(signals(&mut pair, 0), [], "not again");
}

#[test]
fn what_came_from_the_peer_or_is_of_no_path_is_not_told() {
    let mut pair = pair(0.0, 1);
    pair.run_for(ms(300));
    let before = pair.sent[1].len();
    tell(&mut pair, ReconfigurationSource::Peer);
    let event = Reconfiguration {
        at: pair.now,
        outage: OUTAGE,
        source: ReconfigurationSource::Probe,
        confidence: 1.0,
    };
    for signal in [PathSignal::Reconfiguration(event), segment(ms(30))] {
        pair.sessions[1].tell_signal(pair.now, PathId(9), signal);
    }
    pair.run_for(ms(300));
    assert_eq!(signals(&mut pair, 0), []);
    assert_eq!(pair.sent[1].len(), before, "nothing left for their sake");
}

#[test]
fn the_segments_round_trip_comes_with_acknowledgements_a_few_times_a_second() {
    let mut pair = pair(0.0, 1);
    let stream = pair.open(StreamConfig::default());
    for round in 0..100 {
        pair.sessions[1].tell_signal(pair.now, PATH, segment(ms(30 + round % 2)));
        send_for(&mut pair, stream, ms(10));
    }
    let signals = signals(&mut pair, 0);
    assert!((8..=11).contains(&signals.len()), "{}", signals.len());
    for signal in signals {
        let (PATH, PathSignal::SegmentRtt { rtt, .. }) = signal else {
            panic!("{signal:?}")
        };
        assert!(rtt == ms(30) || rtt == ms(31));
    }
}
