//! The description of one direction of a link, as a value and as text.

use std::{ops::Range, path::Path, str::FromStr, sync::Arc, time::Duration};

use starhaul_units::Bandwidth;

use crate::{
    DelaySeries, Error, GeoModel, LeoModel, Loss, Opportunities, Trace, parse::read_delay, text,
};

pub(crate) const KEYS: &str =
    "rate, bw, csv, synth, seed, delay, jitter, loss, queue, reorder, duplicate, outage";

/// How fast a link sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Always the same; zero sends nothing, [`Bandwidth::MAX`] takes no time.
    Constant(Bandwidth),
    /// By the delivery opportunities of a trace.
    Trace(Arc<Opportunities>),
}

/// How long a packet travels once it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Always the same.
    Constant(Duration),
    /// By the instant at which the packet was sent.
    Trace(Arc<DelaySeries>),
}

/// How much may wait, without the packet being sent; what finds no room is dropped (droptail).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// So many packets.
    Packets(usize),
    /// So many bytes.
    Bytes(usize),
}

/// Packets that others overtake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// The share of packets held back, 0 to 1.
    pub fraction: f64,
    /// By how much.
    pub extra: Duration,
}

/// One direction of a link.
///
/// As text, comma-separated settings: `rate=50mbit,delay=25ms,loss=ge:1%:5,queue=500p`, `bw=FILE,delay=FILE,loss=0.2%`,
/// `csv=FILE`, `synth=leo,seed=3`.
///
/// | setting | value |
/// |---|---|
/// | `rate` | a [`Bandwidth`]; with `synth`, the model's mean rate; none at all means no limit |
/// | `bw` | mahimahi or LeoReplayer capacity file |
/// | `csv` | table of capacity and delay, see [`crate::parse_csv`] |
/// | `synth` | `leo` or `geo`: a [`LeoModel`] or [`GeoModel`] |
/// | `seed` | of `synth`, default 0 |
/// | `delay` | one way: a time, or else a LeoReplayer delay file; replaces that of `csv` and `synth`; default 0 |
/// | `jitter` | adds a random time from 0 to this |
/// | `loss` | a [`Loss`]: `0.2%`, `ge:1%:5` |
/// | `queue` | `500p` (packets, the default) or `64000b` (bytes) |
/// | `reorder` | `FRACTION%:EXTRA`, for example `1%:20ms` |
/// | `duplicate` | the share of packets that arrive twice |
/// | `outage` | `FROM..TO` since the start, for example `10s..12s`; may be repeated |
///
/// File names cannot hold a comma.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// How fast it sends.
    pub rate: Rate,
    /// One-way delay.
    pub delay: Delay,
    /// Greatest random addition to the delay, evenly distributed; the order is kept.
    pub jitter: Duration,
    /// How much may wait.
    pub queue: QueueLimit,
    /// Random loss.
    pub loss: Loss,
    /// Reordering.
    pub reorder: Option<Reorder>,
    /// The share of packets that arrive twice, 0 to 1.
    pub duplicate: f64,
    /// When the link is down, from its start: [from, to) each.
    pub outages: Vec<Range<Duration>>,
}

impl Default for LinkSpec {
    /// No limit, no delay, no loss; a queue of 500 packets.
    fn default() -> Self {
        Self {
            rate: Rate::Constant(Bandwidth::MAX),
            delay: Delay::Constant(Duration::ZERO),
            jitter: Duration::ZERO,
            queue: QueueLimit::Packets(500),
            loss: Loss::NONE,
            reorder: None,
            duplicate: 0.0,
            outages: Vec::new(),
        }
    }
}

impl LinkSpec {
    /// A link of constant rate and one-way delay, else as the default.
    pub fn constant(rate: Bandwidth, delay: Duration) -> Self {
        Self {
            rate: Rate::Constant(rate),
            delay: Delay::Constant(delay),
            ..Self::default()
        }
    }

    /// A link as recorded or modelled, else as the default.
    pub fn from_trace(trace: Trace) -> Self {
        Self {
            rate: Rate::Trace(trace.capacity),
            delay: trace
                .delay
                .map_or(Delay::Constant(Duration::ZERO), Delay::Trace),
            ..Self::default()
        }
    }

    /// The same with other random loss.
    pub fn with_loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// The same with another queue.
    pub fn with_queue(self, queue: QueueLimit) -> Self {
        Self { queue, ..self }
    }
}

/// Reads the trace files that the text names.
impl FromStr for LinkSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut settings = Settings::default();
        for item in text.split(',').map(str::trim) {
            let (key, value) = item
                .split_once('=')
                .ok_or_else(|| Error::UnknownSetting(item.to_owned()))?;
            settings.set(key.trim(), value.trim())?;
        }
        settings.build()
    }
}

