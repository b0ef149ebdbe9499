//! `starhaul orbit plot`: satellites, lasers and a path on a map of the world, as a picture of one moment or as a page that
//! plays.

mod world;

use std::{fs, time::Duration};

use anyhow::Context as _;
use serde_json::json;
use starhaul_orbit::{
    EARTH_RADIUS_KM, LEAST_GRAZING_KM, Network, PathOverTime, Position, Snapshot, Step,
};
use starhaul_plot::{Chart, LINE_WIDTH, Panel, Scale, Sheet};

use self::world::World;
use super::{PlotArguments, progress::Bar};
use crate::output::{Picture, Usage, command_line};

const CHART_HEIGHT: f64 = 200.0;
/// What a page can hold.
const MAX_DURATION: Duration = Duration::from_secs(2 * 3600);
/// What the axis of a path that never exists ends at.
const NO_PATH_MS: f64 = 100.0;
/// Greatest distance of the instants between which a page moves satellites along great circles: 1/48 of an orbit of 95
/// minutes.
const KEY_STEP: Duration = Duration::from_secs(120);
/// Places of satellites that a page holds at most; more satellites have fewer of them.
const MAX_PLACES: usize = 1_000_000;

pub(super) fn run(arguments: &PlotArguments) -> anyhow::Result<()> {
    let kind = Picture::of("--out", &arguments.out)?;
    let network = arguments.source.network(2)?;
    let (duration, step) = (arguments.steps.duration, arguments.steps.step);
    if network.stations().len() != 2 {
        let problem = "a map shows one path: name two ground stations";
        return Err(Usage(problem.to_owned()).into());
    }
    if duration > MAX_DURATION {
        let problem = "--duration: a map shows at most two hours";
        return Err(Usage(problem.to_owned()).into());
    }
    if kind == Picture::Page && arguments.moment.is_some() {
        let problem =
            "--moment is that of a picture, and a page plays; name a file that ends in .svg";
        return Err(Usage(problem.to_owned()).into());
    }
    let moment = arguments.moment.unwrap_or_default();
    if moment >= duration {
        let problem = "--moment lies after the end; take a longer --duration";
        return Err(Usage(problem.to_owned()).into());
    }
    let bar = Bar::new();
    let mut paths = network.paths(&[(0, 1)], duration, step, |done, all| bar.show(done, all))?;
    bar.finish();
    let Some(path) = paths.pop() else {
        return Ok(());
    };
    let command = command_line();
    let map = Map {
        network: &network,
        path: &path,
        name: &arguments.source.name()?,
        command: &command,
    };
    let text = match kind {
        Picture::Svg => map.svg(moment),
        Picture::Page => map.html(),
    };
    let file = &arguments.out;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Input of the picture of a path over time.
struct Map<'a> {
    network: &'a Network,
    path: &'a PathOverTime,
    name: &'a str,
    command: &'a str,
}

