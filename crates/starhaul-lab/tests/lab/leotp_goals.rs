//! The goals of LEOTP at full length: the last column of the table of its design, where "above", "not above" and "better" refer to the
//! published figure. Long: `STARHAUL_CI_LONG=1 .ci/run`.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use starhaul_lab::experiments::leotp::{
    Row, Setup, ablation, bytes, constellation, delay, fairness, hop_loss, sharing, step, switch,
};

/// Of which a goal holds in the median.
const SEEDS: [u64; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
/// Of the orders of table II, whose rows are far more apart than seeds.
const FEW_SEEDS: [u64; 3] = [1, 2, 3];

type Part = fn(bool, u64, &[&'static str]) -> Vec<Setup>;

/// Which set-up of a part.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    Only,
    Loss(f64),
    Each(f64),
    To(&'static str),
}

use Of::{Each, Loss, Only, To};

impl Of {
    fn is(self, setup: &Setup) -> bool {
        match self {
            Only => true,
            Loss(loss) => setup.loss == loss,
            Each(seconds) => setup.switch_s == seconds,
            To(station) => setup.to == station,
        }
    }
}

/// A figure of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    GoodputMbps,
    /// Of what the link carries of payload without a loss.
    OfFullMbps,
    /// Of what the link leaves for payload.
    OfCeiling,
    MeanMs,
    P99Ms,
    LateExtraMs,
    /// What hops asked for that others had lost, of all losses.
    ElsewhereShare,
    SentMb,
    Jain,
}

use Figure::{
    ElsewhereShare, GoodputMbps, Jain, LateExtraMs, MeanMs, OfCeiling, OfFullMbps, P99Ms, SentMb,
};

impl Figure {
    fn of(self, setup: &Setup, row: &Row) -> Option<f64> {
        let goodput = row.goodput_mbps();
        let of_ceiling = row.ceiling_mbps().map(|ceiling| goodput / ceiling);
        match self {
            GoodputMbps => Some(goodput),
            OfFullMbps => Some(of_ceiling? * (1.0 - setup.loss)),
            OfCeiling => of_ceiling,
            MeanMs => row.owd_mean_ms(),
            P99Ms => row.owd_p99_ms(),
            LateExtraMs => row.late_extra_ms(),
            ElsewhereShare => Some(row.asked_elsewhere()? as f64 / row.lost()? as f64),
            SentMb => {
                let sent = u32::try_from(row.sender_bytes()?).ok()?;
                Some(f64::from(sent) * 1e-6)
            }
            Jain => Some(row.jain()),
        }
    }
}

/// What it has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    AtLeast(f64),
    Above(f64),
    AtMost(f64),
    Below(f64),
}

use Bound::{Above, AtLeast, AtMost, Below};

impl Bound {
    fn holds(self, figure: f64) -> bool {
        match self {
            AtLeast(bound) => figure >= bound,
            Above(bound) => figure > bound,
            AtMost(bound) => figure <= bound,
            Below(bound) => figure < bound,
        }
    }
}

/// Payload and headers of 100 MB, in MB: segments of 1418 bytes, with 63 of IPv4, UDP and LEOTP each.
const ONCE_MB: f64 = 100.0 * 1481.0 / 1418.0;

#[rustfmt::skip]
const GOALS: &[(&str, Of, Figure, Bound)] = &[
    // Figure 10: not above.
    ("delay", Loss(0.002), P99Ms, AtMost(88.0)),
    ("delay", Loss(0.01), P99Ms, AtMost(91.0)),
    ("delay", Loss(0.02), P99Ms, AtMost(95.0)),
    // Figure 11: not above, of 100 MB that arrived.
    ("bytes", Loss(0.0), SentMb, AtMost(104.57)),
    ("bytes", Loss(0.004), SentMb, AtMost(104.96)),
    ("bytes", Loss(0.008), SentMb, AtMost(105.41)),
    ("bytes", Loss(0.012), SentMb, AtMost(105.89)),
    ("bytes", Loss(0.016), SentMb, AtMost(106.31)),
    ("bytes", Loss(0.02), SentMb, AtMost(106.70)),
    // Figure 12: 18.5 Mbit/s at 1 %, and 97 % of what the link carries of payload everywhere.
    ("hop-loss", Loss(0.01), GoodputMbps, AtLeast(18.5)),
    ("hop-loss", Loss(0.0), OfFullMbps, AtLeast(0.97)),
    ("hop-loss", Loss(0.0001), OfFullMbps, AtLeast(0.97)),
    ("hop-loss", Loss(0.001), OfFullMbps, AtLeast(0.97)),
    ("hop-loss", Loss(0.002), OfFullMbps, AtLeast(0.97)),
    ("hop-loss", Loss(0.004), OfFullMbps, AtLeast(0.97)),
    ("hop-loss", Loss(0.006), OfFullMbps, AtLeast(0.97)),
    ("hop-loss", Loss(0.008), OfFullMbps, AtLeast(0.97)),
    ("hop-loss", Loss(0.01), OfFullMbps, AtLeast(0.97)),
    // Figure 13: above.
    ("switch", Each(1.0), GoodputMbps, Above(17.3)),
    ("switch", Each(2.0), GoodputMbps, Above(17.6)),
    ("switch", Each(5.0), GoodputMbps, Above(18.1)),
    ("switch", Each(10.0), GoodputMbps, Above(18.6)),
    ("switch", Each(15.0), GoodputMbps, Above(18.5)),
    ("switch", Each(20.0), GoodputMbps, Above(18.5)),
    // Figure 14.
    ("step", Only, GoodputMbps, AtLeast(9.3)),
    ("step", Only, MeanMs, AtMost(115.0)),
    // Figure 15.
    ("fairness", Only, Jain, AtLeast(0.998)),
    // Table II: better in both columns. To New York 7.91 Mbit/s were published, more than the link leaves for payload: 7.90.
    ("constellation", To("Hong Kong"), GoodputMbps, Above(7.82)),
    ("constellation", To("Hong Kong"), MeanMs, Below(49.17)),
    ("constellation", To("Paris"), GoodputMbps, Above(7.70)),
    ("constellation", To("Paris"), MeanMs, Below(76.57)),
    ("constellation", To("New York"), OfCeiling, AtLeast(0.99)),
    ("constellation", To("New York"), MeanMs, Below(118.64)),
    // Not of the table: what the sender sends in all at 2 %, that repairs come 1.5 round trips of a hop later at most, that fewer than one of 100 of some
    // 10 000 losses of each seed are asked for by a hop that did not lose them, and what the link to the source carries of 50 MB for ten requesters.
    ("bytes", Loss(0.02), SentMb, AtMost(1.025 * ONCE_MB)),
    ("delay", Loss(0.002), LateExtraMs, AtMost(30.0)),
    ("delay", Loss(0.01), LateExtraMs, AtMost(30.0)),
    ("delay", Loss(0.02), LateExtraMs, AtMost(30.0)),
    ("delay", Loss(0.02), ElsewhereShare, Below(0.01)),
    ("sharing", Only, SentMb, AtMost(1.1 * 50.0)),
];

static PARTS: [(&str, Part); 8] = [
    ("constellation", constellation),
    ("step", step),
    ("hop-loss", hop_loss),
    ("switch", switch),
    ("delay", delay),
    ("bytes", bytes),
    ("sharing", sharing),
    ("fairness", fairness),
];

/// A run, and the name of its part.
type Made = (&'static str, Setup, Row);

const PANICKED: &str = "no run panicked";

/// Runs all set-ups on all processors; those that take longest come first.
fn run(setups: &[(&'static str, Setup)]) -> Vec<Made> {
    let (next, made) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((part, setup)) = setups.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = Row::of(setup).unwrap_or_else(|error| panic!("{part}: {error}"));
            let run = (*part, setup.clone(), row);
            made.lock().expect(PANICKED).push(run);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    made.into_inner().expect(PANICKED)
}

/// The median, if all seeds have the figure.
fn median(runs: &[Made], seeds: &[u64], (part, of): (&str, Of), figure: Figure) -> Option<f64> {
    let of_goal = runs
        .iter()
        .filter(|(name, setup, _)| *name == part && of.is(setup));
    let figures = of_goal.map(|(_, setup, row)| figure.of(setup, row));
    let mut figures = figures.collect::<Option<Vec<f64>>>()?;
    assert_eq!(figures.len(), seeds.len(), "{part} {of:?}");
    figures.sort_by(f64::total_cmp);
    let (below, above) = ((figures.len() - 1) / 2, figures.len() / 2);
    Some(f64::midpoint(figures[below], figures[above]))
}

#[test]
#[ignore = "it takes an hour on two processors: STARHAUL_CI_LONG=1 .ci/run"]
fn every_goal_of_the_table_holds() {
    let of_part = |(name, part): &(&'static str, Part)| {
        let setups = SEEDS.iter().flat_map(|seed| part(false, *seed, &["leotp"]));
        setups.map(|setup| (*name, setup)).collect::<Vec<_>>()
    };
    let setups: Vec<_> = PARTS.iter().flat_map(of_part).collect();
    let runs = run(&setups);
    let mut missed = Vec::new();
    for &(part, of, figure, bound) in GOALS {
        let median = median(&runs, &SEEDS, (part, of), figure);
        let told = format!("{part} {of:?}: {figure:?} {median:?}, goal {bound:?}");
        println!("{told}");
        if !median.is_some_and(|median| bound.holds(median)) {
            missed.push(told);
        }
    }
    assert!(missed.is_empty(), "seeds {SEEDS:?}: {missed:#?}");
}

/// Each goal has its set-ups, which the long run would tell late.
#[test]
fn each_goal_is_of_a_run_that_is_made() {
    for &(part, of, ..) in GOALS {
        let known = PARTS.iter().find(|(name, _)| *name == part);
        let (_, setups) = known.unwrap_or_else(|| panic!("no part {part}"));
        let setups = setups(false, 1, &["leotp"]);
        let meant = setups.iter().filter(|setup| of.is(setup));
        assert_eq!(meant.count(), 1, "{part} {of:?}");
    }
}

/// Where the paths of table II lead.
const STATIONS: [&str; 3] = ["Hong Kong", "Paris", "New York"];

/// Rows A to D of table II by the published rule, and by ours.
const PUBLISHED_ROWS: [&str; 4] = [
    "leotp-published-untold",
    "leotp-published-no-cache-untold",
    "leotp-published-e2e-control-untold",
    "leotp-published-neither-untold",
];
const OUR_ROWS: [&str; 4] = [
    "leotp",
    "leotp-no-cache",
    "leotp-e2e-control",
    "leotp-neither",
];

/// These rows to a station, in the median of these seeds: Mbit/s and ms.
fn rows_to(
    rows: [&'static str; 4],
    station: &'static str,
    seeds: &[u64],
) -> ([f64; 4], [f64; 4], String) {
    let of_seed = |seed: &u64| ablation(false, *seed, &rows);
    let setups = seeds.iter().flat_map(of_seed);
    let setups = setups.filter(|setup| setup.to == station);
    let setups: Vec<_> = setups.map(|setup| (setup.system, setup)).collect();
    let runs = run(&setups);
    let of = |figure| {
        rows.map(|row| median(&runs, seeds, (row, To(station)), figure).expect("it was measured"))
    };
    let (goodput, delay) = (of(GoodputMbps), of(MeanMs));
    let told = format!("to {station}: {goodput:.2?} Mbit/s, {delay:.1?} ms, seeds {seeds:?}");
    println!("{told}");
    (goodput, delay, told)
}

/// Published are A > B > C > D in throughput and C < D < A < B in delay. Where a path never becomes longer, as in the first half minute to Hong
/// Kong, control from end to end loses nothing by the published rule, so the whole time counts.
#[test]
fn the_published_rule_loses_by_each_means_that_is_left_out() {
    let ([a, b, c, d], [after_a, after_b, after_c, after_d], told) =
        rows_to(PUBLISHED_ROWS, "Hong Kong", &[1]);
    assert!(a > b && b > c.max(d), "{told}");
    assert!(
        after_c < after_d && after_d < after_a && after_a < after_b,
        "{told}"
    );
}

/// To Paris C carries less than D: a path that becomes longer there takes nearly all of its rate. To New York D is later than A.
#[test]
#[ignore = "it takes ten minutes: STARHAUL_CI_LONG=1 .ci/run"]
fn the_published_rule_loses_by_each_means_over_each_path() {
    for station in STATIONS {
        let ([a, b, c, d], [after_a, after_b, after_c, after_d], told) =
            rows_to(PUBLISHED_ROWS, station, &FEW_SEEDS);
        assert!(a > b && b > c.max(d), "{told}");
        assert!(c > d || station == "Paris", "{told}");
        assert!(
            after_c < after_d && after_c < after_a && after_a < after_b,
            "{told}"
        );
    }
}

/// By our rule each means that is left out costs throughput, both cost more than one, and repairs from end to end come latest. That control from end to
/// end costs less than they do is not the published order.
#[test]
#[ignore = "it takes ten minutes: STARHAUL_CI_LONG=1 .ci/run"]
fn our_rule_loses_by_each_means_over_each_path() {
    for station in STATIONS {
        let ([a, b, c, d], [after_a, after_b, after_c, after_d], told) =
            rows_to(OUR_ROWS, station, &FEW_SEEDS);
        assert!(a > b.max(c) && b.min(c) > d, "{told}");
        assert!(
            after_c < after_d && after_c < after_a && after_a < after_b,
            "{told}"
        );
    }
}
