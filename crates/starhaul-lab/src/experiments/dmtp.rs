//! DMTP fig. 5–9: blocks of 24 kB with a deadline of 200 ms over two paths of 15 Mbit/s and 60 ms one way, of which the
//! cheap one loses more and more.

use std::time::Duration;

use bytes::Bytes;
use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_link::{LinkSpec, Loss};
use starhaul_paths::optimizer::{Demand, OfferedPath, Problem, Protection, optimize};
use starhaul_plot::Column;
use starhaul_session::{BlockOptions, Event, Mode, Outcome, SchedulerChoice, StreamConfig};
use starhaul_units::Bandwidth;

use crate::{
    Error,
    kit::{Part, Plot, Records, Study},
    worlds::stack::{HostSettings, PathSetup, Starhaul, World},
};

/// Loss of the cheap path in each step.
pub const LOSS_STEPS: [f64; 8] = [0.0, 0.0001, 0.0005, 0.005, 0.01, 0.02, 0.05, 0.1];
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 24_000;
/// Blocks of a step of 5 s.
pub const BLOCKS_PER_STEP: u32 = 250;

const RATE: Bandwidth = Bandwidth::from_mbit(15);
const ONE_WAY: Duration = Duration::from_millis(60);
const DEADLINE: Duration = Duration::from_millis(200);
const INTERVAL: Duration = Duration::from_millis(20);
/// Cheap and dear, price per byte.
const COSTS: [f64; 2] = [1.0, 3.0];

/// The protections that the paper compares.
pub const MODES: [Mode; 4] = [Mode::None, Mode::Retransmit, Mode::Fec, Mode::FecRetransmit];

/// `starhaul lab dmtp`.
pub fn study() -> Study {
    let on_time = Plot {
        title: "Blocks on time",
        x: ("loss", "loss of the cheap path, %"),
        log_from: Some(0.01),
        y: ("on_time_share", "%"),
        by: &["mode", "scheduler"],
    };
    let dear = Plot {
        title: "Bytes over the dear path",
        y: ("dear_mb", "MB in 5 s"),
        ..on_time.clone()
    };
    Study::new(
        "dmtp",
        "DMTP fig. 5–9",
        "blocks with a deadline over a path that loses more and more",
        "Blocks with a deadline over a lossy path",
        "Blocks of 24 kB each 20 ms, due within 200 ms, over two paths of 15 Mbit/s and 60 ms one way, in virtual time with the whole stack. \
         The cheap path loses more of its packets each 5 s.",
    )
    .part(
        Part::with_sessions(
            "both",
            "DMTP fig. 7",
            "the cheap path with the dear one beside it",
            columns,
            |quick, seed| setups(quick, seed, true),
            rows,
        )
        .plot(on_time.clone())
        .plot(dear),
    )
    .part(
        Part::with_sessions(
            "cheap",
            "DMTP fig. 5–9",
            "the cheap path alone",
            columns,
            |quick, seed| setups(quick, seed, false),
            rows,
        )
        .plot(on_time),
    )
}

/// A step of a run.
type Row = (DmtpSetup, f64, StepResult);

fn setups(quick: bool, seed: u64, both_paths: bool) -> Vec<DmtpSetup> {
    let modes = MODES
        .into_iter()
        .filter(|mode| !quick || *mode != Mode::Fec);
    let setup = |mode, scheduler| DmtpSetup {
        mode,
        scheduler,
        both_paths,
        seed,
    };
    // One path leaves nothing to choose, and without protection there is nothing to plan.
    let planned = modes
        .clone()
        .filter(|mode| both_paths && *mode != Mode::None);
    let planned = planned.map(|mode| setup(mode, SchedulerChoice::Optimizer));
    let by_rules = modes.map(|mode| setup(mode, SchedulerChoice::Rules));
    by_rules.chain(planned).collect()
}

fn rows(setup: &DmtpSetup, records: &Records) -> Result<Vec<Row>, Error> {
    let steps = LOSS_STEPS.into_iter().zip(setup.run(records)?);
    Ok(steps.map(|(loss, step)| (*setup, loss, step)).collect())
}

