//! The text form of a link: comma-separated settings.

use std::{ops::Range, path::Path, str::FromStr, sync::Arc, time::Duration};

use starhaul_units::{Bandwidth, parse_duration, parse_share};

use crate::{
    Codel, Delay, Error, LinkSpec, Loss, Model, QueueLimit, Rate, Recording, Reorder, Trace,
    formats::read_delay,
    text::{self, setting},
};

/// Keys of all settings.
const KEYS: [&str; 15] = [
    "rate",
    "bw",
    "csv",
    "synth",
    "seed",
    "delay",
    "jitter",
    "loss",
    "queue",
    "target",
    "interval",
    "icmp",
    "reorder",
    "duplicate",
    "outage",
];

/// The setting to suggest for an unknown one.
pub(crate) fn suggestion(wrong: &str) -> String {
    match text::nearest(wrong, &KEYS) {
        Some(key) => format!("did you mean {key:?}?"),
        None => format!("the settings are {}", KEYS.join(", ")),
    }
}

/// Parses a description, and reads the trace files that it names.
impl FromStr for LinkSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text, None)
    }
}

impl LinkSpec {
    /// As [`LinkSpec::from_str`], with this length of a trace of `synth` in place of the model's own.
    ///
    /// # Errors
    /// [`Error`] for settings that are none, and for trace files that cannot be read.
    pub fn parse(text: &str, synthetic: Option<Duration>) -> Result<Self, Error> {
        let mut settings = Settings {
            synthetic,
            ..Settings::default()
        };
        let mut seen = Vec::new();
        for item in text.split(',').map(str::trim) {
            let (name, value) = item
                .split_once('=')
                .ok_or_else(|| Error::NoSetting(item.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let key = KEYS
                .into_iter()
                .find(|key| *key == name)
                .ok_or_else(|| Error::UnknownSetting(name.to_owned()))?;
            if seen.contains(&key) && key != "outage" {
                return Err(setting(key, value, "is given twice"));
            }
            seen.push(key);
            settings.set(key, value)?;
        }
        settings.build()
    }
}

/// Settings as written, before files are read.
#[derive(Default)]
struct Settings<'a> {
    rate: Option<Bandwidth>,
    source: Option<Source<'a>>,
    seed: Option<(&'a str, u64)>,
    /// How long a trace of a model lasts, if not as long as the model says.
    synthetic: Option<Duration>,
    delay: Option<DelayText<'a>>,
    loss: Option<Loss>,
    target: Option<(&'a str, Duration)>,
    interval: Option<(&'a str, Duration)>,
    spec: LinkSpec,
}

enum Source<'a> {
    Capacity(&'a str),
    Csv(&'a str),
    Model(Model),
}

enum DelayText<'a> {
    Constant(Duration),
    File(&'a str),
}

impl<'a> Settings<'a> {
    /// Sets one value; `key` is one of [`KEYS`].
    fn set(&mut self, key: &'static str, value: &'a str) -> Result<(), Error> {
        let spec = &mut self.spec;
        match key {
            "rate" => self.rate = Some(value.parse().map_err(|e| setting(key, value, e))?),
            "bw" => self.set_source(key, value, Source::Capacity(value))?,
            "csv" => self.set_source(key, value, Source::Csv(value))?,
            "synth" => self.set_source(key, value, Source::Model(value.parse()?))?,
            "seed" => self.seed = Some((value, value.parse().map_err(|e| setting(key, value, e))?)),
            "delay" => {
                let constant = parse_duration(value).map(DelayText::Constant);
                self.delay = Some(constant.unwrap_or(DelayText::File(value)));
            }
            "jitter" => spec.jitter = time(key, value, value)?,
            "loss" => self.loss = Some(value.parse()?),
            "queue" => (spec.queue, spec.codel) = queue(value)?,
            "target" => self.target = Some((value, time(key, value, value)?)),
            "interval" => self.interval = Some((value, time(key, value, value)?)),
            "icmp" => {
                spec.icmp_band = match value {
                    "band" => true,
                    "queue" => false,
                    _ => return Err(setting(key, value, "write band or queue")),
                }
            }
            "reorder" => spec.reorder = Some(reorder(value)?),
            "duplicate" => spec.duplicate = share(key, value, value)?,
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

    fn build(mut self) -> Result<LinkSpec, Error> {
        self.check()?;
        self.spec.codel = self.codel()?;
        let (constant_delay, file) = match self.delay {
            Some(DelayText::Constant(delay)) => (Some(delay), Recording::default()),
            Some(DelayText::File(file)) => (None, delay_file(file)?),
            None => (None, Recording::default()),
        };
        let seed = self.seed.map_or(0, |(_, seed)| seed);
        let recording = match self.source {
            None => Recording::default(),
            Some(Source::Capacity(file)) => Trace::read(Path::new(file), None)?.into(),
            Some(Source::Csv(file)) => Trace::read_csv(Path::new(file))?.into(),
            Some(Source::Model(model)) => model.generate(self.rate, self.synthetic, seed)?.into(),
        };
        // Without a path in a log of delays all is lost, whatever the source loses at that time.
        let mut recording = recording.and_loss(file.loss);
        if let Some(delay) = file.delay {
            recording = recording.with_delay(Arc::unwrap_or_clone(delay))?;
        }
        let constant_rate = Rate::Constant(self.rate.unwrap_or(Bandwidth::MAX));
        let mut spec = self.spec;
        spec.rate = recording.capacity.map_or(constant_rate, Rate::Trace);
        spec.delay = recording.delay.map_or(spec.delay, Delay::Trace);
        spec.delay = constant_delay.map_or(spec.delay, Delay::Constant);
        spec.loss_trace = recording.loss;
        Ok(match self.loss {
            Some(loss) => spec.with_loss(loss),
            None => spec,
        })
    }

    /// Checks settings that need or exclude each other.
    fn check(&self) -> Result<(), Error> {
        let synthetic = matches!(self.source, Some(Source::Model(_)));
        if let (Some((value, _)), false) = (self.seed, synthetic) {
            return Err(setting("seed", value, "belongs to synth"));
        }
        match (self.rate, &self.source) {
            (Some(rate), Some(Source::Capacity(_) | Source::Csv(_))) => Err(setting(
                "rate",
                &rate.to_string(),
                "the trace has its own capacity",
            )),
            _ => Ok(()),
        }
    }

    fn codel(&self) -> Result<Option<Codel>, Error> {
        let times = [("target", self.target), ("interval", self.interval)];
        let Some(default) = self.spec.codel else {
            return match times.iter().find_map(|(key, time)| Some((*key, (*time)?))) {
                Some((key, (value, _))) => Err(setting(key, value, "belongs to queue=codel")),
                None => Ok(None),
            };
        };
        Ok(Some(Codel {
            target: self.target.map_or(default.target, |(_, time)| time),
            interval: self.interval.map_or(default.interval, |(_, time)| time),
        }))
    }
}

fn delay_file(file: &str) -> Result<Recording, Error> {
    read_delay(Path::new(file)).map_err(|error| match error {
        Error::Read { reason, .. } => {
            let reason = format!("is neither a time such as 25ms nor a readable file ({reason})");
            setting("delay", file, reason)
        }
        other => other,
    })
}

fn time(key: &'static str, value: &str, part: &str) -> Result<Duration, Error> {
    parse_duration(part).map_err(|error| setting(key, value, error))
}

fn share(key: &'static str, value: &str, part: &str) -> Result<f64, Error> {
    parse_share(part).map_err(|error| setting(key, value, error))
}

fn queue(value: &str) -> Result<(QueueLimit, Option<Codel>), Error> {
    let codel = Some(Codel::default());
    let (bound, codel) = match value.strip_prefix("codel") {
        Some("") => return Ok((LinkSpec::default().queue, codel)),
        Some(bound) => (bound.strip_prefix(':'), codel),
        None => (Some(value), None),
    };
    let number = |unit| bound?.strip_suffix(unit)?.parse().ok();
    let packets = number('p').map(QueueLimit::Packets);
    let limit = packets.or_else(|| number('b').map(QueueLimit::Bytes));
    let limit = limit.ok_or_else(|| {
        let form = "write packets as 500p or bytes as 64000b; for CoDel codel, or codel:500p";
        setting("queue", value, form)
    })?;
    Ok((limit, codel))
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
    fn a_codel_queue_has_a_bound_a_target_and_an_interval() {
        let parse = |text: &str| text.parse::<LinkSpec>().unwrap();
        let ms = Duration::from_millis;
        let codel = parse("queue=codel");
        assert_eq!(
            (codel.codel, codel.queue),
            (Some(Codel::default()), LinkSpec::default().queue)
        );
        let bounded = parse("queue=codel:9000b,interval=50ms,target=2ms");
        let (target, interval) = (ms(2), ms(50));
        assert_eq!(bounded.codel, Some(Codel { target, interval }));
        assert_eq!(bounded.queue, QueueLimit::Bytes(9_000));
        assert_eq!(parse("queue=20p").codel, None);
        assert!(parse("rate=1mbit").icmp_band && !parse("icmp=queue").icmp_band);
    }

    #[test]
    fn errors_name_the_setting() {
        for (text, part) in [
            ("", "KEY=VALUE"),
            ("rat=5mbit", "did you mean \"rate\"?"),
            ("foo=5mbit", "the settings are rate, "),
            ("rate", "KEY=VALUE"),
            ("rate=5mbit,rate=6mbit", "given twice"),
            ("rate=5", "rate=5"),
            (
                "delay=/no/such/file",
                "neither a time such as 25ms nor a readable file",
            ),
            ("bw=/no/such/file", "/no/such/file"),
            ("synth=meo", "leo, geo and cellular"),
            ("synth=leo,bw=x", "only one of"),
            ("rate=5mbit,seed=1", "belongs to synth"),
            ("csv=x,rate=5mbit", "its own capacity"),
            ("queue=5", "500p"),
            ("queue=codel:5", "500p"),
            ("queue=fq_codel", "codel"),
            ("target=5ms", "belongs to queue=codel"),
            ("queue=500p,interval=50ms", "belongs to queue=codel"),
            ("queue=codel,target=5", "is not a duration"),
            ("icmp=none", "band or queue"),
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
        let folder = tempfile::tempdir().unwrap();
        let file = |name| folder.path().join(name);
        let (bw, delay) = (file("bw.txt"), file("delay.txt"));
        std::fs::write(&bw, "1\n2\n").unwrap();
        std::fs::write(&delay, "7\n").unwrap();
        let text = format!("bw={},delay={}", bw.display(), delay.display());
        let spec: LinkSpec = text.parse().unwrap();
        let (Rate::Trace(rate), Delay::Trace(delay)) = (spec.rate, spec.delay) else {
            panic!("the files were not used");
        };
        assert_eq!(
            (rate.per_period(), delay.at(Duration::ZERO)),
            (2, Duration::from_millis(7))
        );

        let text = "synth=geo,seed=3,rate=4mbit,delay=1ms";
        let spec = LinkSpec::parse(text, Some(Duration::from_secs(7))).unwrap();
        let Rate::Trace(rate) = spec.rate else {
            panic!("the model was not used");
        };
        assert_eq!(rate.period(), Duration::from_secs(7));
        let spec: LinkSpec = text.parse().unwrap();
        let Rate::Trace(rate) = spec.rate else {
            panic!("the model was not used");
        };
        assert!((rate.mean_rate().mbit() - 4.0).abs() < 0.01);
        assert_eq!(spec.delay, Delay::Constant(Duration::from_millis(1)));
    }

    #[test]
    fn delays_with_gaps_leave_the_loss_of_a_table() {
        let folder = tempfile::tempdir().unwrap();
        let [table, log] = ["path.csv", "path.log"].map(|name| folder.path().join(name));
        let rows = "t_s,capacity_mbps,loss_p\n0,12,0.1\n1,12,0.1\n2,12,0\n";
        std::fs::write(&table, rows).unwrap();
        let seconds = "0$[1,2]$1$[0.005]$0.010\n1$NULL\n2$[1,2]$1$[0.005]$0.020\n";
        std::fs::write(&log, seconds).unwrap();
        let text = format!("csv={},delay={}", table.display(), log.display());
        let spec: LinkSpec = text.parse().unwrap();
        let loss = spec.loss_trace.unwrap();
        let at = |second| loss.at(Duration::from_secs(second));
        assert_eq!([at(0), at(1), at(2)], [0.1, 1.0, 0.0]);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "((rate|delay|loss|queue|outage|reorder)=[0-9a-z%:.]{0,12},?){0,4}|.*") {
            let _ = text.parse::<LinkSpec>();
        }
    }
}
