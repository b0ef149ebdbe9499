//! The picture of a trace: capacity, one-way delay and loss over time, with outages and reconfigurations marked.

use std::{ops::Range, time::Duration};

use starhaul_link::{DelaySeries, LossSeries, Opportunities, Recording, Summary};
use starhaul_plot::{Chart, LINE_WIDTH, Panel, Scale, Sheet};

const HEIGHT: f64 = 250.0;
/// Points of a time series: about one for each pixel.
const POINTS: u32 = 1_000;

/// What the picture of a trace is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceReport<'a> {
    /// Name of the trace in the picture.
    pub(crate) name: &'a str,
    /// The part of the trace that is drawn.
    pub(crate) recording: &'a Recording,
    /// Where in the whole trace that begins.
    pub(crate) from: Duration,
    /// Its figures, but for the reconfigurations, which are those of the whole trace.
    pub(crate) summary: &'a Summary,
    /// The command line that repeats it.
    pub(crate) command: &'a str,
}

impl TraceReport<'_> {
    /// One picture, light or dark as its viewer is.
    pub(crate) fn svg(&self) -> String {
        self.sheet().svg()
    }

    /// One page that needs no network.
    pub(crate) fn html(&self) -> String {
        self.sheet().html()
    }

    fn sheet(&self) -> Sheet<'_> {
        let panel = |chart| Panel {
            heading: None,
            height: HEIGHT,
            chart,
        };
        Sheet {
            title: self.name,
            sentences: vec![self.sentence()],
            warning: None,
            marks: self.marks().collect(),
            figures: self.figures(),
            panels: self.charts().into_iter().map(panel).collect(),
            command: self.command,
            script: None,
        }
    }

    fn charts(&self) -> Vec<String> {
        let recording = self.recording;
        let capacity = recording
            .capacity
            .as_deref()
            .map(|capacity| self.capacity(capacity));
        let delay = recording.delay.as_deref().map(|delay| self.delay(delay));
        let loss = recording.loss.as_deref().filter(|loss| loss.mean() > 0.0);
        let loss = loss.map(|loss| self.loss(loss));
        [capacity, delay, loss].into_iter().flatten().collect()
    }

    fn capacity(&self, capacity: &Opportunities) -> String {
        let step = round_step(self.summary.duration).min(self.summary.duration);
        let rates = capacity.rates(step);
        let begin = self.from + step / 2;
        let at = (0..).map(|number| (begin + step * number).as_secs_f64());
        let points: Vec<_> = at.zip(rates.iter().map(|rate| rate.mbit())).collect();
        let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let unit = format!("Mbit/s, in {} ms each", step.as_millis());
        let mut chart = self.chart("Capacity", &unit, Scale::up_to(most));
        chart.area("trace", &points);
        line_or_dot(&mut chart, &points);
        chart.svg("capacity over time")
    }

    fn delay(&self, delay: &DelaySeries) -> String {
        let (least, most) = delay.range();
        let scale = Scale::around(ms(least), ms(most));
        let mut chart = self.chart("One-way delay", "ms, least to greatest", scale);
        self.band(&mut chart, &bins(delay.steps(), self.summary.duration, ms));
        chart.svg("one-way delay over time")
    }

    fn loss(&self, loss: &LossSeries) -> String {
        let points = bins(loss.steps(), self.summary.duration, |loss| loss * 100.0);
        let most = points.iter().map(|point| point.2).fold(0.0, f64::max);
        let scale = Scale::up_to((most * 1.2).min(100.0));
        let mut chart = self.chart("Random loss", "%, least to greatest", scale);
        self.band(&mut chart, &points);
        chart.svg("probability of loss over time")
    }

    /// Least and greatest values in stretches of what is drawn.
    fn band(&self, chart: &mut Chart, bins: &[(f64, f64, f64)]) {
        let from = self.from.as_secs_f64();
        let points = bins
            .iter()
            .map(|&(at, least, most)| (from + at, least, most));
        let points: Vec<_> = points.collect();
        chart.band("trace", &points);
        let upper: Vec<_> = points.iter().map(|&(at, _, most)| (at, most)).collect();
        line_or_dot(chart, &upper);
    }

    /// An empty chart with the marks.
    fn chart(&self, title: &str, unit: &str, y: Scale) -> Chart {
        let from = self.from.as_secs_f64();
        let duration = self.summary.duration.as_secs_f64().max(1e-3);
        let x = Scale::Linear(from, from + duration);
        let mut chart = Chart::sized((LINE_WIDTH, HEIGHT), title, unit, x, y);
        let outages = self.summary.outages.iter().map(|(start, length)| {
            let start = self.from + *start;
            (start.as_secs_f64(), (start + *length).as_secs_f64())
        });
        chart.stripes("outage", outages);
        let reconfigurations = self.reconfigurations();
        if !reconfigurations.is_empty() {
            chart.verticals("reconfiguration", reconfigurations.into_iter());
        }
        chart
    }

    /// The reconfigurations in what is drawn, in s of the whole trace.
    fn reconfigurations(&self) -> Vec<f64> {
        let comb = self.summary.reconfigurations.iter();
        let instants = comb.flat_map(|comb| comb.instants(self.from + self.summary.duration));
        let drawn = instants.filter(|at| *at >= self.from);
        drawn.map(|at| at.as_secs_f64()).collect()
    }

    fn marks(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let comb = !self.reconfigurations().is_empty();
        let outage = (!self.summary.outages.is_empty()).then_some(("outage", "outage"));
        let comb = comb.then_some(("reconfiguration", "reconfiguration"));
        [outage, comb].into_iter().flatten()
    }

    fn sentence(&self) -> String {
        let summary = self.summary;
        let mut parts = vec![format!("{:.1} s", summary.duration.as_secs_f64())];
        if !self.from.is_zero() {
            parts.push(format!("from {} s of the trace", self.from.as_secs_f64()));
        }
        if let Some(capacity) = &summary.capacity {
            parts.push(format!("mean {:.1}", capacity.mean));
        }
        if let Some(delay) = &summary.delay {
            parts.push(format!("median delay {} ms", ms(delay.median)));
        }
        if let Some(comb) = &summary.reconfigurations {
            parts.push(format!(
                "reconfigurations every {:.2} s from {:.2} s, seen in {} at {} of {}",
                comb.period.as_secs_f64(),
                comb.offset.as_secs_f64(),
                comb.evidence.name(),
                comb.found,
                comb.expected
            ));
        }
        parts.join(" · ")
    }

    /// Title, value, and what else there is to say.
    fn figures(&self) -> Vec<(String, String, String)> {
        let summary = self.summary;
        let mut figures = Vec::new();
        if let Some(capacity) = &summary.capacity {
            figures.push((
                "mean capacity".to_owned(),
                format!("{:.1}", capacity.mean),
                format!(
                    "seconds from {:.1} to {:.1}",
                    capacity.least, capacity.greatest
                ),
            ));
        }
        if let Some(delay) = &summary.delay {
            figures.push((
                "median delay".to_owned(),
                format!("{} ms", ms(delay.median)),
                format!(
                    "5 % below {}, 95 % below {}, at most {} ms",
                    ms(delay.p5),
                    ms(delay.p95),
                    ms(delay.greatest)
                ),
            ));
        }
        if summary.capacity.is_some() {
            let lengths = || summary.outages.iter().map(|(_, length)| length.as_millis());
            figures.push((
                "outages".to_owned(),
                summary.outages.len().to_string(),
                match (lengths().min(), lengths().max()) {
                    (Some(least), Some(most)) => format!("{least} to {most} ms long"),
                    _ => "none".to_owned(),
                },
            ));
        }
        if let Some(loss) = summary.loss {
            figures.push((
                "random loss".to_owned(),
                format!("{:.2} %", loss * 100.0),
                "mean".to_owned(),
            ));
        }
        figures
    }
}

