//! The picture of a run behind emulated links: for each direction throughput beside capacity, the delay of packets, and
//! what was dropped (as mahimahi's and LeoReplayer's logs are drawn).

use std::time::{Duration, Instant};

use starhaul_link::{Comb, Delay, Link, LinkSpec, Recording, Summary};
use starhaul_plot::{Chart, LINE_WIDTH, Panel, Scale, Sheet};
use starhaul_replay::{DirectionReport, LATENESS_BOUND, ReplayLink, ReplayReport, TimeSeries};
use starhaul_units::Bandwidth;

const HEIGHT: f64 = 210.0;
const LOW: f64 = 120.0;
/// A capacity so much above the throughput would leave nothing of that to see.
const FAR_ABOVE: f64 = 8.0;
/// More is no limit at all, in Mbit/s.
const NO_LIMIT: f64 = 1e6;

/// What the picture of a run is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayPicture<'a> {
    /// Figures of the run.
    pub(crate) report: &'a ReplayReport,
    /// Its links, in the same order.
    pub(crate) links: &'a [ReplayLink],
    /// What people wrote for the two directions of each: up, down.
    pub(crate) written: &'a [[String; 2]],
    /// Seed of everything random.
    pub(crate) seed: u64,
    /// What ran behind the links.
    pub(crate) program: &'a str,
    /// The command line that repeats it.
    pub(crate) command: &'a str,
}

impl ReplayPicture<'_> {
    /// One picture, light or dark as its viewer is.
    pub(crate) fn svg(&self) -> String {
        self.sheet().svg()
    }

    /// One page that needs no network.
    pub(crate) fn html(&self) -> String {
        self.sheet().html()
    }

    fn sheet(&self) -> Sheet<'_> {
        let sides = self.sides();
        let mut sheet = Sheet {
            title: self.program,
            sentences: vec![self.sentence()],
            command: self.command,
            ..Sheet::default()
        };
        if !self.report.is_valid() {
            sheet.warning = Some(format!(
                "Invalid run: one packet in a hundred left more than {} ms late, so these are not the links that were asked for.",
                LATENESS_BOUND.as_millis()
            ));
        }
        sheet.marks = marks(&sides);
        for side in &sides {
            sheet.figures.push((
                format!("{}, Mbit/s", side.name),
                format!("{:.1}", side.throughput()),
                format!("{}; {}", side.capacity_text(), side.drops_text()),
            ));
            sheet.panels.extend(side.panels());
        }
        sheet
    }

    fn sides(&self) -> Vec<Side<'_>> {
        let links = self.report.links.iter().zip(self.links).zip(self.written);
        let sides = links.flat_map(|((done, link), [up, down])| {
            [
                ("up", &done.up, &link.up, up),
                ("down", &done.down, &link.down, down),
            ]
            .map(|(way, done, spec, written)| {
                let name = format!("{} {way}", link.name);
                Side::new(name, done, spec, written, self.report.elapsed)
            })
        });
        sides.collect()
    }

    fn sentence(&self) -> String {
        let report = self.report;
        let mut text = format!(
            "{:.1} s · seed {} · packets left late by {:.2} ms at the 99th percentile",
            report.elapsed.as_secs_f64(),
            self.seed,
            ms(report.lateness().quantile(0.99)),
        );
        if report.exit_code != 0 {
            text.push_str(&format!(" · exit code {}", report.exit_code));
        }
        text
    }
}

/// One direction of one link.
struct Side<'a> {
    name: String,
    written: &'a str,
    report: &'a DirectionReport,
    spec: &'a LinkSpec,
    elapsed: Duration,
    /// What each step of the time covers.
    step: Duration,
    /// Begin and end, in s.
    outages: Vec<(f64, f64)>,
    /// Times of reconfigurations, in s.
    reconfigurations: Vec<f64>,
}

impl<'a> Side<'a> {
    fn new(
        name: String,
        report: &'a DirectionReport,
        spec: &'a LinkSpec,
        written: &'a str,
        elapsed: Duration,
    ) -> Self {
        let (outages, reconfigurations) = events(spec, elapsed);
        Self {
            name,
            written,
            report,
            spec,
            elapsed,
            step: report.series.delay_bin,
            outages,
            reconfigurations,
        }
    }

