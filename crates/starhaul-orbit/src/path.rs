//! A path between two stations over time, and what others need of it: links for one emulated direction, hops and routes
//! for the simulator, handovers, and the capacity of a ground link.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use starhaul_link::{Delay, DelaySeries, LinkSpec, LossSeries, Opportunities, Rate};
use starhaul_units::Bandwidth;

use crate::{Epoch, Error, Figures, capacity::gsl_rate, figures::accesses, setting};

/// Most steps of a path.
pub const MAX_STEPS: u32 = 86_400;
/// The longest step of a path.
pub const MAX_STEP: Duration = Duration::from_secs(86_400);

/// An end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The station that it goes from.
    From,
    /// The station that it goes to.
    To,
}

/// The shortest path between two ground stations, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathOverTime {
    pub(crate) start: Epoch,
    pub(crate) step: Duration,
    /// The two stations, then the other nodes in the order in which the path first meets them.
    pub(crate) nodes: Vec<String>,
    pub(crate) steps: Vec<Step>,
}

/// A path during one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Indices of [`PathOverTime::node`], both stations included; empty without a path.
    pub(crate) nodes: Vec<u32>,
    pub(crate) delays: Vec<Duration>,
}

/// A hop of a path, in the direction of the path.
#[derive(Clone, Debug, PartialEq)]
pub struct Hop {
    /// The node that it leaves.
    pub from: String,
    /// The node that it reaches.
    pub to: String,
    /// Its propagation; where the path does not use it, that of its last use, before the first that of the first.
    pub delay: DelaySeries,
}

/// A path as links and routes over them.
#[derive(Clone, Debug, PartialEq)]
pub struct Hops {
    /// All hops that the path ever uses.
    pub hops: Vec<Hop>,
    /// From which offset on the path uses which hops, one after the other, as indices of `hops`; none while there is no
    /// path.
    pub routes: Vec<(Duration, Vec<usize>)>,
}

impl Step {
    /// Whether there is a path.
    pub fn is_connected(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Its nodes as indices of [`PathOverTime::node`], both stations included; none without a path.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// Number of links, those to the ground included.
    pub fn links(&self) -> usize {
        self.delays.len()
    }

    /// Time that light takes over all links.
    pub fn propagation(&self) -> Duration {
        self.delays.iter().sum()
    }

    /// Each hop: its nodes as indices of [`PathOverTime::node`], and the propagation over it.
    pub fn hops(&self) -> impl Iterator<Item = (u32, u32, Duration)> {
        let next = self.nodes.iter().skip(1);
        let pairs = self.nodes.iter().zip(next).zip(&self.delays);
        pairs.map(|((from, to), delay)| (*from, *to, *delay))
    }

    /// The satellite that the station at this end uses.
    fn access(&self, end: End) -> Option<u32> {
        let (first, last) = accesses(&self.nodes)?;
        Some(match end {
            End::From => first,
            End::To => last,
        })
    }
}

impl PathOverTime {
    pub(crate) fn new(from: &str, to: &str, start: Epoch, step: Duration) -> Self {
        Self {
            start,
            step,
            nodes: vec![from.to_owned(), to.to_owned()],
            steps: Vec::new(),
        }
    }

    pub(crate) fn add_node(&mut self, name: &str) -> u32 {
        self.nodes.push(name.to_owned());
        u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn push(&mut self, nodes: Vec<u32>, delays: Vec<Duration>) {
        self.steps.push(Step { nodes, delays });
    }

    /// The station that the path goes from.
    pub fn from(&self) -> &str {
        self.node(0)
    }

    /// The station that the path goes to.
    pub fn to(&self) -> &str {
        self.node(1)
    }

    /// The name of a node: 0 and 1 are the stations at the ends; empty for none.
    pub fn node(&self, node: u32) -> &str {
        self.nodes.get(node as usize).map_or("", String::as_str)
    }

    /// When the first step begins.
    pub fn start(&self) -> Epoch {
        self.start
    }

    /// How long each step lasts.
    pub fn step(&self) -> Duration {
        self.step
    }

    /// How long the path lasts.
    pub fn duration(&self) -> Duration {
        self.offset(self.steps.len())
    }

    /// The steps with their offsets from the start.
    pub fn steps(&self) -> impl Iterator<Item = (Duration, &Step)> {
        let offset = |number| self.offset(number);
        (0..).map(offset).zip(&self.steps)
    }

    /// Sums the path up.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        for step in &self.steps {
            figures.add(&step.nodes, step.propagation());
        }
        figures
    }

    /// When the satellite that the station at `end` uses becomes another one: at these offsets, without the start. A loss
    /// of the path and its return count too.
    pub fn handovers(&self, end: End) -> Vec<Duration> {
        self.changes_of(|step| step.access(end))
    }

