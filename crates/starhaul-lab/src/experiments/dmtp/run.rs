//! One run of our own system through steps of loss.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_session::{
    BlockOptions, Event, Fact, Mode, Observer, Outcome, Purpose, SchedulerChoice, StreamConfig,
};
use starhaul_sim::{Node as SimNode, Udp};
use starhaul_units::Bandwidth;

use super::{
    BLOCK_BYTES, BLOCKS_PER_STEP, DEADLINE, INTERVAL, RATE, Step, WARM_UP_BLOCKS, begun_by, links,
    row_of, steps,
};
use crate::{
    Error,
    kit::Records,
    workload::blocks,
    worlds::stack::{HostSettings, PathSetup, Starhaul, World},
};

/// How our own system is run.
#[derive(Clone, Copy, Debug)]
pub struct DmtpSetup {
    /// How the blocks are protected.
    pub mode: Mode,
    /// The scheduler that chooses the paths.
    pub scheduler: SchedulerChoice,
    /// With the dear path beside the cheap one.
    pub both_paths: bool,
    /// Seed of everything random.
    pub seed: u64,
}

/// What became of some blocks that were sent one after another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepResult {
    /// Blocks given to the session.
    pub sent: u32,
    /// Arrived within the deadline, as the receiver saw it.
    pub on_time: u32,
    /// Of the blocks that arrived: the time from sending, in ms.
    pub latencies_ms: Vec<f64>,
    /// Of the blocks that the sender counts as delivered: rebuilt from redundancy.
    pub recovered_by_redundancy: u32,
    /// Of the same: with retransmitted fragments.
    pub recovered_by_retransmission: u32,
    /// Bytes given to each path meanwhile, headers and the transport's acknowledgements included.
    pub path_bytes: [u64; 2],
    /// Packets that the cheap path lost meanwhile, on the way there.
    pub lost_packets: u64,
    /// Bytes of the session's datagrams on the dear path: data, redundancy, retransmissions, probes; none are counted of a rival.
    pub dear_datagram_bytes: u64,
    /// Fragments of their data that were sent for the first time, and all others of them; none are counted of a rival.
    pub fragments: Option<(u64, u64)>,
}

impl StepResult {
    /// Bytes of fragments that were sent beside the data, as a share of the data; `None` of a rival.
    pub fn extra_share(&self) -> Option<f64> {
        let (data, extra) = self.fragments?;
        // A block has fragments of one length, and all blocks have one length.
        let count = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        (data > 0).then(|| count(extra) / count(data))
    }

    /// Bytes that the links were given beside the data, headers and acknowledgements included, as a share of the data; a rival has it, too.
    pub fn wire_extra_share(&self) -> f64 {
        wire_extra_share(self.sent, self.path_bytes)
    }

    pub(super) fn arrived(&mut self, latency: Duration, on_time: bool) {
        self.on_time += u32::from(on_time);
        self.latencies_ms.push(latency.as_secs_f64() * 1e3);
    }
}

/// Bytes beside the data of so many blocks, as a share of the data; the links were given `path_bytes` in all.
#[expect(clippy::cast_precision_loss, reason = "bytes of some seconds")]
pub(super) fn wire_extra_share(blocks: u32, path_bytes: [u64; 2]) -> f64 {
    let data = f64::from(blocks.max(1)) * BLOCK_BYTES as f64;
    path_bytes.iter().sum::<u64>() as f64 / data - 1.0
}

impl DmtpSetup {
    /// Runs through the steps of the paper; one result for each of [`LOSS_STEPS`](super::LOSS_STEPS).
    ///
    /// # Errors
    /// The session does not come up.
    pub fn run(&self, records: &Records) -> Result<Vec<StepResult>, Error> {
        self.run_steps(&steps(), BLOCKS_PER_STEP, records)
    }

    /// The same through these steps; one result for each `per_row` blocks, of which a step has a multiple.
    ///
    /// # Errors
    /// The session does not come up.
    pub fn run_steps(
        &self,
        steps: &[Step],
        per_row: u32,
        records: &Records,
    ) -> Result<Vec<StepResult>, Error> {
        let settings = HostSettings {
            scheduler: self.scheduler,
            records: records.clone(),
            ..HostSettings::default()
        };
        let mut world = World::starhaul_with(self.seed, &self.paths(), &[], &settings)?;
        let config = StreamConfig {
            mode: self.mode,
            deadline: DEADLINE,
            priority: 0,
            max_coding_rate: 1.0,
            bandwidth: Some(Bandwidth::from_bytes_over(BLOCK_BYTES as u64, INTERVAL)),
            ..StreamConfig::default()
        };
        let stream = world.open_stream(config)?;
        let counted = BLOCKS_PER_STEP * u32::try_from(steps.len()).unwrap_or(u32::MAX);
        let total = WARM_UP_BLOCKS + counted;
        let row_of = |block| row_of(block, per_row);
        let mut results = vec![StepResult::default(); (counted / per_row) as usize];
        let fragments = Fragments::default();
        if let Some(session) = world.sender().session() {
            session.observe(Box::new(fragments.clone()));
        }
        let mut carried = Carried::default();
        let mut dear = dear_datagrams(&mut world);
        let mut sent = 0;
        world.run(INTERVAL * total + Duration::from_secs(2), |world| {
            let (now, elapsed) = (world.now(), world.elapsed());
            while sent < total && INTERVAL * sent <= elapsed {
                carried.advance(world, steps, sent);
                if let Some(row) = begun_by(sent, per_row) {
                    settle(world, &carried, &mut results, &mut dear);
                    carried.begin(world, &mut results, row);
                }
                if let Some(row) = row_of(sent) {
                    results[row].sent += 1;
                }
                if let Some(session) = world.sender().session() {
                    // A refused block counts as sent and never arrives.
                    let _ = session.send_block(now, stream, payload(sent), BlockOptions::default());
                }
                sent += 1;
            }
            for event in world.receiver().events() {
                if let Event::BlockReceived { block, data, .. } = event
                    && let Some(row) = row_of(block.0)
                {
                    let latency = elapsed.saturating_sub(INTERVAL * block.0);
                    let intact = data == payload(block.0);
                    results[row].arrived(latency, latency <= DEADLINE && intact);
                }
            }
            for event in world.sender().events() {
                if let Event::BlockOutcome {
                    block,
                    outcome:
                        Outcome::Delivered {
                            recovered_by_redundancy,
                            recovered_by_retransmission,
                            ..
                        },
                    ..
                } = event
                    && let Some(row) = row_of(block.0)
                {
                    let result = &mut results[row];
                    result.recovered_by_redundancy += u32::from(recovered_by_redundancy);
                    result.recovered_by_retransmission += u32::from(recovered_by_retransmission);
                }
            }
            if elapsed >= INTERVAL * total {
                settle(world, &carried, &mut results, &mut dear);
                carried.end(world, &mut results);
                return None;
            }
            Some(INTERVAL * sent)
        });
        for (block, data, extra) in fragments.0.lock().drain(..) {
            let Some(row) = row_of(block) else { continue };
            let (all, more) = results[row].fragments.get_or_insert_default();
            *all += data;
            *more += extra;
        }
        Ok(results)
    }

