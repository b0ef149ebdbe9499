//! Does a reliable stream over several paths use them all, and is it never slower than over the best one alone?

use std::time::Duration;

use starhaul_plot::Column;
use starhaul_units::Bandwidth;

use crate::{
    Error,
    kit::{Part, Records, Study},
    workload::bulk::Bulk,
    worlds::{pipe::Pipe, stack::World},
};

/// Before it is measured.
const WARM_UP: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(8);
/// Of [`GRID`], with `--quick`.
const FEW: usize = 2;

/// Pairs of paths, and how much of the sum of their rates must be used at least.
pub const GRID: [([Pipe; 2], f64); 7] = [
    ([Pipe::new(20, 30, 0.0), Pipe::new(20, 300, 0.0)], 0.9),
    ([Pipe::new(50, 30, 0.0), Pipe::new(10, 600, 0.0)], 0.0),
    ([Pipe::new(50, 30, 0.01), Pipe::new(10, 600, 0.01)], 0.0),
    ([Pipe::new(20, 30, 0.02), Pipe::new(20, 300, 0.0)], 0.0),
    ([Pipe::new(20, 30, 0.0), Pipe::new(20, 300, 0.02)], 0.0),
    ([Pipe::new(5, 50, 0.0), Pipe::new(50, 50, 0.0)], 0.0),
    ([Pipe::new(2, 600, 0.01), Pipe::new(50, 20, 0.0)], 0.0),
];

/// `starhaul lab aggregation`.
pub fn study() -> Study {
    Study::new(
        "aggregation",
        "",
        "one reliable stream over two paths, and over each alone",
        "One stream over two paths",
        "A reliable stream that is always full, in virtual time with the whole stack: what the receiving application reads per second, from \
         4 s to 12 s after the beginning.",
    )
    .part(Part::with_sessions("rows", "", "goodput over both paths and over each alone", columns, setups, |setup: &AggregationSetup, records| {
        Ok(vec![setup.run(records)?])
    }))
}

/// A stream over each of two paths and over both.
#[derive(Clone, Copy, Debug)]
pub struct AggregationSetup {
    /// The two paths.
    pub pipes: [Pipe; 2],
    /// Seed of everything random.
    pub seed: u64,
}

/// The delivered rates.
#[derive(Clone, Copy, Debug)]
pub struct Goodputs {
    setup: AggregationSetup,
    /// Over each path by itself.
    pub alone: [Bandwidth; 2],
    /// Rate over both paths.
    pub both: Bandwidth,
}

impl AggregationSetup {
    /// Runs the transfer.
    ///
    /// # Errors
    /// A session does not come up, or a byte is not the one that was sent.
    pub fn run(&self, records: &Records) -> Result<Goodputs, Error> {
        let over = |pipes: &[Pipe]| goodput(pipes, WARM_UP, MEASURED, self.seed, records);
        let [first, second] = self.pipes;
        Ok(Goodputs {
            setup: *self,
            alone: [over(&[first])?, over(&[second])?],
            both: over(&self.pipes)?,
        })
    }
}

impl Goodputs {
    /// Over both per sum of the paths' rates.
    pub fn of_sum(&self) -> f64 {
        let sum: f64 = self.setup.pipes.iter().map(|pipe| pipe.rate.mbit()).sum();
        self.both.mbit() / sum.max(f64::MIN_POSITIVE)
    }

    /// Over both per better one alone.
    pub fn of_best(&self) -> f64 {
        let best = self.alone[0].max(self.alone[1]);
        self.both.mbit() / best.mbit().max(f64::MIN_POSITIVE)
    }
}

/// The pairs of the grid.
fn setups(quick: bool, seed: u64) -> Vec<AggregationSetup> {
    let count = if quick { FEW } else { GRID.len() };
    let pairs = GRID.into_iter().take(count);
    pairs
        .map(|(pipes, _)| AggregationSetup { pipes, seed })
        .collect()
}

/// The table of such runs.
pub fn columns() -> Vec<Column<Goodputs>> {
    let goodput = |key, name, of: fn(&Goodputs) -> Bandwidth| {
        Column::number(key, name, "Mbit/s", 2, move |row: &Goodputs| {
            of(row).mbit().into()
        })
        .median()
    };
    vec![
        Column::name("first", "path 1", |row: &Goodputs| {
            row.setup.pipes[0].to_string().into()
        }),
        Column::name("second", "path 2", |row: &Goodputs| {
            row.setup.pipes[1].to_string().into()
        }),
        Column::count("seed", "seed", |row: &Goodputs| row.setup.seed.into()).dropped(),
        goodput("first_mbps", "1 alone", |row| row.alone[0]).brief("1"),
        goodput("second_mbps", "2 alone", |row| row.alone[1]).brief("2"),
        goodput("both_mbps", "both", |row| row.both),
        Column::number("of_sum", "of sum", "", 3, |row: &Goodputs| {
            row.of_sum().into()
        })
        .median(),
        Column::number("of_best", "of best", "", 3, |row: &Goodputs| {
            row.of_best().into()
        })
        .median(),
    ]
}

/// What a reliable stream over `pipes` delivers to the receiving application per second, after `warm_up`, for `measured`.
///
/// # Errors
/// The session does not come up, or a byte of the stream is not the one that was sent.
pub fn goodput(
    pipes: &[Pipe],
    warm_up: Duration,
    measured: Duration,
    seed: u64,
    records: &Records,
) -> Result<Bandwidth, Error> {
    let paths = pipes
        .iter()
        .map(Pipe::setup)
        .collect::<Result<Vec<_>, _>>()?;
    let mut world = World::starhaul(seed, &paths, records)?;
    let mut bulk = Bulk::open(&mut world)?;
    world.run(warm_up, |world| bulk.pump(world));
    let before = bulk.received;
    world.run(warm_up + measured, |world| bulk.pump(world));
    if !bulk.intact {
        return Err(Error::Failed(format!(
            "the stream was damaged before byte {}",
            bulk.received
        )));
    }
    Ok(Bandwidth::from_bytes_over(bulk.received - before, measured))
}