    fn panels(&self) -> Vec<Panel> {
        let delayed = self.report.series.delays.iter().any(|bin| bin.count() > 0);
        let dropped = self.report.series.bins.iter().any(|bin| bin.dropped > 0);
        let charts = [
            Some((HEIGHT, self.rates())),
            delayed.then(|| (HEIGHT, self.delays())),
            dropped.then(|| (LOW, self.drops())),
        ];
        let mut heading = Some((format!("{}: {}", self.name, self.written), self.summary()));
        let charts = charts.into_iter().flatten();
        let panel = |(height, chart)| Panel {
            heading: heading.take(),
            height,
            chart,
        };
        charts.map(panel).collect()
    }

    fn rates(&self) -> String {
        let throughput = self.throughput_points();
        let mut capacity = self.capacity_points();
        let most = |points: &[(f64, f64)]| points.iter().map(|point| point.1).fold(0.0, f64::max);
        let mut unit = format!("Mbit/s, in {} ms each", self.step.as_millis());
        if most(&capacity) > NO_LIMIT || most(&capacity) > FAR_ABOVE * most(&throughput) {
            unit.push_str(&format!("; {}", self.capacity_text()));
            capacity.clear();
        }
        let scale = Scale::up_to(most(&throughput).max(most(&capacity)));
        let mut chart = self.chart(HEIGHT, "Throughput", &unit, scale);
        chart.area("capacity", &capacity);
        chart.line("capacity", &capacity);
        chart.line("trace", &throughput);
        chart.svg(&format!(
            "throughput of {} beside the capacity over time",
            self.name
        ))
    }

    fn delays(&self) -> String {
        let packets = self.delay_points();
        let link = self.propagation_points();
        let all = packets.iter().flatten();
        let least = all
            .clone()
            .map(|point| point.1)
            .chain(link.iter().map(|point| point.1));
        let most = all
            .map(|point| point.2)
            .chain(link.iter().map(|point| point.1));
        let scale = Scale::around(least.fold(f64::MAX, f64::min), most.fold(0.0, f64::max));
        let mut chart = self.chart(
            HEIGHT,
            "Delay of packets",
            "ms, wait in the queue and way",
            scale,
        );
        chart.area("propagation", &link);
        chart.line("propagation", &link);
        for points in packets {
            let median: Vec<_> = points.iter().map(|&(at, median, _)| (at, median)).collect();
            chart.band("spread", &points);
            match median.len() {
                1 => chart.dots("trace", median.into_iter()),
                _ => chart.line("trace", &median),
            }
        }
        chart.svg(&format!("delay of the packets of {} over time", self.name))
    }

    fn drops(&self) -> String {
        let stacks: Vec<_> = self
            .steps_of_bins()
            .map(|(at, bins)| {
                let sum =
                    |count: fn(&starhaul_replay::Bin) -> u64| number(bins.iter().map(count).sum());
                (
                    at,
                    [
                        sum(|bin| bin.dropped_outage),
                        sum(|bin| bin.dropped_queue),
                        sum(|bin| bin.dropped),
                    ],
                )
            })
            .collect();
        let most = stacks
            .iter()
            .map(|(_, [_, _, all])| *all)
            .fold(0.0, f64::max);
        let unit = format!("packets, in {} ms each", self.step.as_millis());
        let mut chart = self.chart(LOW, "Dropped", &unit, Scale::up_to(most));
        let width = self.step.as_secs_f64();
        let bars = |from: fn(&[f64; 3]) -> f64, to: fn(&[f64; 3]) -> f64| {
            let bars = stacks
                .iter()
                .map(move |(at, counts)| (*at, from(counts), to(counts)));
            bars.filter(|(_, from, to)| to > from)
        };
        chart.bars("outage", width, bars(|_| 0.0, |[outage, ..]| *outage));
        chart.bars(
            "full",
            width,
            bars(|[outage, ..]| *outage, |[outage, queue, _]| outage + queue),
        );
        chart.bars(
            "random",
            width,
            bars(|[outage, queue, _]| outage + queue, |[.., all]| *all),
        );
        chart.svg(&format!(
            "packets of {} that were dropped, over time",
            self.name
        ))
    }

