//! The satellite of a path in the configuration: its kind of link, and how its reconfigurations are detected.

use std::time::Duration;

use starhaul_cc::DetectorConfig;
use starhaul_config::{Error, Key, Table, definition::names};
use starhaul_endpoint::{Detection, LinkKind, ProbeMethod, ProbeTarget, Timetable};

/// The kind of link of a path.
pub(super) const LINK: Key = Key::words("link", &LINK_NAMES)
    .or("other")
    .means("Kind of link. `leo`: a low-orbit satellite, which changes the defaults of `controller` and `detect`, and of the peer's `controller` of its direction.");
/// Whether the reconfigurations of a path are detected.
pub(super) const DETECT: Key = Key::words("detect", &WISH_NAMES)
    .or("auto")
    .means("Whether [reconfigurations](reconfigurations.md) of its satellite are detected. `auto`: with `link = \"leo\"`, or a `controller` that uses them (LeoCC, SaTCP).");
/// Keys for how reconfigurations are detected.
pub(super) const KEYS: &[Key] = &[
    Key::text("detect_target", "`auto`, or an IP address")
        .or("auto")
        .with(LEO)
        .means("Host to probe: the nearest stable address behind the satellite, or this one."),
    Key::words("detect_by", &METHOD_NAMES)
        .or("auto")
        .with(LEO)
        .means("Protocol of the probes. `udp` is answered by the peer's gateway at `remote`."),
    Key::duration("detect_interval", SHORTEST_INTERVAL..=Duration::from_millis(100))
        .or_duration(DetectorConfig::DEFAULT.probe_interval)
        .with(LEO)
        .means("Time between two probes."),
    Key::duration("detect_idle_interval", SHORTEST_INTERVAL..=Duration::from_secs(60))
        .or_duration(DetectorConfig::DEFAULT.idle_interval)
        .with(LEO)
        .means("The same [while the path is idle](reconfigurations.md#while-nothing-flows). Never less than `detect_interval`."),
    Key::duration("detect_outage", Duration::from_millis(10)..=Duration::from_secs(2))
        .or_duration(DetectorConfig::DEFAULT.outage_threshold)
        .with(LEO)
        .means("A longer silence is a reconfiguration. At least three intervals."),
    Key::text("timetable", "`starlink`, `oneweb`, or such as `12s every 15s` or `every 11s`")
        .or_none("none")
        .such_as("\"starlink\"")
        .with(LEO)
        .means("The operator's [timetable](reconfigurations.md#timetables), near which shorter silences count."),
];
/// Where they are possible without another key.
const LEO: &[(&str, &str)] = &[("link", "\"leo\"")];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Auto,
    On,
    Off,
}

const LINKS: [(&str, LinkKind); 2] = [("leo", LinkKind::Leo), ("other", LinkKind::Other)];
const WISHES: [(&str, Wish); 3] = [("auto", Wish::Auto), ("on", Wish::On), ("off", Wish::Off)];
const METHODS: [(&str, ProbeMethod); 3] = [
    ("auto", ProbeMethod::Auto),
    ("icmp", ProbeMethod::Icmp),
    ("udp", ProbeMethod::Udp),
];
pub(super) const LINK_NAMES: [&str; LINKS.len()] = names(&LINKS);
pub(super) const WISH_NAMES: [&str; WISHES.len()] = names(&WISHES);
const METHOD_NAMES: [&str; METHODS.len()] = names(&METHODS);
/// A probe each 2 ms is more than any dish needs, and at 100 ms most outages pass unseen.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(2);

/// The kind of link of a path.
pub(super) fn read_link(table: &Table<'_>) -> Result<LinkKind, Error> {
    table.choice("link", &LINKS)
}

/// How its reconfigurations are detected. By default they are where `useful`: the link is LEO, or the controller uses them.
pub(super) fn read(table: &Table<'_>, useful: bool) -> Result<Option<Detection>, Error> {
    let wish = table.choice("detect", &WISHES)?;
    let wanted = match wish {
        Wish::Auto => useful,
        Wish::On => true,
        Wish::Off => false,
    };
    let mut detection = Detection {
        target: table.text("detect_target", str::parse::<ProbeTarget>)?,
        method: table.choice("detect_by", &METHODS)?,
        ..Detection::default()
    };
    let config = &mut detection.detector;
    config.probe_interval = table.duration("detect_interval")?;
    let idle = table.duration("detect_idle_interval")?;
    config.idle_interval = idle.max(config.probe_interval);
    config.outage_threshold = table.duration("detect_outage")?;
    if let Some(problem) = config.problem() {
        let key = match table.has("detect_outage") {
            true => "detect_outage",
            false => "detect_interval",
        };
        return Err(table.key_problem(key, problem));
    }
    detection.timetable = table.text_if("timetable", str::parse::<Timetable>)?;
    if !wanted
        && wish != Wish::Off
        && let Some(key) = table.first_of(KEYS.iter().map(|key| key.name))
    {
        return Err(table.key_problem(
            key,
            "nothing is watched here: add link = \"leo\" or detect = \"on\"",
        ));
    }
    Ok(wanted.then_some(detection))
}
