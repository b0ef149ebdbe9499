//! Repair segments that follow the loss which reports show.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::{
    cell::Cell,
    collections::BTreeMap,
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use pair::{
    Filter, Pair, RECEIVER, SENDER, SERVICE, content,
    direct::{converse, delivered, engine, output},
};
use starhaul_ltp::{
    Body, Event, Outgoing, PeerConfig, RepairRate, RepairReason, SessionId, SizeReason, parse,
};
use starhaul_units::Bandwidth;

/// Bytes of data in a segment, and segments in a block: many blocks matter, and not what they hold.
const SHORT: usize = 128;
const SEGMENTS: usize = 111;
const SEED: u64 = 17;

/// Blocks over a link whose loss can be changed, in both directions.
struct Stream {
    pair: Pair,
    /// Segments lost of a thousand.
    loss: Rc<Cell<u64>>,
    bytes: Bytes,
    sent: BTreeMap<SessionId, Instant>,
    light: Duration,
}

impl Stream {
    /// The ends know the light time, or have to learn it.
    fn new(light: Duration, is_known: bool, change: impl FnOnce(&mut PeerConfig)) -> Self {
        let told = if is_known { light } else { Duration::ZERO };
        let mut config = PeerConfig::new(told, Some(Bandwidth::from_mbit(1000)));
        config.segment_data = SHORT;
        config.set_repair(Some(RepairRate::Auto));
        change(&mut config);
        let link = format!("delay={}ms", light.as_millis());
        let mut pair = Pair::new(SEED, &config, &link, &link);
        let loss = Rc::new(Cell::new(0));
        pair.sender().passes = loses(&loss, SEED);
        pair.receiver().passes = loses(&loss, SEED + 1);
        Self {
            pair,
            loss,
            bytes: content(SEGMENTS * SHORT, SEED),
            sent: BTreeMap::new(),
            light,
        }
    }

    /// Sends so many blocks, six hundred in a light time; returns their sessions.
    fn send(&mut self, blocks: usize) -> Vec<SessionId> {
        let sessions = (0..blocks).map(|_| {
            self.pair.sim.run_for(self.light / 600);
            let session = self.pair.send(&self.bytes, self.bytes.len());
            self.sent.insert(session, self.pair.sim.now());
            session
        });
        sessions.collect()
    }

    /// Data and repair segments that were sent for the first time until now.
    fn segments(&mut self) -> (u64, u64) {
        let stats = self.pair.sender().engine.stats();
        let data = stats.data_segments_sent - stats.data_segments_resent;
        (data, stats.repair_segments_sent)
    }

    /// Lets all blocks arrive; how many of these waited for a retransmission.
    fn late(&mut self, sessions: &[SessionId]) -> usize {
        self.pair.finish();
        let mut arrived = BTreeMap::new();
        for (at, event) in std::mem::take(&mut self.pair.receiver().events) {
            if let Event::RedPart { session, block, .. } = event {
                assert!(block.into_bytes() == self.bytes, "{session}, seed {SEED}");
                let is_first = arrived.insert(session, at).is_none();
                assert!(is_first, "{session} came twice, seed {SEED}");
            }
        }
        assert_eq!(arrived.len(), self.sent.len(), "seed {SEED}");
        let waited = |session: &&SessionId| arrived[*session] - self.sent[*session];
        let late = sessions.iter().filter(|id| waited(id) > self.light * 2);
        late.count()
    }
}

/// Loses segments one by one, each with the present probability.
fn loses(loss: &Rc<Cell<u64>>, seed: u64) -> Filter {
    let (loss, mut state) = (loss.clone(), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    Box::new(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % 1000 >= loss.get()
    })
}

/// Blocks of a round trip, and of a quarter of one: the first reports of another loss are there by then, and enough of them.
const ROUND_TRIP: usize = 1200;
const QUARTER: usize = 300;