    /// An empty chart with the marks.
    fn chart(&self, height: f64, title: &str, unit: &str, y: Scale) -> Chart {
        let x = Scale::Linear(0.0, self.elapsed.as_secs_f64().max(1e-3));
        let mut chart = Chart::sized((LINE_WIDTH, height), title, unit, x, y);
        chart.stripes("outage", self.outages.iter().copied());
        chart.verticals("reconfiguration", self.reconfigurations.iter().copied());
        chart
    }

    /// The middle of each whole step in s, and the bins in it; none after the last packet.
    fn steps_of_bins(&self) -> impl Iterator<Item = (f64, &[starhaul_replay::Bin])> {
        let TimeSeries { bin, bins, .. } = &self.report.series;
        let each = self.step.as_nanos() / bin.as_nanos().max(1);
        let each = usize::try_from(each).unwrap_or(1).max(1);
        self.middles().zip(bins.chunks(each))
    }

    fn throughput_points(&self) -> Vec<(f64, f64)> {
        let bytes = self.steps_of_bins();
        let bytes = bytes.map(|(_, bins)| bins.iter().map(|bin| bin.delivered_bytes).sum());
        let rates = bytes.map(|bytes| Bandwidth::from_bytes_over(bytes, self.step).mbit());
        self.middles()
            .zip(rates.chain(std::iter::repeat(0.0)))
            .collect()
    }

    fn capacity_points(&self) -> Vec<(f64, f64)> {
        let start = Instant::now();
        let link: Link<()> = Link::new(self.spec, 0, start);
        let starts = (0..).map(|step| start + self.step * step);
        let rates = starts.map(|from| {
            let bytes = link.capacity_bytes_between(from, from + self.step);
            Bandwidth::from_bytes_over(bytes, self.step).mbit()
        });
        self.middles().zip(rates).collect()
    }

    /// (middle of the step in s, median, 95th percentile in ms), in segments without a step in which nothing arrived.
    fn delay_points(&self) -> Vec<Vec<(f64, f64, f64)>> {
        let delays = &self.report.series.delays;
        let points: Vec<_> = (0u32..)
            .zip(delays)
            .map(|(step, delays)| {
                let at = self.step.as_secs_f64() * (f64::from(step) + 0.5);
                let of = |q| ms(delays.quantile(q));
                (delays.count() > 0).then(|| (at, of(0.5), of(0.95)))
            })
            .collect();
        let segments = points.split(Option::is_none);
        segments
            .map(|segment| segment.iter().copied().flatten().collect::<Vec<_>>())
            .filter(|segment| !segment.is_empty())
            .collect()
    }

    /// The median of the link's own delay in each step, in ms.
    fn propagation_points(&self) -> Vec<(f64, f64)> {
        const SAMPLES: u32 = 11;
        let delay = |at| match &self.spec.delay {
            Delay::Constant(delay) => *delay,
            Delay::Trace(series) => series.at(at),
        };
        let medians = (0..).map(|step| {
            let mut delays: Vec<_> = (0..SAMPLES)
                .map(|sample| delay(self.step * step + self.step * sample / SAMPLES))
                .collect();
            delays.sort();
            delays.get(delays.len() / 2).copied().map_or(0.0, ms)
        });
        self.middles().zip(medians).collect()
    }

    /// Of all whole steps, in s.
    fn middles(&self) -> impl Iterator<Item = f64> {
        let (step, elapsed) = (self.step.as_secs_f64(), self.elapsed.as_secs_f64());
        let middles = (0u32..).map(move |number| step * (f64::from(number) + 0.5));
        middles.take_while(move |middle| middle + step / 2.0 <= elapsed)
    }

    fn throughput(&self) -> f64 {
        Bandwidth::from_bytes_over(self.report.stats.delivered_bytes, self.elapsed).mbit()
    }