    /// When the path becomes another one: at these offsets, without the start.
    pub fn changes(&self) -> Vec<Duration> {
        self.changes_of(|step| step.nodes.clone())
    }

    /// Capacity of the link between the station at `end` and its satellite over time by [`gsl_rate`], with the time that
    /// each rate holds: that of the middle of each step, 0 without a path. The path's own start and end count as
    /// handovers.
    pub fn gsl_capacity(&self, end: End, base: Bandwidth) -> Vec<(Duration, Bandwidth)> {
        let whole = [Duration::ZERO, self.duration()];
        let mut bounds = self.handovers(end);
        bounds.extend(whole);
        bounds.sort_unstable();
        let capacity = |(at, step): (Duration, &Step)| {
            let middle = at + self.step / 2;
            let next = bounds.partition_point(|bound| *bound <= middle);
            let between = bounds.get(next.saturating_sub(1)).zip(bounds.get(next));
            let rate = match between {
                Some((from, to)) if step.is_connected() => gsl_rate(base, *from, *to, middle),
                _ => Bandwidth::ZERO,
            };
            (self.step, rate)
        };
        self.steps().map(capacity).collect()
    }

    /// [`PathOverTime::gsl_capacity`] as the rate of a link, which is half of `base` while there is no path: a link loses a
    /// packet when that has left it, and without a rate those of a gap would wait for its end.
    pub(crate) fn link_capacity(&self, end: End, base: Bandwidth) -> Vec<(Duration, Bandwidth)> {
        let mut rates = self.gsl_capacity(end, base);
        for ((_, rate), step) in rates.iter_mut().zip(&self.steps) {
            if !step.is_connected() {
                *rate = base.scaled(0.5);
            }
        }
        rates
    }

    /// The whole path as one direction of a link: its propagation as delay over time, and loss of all packets while there
    /// is no path. With `capacity`, the rate is that of the ground link at one end by [`PathOverTime::gsl_capacity`], and
    /// half of the base while there is no path; otherwise it has no limit.
    ///
    /// # Errors
    /// [`Error::Setting`] for a capacity that makes no trace: too slow for one packet, or too long a path.
    pub fn link(&self, capacity: Option<(End, Bandwidth)>) -> Result<LinkSpec, Error> {
        let mut spec = LinkSpec::default();
        let delays = self.held_delays().map(|delay| (self.step, delay));
        if let Some(delay) = DelaySeries::from_steps(delays) {
            spec.delay = Delay::Trace(Arc::new(delay));
        }
        let lost = |step: &Step| if step.is_connected() { 0.0 } else { 1.0 };
        let loss = self.steps.iter().map(|step| (self.step, lost(step)));
        if self.steps.iter().any(|step| !step.is_connected()) {
            spec.loss_trace = LossSeries::from_steps(loss).map(Arc::new);
        }
        if let Some((end, base)) = capacity {
            let rates = Opportunities::from_rates(self.link_capacity(end, base));
            let rates = rates.map_err(|why| setting("rate", base, why))?;
            spec.rate = Rate::Trace(Arc::new(rates));
        }
        Ok(spec)
    }

    /// The path as links of their own and routes over them, for `starhaul_sim::Network`: `add_link` for each hop,
    /// `set_route_at` for each route.
    pub fn hops(&self) -> Hops {
        let mut numbers: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        // Of each hop: when its delay becomes another one.
        let mut delays: Vec<Vec<(Duration, Duration)>> = Vec::new();
        let mut routes: Vec<(Duration, Vec<usize>)> = Vec::new();
        for (at, step) in self.steps() {
            let route = step.hops().map(|(from, to, delay)| {
                let number = *numbers.entry((from, to)).or_insert(delays.len());
                match delays.get_mut(number) {
                    Some(known) => known.push((at, delay)),
                    None => delays.push(vec![(Duration::ZERO, delay)]),
                }
                number
            });
            let route: Vec<usize> = route.collect();
            if routes.last().is_none_or(|(_, last)| *last != route) {
                routes.push((at, route));
            }
        }
        let mut ends: Vec<(usize, (u32, u32))> =
            numbers.into_iter().map(|(ends, n)| (n, ends)).collect();
        ends.sort_unstable();
        let hops = ends
            .into_iter()
            .zip(delays)
            .filter_map(|((_, (from, to)), delays)| {
                let until = delays
                    .iter()
                    .skip(1)
                    .map(|(at, _)| *at)
                    .chain([self.duration()]);
                let steps = delays
                    .iter()
                    .zip(until)
                    .map(|((at, delay), until)| (until - *at, *delay));
                Some(Hop {
                    from: self.node(from).to_owned(),
                    to: self.node(to).to_owned(),
                    delay: DelaySeries::from_steps(steps)?,
                })
            });
        Hops {
            hops: hops.collect(),
            routes,
        }
    }

