//! What is known to be left to other paths is not asked again: decisions are the same as if each path were asked for each block.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use rand::{Rng as _, SeedableRng as _, seq::IndexedRandom as _};
use rand_chacha::ChaCha8Rng;
use starhaul_session::{
    BlockId, BlockOptions, Budget, Class, Coding, Event, Frame, LAST_RESORT, Leaving, Limit, Load,
    Mode, Offer, PathDatagram, PathId, PathUpdate, Scheduler, SchedulerChoice, SchedulerStatus,
    Session, SessionConfig, Side, StreamConfig, StreamId, View,
};
use starhaul_units::Bandwidth;

use crate::pair::ms;

/// Counts how often it is asked for fresh data, and says what paths leave in common only if it `tells`.
#[derive(Debug)]
struct Asked {
    inner: Box<dyn Scheduler>,
    tells: bool,
    times: Arc<AtomicU64>,
}

impl Scheduler for Asked {
    fn takes_data(&self, view: &View<'_>, load: Load, limit: Limit) -> bool {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.inner.takes_data(view, load, limit)
    }

    fn leaving(&self, view: &View<'_>, load: Load, limit: Limit) -> Option<Leaving> {
        self.inner.leaving(view, load, limit).filter(|_| self.tells)
    }

    fn takes_retransmission(
        &self,
        view: &View<'_>,
        lost_on: Option<PathId>,
        bytes: u64,
        limit: Limit,
    ) -> bool {
        self.inner.takes_retransmission(view, lost_on, bytes, limit)
    }

    fn takes_redundancy(
        &self,
        view: &View<'_>,
        main: Option<PathId>,
        bytes: u64,
        limit: Limit,
    ) -> bool {
        self.inner.takes_redundancy(view, main, bytes, limit)
    }

    fn takes_copy(&self, view: &View<'_>, first: Option<PathId>, bytes: u64, limit: Limit) -> bool {
        self.inner.takes_copy(view, first, bytes, limit)
    }

    fn takes_frame(&self, view: &View<'_>, frame: Frame) -> bool {
        self.inner.takes_frame(view, frame)
    }

    fn coding(&mut self, class: Class, path: PathId) -> Option<Coding> {
        self.inner.coding(class, path)
    }

    fn on_offered(&mut self, now: Instant, offer: Offer) {
        self.inner.on_offered(now, offer);
    }

    fn on_data_sent(&mut self, class: Class, path: PathId, bytes: u64) {
        self.inner.on_data_sent(class, path, bytes);
    }

    fn refresh(&mut self, view: &View<'_>) {
        self.inner.refresh(view);
    }

    fn status(&self) -> SchedulerStatus {
        self.inner.status()
    }
}

/// Two sessions that are told the same, of which the second has each path asked for each block.
struct Twins {
    now: Instant,
    sessions: [Session; 2],
    asked: [Arc<AtomicU64>; 2],
    streams: Vec<StreamId>,
    blocks: Vec<(StreamId, BlockId)>,
    /// What left and has no fate, by path.
    flying: Vec<(PathId, u32)>,
    updates: Vec<PathUpdate>,
}

impl Twins {
    fn new(choice: SchedulerChoice) -> Self {
        let now = Instant::now();
        let asked: [Arc<AtomicU64>; 2] = Default::default();
        let session = |tells: bool| {
            let scheduler = Asked {
                inner: choice.build(),
                tells,
                times: asked[usize::from(!tells)].clone(),
            };
            let config = SessionConfig::default();
            Session::with_scheduler(config, Side::Client, now, Box::new(scheduler))
        };
        Self {
            now,
            sessions: [session(true), session(false)],
            asked,
            streams: Vec::new(),
            blocks: Vec::new(),
            flying: Vec::new(),
            updates: Vec::new(),
        }
    }

    /// Does the same with both, of which the same must come.
    fn both<T: PartialEq + std::fmt::Debug>(
        &mut self,
        mut call: impl FnMut(&mut Session, Instant) -> T,
    ) -> T {
        let now = self.now;
        let [told, asked] = self.sessions.each_mut().map(|session| call(session, now));
        assert_eq!(told, asked);
        told
    }

    fn poll(&mut self, path: PathId, most: usize) {
        let budget = Budget {
            datagrams: most,
            ..Budget::ONE
        };
        let (datagrams, _) = self.both(|session, now| {
            let mut datagrams = Vec::new();
            let drained = session.poll_datagrams(now, path, budget, &mut datagrams);
            let plain = |datagram: PathDatagram| (datagram.sequence, datagram.payload);
            let datagrams: Vec<_> = datagrams.into_iter().map(plain).collect();
            (datagrams, drained)
        });
        let sent = datagrams.into_iter().map(|(sequence, _)| (path, sequence));
        self.flying.extend(sent);
    }

