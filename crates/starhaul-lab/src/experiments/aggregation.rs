//! Does a reliable stream over several paths use them all, and is it never slower than over the best one alone?

use std::time::Duration;

use starhaul_plot::{Bound, Column};
use starhaul_quic::MOST_PACKET_BYTES;
use starhaul_sim::MTU_BYTES;
use starhaul_units::Bandwidth;

use crate::{
    Error,
    kit::{Part, Records, Study, Target},
    workload::bulk::Bulk,
    worlds::{
        pipe::Pipe,
        stack::{HostSettings, World},
    },
};

/// Before it is measured: a window over 200 Mbit/s and 600 ms takes its time to open.
const WARM_UP: Duration = Duration::from_secs(15);
const MEASURED: Duration = Duration::from_secs(20);
/// The first set-ups of [`GRID`] that run with `--quick`.
const FEW: usize = 2;
/// Of a packet of [`MTU_BYTES`]: IPv4 and UDP 28, QUIC with a DATAGRAM frame 30, the session's own 22.
const HEADER_BYTES: f64 = 80.0;
/// Random losses of all paths.
const LOSSES: [f64; 3] = [0.0, 0.01, 0.03];
/// RTTs of two paths alike, in ms, and of three.
const PAIRS: [[u64; 2]; 3] = [[30, 300], [30, 600], [300, 600]];
const ORDERS: [[u64; 3]; 6] = [
    [30, 300, 600],
    [30, 600, 300],
    [300, 30, 600],
    [300, 600, 30],
    [600, 30, 300],
    [600, 300, 30],
];

/// Paths, and how much of the sum of their rates must be used at least.
pub const GRID: [(&[Pipe], f64); 7] = [
    (&[Pipe::new(20, 30, 0.0), Pipe::new(20, 300, 0.0)], 0.9),
    (&[Pipe::new(50, 30, 0.0), Pipe::new(10, 600, 0.0)], 0.9),
    (&[Pipe::new(50, 30, 0.01), Pipe::new(10, 600, 0.01)], 0.85),
    (&[Pipe::new(20, 30, 0.02), Pipe::new(20, 300, 0.0)], 0.0),
    (&[Pipe::new(20, 30, 0.0), Pipe::new(20, 300, 0.02)], 0.0),
    (&[Pipe::new(5, 50, 0.0), Pipe::new(50, 50, 0.0)], 0.0),
    (&[Pipe::new(2, 600, 0.01), Pipe::new(50, 20, 0.0)], 0.0),
];

/// `starhaul lab aggregation`.
pub fn study() -> Study {
    Study::new(
        "aggregation",
        "",
        "one reliable stream over two or three paths, and over each alone",
        "One stream over several paths",
        "A reliable stream that is always full, in virtual time with the whole stack: what the receiving application reads per second, from \
         15 s to 35 s after the beginning, without what had arrived before and waited. The ceiling is what packets of 1500 bytes carry of the stream at the rates of the links, less those that are lost. \
         As a share of the sum of the rates it is possible: the most that of_sum can be, 0.947 without loss, since headers take 80 of 1500 bytes.",
    )
    .part(
        Part::with_unlike_sessions(
            ("rows", "", "goodput over all paths and over each alone"),
            columns,
            (setups, AggregationSetup::rates_mbit),
            |setup: &AggregationSetup, records| Ok(vec![setup.run(records)?]),
        )
        .target(OF_BEST)
        .target(OF_ALL_ALONE)
        .target(OF_CEILING),
    )
}

/// One more path never makes it slower.
const OF_BEST: Target = Target {
    of: &["first", "second", "third"],
    by: "together_mbps",
    figure: "of_best",
    bound: |_, _| Some(Bound::AtLeast(0.97)),
    together: false,
};

/// All together carry what each carries alone.
const OF_ALL_ALONE: Target = Target {
    figure: "of_all_alone",
    bound: |_, _| Some(Bound::AtLeast(0.95)),
    ..OF_BEST
};