    /// The propagation at each step; without a path that of the step before, at the start that of the first path.
    pub(crate) fn held_delays(&self) -> impl Iterator<Item = Duration> {
        let first = self.steps.iter().find(|step| step.is_connected());
        let first = first.map(Step::propagation).unwrap_or_default();
        self.steps.iter().scan(first, |held, step| {
            if step.is_connected() {
                *held = step.propagation();
            }
            Some(*held)
        })
    }

    fn offset(&self, steps: usize) -> Duration {
        self.step * u32::try_from(steps).unwrap_or(u32::MAX)
    }

    fn changes_of<T: PartialEq>(&self, what: impl Fn(&Step) -> T) -> Vec<Duration> {
        let mut changes = Vec::new();
        let mut last = None;
        for (at, step) in self.steps() {
            let now = what(step);
            if last.as_ref().is_some_and(|last| *last != now) {
                changes.push(at);
            }
            last = Some(now);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Up and down over satellite 2, then over 2 and 3, then nothing, then over 3.
    fn path() -> PathOverTime {
        let ms = |delays: &[u64]| delays.iter().copied().map(Duration::from_millis).collect();
        let start = "2000-01-01".parse().unwrap();
        let mut path = PathOverTime::new("a", "b", start, Duration::from_secs(1));
        path.add_node("s2");
        path.add_node("s3");
        path.push(vec![0, 2, 1], ms(&[3, 4]));
        path.push(vec![0, 2, 1], ms(&[4, 4]));
        path.push(vec![0, 2, 3, 1], ms(&[5, 2, 4]));
        path.push(vec![], vec![]);
        path.push(vec![0, 3, 1], ms(&[3, 3]));
        path
    }

    #[test]
    fn handovers_are_where_the_access_satellite_changes() {
        let seconds = |all: &[u64]| {
            all.iter()
                .copied()
                .map(Duration::from_secs)
                .collect::<Vec<_>>()
        };
        let path = path();
        assert_eq!(path.handovers(End::From), seconds(&[3, 4]));
        assert_eq!(path.handovers(End::To), seconds(&[2, 3, 4]));
        assert_eq!(path.changes(), seconds(&[2, 3, 4]));
        let figures = path.figures();
        assert_eq!((figures.steps, figures.connected), (5, 4));
        assert_eq!((figures.changes, figures.handovers), (3, 3));
        assert_eq!(figures.links_mean(), Some(9.0 / 4.0));
        assert_eq!(figures.propagation_mean(), Some(Duration::from_millis(8)));
        let range = (Duration::from_millis(6), Duration::from_millis(11));
        assert_eq!(figures.propagation_range(), Some(range));
    }

    #[test]
    fn hops_keep_their_delay_and_routes_their_order() {
        let Hops { hops, routes } = path().hops();
        let names: Vec<_> = hops
            .iter()
            .map(|hop| format!("{}{}", hop.from, hop.to))
            .collect();
        assert_eq!(names, ["as2", "s2b", "s2s3", "s3b", "as3"]);
        let second = Duration::from_secs;
        assert_eq!(
            routes,
            [
                (second(0), vec![0, 1]),
                (second(2), vec![0, 2, 3]),
                (second(3), vec![]),
                (second(4), vec![4, 3])
            ]
        );
        let at = |hop: usize, seconds: u64| hops[hop].delay.at(second(seconds)).as_millis();
        assert_eq!([at(0, 0), at(0, 1), at(0, 2), at(0, 4)], [3, 4, 5, 5]);
        assert_eq!([at(3, 0), at(3, 2), at(3, 4)], [4, 4, 3]);
        assert!(hops.iter().all(|hop| hop.delay.period() == second(5)));
    }

    #[test]
    fn a_link_has_the_delay_of_the_path_and_loses_all_without_one() {
        let base = Bandwidth::from_mbit(10);
        let link = path().link(Some((End::From, base))).unwrap();
        let Delay::Trace(delay) = &link.delay else {
            panic!("no delay over time");
        };
        let at = |seconds| delay.at(Duration::from_secs(seconds)).as_millis();
        assert_eq!([at(0), at(2), at(3), at(4)], [7, 11, 11, 6]);
        let loss = link.loss_trace.as_ref().unwrap();
        assert_eq!(loss.at(Duration::from_secs(3)), 1.0);
        assert_eq!(loss.at(Duration::from_secs(2)), 0.0);
        // From 0 to the handover at 3 s: the middle of its three steps is at the peak.
        let rates: Vec<_> = path()
            .gsl_capacity(End::From, base)
            .iter()
            .map(|rate| rate.1)
            .collect();
        assert_eq!((rates[1], rates[3]), (base, Bandwidth::ZERO));
        assert!(rates[0] == rates[2] && rates[0] < base);
        assert_eq!(path().link_capacity(End::From, base)[3].1, base.scaled(0.5));
        assert!(path().link(None).unwrap().rate == Rate::Constant(Bandwidth::MAX));
    }
}
