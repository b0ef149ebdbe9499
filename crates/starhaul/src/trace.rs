//! `starhaul trace`: reads recordings; writes figures, other formats and plots. Traces are in `starhaul-link`.

mod compare;
mod info;
mod picture;
mod target;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Subcommand;
use starhaul_link::{Comparison, Error, Format, LinkSpec, Model, Recording, Summary};
use starhaul_units::{Bandwidth, parse_duration};

use self::{
    picture::TraceReport,
    target::{Target, write_to},
};
use crate::output::{Picture, command_line, print, tell};

/// How long a link lasts that is constant.
const CONSTANT: Duration = Duration::from_secs(60);

const SOURCES: &str = "\
TRACE is a file (mahimahi or LeoReplayer capacity, LeoReplayer delays, CSV, a LeoEM path log; any of them also as .gz)
or a link as for replay: rate=50mbit,delay=25ms or synth=leo,seed=3 or bw=FILE,delay=FILE.";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show capacity, delay, loss, outages and regular reconfigurations
    #[command(after_help = concat!("Examples:\n  starhaul trace info bw.txt delay.txt\n  starhaul trace info --json path.csv\n  ",
        "starhaul trace info synth=leo,seed=3"))]
    Info(InfoArguments),
    /// Write a trace in another format
    #[command(after_help = concat!("Examples:\n  starhaul trace convert bw.txt delay.txt --out path.csv\n  ",
        "starhaul trace convert path.csv --out bw.txt --out-delay delay.txt\n  ",
        "starhaul trace convert path.log.gz --out delay.txt"))]
    Convert(ConvertArguments),
    /// Draw capacity, delay and loss over time, with outages and reconfigurations marked
    #[command(after_help = concat!("Examples:\n  starhaul trace plot bw.txt delay.txt --out path.html\n  ",
        "starhaul trace plot path.csv --from 5s --to 15s --out path.svg"))]
    Plot(PlotArguments),
    /// Make a trace of a model
    ///
    /// leo: Starlink as recorded by LeoCC's authors, with a reconfiguration every 15 s. geo: a geostationary satellite.
    /// cellular: a phone network in motion (Sprout's model).
    #[command(after_help = concat!("Examples:\n  starhaul trace synth leo --seconds 120 --seed 7 --out path.csv\n  ",
        "starhaul trace synth cellular --rate 30mbit --out bw.txt --out-delay delay.txt"))]
    Synth(SynthArguments),
    /// Compare two traces, such as a recording and the link that it was made through
    ///
    /// SECOND may begin anywhere in FIRST, which repeats. A pair of files is written as a link: bw=FILE,delay=FILE.
    #[command(after_help = concat!("Examples:\n  starhaul trace compare bw=bw.txt,delay=delay.txt bw=here/up-bw.txt,delay=here/up-delay.txt\n  ",
        "starhaul trace compare --json synth=leo,seed=3 here/up.csv"))]
    Compare(CompareArguments),
    /// Write a part of a trace
    #[command(
        after_help = "Example:\n  starhaul trace cut bw.txt delay.txt --from 20s --to 50s --out bw-cut.txt --out-delay delay-cut.txt"
    )]
    Cut(CutArguments),
}

#[derive(clap::Args)]
#[command(after_long_help = SOURCES)]
struct Source {
    /// A file, or a link such as rate=50mbit,delay=25ms or synth=leo,seed=3
    #[arg(value_name = "TRACE")]
    trace: String,
    /// Delays that belong to TRACE: a file of LeoReplayer or LeoEM, or a time such as 25ms
    #[arg(value_name = "DELAY")]
    delay: Option<String>,
    /// Format of TRACE: mahimahi, delay, csv or leoem [default: by its content]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    length: Length,
}

// Of traces that have no length of their own.
#[derive(clap::Args, Clone, Copy)]
struct Length {
    /// How long a TRACE lasts that is constant, as rate=50mbit, or a model's, as synth=leo [default: 60, or as long as the
    /// model says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=7_200))]
    seconds: Option<u64>,
}

#[derive(clap::Args)]
struct InfoArguments {
    #[command(flatten)]
    source: Source,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct CompareArguments {
    /// A file, or a link such as synth=leo,seed=3 or bw=FILE,delay=FILE
    #[arg(value_name = "FIRST")]
    first: String,
    /// The second trace, written in the same way
    #[arg(value_name = "SECOND")]
    second: String,
    /// Where in FIRST the other begins [default: where both agree best]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    shift: Option<Duration>,
    #[command(flatten)]
    length: Length,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ConvertArguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    target: Target,
}

#[derive(clap::Args)]
struct PlotArguments {
    #[command(flatten)]
    source: Source,
    /// Where to write: one HTML page that needs no network when FILE ends in .html or is -, a picture when it ends in
    /// .svg
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    /// Draw from here
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    from: Duration,
    /// Draw up to here [default: the end]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    to: Option<Duration>,
}

#[derive(clap::Args)]
struct SynthArguments {
    /// leo, geo or cellular
    model: Model,
    /// How long the trace lasts; leo: rounded up to whole intervals of 15 s
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=7_200))]
    seconds: Option<u64>,
    /// The same seed gives the same trace
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Mean rate [default: leo 48.7mbit, geo 10mbit, cellular 12mbit]
    #[arg(long, value_name = "RATE")]
    rate: Option<Bandwidth>,
    #[command(flatten)]
    target: Target,
}