/// A line through the points; one alone is a dot, as a line through it would not be seen.
fn line_or_dot(chart: &mut Chart, points: &[(f64, f64)]) {
    match points {
        [_] => chart.dots("trace", points.iter().copied()),
        _ => chart.line("trace", points),
    }
}

/// A round time of which the duration has about [`POINTS`] at most; as long as an outage at least, so that single packets do
/// not show as noise.
fn round_step(duration: Duration) -> Duration {
    let steps = [100, 200, 500, 1_000, 2_000, 5_000].map(Duration::from_millis);
    let wanted = duration / (POINTS * 5 / 4);
    steps
        .into_iter()
        .find(|step| *step >= wanted)
        .unwrap_or(wanted)
}

/// Least and greatest value in each of about [`POINTS`] stretches: (middle in s, least, greatest).
fn bins<T: Copy>(
    steps: impl Iterator<Item = (Range<Duration>, T)>,
    duration: Duration,
    value: impl Fn(T) -> f64,
) -> Vec<(f64, f64, f64)> {
    let width = (duration / POINTS).max(Duration::from_millis(10));
    let mut bins: Vec<(f64, f64, f64)> = Vec::new();
    let index = |at: Duration| at.as_nanos() / width.as_nanos();
    for (span, of_step) in steps {
        let value = value(of_step);
        let last = index(span.end.saturating_sub(Duration::from_nanos(1)));
        for bin in index(span.start)..=last {
            let Ok(bin) = u32::try_from(bin) else { break };
            let at = (width * bin).as_secs_f64() + width.as_secs_f64() / 2.0;
            match bins.last_mut() {
                Some(last) if last.0 == at => {
                    *last = (at, last.1.min(value), last.2.max(value));
                }
                _ => bins.push((at, value, value)),
            }
        }
    }
    bins
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use starhaul_link::Model;

    use super::*;

    fn pages(model: Model) -> [String; 2] {
        let trace = model
            .generate(None, Some(Duration::from_secs(60)), 3)
            .unwrap();
        let recording = Recording::from(trace);
        let report = TraceReport {
            name: "a <link>",
            recording: &recording,
            from: Duration::ZERO,
            summary: &Summary::of(&recording),
            command: "starhaul trace plot \"a\"",
        };
        [report.svg(), report.html()]
    }

    #[test]
    fn pictures_are_whole_and_need_no_network() {
        for (name, model) in Model::ALL {
            for page in pages(model) {
                for (open, close) in [("<svg", "</svg>"), ("<text", "</text>")] {
                    let (open, close) = (page.matches(open).count(), page.matches(close).count());
                    assert_eq!(open, close, "{name}");
                }
                for bad in ["NaN", "inf\"", "<link>", "src=", "href=", "@import", "url("] {
                    assert!(!page.contains(bad), "{name}: {bad}");
                }
                for word in ["Capacity", "One-way delay"] {
                    assert!(page.contains(word), "{name}: {word}");
                }
                assert_eq!(page.contains(">Random loss<"), name == "leo");
            }
        }
    }

    #[test]
    fn reconfigurations_and_outages_are_marked_where_there_are_any() {
        for page in pages(Model::Leo) {
            assert!(page.contains("class=\"verticals reconfiguration\""));
            assert!(page.contains("reconfigurations every 15.0"));
        }
        for page in pages(Model::Geo) {
            assert!(!page.contains("class=\"verticals reconfiguration\""));
        }
    }

    #[test]
    fn a_part_stands_where_it_lies_in_the_trace_and_has_the_marks_of_the_whole() {
        let seconds = Duration::from_secs;
        let trace = Model::Leo.generate(None, Some(seconds(60)), 3).unwrap();
        let whole = Recording::from(trace);
        let comb = Summary::of(&whole).reconfigurations.unwrap();
        let one = comb.offset + comb.period;
        let drawn = |from: Duration| {
            let part = whole.cut(from..from + seconds(2)).unwrap();
            let report = TraceReport {
                name: "a link",
                recording: &part,
                from,
                summary: &Summary {
                    reconfigurations: Some(comb),
                    ..Summary::of(&part)
                },
                command: "",
            };
            assert!(report.svg().contains(" s of the trace"));
            (report.reconfigurations(), report.svg())
        };
        let (marks, svg) = drawn(one - seconds(1));
        assert_eq!(marks, [one.as_secs_f64()]);
        let at = format!(">{} s<", one.as_secs());
        assert!(svg.contains(&at) && !svg.contains(">0 s<"), "{at}");
        let (marks, svg) = drawn(one + seconds(3));
        assert!(marks.is_empty() && !svg.contains("reconfiguration\""));
    }

    #[test]
    fn a_trace_of_one_point_is_seen_and_no_more_is_lost_than_all() {
        let second = Duration::from_secs(1);
        let loss = LossSeries::from_steps([(second, 1.0), (second, 0.0)]).unwrap();
        let pages = |recording: Recording| {
            let report = TraceReport {
                name: "a link",
                recording: &recording,
                from: Duration::ZERO,
                summary: &Summary::of(&recording),
                command: "",
            };
            report.svg()
        };
        let short = DelaySeries::from_steps([(second / 200, second / 10)]).unwrap();
        let drawn = pages(Recording::of_delay(short.clone()));
        assert!(drawn.contains("class=\"dots trace\""));
        let drawn = pages(Recording::of_delay(short).and_loss(Some(loss.into())));
        assert!(drawn.contains(">100</text>"));
        for beyond in [">120</text>", ">150</text>"] {
            assert!(!drawn.contains(beyond), "an axis up to {beyond}");
        }
    }

    #[test]
    fn a_short_spike_is_not_averaged_away() {
        let second = Duration::from_secs(1);
        let steps = [
            (second * 1_000, second / 100),
            (second / 100, second / 10),
            (second * 1_000, second / 100),
        ];
        let delay = DelaySeries::from_steps(steps).unwrap();
        let bins = bins(delay.steps(), delay.period(), ms);
        assert!(bins.len() <= 1_001, "{}", bins.len());
        // in one bin, or across the edge of two
        let high = bins.iter().filter(|bin| bin.2 == 100.0).count();
        assert!((1..=2).contains(&high), "{high} bins show it");
        assert!(bins.iter().all(|bin| bin.1 == 10.0));
    }
}