/// Nothing is coded while nothing is lost. When 5 % are, no more blocks wait for a retransmission than one in a thousand, but for those that
/// left before reports could tell; when nothing is lost any more, nothing is coded again.
fn follow(light: Duration) {
    let mut stream = Stream::new(light, true, |_| {});
    stream.send(ROUND_TRIP + QUARTER);
    assert_eq!(stream.segments().1, 0, "nothing is lost, seed {SEED}");
    stream.loss.set(50);
    stream.send(ROUND_TRIP);
    assert_eq!(stream.segments().1, 0, "no report yet, seed {SEED}");
    stream.send(QUARTER);
    let (data, repairs) = stream.segments();
    let counted = stream.send(2000);
    let (data, repairs) = {
        let (all_data, all_repairs) = stream.segments();
        (all_data - data, all_repairs - repairs)
    };
    let choice = stream.pair.sender().engine.repair_choice(pair::RECEIVER);
    let choice = choice.unwrap();
    assert_eq!(choice.reason, RepairReason::Measured, "seed {SEED}");
    let measured = (choice.measured, choice.loss.unwrap());
    assert!((0.04..0.06).contains(&measured.0), "{measured:?}");
    assert!((0.05..0.07).contains(&measured.1), "{measured:?}");
    // 16 of 111 are needed for exactly 5 %.
    assert!(repairs * 100 <= data * 20, "{repairs} for {data} segments");
    stream.loss.set(0);
    // Some reports of the time before were lost, and come a round trip later.
    stream.send(2 * ROUND_TRIP + 2 * QUARTER);
    let (_, before) = stream.segments();
    stream.send(QUARTER);
    assert_eq!(stream.segments().1, before, "nothing is lost, seed {SEED}");
    let late = stream.late(&counted);
    assert!(late * 1000 <= counted.len(), "{late} waited, seed {SEED}");
}

#[test]
fn over_four_seconds_repair_follows_a_loss_that_comes_and_goes() {
    follow(Duration::from_secs(4));
}

#[test]
fn over_ten_minutes_repair_follows_a_loss_that_comes_and_goes() {
    follow(Duration::from_secs(600));
}

/// Where a retransmission takes less than a second it costs less than repair segments.
#[test]
fn nothing_is_coded_where_a_retransmission_is_near() {
    let mut stream = Stream::new(Duration::from_millis(300), true, |_| {});
    stream.loss.set(50);
    let sent = stream.send(2 * ROUND_TRIP);
    let choice = stream.pair.sender().engine.repair_choice(pair::RECEIVER);
    assert_eq!(choice.unwrap().reason, RepairReason::Near);
    let late = stream.late(&sent);
    assert!(late > sent.len() / 2, "{late} were sent again, seed {SEED}");
    assert_eq!(stream.segments().1, 0);
}

/// An MTU of jumbo frames, and the data of a segment that fills one.
const JUMBO: usize = 9000;
const JUMBO_DATA: usize = 8860;

/// Where repair segments follow the losses and there are none, segments are as long as without them; while there are some, each fills a packet
/// of Ethernet.
#[test]
fn sizes_follow_the_path_while_nothing_is_coded() {
    let mut stream = Stream::new(Duration::from_secs(4), true, |_| {});
    let now = stream.pair.sim.now();
    let sender = stream.pair.sender();
    sender.mtu = JUMBO;
    sender.engine.set_path_mtu(now, RECEIVER, JUMBO);
    stream.send(2 * ROUND_TRIP);
    let choice = |stream: &mut Stream| {
        let engine = &stream.pair.sender().engine;
        engine.segment_choice(RECEIVER).unwrap()
    };
    let alone = choice(&mut stream);
    assert_eq!(alone.data_bytes, JUMBO_DATA, "{alone:?}, seed {SEED}");
    assert_eq!(stream.segments().1, 0, "nothing is lost, seed {SEED}");
    stream.loss.set(50);
    stream.send(ROUND_TRIP + QUARTER);
    let counted = stream.send(QUARTER);
    let coded = choice(&mut stream);
    let told = (coded.data_bytes, coded.reason);
    assert_eq!(told, (1360, SizeReason::Coded), "seed {SEED}");
    assert!(stream.segments().1 > 0, "seed {SEED}");
    let late = stream.late(&counted);
    assert!(late * 20 <= counted.len(), "{late} waited, seed {SEED}");
}

