//! `starhaul orbit`: constellations, the paths over them, and maps. What moves is in `starhaul-orbit`.

mod files;
mod info;
mod map;
mod paths;
mod progress;
mod source;

use std::{ffi::OsString, time::Duration};

use clap::Subcommand;
use starhaul_units::{Bandwidth, parse_duration_in};

use self::source::Source;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Find the shortest paths between ground stations over time
    ///
    /// Without --out the figures alone: propagation, links, changes of the path and handovers of its ends. With --out
    /// the paths step by step.
    #[command(after_help = concat!("Examples:\n  starhaul orbit paths Beijing Paris --out path.json\n  ",
        "starhaul orbit paths Beijing 'Hong Kong' Paris 'New York'\n  ",
        "starhaul orbit paths --preset leotp\n  ",
        "starhaul orbit paths --tle Starlink.tle Berlin Boston --duration 30min --out path.log\n  ",
        "starhaul orbit paths Beijing Paris --rate 10mbit --out up.csv; starhaul replay --up csv=up.csv …"))]
    Paths(PathsArguments),
    /// Draw the satellites and the path between two ground stations
    #[command(after_help = concat!("Examples:\n  starhaul orbit plot Beijing 'New York' --out map.html\n  ",
        "starhaul orbit plot Beijing 'New York' --moment 2min --out map.svg"))]
    Plot(PlotArguments),
    /// Show a constellation, and what each ground station sees of it
    #[command(after_help = concat!("Examples:\n  starhaul orbit info --shell oneweb\n  ",
        "starhaul orbit info --tle Starlink.tle London --json\n  starhaul orbit info --cities"))]
    Info(InfoArguments),
}

#[derive(clap::Args)]
struct Steps {
    /// Length of the time that is covered
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = parse_span)]
    duration: Duration,
    /// How often the path is found anew
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_span)]
    step: Duration,
}

#[derive(clap::Args)]
struct PathsArguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    steps: Steps,
    /// The paths among all stations [default: from the first to each other]
    #[arg(long)]
    all_pairs: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Where to write the paths: a file that ends in .json (everything), .csv (a table; with --rate a link), .log (a path
    /// log of LeoEM), .txt (delays of LeoReplayer) or .times (when the path changes, for relays and gateways) for one path,
    /// a folder for several
    #[arg(long, short, value_name = "FILE|FOLDER")]
    out: Option<std::path::PathBuf>,
    /// Capacity in tables: that of a ground link, this halfway between two handovers and half of it at each
    #[arg(long, value_name = "RATE", requires = "out")]
    rate: Option<Bandwidth>,
    /// Whose ground link limits the capacity: from or to
    #[arg(long, value_name = "END", default_value = "from", requires = "rate")]
    limited_at: paths::LimitedAt,
}

#[derive(clap::Args)]
struct PlotArguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    steps: Steps,
    /// The moment of a picture [default: 0]
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    moment: Option<Duration>,
    /// Where to write: one HTML page that plays and needs no network when FILE ends in .html, a picture of one moment when
    /// it ends in .svg
    #[arg(long, short, value_name = "FILE")]
    out: std::path::PathBuf,
}

#[derive(clap::Args)]
struct InfoArguments {
    #[command(flatten)]
    source: Source,
    /// List the cities that are known by name, in place of a constellation
    #[arg(long = "cities")]
    cities: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The arguments with a space before coordinates in the south, as -33.9,18.4, which would be taken for options; a station is read
/// without it.
pub(crate) fn with_southern_stations(words: &[OsString]) -> Vec<OsString> {
    let is_of_orbit = words.iter().any(|word| word == "orbit");
    let is_southern = |word: &OsString| {
        let station = word.to_str().and_then(|word| word.strip_prefix('-'));
        let latitude = station.and_then(|station| station.split_once(','));
        latitude.is_some_and(|(latitude, _)| starhaul_units::parse_decimal(latitude).is_some())
    };
    let read = words.iter().map(|word| {
        let mut read = OsString::new();
        if is_of_orbit && is_southern(word) {
            read.push(" ");
        }
        read.push(word);
        read
    });
    read.collect()
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Paths(arguments) => paths::run(&arguments),
        Command::Plot(arguments) => map::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
    }
}

fn parse_span(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(1)..=Duration::from_secs(86_400);
    parse_duration_in(range, text).map_err(|error| error.to_string())
}

fn parse_moment(text: &str) -> Result<Duration, String> {
    let range = Duration::ZERO..=Duration::from_secs(86_400);
    parse_duration_in(range, text).map_err(|error| error.to_string())
}