fn columns() -> Vec<Column<Row>> {
    let count = |key, name, of: fn(&StepResult) -> u32| {
        Column::count(key, name, move |row: &Row| of(&row.2).into()).median()
    };
    let megabytes = |key, name, path: usize| {
        Column::number(key, name, "MB", 2, move |row: &Row| {
            (f64::from(u32::try_from(row.2.path_bytes[path]).unwrap_or(u32::MAX)) / 1e6).into()
        })
        .median()
    };
    vec![
        Column::name("mode", "mode", |row: &Row| row.0.mode.name().into()),
        Column::name("scheduler", "scheduler", |row: &Row| {
            row.0.scheduler.name().into()
        }),
        Column::count("seed", "seed", |row: &Row| row.0.seed.into()).dropped(),
        Column::share("loss", "loss", 2, |row: &Row| row.1.into()),
        count("sent", "sent", |step| step.sent),
        count("on_time", "on time", |step| step.on_time),
        Column::share("on_time_share", "on time", 1, |row: &Row| {
            (f64::from(row.2.on_time) / f64::from(row.2.sent.max(1))).into()
        })
        .median(),
        count("rebuilt", "rebuilt", |step| step.recovered_by_redundancy),
        count("retransmitted", "retransmitted", |step| {
            step.recovered_by_retransmission
        })
        .brief("resent"),
        megabytes("cheap_mb", "cheap", 0),
        megabytes("dear_mb", "dear", 1),
        Column::number("dear_data_mb", "data", "MB", 2, |row: &Row| {
            (f64::from(u32::try_from(row.2.dear_datagram_bytes).unwrap_or(u32::MAX)) / 1e6).into()
        })
        .median(),
        Column::number("dear_needed_mb", "needed", "MB", 2, |row: &Row| {
            (needed_bytes(row.1) / 1e6).into()
        })
        .median(),
    ]
}

/// Bytes of data that the least costly plan of the greatest quality puts on the dear path in a step, as the linear program has it: with the
/// true figures of both paths, and without headers.
pub fn needed_bytes(loss: f64) -> f64 {
    let path = |loss, cost| OfferedPath {
        bandwidth: RATE,
        delay: ONE_WAY,
        loss,
        cost,
        loss_known_after: None,
    };
    let demand = Demand {
        rate: Bandwidth::from_bytes_over(BLOCK_BYTES as u64, INTERVAL),
        lifetime: DEADLINE,
        priority: 0,
        protection: Protection::RETRANSMISSION,
        negligible_loss: 0.0,
    };
    let problem = Problem {
        paths: &[path(loss, COSTS[0]), path(0.0, COSTS[1])],
        demands: &[demand],
        budget: None,
    };
    let step = INTERVAL * BLOCKS_PER_STEP;
    // The figures are constants that the solver takes; a failure shows as no number.
    optimize(&problem).map_or(f64::NAN, |plan| plan.loads[1] / 8.0 * step.as_secs_f64())
}

/// One run through all steps.
#[derive(Clone, Copy, Debug)]
pub struct DmtpSetup {
    /// How the blocks are protected.
    pub mode: Mode,
    /// Who chooses the paths.
    pub scheduler: SchedulerChoice,
    /// With the dear path beside the cheap one.
    pub both_paths: bool,
    /// Seed of everything random.
    pub seed: u64,
}

/// What became of the blocks of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepResult {
    /// Blocks sent.
    pub sent: u32,
    /// Arrived within the deadline, as the receiver saw it.
    pub on_time: u32,
    /// Of the blocks that the sender counts as delivered: rebuilt from redundancy.
    pub recovered_by_redundancy: u32,
    /// Of the same: with retransmitted fragments.
    pub recovered_by_retransmission: u32,
    /// Bytes given to each path, headers and the transport's acknowledgements included.
    pub path_bytes: [u64; 2],
    /// Bytes of the session's datagrams on the dear path: data, redundancy, retransmissions, probes.
    pub dear_datagram_bytes: u64,
}