/// A light time that answers tell counts as one that is given.
#[test]
fn a_light_time_that_was_learnt_counts_too() {
    let mut stream = Stream::new(Duration::from_secs(4), false, |_| {});
    stream.loss.set(50);
    stream.send(ROUND_TRIP + QUARTER);
    let counted = stream.send(QUARTER);
    assert!(stream.segments().1 > 0, "seed {SEED}");
    let late = stream.late(&counted);
    assert!(late * 100 <= counted.len(), "{late} waited, seed {SEED}");
}

/// An engine that does not tell what was lost may not know repair segments either.
#[test]
fn nothing_is_coded_for_an_engine_that_tells_no_losses() {
    let mut stream = Stream::new(Duration::from_secs(4), true, |config| {
        config.integrity = false;
    });
    stream.loss.set(50);
    let sent = stream.send(ROUND_TRIP + QUARTER);
    stream.late(&sent);
    assert_eq!(stream.segments().1, 0, "seed {SEED}");
    let choice = stream.pair.sender().engine.repair_choice(pair::RECEIVER);
    let choice = choice.unwrap();
    assert_eq!((choice.reason, choice.loss), (RepairReason::Untold, None));
}

/// What a sender with repair segments for a quarter lost has measured after a block of so many segments, of which these were lost.
fn measured(segments: usize, lost: &[usize]) -> f64 {
    let now = Instant::now();
    let mut config = PeerConfig::new(Duration::ZERO, None);
    config.segment_data = SHORT;
    config.set_repair(Some(RepairRate::Fixed(0.25)));
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    // The last segment is shorter.
    let block = content(segments * SHORT - 5, SEED);
    let outgoing = Outgoing {
        to: RECEIVER,
        service: SERVICE,
        block: block.clone(),
        red: block.len() as u64,
    };
    sender.send(now, outgoing).unwrap();
    for datagram in output(&mut sender, now) {
        let (segment, _) = parse(&datagram).unwrap();
        let is_lost = match segment.body {
            Body::Data(data) => lost.contains(&(usize::try_from(data.offset).unwrap() / SHORT)),
            _ => false,
        };
        if !is_lost {
            receiver.handle_datagrams(now, SENDER, &datagram, datagram.len());
        }
    }
    converse(&mut sender, &mut receiver, now);
    assert!(delivered(&mut receiver) == [block]);
    let stats = sender.stats();
    assert_eq!(stats.data_segments_resent, 0, "{segments}: {lost:?}");
    sender.repair_choice(RECEIVER).unwrap().measured
}

/// Repair segments leave before the last data of their code: what was lost just before them counts, whether or not these come.
#[test]
fn losses_that_repair_segments_make_up_for_at_once_are_measured_too() {
    let cases: [(usize, &[usize], f64); 11] = [
        (2, &[0], 1.0),
        (2, &[0, 1], 1.0),
        (2, &[1], 0.0),
        (3, &[1], 1.0 / 2.0),
        (3, &[1, 2], 1.0 / 2.0),
        (3, &[0, 2], 1.0 / 2.0),
        (10, &[8], 1.0 / 9.0),
        (10, &[8, 9], 1.0 / 9.0),
        (10, &[3, 8, 9], 2.0 / 9.0),
        (10, &[9], 0.0),
        (10, &[], 0.0),
    ];
    for (segments, lost, expected) in cases {
        let found = measured(segments, lost);
        let is_right = (found - expected).abs() < 1e-9;
        assert!(is_right, "{segments}: {lost:?} lost, {found} measured");
    }
}