/// Where nothing is lost they carry that much of what full packets carry at the links' rates, too, however little each carries alone.
const OF_CEILING: Target = Target {
    figure: "of_ceiling",
    bound: |_, row| (row.of("loss")? == 0.0).then_some(Bound::AtLeast(0.95)),
    ..OF_BEST
};

/// A stream over each of some paths and over all.
#[derive(Clone, Debug)]
pub struct AggregationSetup {
    /// The paths of the session.
    pub pipes: Vec<Pipe>,
    /// Seed of everything random.
    pub seed: u64,
}

/// The delivered rates.
#[derive(Clone, Debug)]
pub struct Goodputs {
    setup: AggregationSetup,
    /// Over each path by itself.
    pub alone: Vec<Bandwidth>,
    /// Over all paths.
    pub together: Bandwidth,
}

impl AggregationSetup {
    /// Runs the transfer.
    ///
    /// # Errors
    /// A session does not come up, or a byte is not the one that was sent.
    pub fn run(&self, records: &Records) -> Result<Goodputs, Error> {
        let over = |pipes: &[Pipe]| goodput(pipes, WARM_UP, MEASURED, self.seed, records);
        let alone = self.pipes.iter().map(|pipe| over(&[*pipe]));
        Ok(Goodputs {
            alone: alone.collect::<Result<_, _>>()?,
            together: over(&self.pipes)?,
            setup: self.clone(),
        })
    }

    /// The sum of the links' rates, to which the work of a run is proportional.
    fn rates_mbit(&self) -> f64 {
        self.pipes.iter().map(|pipe| pipe.rate.mbit()).sum()
    }
}

impl Goodputs {
    /// Over all paths, per sum of their rates.
    pub fn of_sum(&self) -> f64 {
        self.together.mbit() / self.setup.rates_mbit().max(f64::MIN_POSITIVE)
    }

    /// The most that [`Self::of_sum`] can be: the ceiling per sum of the paths' rates.
    pub fn possible(&self) -> f64 {
        self.ceiling_mbit() / self.setup.rates_mbit().max(f64::MIN_POSITIVE)
    }

    /// Over all paths, per what full packets at their rates carry of the stream, less those that are lost.
    pub fn of_ceiling(&self) -> f64 {
        self.together.mbit() / self.ceiling_mbit().max(f64::MIN_POSITIVE)
    }

    fn ceiling_mbit(&self) -> f64 {
        let kept = |pipe: &Pipe| pipe.rate.mbit() * (1.0 - pipe.loss);
        let kept: f64 = self.setup.pipes.iter().map(kept).sum();
        kept * (1.0 - HEADER_BYTES / MTU_BYTES as f64)
    }

    /// Over all paths, per sum of what each carries alone; `None` if one carries nothing, of which any share would be great.
    pub fn of_all_alone(&self) -> Option<f64> {
        let all: f64 = self.alone.iter().map(|alone| alone.mbit()).sum();
        self.carries_alone().then(|| self.together.mbit() / all)
    }

    /// Over all paths, per best one alone; `None` as there.
    pub fn of_best(&self) -> Option<f64> {
        let best = self.alone.iter().copied().max().unwrap_or_default();
        let of_best = || self.together.mbit() / best.mbit();
        self.carries_alone().then(of_best)
    }

    /// Whether each path by itself carries something.
    fn carries_alone(&self) -> bool {
        self.alone.iter().all(|alone| *alone > Bandwidth::ZERO)
    }

    /// The greatest of the paths' losses.
    fn loss(&self) -> f64 {
        let losses = self.setup.pipes.iter().map(|pipe| pipe.loss);
        losses.fold(0.0, f64::max)
    }
}

