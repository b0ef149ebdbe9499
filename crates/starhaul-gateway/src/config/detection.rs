//! The satellite of a path in the configuration: its kind of link, and how its reconfigurations are detected.

use std::{ops::RangeInclusive, time::Duration};

use starhaul_config::{Error, Table, choice};
use starhaul_endpoint::{Detection, LinkKind, ProbeMethod, ProbeTarget, Timetable};

/// The keys of a path's link and of the detection of its reconfigurations.
pub(super) const KEYS: &[&str] = &[
    "interface",
    "link",
    "detect",
    "detect_target",
    "detect_by",
    "detect_interval",
    "detect_idle_interval",
    "detect_outage",
    "timetable",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Auto,
    On,
    Off,
}

const LINKS: &[(&str, LinkKind)] = &[("leo", LinkKind::Leo), ("other", LinkKind::Other)];
const WISHES: &[(&str, Wish)] = &[("auto", Wish::Auto), ("on", Wish::On), ("off", Wish::Off)];
const METHODS: &[(&str, ProbeMethod)] = &[
    ("auto", ProbeMethod::Auto),
    ("icmp", ProbeMethod::Icmp),
    ("udp", ProbeMethod::Udp),
];
/// A probe each 2 ms is more than any dish needs, and at 100 ms most outages pass unseen.
const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(2)..=Duration::from_millis(100);
const LONGEST_IDLE_INTERVAL: Duration = Duration::from_secs(60);
const OUTAGES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(2);

/// The kind of link of a path.
pub(super) fn read_link(table: &Table<'_>) -> Result<LinkKind, Error> {
    let link = table.text("link", |text| choice(text, LINKS))?;
    Ok(link.unwrap_or_default())
}

/// How its reconfigurations are detected. By default they are where `useful`: the link is LEO, or the controller uses them.
pub(super) fn read(table: &Table<'_>, useful: bool) -> Result<Option<Detection>, Error> {
    let wish = table.text("detect", |text| choice(text, WISHES))?;
    let wanted = match wish.unwrap_or(Wish::Auto) {
        Wish::Auto => useful,
        Wish::On => true,
        Wish::Off => false,
    };
    let mut detection = Detection::default();
    let target = table.text("detect_target", target)?;
    detection.target = target.unwrap_or(detection.target);
    let method = table.text("detect_by", |text| choice(text, METHODS))?;
    detection.method = method.unwrap_or(detection.method);
    let interval = table.duration("detect_interval", INTERVALS)?;
    let config = &mut detection.detector;
    config.probe_interval = interval.unwrap_or(config.probe_interval);
    let idle_intervals = *INTERVALS.start()..=LONGEST_IDLE_INTERVAL;
    let idle = table.duration("detect_idle_interval", idle_intervals)?;
    config.idle_interval = idle
        .unwrap_or(config.idle_interval)
        .max(config.probe_interval);
    let outage = table.duration("detect_outage", OUTAGES)?;
    config.outage_threshold = outage.unwrap_or(config.outage_threshold);
    if let Some(problem) = config.problem() {
        let key = match table.has("detect_outage") {
            true => "detect_outage",
            false => "detect_interval",
        };
        return Err(table.key_problem(key, problem));
    }
    detection.timetable = table.text("timetable", str::parse::<Timetable>)?;
    if !wanted && wish != Some(Wish::Off) {
        let of_detection = |key: &str| key.starts_with("detect_") || key == "timetable";
        let idle = KEYS.iter().find(|key| of_detection(key) && table.has(key));
        if let Some(key) = idle {
            return Err(table.key_problem(
                key,
                "nothing is watched here: add link = \"leo\" or detect = \"on\"",
            ));
        }
    }
    Ok(wanted.then_some(detection))
}

fn target(text: &str) -> Result<ProbeTarget, String> {
    if text == "auto" {
        return Ok(ProbeTarget::Auto);
    }
    let address = text.parse().map(ProbeTarget::Host);
    address.map_err(|_| format!("{text:?} is neither \"auto\" nor an IP address"))
}