    fn summary(&self) -> String {
        let queueing = &self.report.queueing;
        let mut parts = vec![format!(
            "{:.1} Mbit/s; {}",
            self.throughput(),
            self.capacity_text()
        )];
        if queueing.count() > 0 {
            parts.push(format!(
                "wait in the queue {:.1} ms on average, {:.1} at the 95th percentile",
                ms(queueing.mean()),
                ms(queueing.quantile(0.95))
            ));
        }
        parts.push(self.drops_text());
        parts.join(" · ")
    }

    fn capacity_text(&self) -> String {
        let capacity = Bandwidth::from_bytes_over(self.report.capacity_bytes, self.elapsed);
        match capacity.mbit() {
            mbit if mbit < NO_LIMIT => format!("capacity {mbit:.1} on average"),
            _ => "no limit".to_owned(),
        }
    }

    fn drops_text(&self) -> String {
        let stats = self.report.stats;
        let reasons = [
            (stats.dropped_queue + stats.dropped_codel, "by the queue"),
            (stats.dropped_loss, "at random"),
            (stats.dropped_outage, "in outages"),
        ];
        let reasons: Vec<_> = reasons
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, reason)| format!("{count} {reason}"))
            .collect();
        match reasons.is_empty() {
            true => format!("none of {} packets dropped", stats.enqueued),
            false => format!(
                "of {} packets dropped {}",
                stats.enqueued,
                reasons.join(", ")
            ),
        }
    }
}

/// Outages and reconfigurations of a link until the end of the run: of its trace, which repeats, and of its description.
fn events(spec: &LinkSpec, elapsed: Duration) -> (Vec<(f64, f64)>, Vec<f64>) {
    let described = spec.outages.iter().cloned();
    let mut outages: Vec<_> = described.collect();
    let mut reconfigurations = Vec::new();
    if let Ok(recording) = Recording::of_spec(spec, elapsed.max(Duration::from_millis(1))) {
        let Summary {
            duration,
            outages: gaps,
            reconfigurations: comb,
            ..
        } = Summary::of(&recording);
        let instants = comb.iter().flat_map(|comb: &Comb| comb.instants(duration));
        let instants: Vec<_> = instants.collect();
        let mut begin = Duration::ZERO;
        while begin < elapsed && duration > Duration::ZERO {
            outages.extend(
                gaps.iter()
                    .map(|(at, length)| begin + *at..begin + *at + *length),
            );
            reconfigurations.extend(instants.iter().map(|at| begin + *at));
            begin += duration;
        }
    }
    let outages = outages.into_iter().filter(|outage| outage.start < elapsed);
    let reconfigurations = reconfigurations.into_iter().filter(|at| *at < elapsed);
    (
        outages
            .map(|outage| (outage.start.as_secs_f64(), outage.end.as_secs_f64()))
            .collect(),
        reconfigurations.map(|at| at.as_secs_f64()).collect(),
    )
}

/// What is on the sheet, of all that can be.
fn marks(sides: &[Side<'_>]) -> Vec<(&'static str, &'static str)> {
    let any = |has: fn(&Side<'_>) -> bool| sides.iter().any(has);
    let stats = |has: fn(&starhaul_link::LinkStats) -> bool| {
        sides.iter().any(|side| has(&side.report.stats))
    };
    [
        (true, "trace", "throughput, median delay"),
        (true, "spread", "median to 95th percentile"),
        (true, "capacity", "capacity, delay of the link alone"),
        (any(|side| !side.outages.is_empty()), "outage", "outage"),
        (
            any(|side| !side.reconfigurations.is_empty()),
            "reconfiguration",
            "reconfiguration",
        ),
        (
            stats(|stats| stats.dropped_queue + stats.dropped_codel > 0),
            "full",
            "dropped by the queue",
        ),
        (
            stats(|stats| stats.dropped_loss > 0),
            "random",
            "dropped at random",
        ),
    ]
    .into_iter()
    .filter(|(shown, ..)| *shown)
    .map(|(_, class, parts)| (class, parts))
    .collect()
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn number(count: u64) -> f64 {
    count as f64
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