#[derive(clap::Args)]
struct CutArguments {
    #[command(flatten)]
    source: Source,
    /// Beginning of the part, from the start of the trace
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    from: Duration,
    /// Where it ends [default: the end]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    to: Option<Duration>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Info(arguments) => info(&arguments),
        Command::Convert(arguments) => arguments.target.write(&arguments.source.read()?.recording),
        Command::Plot(arguments) => plot(&arguments),
        Command::Synth(arguments) => synth(&arguments),
        Command::Compare(arguments) => compare(&arguments),
        Command::Cut(arguments) => cut(&arguments),
    }
}

fn info(arguments: &InfoArguments) -> anyhow::Result<()> {
    let read = arguments.source.read()?;
    let summary = Summary::of(&read.recording);
    print(match arguments.json {
        true => format!("{}\n", info::json(&read, &summary)),
        false => info::text(&read, &summary),
    })
}

fn compare(arguments: &CompareArguments) -> anyhow::Result<()> {
    let read = |trace: &String| {
        let source = Source {
            trace: trace.clone(),
            delay: None,
            format: None,
            length: arguments.length,
        };
        source.read()
    };
    let (first, second) = (read(&arguments.first)?, read(&arguments.second)?);
    let found = Comparison::of(&first.recording, &second.recording, arguments.shift);
    print(match arguments.json {
        true => format!("{}\n", compare::json(&first, &second, &found)),
        false => compare::text(&first, &second, &found),
    })
}

fn plot(arguments: &PlotArguments) -> anyhow::Result<()> {
    let kind = match arguments.out == Path::new("-") {
        true => Picture::Page,
        false => Picture::of("--out", &arguments.out)?,
    };
    let mut read = arguments.source.read()?;
    // A part may be too short to tell what is regular.
    let reconfigurations = Summary::of(&read.recording).reconfigurations;
    if arguments.from > Duration::ZERO || arguments.to.is_some() {
        read.recording = part(&read.recording, arguments.from, arguments.to)?;
    }
    let command = command_line();
    let report = TraceReport {
        name: &read.name,
        recording: &read.recording,
        from: arguments.from,
        summary: &Summary {
            reconfigurations,
            ..Summary::of(&read.recording)
        },
        command: &command,
    };
    let text = match kind {
        Picture::Svg => report.svg(),
        Picture::Page => report.html(),
    };
    write_to(&arguments.out, |out| out.write_all(text.as_bytes()))
}

fn synth(arguments: &SynthArguments) -> anyhow::Result<()> {
    let duration = arguments.seconds.map(Duration::from_secs);
    let trace = arguments
        .model
        .generate(arguments.rate, duration, arguments.seed)?;
    arguments.target.write(&trace.into())
}

fn cut(arguments: &CutArguments) -> anyhow::Result<()> {
    let recording = arguments.source.read()?.recording;
    let part = part(&recording, arguments.from, arguments.to)?;
    arguments.target.write(&part)
}

/// The part that is asked for; says so where the trace ends before it.
fn part(recording: &Recording, from: Duration, to: Option<Duration>) -> Result<Recording, Error> {
    let end = recording.period();
    let part = recording.cut(from..to.unwrap_or(end))?;
    if to.is_some_and(|to| to > end) {
        let seconds = end.as_secs_f64();
        tell(format!(
            "note: the trace ends at {seconds} s, before --to: so does the part\n"
        ));
    }
    Ok(part)
}

/// A recording, and its source.
struct Read {
    name: String,
    /// The format of a file.
    format: Option<Format>,
    recording: Recording,
}

impl Source {
    fn read(&self) -> anyhow::Result<Read> {
        let file = Path::new(&self.trace);
        let is_link = self.trace.contains('=') && !file.exists();
        let (mut recording, format) = if is_link {
            let seconds = self.length.seconds.map(Duration::from_secs);
            let spec = LinkSpec::parse(&self.trace, seconds)?;
            tell_of_the_link(&spec);
            let duration = seconds.unwrap_or(CONSTANT);
            (Recording::of_spec(&spec, duration)?, None)
        } else {
            let (recording, format) = Recording::read(file, self.format)?;
            (recording, Some(format))
        };
        let mut name = match is_link {
            true => self.trace.clone(),
            false => file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        };
        if let Some(delay) = &self.delay {
            let spec: LinkSpec = format!("delay={delay}").parse()?;
            let period = recording.period();
            let delays = Recording::of_spec(&spec, period.max(Duration::from_millis(1)))?;
            // A path log loses all packets where it has no path.
            recording = recording.and_loss(spec.loss_trace);
            if let Some(series) = delays.delay {
                recording = recording.with_delay((*series).clone())?;
            }
            let file = Path::new(delay).file_name().unwrap_or_default();
            name = format!("{name} + {}", file.display());
        }
        Ok(Read {
            name,
            format,
            recording,
        })
    }
}

/// Says what of a link no trace has.
fn tell_of_the_link(spec: &LinkSpec) {
    let settings = [
        ("outage", !spec.outages.is_empty()),
        ("jitter", !spec.jitter.is_zero()),
        ("reorder", spec.reorder.is_some()),
        ("duplicate", spec.duplicate > 0.0),
        ("bursts of loss", spec.loss.is_bursty()),
    ];
    let has: Vec<&str> = settings
        .iter()
        .filter(|(_, has)| *has)
        .map(|(name, _)| *name)
        .collect();
    if !has.is_empty() {
        tell(format!(
            "note: a trace has no {}: that remains with the link\n",
            has.join(" and no ")
        ));
    }
}