    fn paths(&self) -> Vec<PathSetup> {
        let path = |(link, cost): (starhaul_link::LinkSpec, f64)| PathSetup {
            forward: link.clone(),
            backward: link,
            cost,
            controller: ControllerConfig::Dedicated(RateFeed::new(RATE)),
        };
        links(self.both_paths).into_iter().map(path).collect()
    }
}

/// Counts the datagrams on the dear path for the present row, of which `before` had been sent at its beginning.
fn settle(
    world: &mut World<Starhaul>,
    carried: &Carried,
    results: &mut [StepResult],
    before: &mut u64,
) {
    let now = dear_datagrams(world);
    if let Some(result) = carried.row.and_then(|row| results.get_mut(row)) {
        result.dear_datagram_bytes = now - *before;
    }
    *before = now;
}

/// Bytes of the session's datagrams on the dear path so far.
fn dear_datagrams(world: &mut World<Starhaul>) -> u64 {
    let session = world.sender().session();
    let paths = session
        .map(|session| session.path_stats())
        .unwrap_or_default();
    paths.get(1).map_or(0, |dear| dear.bytes_sent)
}

/// Counts the fragments of each block: those of data sent for the first time, and all others.
#[derive(Clone, Debug, Default)]
struct Fragments(Arc<Mutex<Vec<(u32, u64, u64)>>>);

impl Observer for Fragments {
    fn on_fact(&mut self, _: Instant, fact: &Fact<'_>) {
        if let Fact::FragmentSent { block, purpose, .. } = fact {
            let is_data = *purpose == Purpose::Data;
            let (data, extra) = (u64::from(is_data), u64::from(!is_data));
            let mut counted = self.0.lock();
            match counted.last_mut() {
                Some((last, of_data, of_extra)) if *last == block.0 => {
                    *of_data += data;
                    *of_extra += extra;
                }
                _ => counted.push((block.0, data, extra)),
            }
        }
    }
}

/// The losses of the cheap path, and what both paths were given.
#[derive(Debug, Default)]
pub(super) struct Carried {
    before: [u64; 2],
    lost_before: u64,
    row: Option<usize>,
}

impl Carried {
    /// Gives the cheap path another loss, both ways, if a step begins with this block.
    pub(super) fn advance<S: SimNode<Load = Udp>>(
        &self,
        world: &mut World<S>,
        steps: &[Step],
        block: u32,
    ) {
        let step = begun_by(block, BLOCKS_PER_STEP).and_then(|step| steps.get(step));
        let Some(step) = step else {
            return;
        };
        let (now, cheap) = (world.now(), world.paths[0]);
        let loss = step.model();
        for link in [cheap.forward, cheap.backward] {
            world.sim().network[link].set_loss(now, loss);
        }
    }

    /// What the paths are given from now on belongs to this row.
    pub(super) fn begin<S: SimNode<Load = Udp>>(
        &mut self,
        world: &mut World<S>,
        results: &mut [StepResult],
        row: usize,
    ) {
        self.end(world, results);
        self.row = Some(row);
    }

    /// The present row ends.
    pub(super) fn end<S: SimNode<Load = Udp>>(
        &mut self,
        world: &mut World<S>,
        results: &mut [StepResult],
    ) {
        let mut now = [0; 2];
        for (bytes, path) in now.iter_mut().zip(world.paths.clone()) {
            *bytes = world.sim().network[path.forward].stats().enqueued_bytes;
        }
        let cheap = world.paths[0].forward;
        let lost = world.sim().network[cheap].stats().dropped_loss;
        if let Some(result) = self.row.take().and_then(|row| results.get_mut(row)) {
            result.path_bytes = [0, 1].map(|path| now[path] - self.before[path]);
            result.lost_packets = lost - self.lost_before;
        }
        self.before = now;
        self.lost_before = lost;
    }
}

/// The bytes of a block, different for each.
pub(super) fn payload(block: u32) -> Bytes {
    blocks::payload(block, BLOCK_BYTES)
}
