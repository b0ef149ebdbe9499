//! Interoperation with another implementation, the crate `licklider-core`, in both directions and at several rates of loss.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use licklider_core as other;
use pair::{RECEIVER, SENDER, SERVICE, content};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use starhaul_ltp::{Batch, Coding, Engine, EngineConfig, Event, Outgoing, PeerConfig};

const DELAY: Duration = Duration::from_millis(500);

/// Our engine and the other one; each datagram takes half a second or is lost.
struct Mixed {
    start: Instant,
    now: Instant,
    ours: Engine,
    other: other::Engine,
    /// What is on its way, and whether to the other engine.
    flight: BTreeMap<(Instant, u64), (bool, Vec<u8>)>,
    count: u64,
    loss: u64,
    random: ChaCha8Rng,
    events: Vec<Event>,
    notices: Vec<other::Notice>,
}

impl Mixed {
    /// With `coding`, our engine sends repair segments, which the other one does not know.
    fn new(loss: u64, seed: u64, coding: bool) -> Self {
        let start = Instant::now();
        let mut ours = Engine::new(EngineConfig::new(SENDER, [seed.to_le_bytes()[0]; 32]));
        let mut config = PeerConfig::new(DELAY, None);
        config.segment_data = 1000;
        config.coding = coding.then(|| Coding::new(0.05));
        ours.add_peer(start, RECEIVER, config).unwrap();
        ours.open_service(SERVICE);
        let mut config = other::Config::new(other::EngineId(RECEIVER.0), seed);
        // Its defaults give up after five attempts, which a fifth of losses exceeds now and then.
        config.checkpoint_rtx_limit = 40;
        config.report_rtx_limit = 40;
        config.cancel_rtx_limit = 40;
        config.rtx_cycle_limit = 40;
        // Without it, its sessions wait for lost green segments for ever.
        config.recv_idle_timeout = Some(other::time::Duration::from_secs(600));
        let mut engine = other::Engine::new(config).unwrap();
        let mut peer = other::PeerConfig::new(other::EngineId(SENDER.0));
        peer.owlt_in = DELAY.into();
        peer.owlt_out = DELAY.into();
        peer.max_segment_len = 900;
        engine.add_peer(peer).unwrap();
        engine.register_client_service(SERVICE);
        Self {
            start,
            now: start,
            ours,
            other: engine,
            flight: BTreeMap::new(),
            count: 0,
            loss,
            random: ChaCha8Rng::seed_from_u64(seed),
            events: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn stamp(&self, at: Instant) -> other::Timestamp {
        let micros = at.duration_since(self.start).as_micros();
        other::Timestamp::from_micros(u64::try_from(micros).unwrap())
    }

    fn carry(&mut self, to_other: bool, datagram: Vec<u8>) {
        if self.random.next_u64() % 100 >= self.loss {
            self.count += 1;
            self.flight
                .insert((self.now + DELAY, self.count), (to_other, datagram));
        }
    }

    fn drain(&mut self) {
        let mut batch = Batch::new(65_507, 64);
        while self.ours.poll_transmit(self.now, &mut batch).is_some() {
            for segment in batch.contents().chunks(batch.segment_size()) {
                self.carry(true, segment.to_vec());
            }
        }
        self.events
            .extend(std::iter::from_fn(|| self.ours.poll_event()));
        while let Some(output) = self.other.poll_output(self.stamp(self.now)) {
            match output {
                other::Output::Transmit { segment, .. } => self.carry(false, segment),
                other::Output::Notice(notice) => self.notices.push(notice),
            }
        }
    }

    /// Runs until neither engine has a timer and nothing is in flight.
    fn finish(&mut self) {
        loop {
            self.drain();
            let others = self
                .other
                .next_timeout()
                .map(|at| self.start + Duration::from_micros(at.as_micros()));
            let arrival = self.flight.first_key_value().map(|((at, _), _)| *at);
            let next = [self.ours.poll_timeout(), others, arrival]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            assert!(
                self.now < self.start + Duration::from_secs(864_000),
                "never ends"
            );
            while let Some(entry) = self.flight.first_entry().filter(|e| e.key().0 <= self.now) {
                let (to_other, datagram) = entry.remove();
                let stamp = self.stamp(self.now);
                let peer = other::EngineId(SENDER.0);
                match to_other {
                    true => self.other.handle_input(
                        stamp,
                        other::Input::Segment {
                            peer,
                            data: &datagram,
                        },
                    ),
                    false => {
                        self.ours
                            .handle_datagrams(self.now, RECEIVER, &datagram, datagram.len());
                    }
                }
            }
            self.ours.handle_timeout(self.now);
            self.other.handle_timeout(self.stamp(self.now));
        }
        assert_eq!(self.ours.sessions(), (0, 0));
        assert_eq!(self.other.session_count(), (0, 0));
        let repairs = self.ours.stats().repair_segments_sent;
        assert!(
            self.other.stats().parse_errors <= repairs,
            "it drops what it does not know"
        );
        assert_eq!(self.ours.stats().dropped.malformed, 0);
    }
}

/// Block lengths and red lengths: all red, mixed, all green; one segment and many.
const SHAPES: [(usize, usize); 6] = [
    (10, 10),
    (60_000, 60_000),
    (60_000, 25_000),
    (60_000, 59_999),
    (60_000, 0),
    (10, 0),
];

fn check_green(block: &Bytes, red: usize, green: &[(u64, Vec<u8>)], loss: u64) {
    for (offset, data) in green {
        let offset = usize::try_from(*offset).unwrap();
        assert_eq!(data, &block[offset..offset + data.len()]);
    }
    let bytes: usize = green.iter().map(|(_, data)| data.len()).sum();
    assert!(bytes <= block.len() - red);
    assert!(
        loss > 0 || bytes == block.len() - red,
        "{bytes} green bytes arrived without loss"
    );
}

#[test]
fn our_blocks_reach_the_other_engine() {
    for loss in [0, 1, 5, 20] {
        for (i, (length, red)) in SHAPES.into_iter().enumerate() {
            let mut mixed = Mixed::new(loss, i as u64 * 100 + loss, i % 2 == 1);
            let block = content(length, i as u64);
            let outgoing = Outgoing {
                to: RECEIVER,
                service: SERVICE,
                block: block.clone(),
                red: red as u64,
            };
            let session = mixed.ours.send(mixed.now, outgoing).unwrap();
            mixed.finish();
            assert_eq!(
                mixed.events.last(),
                Some(&Event::Sent { session }),
                "{loss} % {length} {red}"
            );
            let mut green = Vec::new();
            let mut reds = Vec::new();
            for notice in &mixed.notices {
                match notice {
                    other::Notice::RedPartReceived { data, .. } => reds.push(data.clone()),
                    other::Notice::GreenSegmentArrived { offset, data, .. } => {
                        green.push((*offset, data.clone()))
                    }
                    _ => {}
                }
            }
            let expected: Vec<Vec<u8>> = if red > 0 {
                vec![block[..red].to_vec()]
            } else {
                vec![]
            };
            assert_eq!(reds, expected, "{loss} % {length} {red}");
            check_green(&block, red, &green, loss);
        }
    }
}

#[test]
fn the_other_engines_blocks_reach_ours() {
    for loss in [0, 1, 5, 20] {
        for (i, (length, red)) in SHAPES.into_iter().enumerate() {
            let mut mixed = Mixed::new(loss, i as u64 * 100 + loss, i % 2 == 1);
            let block = content(length, i as u64);
            let request = other::TransmissionRequest {
                destination: other::EngineId(SENDER.0),
                client_service: SERVICE,
                data: block.clone(),
                red_len: red as u64,
            };
            mixed
                .other
                .request_transmission(mixed.stamp(mixed.now), request)
                .unwrap();
            mixed.finish();
            let done = mixed
                .notices
                .iter()
                .any(|notice| matches!(notice, other::Notice::TransmissionSessionCompleted { .. }));
            assert!(done, "{loss} % {length} {red}: {:?}", mixed.notices);
            let mut green = Vec::new();
            let mut reds = Vec::new();
            for event in mixed.events {
                match event {
                    Event::RedPart {
                        block, is_verified, ..
                    } => {
                        assert!(!is_verified, "it knows no checksum");
                        reds.push(block.into_bytes());
                    }
                    Event::Green { offset, data, .. } => green.push((offset, data.to_vec())),
                    _ => {}
                }
            }
            let expected: Vec<Bytes> = if red > 0 {
                vec![block.slice(..red)]
            } else {
                vec![]
            };
            assert_eq!(reds, expected, "{loss} % {length} {red}");
            check_green(&block, red, &green, loss);
        }
    }
}

#[test]
fn cancellations_are_understood_both_ways() {
    for by_ours in [true, false] {
        let mut mixed = Mixed::new(0, 1, false);
        let block = content(60_000, 1);
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            red: 60_000,
            block,
        };
        let session = mixed.ours.send(mixed.now, outgoing).unwrap();
        // Half of the block is under way when one end changes its mind.
        mixed.loss = 10;
        mixed.drain();
        if by_ours {
            mixed.now += DELAY / 2;
            mixed.ours.cancel(mixed.now, session);
        } else {
            while let Some(entry) = mixed.flight.first_entry() {
                let ((at, _), (_, datagram)) = entry.remove_entry();
                mixed.now = at;
                let (stamp, peer) = (mixed.stamp(at), other::EngineId(SENDER.0));
                mixed.other.handle_input(
                    stamp,
                    other::Input::Segment {
                        peer,
                        data: &datagram,
                    },
                );
            }
            let id = other::SessionId {
                originator: other::EngineId(SENDER.0),
                number: session.number,
            };
            mixed
                .other
                .cancel_session(mixed.stamp(mixed.now), id)
                .unwrap();
        }
        mixed.loss = 0;
        mixed.finish();
        let ours = mixed
            .events
            .iter()
            .any(|event| matches!(event, Event::SendCancelled { .. }));
        let others = mixed
            .notices
            .iter()
            .any(|notice| matches!(notice, other::Notice::ReceptionSessionCancelled { .. }));
        assert!(ours && others, "{:?} {:?}", mixed.events, mixed.notices);
    }
}
