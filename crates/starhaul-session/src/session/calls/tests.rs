//! Two sessions whose datagrams arrive at once: what a session keeps beside its streams agrees with them, whatever is done to them.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use starhaul_paths::{PathId, PathUpdate};
use starhaul_units::Bandwidth;

use super::*;
use crate::types::{Mode, SessionConfig, Side};

const PATH: PathId = PathId(0);

struct Two {
    sessions: [Session; 2],
    now: Instant,
}

impl Two {
    fn new() -> Self {
        let now = Instant::now();
        let update = PathUpdate {
            cwnd: 100_000_000,
            bytes_in_flight: 0,
            bandwidth: Bandwidth::from_mbit(100),
            smoothed_rtt: Duration::from_millis(40),
            min_rtt: Duration::from_millis(40),
            max_datagram: 1200,
        };
        let sessions = [Side::Client, Side::Server].map(|side| {
            let mut session = Session::new(SessionConfig::default(), side, now);
            session.add_path(now, PATH, 0.0, update);
            session
        });
        let mut two = Self { sessions, now };
        two.run_ms(100);
        two
    }

    fn open(&mut self, side: usize) -> StreamId {
        let config = StreamConfig {
            mode: Mode::Reliable,
            ..StreamConfig::default()
        };
        self.sessions[side].open_stream(self.now, config).unwrap()
    }

    /// All that either has to send arrives.
    fn exchange(&mut self) {
        for _ in 0..10_000 {
            let mut is_quiet = true;
            for side in 0..2 {
                while let Some(datagram) = self.sessions[side].poll_datagram(self.now, PATH) {
                    let peer = &mut self.sessions[1 - side];
                    peer.handle_datagram(self.now, PATH, datagram.payload)
                        .unwrap();
                    is_quiet = false;
                }
                while self.sessions[side].poll_event().is_some() {}
            }
            if is_quiet {
                return;
            }
        }
        panic!("they never have nothing more to send");
    }

    fn run_ms(&mut self, millis: u64) {
        for _ in 0..millis.div_ceil(5) {
            self.now += Duration::from_millis(5);
            for session in &mut self.sessions {
                if session.poll_timeout().is_some_and(|at| at <= self.now) {
                    session.handle_timeout(self.now);
                }
            }
            self.exchange();
        }
    }

    /// How often a call at `side` asks for a poll.
    fn asks<T>(&mut self, side: usize, call: impl FnOnce(&mut Session, Instant) -> T) -> u64 {
        let session = &mut self.sessions[side];
        let before = session.poll_requests();
        call(session, self.now);
        session.poll_requests() - before
    }

    fn sums_agree(&self) -> bool {
        self.sessions.iter().all(|session| {
            let streams = session.streams.iter();
            let pairs = streams.filter_map(|(id, stream)| Some((id, &stream.pair()?.receive)));
            session.inbound.shares().are_of(pairs)
        })
    }
}

/// An endpoint wakes the thread that sends only when it is asked to.
#[test]
fn only_a_call_that_leaves_something_to_send_asks_for_a_poll() {
    let mut two = Two::new();
    let stream = two.open(0);
    two.run_ms(50);
    let data = vec![7; 200_000];
    assert_eq!(
        two.asks(0, |client, now| client.write(now, stream, &data[..100])),
        1
    );
    let again = two.asks(0, |client, now| client.write(now, stream, &data[100..]));
    assert_eq!(again, 0, "it waits to be polled already");
    two.run_ms(500);
    let mut read = 0;
    for _ in 0..30 {
        let asked = two.asks(1, |server, now| {
            read += server.read(now, stream, 1024).unwrap().unwrap().len();
        });
        assert_eq!(
            asked, 0,
            "after {read} bytes, which take little of the credit"
        );
    }
    let asked = two.asks(1, |server, now| {
        let (rest, is_end) = server.read_chunks(now, stream, usize::MAX, |_| ()).unwrap();
        read += rest;
        assert!(!is_end);
    });
    assert_eq!(
        (read, asked),
        (200_000, 1),
        "one word of credit for all of it"
    );
    let nothing = two.asks(1, |server, now| {
        let none = server.read_chunks(now, stream, usize::MAX, |_| ());
        assert_eq!(none, Ok((0, false)));
    });
    assert_eq!(nothing, 0);
    two.run_ms(50);
    assert_eq!(two.asks(0, |client, now| client.finish(now, stream)), 1);
    two.run_ms(50);
    let end = two.sessions[1].read_chunks(two.now, stream, usize::MAX, |_| ());
    assert_eq!(end, Ok((0, true)));
    assert_eq!(two.asks(1, |server, now| server.reset(now, stream, 1)), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn what_streams_leave_to_each_other_is_right_after_everything(
        steps in proptest::collection::vec((0u8..12, any::<prop::sample::Index>(), 0usize..2, 1usize..90_000, 0u64..40), 1..60),
    ) {
        let mut two = Two::new();
        let mut streams = vec![two.open(0)];
        let data = vec![3; 90_000];
        for (step, which, side, bytes, wait) in steps {
            let stream = *which.get(&streams);
            let (session, now) = (&mut two.sessions[side], two.now);
            // Most fail at times: the stream has ended, or the peer has not heard of it.
            match step {
                0 | 1 => streams.push(two.open(side)),
                2..=4 => drop(session.write(now, stream, &data[..bytes])),
                5 | 6 => drop(session.read(now, stream, bytes)),
                7 | 8 => drop(session.read_chunks(now, stream, bytes, |_| ())),
                9 => drop(session.finish(now, stream)),
                10 => drop(session.stop(now, stream, 1)),
                _ => drop(session.reset(now, stream, 1)),
            }
            prop_assert!(two.sums_agree(), "after step {step}");
            two.run_ms(wait);
            prop_assert!(two.sums_agree(), "after what followed from step {step}");
        }
        // Both sides know them by then.
        two.run_ms(200);
        for stream in streams {
            for side in 0..2 {
                let (session, now) = (&mut two.sessions[side], two.now);
                drop(session.reset(now, stream, 1));
                drop(session.stop(now, stream, 1));
            }
        }
        two.run_ms(200);
        for session in &two.sessions {
            prop_assert_eq!(session.streams.iter().count(), 0);
            prop_assert!(session.inbound.shares().are_of(std::iter::empty()));
        }
    }
}