/// Two like paths, a fast and a slow one, and three, with round trips in every order and each loss; and what else is in [`GRID`].
pub fn setups(quick: bool, seed: u64) -> Vec<AggregationSetup> {
    let setup = |pipes: Vec<Pipe>| AggregationSetup { pipes, seed };
    let few = GRID.iter().map(|(pipes, _)| setup(pipes.to_vec()));
    if quick {
        return few.take(FEW).collect();
    }
    let mut all = Vec::new();
    for loss in LOSSES {
        let of = |rates: &[u64], trips: &[u64]| {
            let both = rates.iter().zip(trips);
            let pipes = both.map(|(rate, rtt)| Pipe::new(*rate, *rtt, loss));
            setup(pipes.collect())
        };
        all.extend(PAIRS.iter().map(|trips| of(&[20, 20], trips)));
        for [first, second] in PAIRS {
            all.extend([[first, second], [second, first]].map(|trips| of(&[50, 10], &trips)));
        }
        all.extend(ORDERS.iter().map(|trips| of(&[200, 50, 10], trips)));
    }
    let others = few.filter(|few| !all.iter().any(|one| one.pipes == few.pipes));
    let others: Vec<_> = others.collect();
    all.extend(others);
    all
}

/// The table of such runs.
pub fn columns() -> Vec<Column<Goodputs>> {
    let goodput = |key, name, of: fn(&Goodputs) -> Bandwidth| {
        Column::number(key, name, "Mbit/s", 2, move |row: &Goodputs| {
            of(row).mbit().into()
        })
        .median()
    };
    let pipe = |key, name, at: usize| {
        Column::name(key, name, move |row: &Goodputs| {
            let pipe = row.setup.pipes.get(at);
            pipe.map_or_else(String::new, Pipe::to_string).into()
        })
    };
    vec![
        pipe("first", "path 1", 0),
        pipe("second", "path 2", 1),
        pipe("third", "path 3", 2),
        Column::share("loss", "loss", 0, |row: &Goodputs| row.loss().into()).median(),
        Column::count("seed", "seed", |row: &Goodputs| row.setup.seed.into()).dropped(),
        goodput("best_mbps", "best alone", |row| {
            row.alone.iter().copied().max().unwrap_or_default()
        })
        .brief("best"),
        goodput("together_mbps", "together", |row| row.together),
        Column::number("of_sum", "of sum", "", 3, |row: &Goodputs| {
            row.of_sum().into()
        })
        .median(),
        Column::number("possible", "possible", "", 3, |row: &Goodputs| {
            row.possible().into()
        })
        .median(),
        Column::number("of_ceiling", "of ceiling", "", 3, |row: &Goodputs| {
            row.of_ceiling().into()
        })
        .median(),
        Column::number("of_all_alone", "of all alone", "", 3, |row: &Goodputs| {
            row.of_all_alone().into()
        })
        .brief("of alone")
        .median(),
        Column::number("of_best", "of best", "", 3, |row: &Goodputs| {
            row.of_best().into()
        })
        .median(),
    ]
}

/// What a reliable stream over `pipes` delivers to the receiving application per second, after `warm_up`, for `measured`: the lesser of
/// what is read in that time and of what arrives in it, for what came before and waited for one lost packet would be read as well.
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
    let settings = HostSettings {
        packet_bytes: MOST_PACKET_BYTES,
        records: records.clone(),
        ..HostSettings::default()
    };
    let mut world = World::starhaul_with(seed, &paths, &[], &settings)?;
    let mut bulk = Bulk::open(&mut world)?;
    world.run(warm_up, |world| bulk.pump(world));
    let (before, waited) = (bulk.received, bulk.waiting_bytes(&mut world));
    world.run(warm_up + measured, |world| bulk.pump(world));
    let read = bulk.received - before;
    let arrived = (read + bulk.waiting_bytes(&mut world)).saturating_sub(waited);
    if !bulk.intact {
        return Err(Error::Failed(format!(
            "the stream was damaged before byte {}",
            bulk.received
        )));
    }
    Ok(Bandwidth::from_bytes_over(read.min(arrived), measured))
}