impl DmtpSetup {
    /// Runs all steps; one result for each of [`LOSS_STEPS`].
    pub fn run(&self, records: &Records) -> Result<Vec<StepResult>, Error> {
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
        let mut steps = vec![StepResult::default(); LOSS_STEPS.len()];
        let total = BLOCKS_PER_STEP * u32::try_from(LOSS_STEPS.len()).unwrap_or(u32::MAX);
        let mut sent = 0;
        let mut carried = [0; 3];
        world.run(INTERVAL * total + Duration::from_secs(2), |world| {
            let (now, elapsed) = (world.now(), world.elapsed());
            while sent < total && INTERVAL * sent <= elapsed {
                if sent % BLOCKS_PER_STEP == 0 {
                    carried = begin_step(
                        world,
                        &mut steps,
                        (sent / BLOCKS_PER_STEP) as usize,
                        carried,
                    );
                }
                if let Some(session) = world.sender().session() {
                    // A refused block counts as sent and never arrives.
                    let _ = session.send_block(now, stream, payload(sent), BlockOptions::default());
                }
                steps[step_of(sent)].sent += 1;
                sent += 1;
            }
            for event in world.receiver().events() {
                if let Event::BlockReceived { block, data, .. } = event {
                    let in_time = elapsed <= INTERVAL * block.0 + DEADLINE;
                    let step = &mut steps[step_of(block.0.min(total - 1))];
                    step.on_time += u32::from(in_time && data == payload(block.0));
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
                {
                    let step = &mut steps[step_of(block.0.min(total - 1))];
                    step.recovered_by_redundancy += u32::from(recovered_by_redundancy);
                    step.recovered_by_retransmission += u32::from(recovered_by_retransmission);
                }
            }
            (sent < total).then(|| INTERVAL * sent)
        });
        end_step(&mut world, steps.last_mut(), carried);
        Ok(steps)
    }

    fn paths(&self) -> Vec<PathSetup> {
        let link = LinkSpec::constant(RATE, ONE_WAY);
        let path = |cost| PathSetup {
            forward: link.clone(),
            backward: link.clone(),
            cost,
            controller: ControllerConfig::Dedicated(RateFeed::new(RATE)),
        };
        COSTS[..if self.both_paths { 2 } else { 1 }]
            .iter()
            .map(|cost| path(*cost))
            .collect()
    }
}

fn step_of(block: u32) -> usize {
    (block / BLOCKS_PER_STEP) as usize
}

/// Sets the cheap path's loss and closes the bytes of the step before.
fn begin_step(
    world: &mut World<Starhaul>,
    steps: &mut [StepResult],
    step: usize,
    carried: [u64; 3],
) -> [u64; 3] {
    let carried = match step.checked_sub(1) {
        Some(before) => end_step(world, steps.get_mut(before), carried),
        None => enqueued(world),
    };
    let loss = LOSS_STEPS
        .get(step)
        .and_then(|loss| Loss::bernoulli(*loss).ok())
        .unwrap_or(Loss::NONE);
    let (now, cheap) = (world.now(), world.paths[0]);
    for link in [cheap.forward, cheap.backward] {
        world.sim().network[link].set_loss(now, loss);
    }
    carried
}

fn end_step(
    world: &mut World<Starhaul>,
    step: Option<&mut StepResult>,
    before: [u64; 3],
) -> [u64; 3] {
    let carried = enqueued(world);
    if let Some(step) = step {
        step.path_bytes = [0, 1].map(|path| carried[path] - before[path]);
        step.dear_datagram_bytes = carried[2] - before[2];
    }
    carried
}

/// Bytes so far: of packets over each path, of the session's datagrams over the dear one.
fn enqueued(world: &mut World<Starhaul>) -> [u64; 3] {
    let mut bytes = [0; 3];
    for (bytes, path) in bytes.iter_mut().zip(world.paths.clone()) {
        *bytes = world.sim().network[path.forward].stats().enqueued_bytes;
    }
    let paths = world.sender().session().map(|session| session.path_stats());
    let dear = paths.unwrap_or_default().into_iter().nth(1);
    bytes[2] = dear.map_or(0, |dear| dear.bytes_sent);
    bytes
}

/// The bytes of a block, different for each.
fn payload(block: u32) -> Bytes {
    block.to_be_bytes().repeat(BLOCK_BYTES / 4).into()
}