    fn open(&mut self, random: &mut ChaCha8Rng) {
        for mode in [Mode::Retransmit, Mode::FecRetransmit, Mode::None] {
            let config = StreamConfig {
                mode,
                deadline: ms(random.random_range(100..5_000)),
                ..StreamConfig::default()
            };
            let stream = self.both(|session, now| session.open_stream(now, config.clone()));
            self.streams.push(stream.unwrap());
        }
        for number in 0..random.random_range(2..=8) {
            let rtt = ms(random.random_range(20..600));
            // The first may be one that is enough for most blocks.
            let least_kbit = *[500, 49_000].choose(random).unwrap();
            let update = PathUpdate {
                cwnd: random.random_range(20_000..20_000_000),
                bytes_in_flight: 0,
                bandwidth: Bandwidth::from_kbit(random.random_range(least_kbit..50_000)),
                smoothed_rtt: rtt,
                min_rtt: rtt,
                max_datagram: random.random_range(1_150..1_350),
            };
            let dearer = f64::from(number);
            let costs = [0.0, dearer, dearer, dearer, LAST_RESORT];
            let cost = *costs.choose(random).unwrap();
            self.updates.push(update);
            self.both(|session, now| session.add_path(now, PathId(number), cost, update));
        }
    }

    fn paths(&self) -> Vec<PathId> {
        let count = u32::try_from(self.updates.len()).unwrap();
        (0..count).map(PathId).collect()
    }

    fn send(&mut self, random: &mut ChaCha8Rng) {
        let stream = *self.streams.choose(random).unwrap();
        let data = Bytes::from(vec![7; random.random_range(200..100_000)]);
        let options = BlockOptions {
            priority: Some(random.random_range(0..4)),
            deadline: Some(ms(random.random_range(20..6_000))),
            depends_on: None,
        };
        let block =
            self.both(|session, now| session.send_block(now, stream, data.clone(), options));
        self.blocks.extend(block.ok().map(|block| (stream, block)));
    }

    /// Figures of one path change, as far as a node tells of it.
    fn update(&mut self, random: &mut ChaCha8Rng) {
        let number = random.random_range(0..self.updates.len());
        let path = PathId(u32::try_from(number).unwrap());
        let update = &mut self.updates[number];
        match random.random_range(0..4) {
            0 => update.bytes_in_flight = random.random_range(0..500_000),
            1 => update.bandwidth = Bandwidth::from_kbit(random.random_range(500..50_000)),
            2 => update.smoothed_rtt = ms(random.random_range(20..900)),
            _ => {}
        }
        let (update, share) = (*update, random.random_range(0..4_u32));
        self.both(|session, now| {
            session.update_path(now, path, update);
            match share {
                0 => session.set_told_loss(path, Some(0.01)),
                1 => session.set_told_loss(path, None),
                _ => {}
            }
        });
    }

    fn change(&mut self, random: &mut ChaCha8Rng) {
        match random.random_range(0..12) {
            0..4 => self.send(random),
            4..6 => self.update(random),
            6..9 if !self.flying.is_empty() => {
                let at = random.random_range(0..self.flying.len());
                let (path, sequence) = self.flying.swap_remove(at);
                let is_lost = random.random_bool(0.1);
                self.both(|session, now| match is_lost {
                    true => session.handle_transport_loss(now, path, sequence),
                    false => session.handle_transport_acks(now, path, [sequence]),
                });
            }
            9 if !self.blocks.is_empty() => {
                let (stream, block) = *self.blocks.choose(random).unwrap();
                let (deadline, priority) = (ms(random.random_range(5..3_000)), random.random());
                self.both(|session, now| {
                    let changed =
                        session.update_block(now, stream, block, Some(deadline), Some(priority));
                    changed.is_ok()
                });
            }
            10 if random.random_bool(0.2) => {
                let path = *self.paths().choose(random).unwrap();
                let cost = f64::from(random.random_range(0..3));
                self.both(|session, now| session.set_path_cost(now, path, cost));
            }
            _ => {
                let longest = *[1, 100, 5_000, 100_000].choose(random).unwrap();
                self.now += Duration::from_micros(random.random_range(0..longest));
                self.both(|session, now| session.handle_timeout(now));
            }
        }
    }

    fn events(&mut self) {
        loop {
            let [event, other] = self.sessions.each_mut().map(Session::poll_event);
            assert_eq!(format!("{event:?}"), format!("{other:?}"));
            match event {
                Some(Event::BlockOutcome { stream, block, .. }) => {
                    self.blocks.retain(|ended| *ended != (stream, block));
                }
                Some(_) => {}
                None => return,
            }
        }
    }
}

#[test]
fn paths_that_are_not_asked_would_have_declined() {
    let mut asked = [0, 0];
    for (seed, choice) in (0..60).flat_map(|seed| SchedulerChoice::ALL.map(|by| (seed, by))) {
        println!("seed {seed} by {}", choice.name());
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut twins = Twins::new(choice);
        twins.open(&mut random);
        for _ in 0..30 {
            twins.send(&mut random);
        }
        for _ in 0..400 {
            for _ in 0..random.random_range(0..3) {
                twins.change(&mut random);
            }
            let most = *[1, 1, 1, 8].choose(&mut random).unwrap();
            let from = random.random_range(0..twins.updates.len());
            let paths = twins.paths().into_iter().cycle().skip(from);
            for path in paths.take(2 * twins.updates.len()) {
                if random.random_bool(0.1) {
                    twins.change(&mut random);
                }
                twins.poll(path, most);
            }
            twins.events();
        }
        for (asked, times) in asked.iter_mut().zip(&twins.asked) {
            *asked += times.load(Ordering::Relaxed);
        }
    }
    println!("asked {} times instead of {}", asked[0], asked[1]);
    assert!(asked[1] > asked[0] + 100_000, "each path is asked");
}