impl Map<'_> {
    fn svg(&self, moment: Duration) -> String {
        let mut sheet = self.sheet(moment, None);
        let title = format!("{} at {} s", sheet.title, moment.as_secs_f64());
        sheet.title = &title;
        sheet.svg()
    }

    fn html(&self) -> String {
        // A name must not end the script.
        let data = self.data().to_string().replace('<', "\\u003c");
        let script = format!("const data = {data};\n{}", include_str!("map/play.js"));
        self.sheet(Duration::ZERO, Some(&script)).html()
    }

    fn sheet<'a>(&'a self, moment: Duration, script: Option<&'a str>) -> Sheet<'a> {
        let panel = |height, chart| Panel {
            heading: None,
            height,
            chart,
        };
        let step = self.step_at(moment).map(|(_, step)| step);
        let (links, delay) = match step.filter(|step| step.is_connected()) {
            Some(step) => (
                step.links().to_string(),
                format!("{:.2} ms", ms(step.propagation())),
            ),
            None => ("0".to_owned(), "no path".to_owned()),
        };
        let figures = self.path.figures();
        let never = || "none at any time".to_owned();
        let delay_mean = figures.propagation_mean();
        let delay_mean = delay_mean.map(|mean| format!("mean {:.2} ms", ms(mean)));
        let links_mean = figures.links_mean().map(|mean| format!("mean {mean:.2}"));
        Sheet {
            title: "The shortest path over a constellation",
            sentences: vec![self.sentence()],
            warning: None,
            marks: vec![
                ("capacity", "satellite"),
                ("starhaul", "path"),
                ("mpquic", "ground station, change of the path"),
            ],
            figures: vec![
                (
                    "propagation".to_owned(),
                    delay,
                    delay_mean.unwrap_or_else(never),
                ),
                ("links".to_owned(), links, links_mean.unwrap_or_else(never)),
                (
                    "changes of the path".to_owned(),
                    figures.changes.to_string(),
                    format!("{} handovers at its ends", figures.handovers),
                ),
            ],
            panels: vec![
                panel(world::HEIGHT, self.world(moment)),
                panel(CHART_HEIGHT, self.chart(script.is_none().then_some(moment))),
            ],
            command: self.command,
            script,
        }
    }

    fn sentence(&self) -> String {
        let constellation = self.network.constellation();
        format!(
            "{} to {} over {}, {} s from {}.",
            self.path.from(),
            self.path.to(),
            self.name,
            self.path.duration().as_secs_f64(),
            constellation.start()
        )
    }

    /// The step of a moment, and when it began.
    fn step_at(&self, moment: Duration) -> Option<(Duration, &Step)> {
        let mut steps = self.path.steps();
        steps.find(|(at, _)| *at + self.path.step() > moment)
    }

    fn world(&self, moment: Duration) -> String {
        let snapshot = self.network.at(moment);
        let positions = snapshot.positions();
        let mut world = World::default();
        let place = |node: u32| positions.get(node as usize).copied().flatten();
        for &(a, b) in snapshot.laser_links() {
            if let (Some(from), Some(to)) = (place(a), place(b)) {
                world.laser(from, to);
            }
        }
        positions
            .iter()
            .flatten()
            .for_each(|position| world.satellite(*position));
        let (from, to) = self.ends();
        let stations = self.network.stations();
        let at = |node: u32| -> Option<Position> {
            let station = stations
                .iter()
                .zip([from, to])
                .find(|(_, own)| *own == node);
            station
                .map(|(station, _)| station.position())
                .or_else(|| place(node))
        };
        // Until the next step the path is the one that was the shortest at the beginning of its own.
        let begun = self.step_at(moment).map_or(moment, |(at, _)| at);
        let route = self.route(&self.network.at(begun)).into_iter();
        world.route(&route.filter_map(at).collect::<Vec<_>>());
        for station in stations {
            world.station(station.name(), station.coordinates());
        }
        world.svg()
    }

    /// The nodes of both stations.
    fn ends(&self) -> (u32, u32) {
        (self.network.station_node(0), self.network.station_node(1))
    }

    /// The nodes of the path at an instant; none without one.
    fn route(&self, snapshot: &Snapshot) -> Vec<u32> {
        let (from, to) = self.ends();
        let route = snapshot.route(&snapshot.tree(from, &[to]), to);
        route.map(|route| route.nodes).unwrap_or_default()
    }

    fn chart(&self, moment: Option<Duration>) -> String {
        let scale = match self.path.figures().propagation_range() {
            Some((least, most)) => Scale::around(ms(least), ms(most)),
            // Any scale that its labels can tell.
            None => Scale::up_to(NO_PATH_MS),
        };
        let x = Scale::Linear(0.0, self.path.duration().as_secs_f64());
        let mut chart = Chart::sized((LINE_WIDTH, CHART_HEIGHT), "Propagation", "ms", x, scale);
        let changes = self.path.changes();
        chart.verticals("mpquic", changes.iter().map(Duration::as_secs_f64));
        for points in self.connected() {
            chart.line("starhaul", &points);
        }
        if let Some(moment) = moment {
            chart.verticals("outage", [moment.as_secs_f64()].into_iter());
        }
        chart.svg("propagation over time")
    }

    /// Offset and propagation in ms, for each time with a path, to its end.
    fn connected(&self) -> Vec<Vec<(f64, f64)>> {
        let steps: Vec<_> = self.path.steps().collect();
        let times = steps.chunk_by(|(_, a), (_, b)| a.is_connected() == b.is_connected());
        let times = times.filter(|time| time.iter().any(|(_, step)| step.is_connected()));
        let points = times.map(|time| {
            let point = |at: Duration, step: &Step| (at.as_secs_f64(), ms(step.propagation()));
            let end = time.last();
            let end = end.map(|(at, step)| point(*at + self.path.step(), step));
            let starts = time.iter().map(|(at, step)| point(*at, step));
            starts.chain(end).collect::<Vec<_>>()
        });
        points.collect()
    }

    /// What the page moves: places of all satellites at some instants, their distances from the Earth's centre at the start, by
    /// which it tells what is in sight, and the path step by step.
    fn data(&self) -> serde_json::Value {
        let satellites = self.network.constellation().satellites().len();
        let duration = self.path.duration();
        let affordable = u32::try_from(MAX_PLACES / satellites.max(1))
            .unwrap_or(u32::MAX)
            .max(2);
        let spans = duration.as_secs_f64() / KEY_STEP.as_secs_f64();
        let key_step = match spans + 2.0 > f64::from(affordable) {
            true => duration / (affordable - 1),
            false => KEY_STEP,
        };
        let keys = duration.as_nanos().div_ceil(key_step.as_nanos().max(1)) + 1;
        let keys = u32::try_from(keys).unwrap_or(u32::MAX);
        let places = (0..keys).map(|key| {
            let positions = self.network.constellation().positions(key_step * key);
            let places = positions.iter().map(|position| match position {
                Some(position) => {
                    let (latitude, longitude) = position.latitude_longitude();
                    json!([hundredths(longitude), hundredths(latitude)])
                }
                None => json!(null),
            });
            places.collect::<Vec<_>>()
        });
        let radii = self.network.constellation().positions(Duration::ZERO);
        let radii = radii
            .iter()
            .map(|place| place.map(|place| place.norm().round()));
        let mut routes = Vec::new();
        let mut last = None;
        let mut delays = Vec::new();
        for (number, (at, step)) in self.path.steps().enumerate() {
            delays.push(step.is_connected().then(|| ms(step.propagation())));
            if last != Some(step.nodes()) {
                // Satellites may have one name, and only the network tells their nodes.
                let nodes = self.route(&self.network.at(at));
                routes.push(json!([number, nodes]));
                last = Some(step.nodes());
            }
        }
        let stations = self.network.stations().iter().map(|station| {
            let (latitude, longitude) = station.coordinates();
            json!([longitude, latitude])
        });
        json!({
            "duration_s": duration.as_secs_f64(),
            "step_s": self.path.step().as_secs_f64(),
            "key_s": key_step.as_secs_f64(),
            "places": places.collect::<Vec<_>>(),
            "radii_km": radii.collect::<Vec<_>>(),
            "sight_km": EARTH_RADIUS_KM + LEAST_GRAZING_KM,
            "lasers": self.network.lasers(),
            "stations": stations.collect::<Vec<_>>(),
            "routes": routes,
            "delays_ms": delays,
        })
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Hundredths of a degree.
#[expect(
    clippy::cast_possible_truncation,
    reason = "an angle is at most 360 degrees"
)]
fn hundredths(degrees: f64) -> i32 {
    (degrees * 100.0).round() as i32
}