/// Settings as written, before the files are read.
#[derive(Default)]
struct Settings<'a> {
    rate: Option<Bandwidth>,
    source: Option<Source<'a>>,
    seed: Option<(&'a str, u64)>,
    delay: Option<DelayText<'a>>,
    spec: LinkSpec,
}

enum Source<'a> {
    Capacity(&'a str),
    Csv(&'a str),
    Leo,
    Geo,
}

enum DelayText<'a> {
    Constant(Duration),
    File(&'a str),
}

impl<'a> Settings<'a> {
    fn set(&mut self, key: &'a str, value: &'a str) -> Result<(), Error> {
        let spec = &mut self.spec;
        match key {
            "rate" => self.rate = Some(value.parse().map_err(|e| setting("rate", value, e))?),
            "bw" => self.set_source("bw", value, Source::Capacity(value))?,
            "csv" => self.set_source("csv", value, Source::Csv(value))?,
            "synth" => match value {
                "leo" => self.set_source("synth", value, Source::Leo)?,
                "geo" => self.set_source("synth", value, Source::Geo)?,
                _ => return Err(setting("synth", value, "the models are leo and geo")),
            },
            "seed" => {
                self.seed = Some((value, value.parse().map_err(|e| setting("seed", value, e))?))
            }
            "delay" => {
                let constant = text::duration(value).map(DelayText::Constant);
                self.delay = Some(constant.unwrap_or(DelayText::File(value)));
            }
            "jitter" => spec.jitter = time("jitter", value, value)?,
            "loss" => spec.loss = value.parse()?,
            "queue" => spec.queue = queue(value)?,
            "reorder" => spec.reorder = Some(reorder(value)?),
            "duplicate" => spec.duplicate = share("duplicate", value, value)?,
            "outage" => spec.outages.push(outage(value)?),
            _ => return Err(Error::UnknownSetting(key.to_owned())),
        }
        Ok(())
    }

    fn set_source(
        &mut self,
        key: &'static str,
        value: &str,
        source: Source<'a>,
    ) -> Result<(), Error> {
        match self.source.replace(source) {
            Some(_) => Err(setting(
                key,
                value,
                "only one of bw, csv and synth can be given",
            )),
            None => Ok(()),
        }
    }

    fn build(self) -> Result<LinkSpec, Error> {
        let synthetic = matches!(self.source, Some(Source::Leo | Source::Geo));
        if let (Some((value, _)), false) = (self.seed, synthetic) {
            return Err(setting("seed", value, "belongs to synth"));
        }
        if let (Some(rate), Some(Source::Capacity(_) | Source::Csv(_))) = (self.rate, &self.source)
        {
            return Err(setting(
                "rate",
                &rate.to_string(),
                "the trace has its own capacity",
            ));
        }
        let delay_file = match self.delay {
            Some(DelayText::File(file)) => {
                Some(read_delay(Path::new(file)).map_err(|error| match error {
                    Error::Read { reason, .. } => {
                        let reason = format!(
                            "is neither a time such as 25ms nor a readable file ({reason})"
                        );
                        setting("delay", file, reason)
                    }
                    other => other,
                })?)
            }
            _ => None,
        };
        let seed = self.seed.map_or(0, |(_, seed)| seed);
        let trace = match self.source {
            None => None,
            Some(Source::Capacity(file)) => Some(Trace::read(Path::new(file), None)?),
            Some(Source::Csv(file)) => Some(Trace::read_csv(Path::new(file))?),
            Some(Source::Leo) => Some(LeoModel::default().with_rate(self.rate).generate(seed)?),
            Some(Source::Geo) => Some(GeoModel::default().with_rate(self.rate).generate(seed)?),
        };
        let mut spec = self.spec;
        match trace {
            Some(mut trace) => {
                if let Some(series) = delay_file {
                    let period = trace.capacity.period();
                    trace.delay = Some(Arc::new(series.with_period(period)));
                }
                spec.rate = Rate::Trace(trace.capacity);
                spec.delay = trace.delay.map_or(spec.delay, Delay::Trace);
            }
            None => {
                spec.rate = Rate::Constant(self.rate.unwrap_or(Bandwidth::MAX));
                spec.delay = delay_file.map_or(spec.delay, |series| Delay::Trace(Arc::new(series)));
            }
        }
        if let Some(DelayText::Constant(delay)) = self.delay {
            spec.delay = Delay::Constant(delay);
        }
        Ok(spec)
    }
}

pub(crate) fn setting(key: &'static str, value: &str, reason: impl ToString) -> Error {
    Error::Setting {
        key,
        value: value.to_owned(),
        reason: reason.to_string(),
    }
}

fn time(key: &'static str, value: &str, part: &str) -> Result<Duration, Error> {
    text::duration(part)
        .ok_or_else(|| setting(key, value, "write a time of at most a day, as 25ms or 1.5s"))
}

fn share(key: &'static str, value: &str, part: &str) -> Result<f64, Error> {
    text::probability(part).ok_or_else(|| setting(key, value, "write a percentage, as 0.2%"))
}

fn queue(value: &str) -> Result<QueueLimit, Error> {
    let parse = |number: &str| number.parse().ok();
    None.or_else(|| {
        value
            .strip_suffix('p')
            .and_then(parse)
            .map(QueueLimit::Packets)
    })
    .or_else(|| {
        value
            .strip_suffix('b')
            .and_then(parse)
            .map(QueueLimit::Bytes)
    })
    .ok_or_else(|| setting("queue", value, "write packets as 500p or bytes as 64000b"))
}

fn reorder(value: &str) -> Result<Reorder, Error> {
    let (fraction, extra) = value
        .split_once(':')
        .ok_or_else(|| setting("reorder", value, "write FRACTION%:EXTRA, as 1%:20ms"))?;
    Ok(Reorder {
        fraction: share("reorder", value, fraction)?,
        extra: time("reorder", value, extra)?,
    })
}

fn outage(value: &str) -> Result<Range<Duration>, Error> {
    let (from, to) = value
        .split_once("..")
        .ok_or_else(|| setting("outage", value, "write FROM..TO, as 10s..12s"))?;
    let span = time("outage", value, from)?..time("outage", value, to)?;
    match span.is_empty() {
        true => Err(setting("outage", value, "ends before it begins")),
        false => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_says_what_the_value_says() {
        let spec: LinkSpec =
            "rate=50mbit, delay=25ms,loss=ge:1%:5,queue=64000b,jitter=1ms,reorder=1%:20ms,\
             duplicate=0.5%,outage=10s..12s,outage=20s..21s"
                .parse()
                .unwrap();
        let seconds = |from, to| Duration::from_secs(from)..Duration::from_secs(to);
        let expected = LinkSpec {
            jitter: Duration::from_millis(1),
            reorder: Some(Reorder {
                fraction: 0.01,
                extra: Duration::from_millis(20),
            }),
            duplicate: 0.005,
            outages: vec![seconds(10, 12), seconds(20, 21)],
            ..LinkSpec::constant(Bandwidth::from_mbit(50), Duration::from_millis(25))
        };
        let expected = expected
            .with_loss(Loss::gilbert_elliott(0.01, 5.0).unwrap())
            .with_queue(QueueLimit::Bytes(64_000));
        assert_eq!(spec, expected);
    }

    #[test]
    fn errors_name_the_setting() {
        for (text, part) in [
            ("", "KEY=VALUE"),
            ("rat=5mbit", "the keys rate"),
            ("rate=5", "rate=5"),
            (
                "delay=/no/such/file",
                "neither a time such as 25ms nor a readable file",
            ),
            ("bw=/no/such/file", "/no/such/file"),
            ("synth=meo", "leo and geo"),
            ("synth=leo,bw=x", "only one of"),
            ("rate=5mbit,seed=1", "belongs to synth"),
            ("csv=x,rate=5mbit", "its own capacity"),
            ("queue=5", "500p"),
            ("reorder=1%", "1%:20ms"),
            ("outage=2s..1s", "ends before"),
            ("loss=2", "0.2%"),
        ] {
            let error = text.parse::<LinkSpec>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn files_and_models_can_be_combined_with_settings() {
        let folder = std::env::temp_dir().join(format!("starhaul-link-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (bw, delay) = (folder.join("bw.txt"), folder.join("delay.txt"));
        std::fs::write(&bw, "1\n2\n").unwrap();
        std::fs::write(&delay, "7\n").unwrap();
        let text = format!("bw={},delay={}", bw.display(), delay.display());
        let spec: LinkSpec = text.parse().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let (Rate::Trace(rate), Delay::Trace(delay)) = (spec.rate, spec.delay) else {
            panic!("the files were not used");
        };
        assert_eq!(
            (rate.per_period(), delay.at(Duration::ZERO)),
            (2, Duration::from_millis(7))
        );

        let spec: LinkSpec = "synth=geo,seed=3,rate=4mbit,delay=1ms".parse().unwrap();
        let Rate::Trace(rate) = spec.rate else {
            panic!("the model was not used");
        };
        assert!((rate.mean_rate().mbit() - 4.0).abs() < 0.01);
        assert_eq!(spec.delay, Delay::Constant(Duration::from_millis(1)));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "((rate|delay|loss|queue|outage|reorder)=[0-9a-z%:.]{0,12},?){0,4}|.*") {
            let _ = text.parse::<LinkSpec>();
        }
    }
}
