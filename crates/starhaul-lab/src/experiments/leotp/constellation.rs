//! Table II: paths through a constellation that moves, with lossy ground links.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use starhaul_link::{Delay, Opportunities, Rate};
use starhaul_orbit::{End, LEOTP_PAIRS, PathOverTime, leotp_table_2};
use starhaul_units::Bandwidth;

use super::{
    orders::RULES,
    setups::{Setup, moving},
};
use crate::{
    Error,
    worlds::chain::{Flow, Hop, Plan},
};

/// The capacity of a ground link halfway between two handovers, and that of all other links.
const GROUND: Bandwidth = Bandwidth::from_mbit(10);
const OTHER_MBIT: u64 = 20;
const GROUND_LOSS: f64 = 0.01;
const LASER_LOSS: f64 = 0.001;
/// One way between a host and its ground station.
const HOST_DELAY_MS: u64 = 10;
const STEP: Duration = Duration::from_secs(1);

/// A path over time, and what rows call it.
pub(super) type Named = (Cow<'static, str>, PathOverTime);

/// All systems over the three paths.
pub fn constellation(quick: bool, seed: u64, chosen: &[&'static str]) -> Vec<Setup> {
    constellation_over(&[], quick, seed, chosen)
}

/// The same over these paths, if there are any.
pub(super) fn constellation_over(
    paths: &[Named],
    quick: bool,
    seed: u64,
    chosen: &[&'static str],
) -> Vec<Setup> {
    over_paths(paths, quick, seed, &moving(quick, chosen))
}

/// LEOTP whole, without recovery by hops, without control by hops, and without either, by our rule and by the published one, whose order is the
/// one to compare with the published order. The whole alone is compared with nothing, and is in [`constellation`].
pub fn ablation(quick: bool, seed: u64, chosen: &[&'static str]) -> Vec<Setup> {
    ablation_over(&[], quick, seed, chosen)
}

/// The same over these paths, if there are any.
pub(super) fn ablation_over(
    paths: &[Named],
    quick: bool,
    seed: u64,
    chosen: &[&'static str],
) -> Vec<Setup> {
    let systems = RULES.iter().flat_map(|rule| rule.chosen(chosen));
    over_paths(paths, quick, seed, &systems.collect::<Vec<_>>())
}

/// How long a run over a path lasts at most.
pub(super) fn longest(quick: bool) -> Duration {
    Duration::from_secs(if quick { 30 } else { 120 })
}

/// The paths of table II.
fn published(time: Duration) -> Result<Vec<Named>, starhaul_orbit::Error> {
    let pairs: Vec<(usize, usize)> = (1..=LEOTP_PAIRS.len()).map(|far| (0, far)).collect();
    let paths = leotp_table_2()?.paths(&pairs, time, STEP, |_, _| ())?;
    let names = LEOTP_PAIRS.map(|(to, ..)| Cow::Borrowed(to));
    Ok(names.into_iter().zip(paths).collect())
}

fn over_paths(given: &[Named], quick: bool, seed: u64, systems: &[&'static str]) -> Vec<Setup> {
    let Some(first) = systems.first() else {
        return Vec::new();
    };
    let failed = |why: &dyn ToString| Setup::failed(first, seed, &why.to_string());
    let paths = match given {
        [] => published(longest(quick)),
        given => Ok(given.to_vec()),
    };
    let paths = match paths {
        Ok(paths) => paths.into_iter(),
        Err(why) => return vec![failed(&why)],
    };
    let setups = paths.flat_map(|(to, path)| {
        let time = longest(quick).min(path.duration());
        let plan = match plan(&path, time) {
            Ok(plan) => plan,
            Err(why) => return vec![failed(&why)],
        };
        let of = |system: &&'static str| Setup {
            to: to.clone(),
            link_mbps: Some(ground_mbps(&path)),
            ..Setup::new(system, GROUND_LOSS, seed, plan.clone())
        };
        systems.iter().map(of).collect::<Vec<_>>()
    });
    setups.collect()
}

/// What the producer's ground link carries in the mean, in Mbit/s.
fn ground_mbps(path: &PathOverTime) -> f64 {
    let (mut mbit, mut all) = (0.0, 0.0);
    for (time, rate) in path.gsl_capacity(End::From, GROUND) {
        mbit += rate.mbit() * time.as_secs_f64();
        all += time.as_secs_f64();
    }
    if all > 0.0 { mbit / all } else { 0.0 }
}

/// The hosts are nodes 0, the producer, and 1. Behind each is a ground station, and between those are satellites.
fn plan(path: &PathOverTime, time: Duration) -> Result<Plan, Error> {
    let failed = |error: String| Error::Failed(error);
    let over_time = path.hops();
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let [producer, consumer] = [path.from(), path.to()];
    for name in [producer, consumer]
        .into_iter()
        .chain(over_time.hops.iter().flat_map(|hop| [&*hop.from, &*hop.to]))
    {
        let next = 2 + numbers.len();
        numbers.entry(name).or_insert(next);
    }
    let (first, last) = (numbers[producer], numbers[consumer]);
    let rates = Opportunities::from_rates(path.gsl_capacity(End::From, GROUND));
    let rates = Rate::Trace(Arc::new(rates.map_err(|error| failed(error.to_string()))?));
    let host = Hop::new(OTHER_MBIT, HOST_DELAY_MS, 0.0);
    let mut hops = BTreeMap::from([((0, first), host.clone()), ((last, 1), host)]);
    for hop in &over_time.hops {
        let ends = (numbers[&*hop.from], numbers[&*hop.to]);
        let is_ground = ends.0 == first || ends.1 == last;
        let loss = if is_ground { GROUND_LOSS } else { LASER_LOSS };
        let mut link = Hop::new(OTHER_MBIT, 0, loss);
        link.delay = Delay::Trace(Arc::new(hop.delay.clone()));
        if ends.0 == first {
            link.rate = rates.clone();
        }
        hops.insert(ends, link);
    }
    let nodes = |route: &Vec<usize>| {
        let between = route.iter().filter_map(|hop| over_time.hops.get(*hop));
        let between = between.map(|hop| numbers[&*hop.to]);
        [0, first].into_iter().chain(between).chain([1]).collect()
    };
    let connected = over_time
        .routes
        .iter()
        .filter(|(_, route)| !route.is_empty());
    let flow = Flow {
        content: 1,
        start: Duration::ZERO,
        path: connected.map(|(at, route)| (*at, nodes(route))).collect(),
    };
    Ok(Plan {
        hops,
        flows: vec![flow],
        bytes: None,
        time,
    })
}
