//! The picture of a trace: capacity, one-way delay and loss over time, with outages and reconfigurations marked.

use std::{ops::Range, time::Duration};

use starhaul_link::{DelaySeries, LossSeries, Opportunities, Recording, Summary};
use starhaul_plot::{Chart, LINE_WIDTH, Panel, Scale, Sheet};

const HEIGHT: f64 = 250.0;
/// Points of a course: about one for each pixel.
const POINTS: u32 = 1_000;

/// What the picture of a trace is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceReport<'a> {
    /// What people call it.
    pub(crate) name: &'a str,
    /// What is drawn.
    pub(crate) recording: &'a Recording,
    /// Its figures.
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
        let step = round_step(self.summary.duration);
        let half = step.as_secs_f64() / 2.0;
        let rates = capacity.rates(step);
        let at = (0..).map(|number| (step * number).as_secs_f64() + half);
        let points: Vec<_> = at.zip(rates.iter().map(|rate| rate.mbit())).collect();
        let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let unit = format!("Mbit/s, in {} ms each", step.as_millis());
        let mut chart = self.chart("Capacity", &unit, Scale::up_to(most));
        chart.area("trace", &points);
        chart.line("trace", &points);
        chart.svg("capacity over time")
    }

    fn delay(&self, delay: &DelaySeries) -> String {
        let (least, most) = delay.range();
        let scale = Scale::around(ms(least), ms(most));
        let mut chart = self.chart("One-way delay", "ms, least to greatest", scale);
        let points = bins(delay.steps(), self.summary.duration, ms);
        chart.band("trace", &points);
        let upper: Vec<_> = points.iter().map(|&(at, _, most)| (at, most)).collect();
        chart.line("trace", &upper);
        chart.svg("one-way delay over time")
    }

    fn loss(&self, loss: &LossSeries) -> String {
        let points = bins(loss.steps(), self.summary.duration, |loss| loss * 100.0);
        let most = points.iter().map(|point| point.2).fold(0.0, f64::max);
        let scale = Scale::up_to(most * 1.2);
        let mut chart = self.chart("Random loss", "%, least to greatest", scale);
        chart.band("trace", &points);
        let upper: Vec<_> = points.iter().map(|&(at, _, most)| (at, most)).collect();
        chart.line("trace", &upper);
        chart.svg("probability of loss over time")
    }

    /// An empty chart with the marks.
    fn chart(&self, title: &str, unit: &str, y: Scale) -> Chart {
        let duration = self.summary.duration;
        let x = Scale::Linear(0.0, duration.as_secs_f64().max(1e-3));
        let mut chart = Chart::sized((LINE_WIDTH, HEIGHT), title, unit, x, y);
        let outages = self.summary.outages.iter();
        chart.stripes(
            "outage",
            outages.map(|(start, length)| (start.as_secs_f64(), (*start + *length).as_secs_f64())),
        );
        if let Some(comb) = &self.summary.reconfigurations {
            let instants = comb.instants(duration);
            chart.verticals("reconfiguration", instants.map(|at| at.as_secs_f64()));
        }
        chart
    }

    fn marks(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let comb = self.summary.reconfigurations;
        let outage = (!self.summary.outages.is_empty()).then_some(("outage", "outage"));
        let comb = comb.map(|_| ("reconfiguration", "reconfiguration"));
        [outage, comb].into_iter().flatten()
    }

    fn sentence(&self) -> String {
        let summary = self.summary;
        let mut parts = vec![format!("{:.1} s", summary.duration.as_secs_f64())];
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
