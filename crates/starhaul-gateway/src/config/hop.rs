//! How it is known when the hop to a neighbour of `[leotp]` is reconfigured.

use std::path::{Path, PathBuf};

use starhaul_cc::{ProbeTarget, Timetable};
use starhaul_config::{Error, Key, Table, definition::names};
use starhaul_net::leotp::HopSignals;

use super::values::path;

/// Whether reconfigurations are looked for, by the kind of link.
const LINKS: [(&str, bool); 2] = [("leo", true), ("other", false)];
const LINK_NAMES: [&str; LINKS.len()] = names(&LINKS);

/// The keys of a neighbour.
pub(super) const KEYS: &[Key] = &[
    Key::words("link", &LINK_NAMES)
        .or("other")
        .means("Kind of link. `leo`: it leads over a low-orbit satellite, whose [reconfigurations](leotp.md#reconfigurations-of-a-hop) are looked for by ICMP echo."),
    Key::text("detect_target", "`auto`, or an IP address")
        .or("auto")
        .with(&[("link", "\"leo\"")])
        .means("Host to probe: the nearest stable address behind the satellite on the way to the neighbour, or this one."),
    Key::text("timetable", "`starlink`, `oneweb`, or such as `12s every 15s` or `every 11s`")
        .or_none("none")
        .such_as("\"starlink\"")
        .means("The operator's [timetable](reconfigurations.md#timetables) of them. Without `link = \"leo\"` it needs an offset."),
    Key::text("schedule", "file")
        .or_none("none")
        .such_as("\"hop.times\"")
        .means("File with the times of them, a line of seconds since 1970 each, as `starhaul orbit paths --out hop.times` [writes](orbit.md#files) it."),
];

/// What a neighbour's table says of it, and the file with times that it names.
pub(super) fn read(
    table: &Table<'_>,
    directory: &Path,
) -> Result<(HopSignals, Option<PathBuf>), Error> {
    let target = table.text("detect_target", str::parse::<ProbeTarget>)?;
    let is_probed = table.choice("link", &LINKS)?;
    if !is_probed && table.has("detect_target") {
        let problem = "nothing is probed here: add link = \"leo\"";
        return Err(table.key_problem("detect_target", problem));
    }
    let signals = HopSignals {
        timetable: table.text_if("timetable", str::parse::<Timetable>)?,
        probe: is_probed.then_some(target),
        ..HopSignals::default()
    };
    match signals.problem() {
        Some(problem) => Err(table.key_problem("timetable", problem)),
        None => Ok((
            signals,
            table.text_if("schedule", |text| path(directory, text))?,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn parse(keys: &str) -> Result<Config, String> {
        let text = format!(
            "[identity]\nfile = \"i\"\n[[tcp]]\nname = \"t\"\nlisten = \"127.0.0.1:1\"\ntarget = \"a:1\"\n\
             service = \"leotp\"\n[leotp]\nlisten = \"127.0.0.1:2\"\nsecret = \"s\"\nupstream = \"u\"\n\
             [[leotp.neighbour]]\nname = \"u\"\nkey = \"k\"\naddress = \"192.0.2.1:3\"\n{keys}"
        );
        let config = Config::parse(&text, Path::new("/etc/starhaul/gateway.toml"));
        config.map_err(|error| error.to_string())
    }

    #[test]
    fn a_neighbour_tells_how_its_hop_is_known_to_be_reconfigured() {
        let neighbour = |keys: &str| {
            let config = parse(keys).unwrap();
            config.leotp.unwrap().neighbours[0].clone()
        };
        assert_eq!(neighbour("").signals, HopSignals::default());
        let told = neighbour("timetable = \"starlink\"\nschedule = \"hop.times\"");
        assert_eq!(told.signals.timetable, Some(Timetable::STARLINK));
        let file = Path::new("/etc/starhaul/hop.times");
        assert_eq!(told.schedule.as_deref(), Some(file));
        let said = parse("timetable = \"starlink\"").unwrap().describe();
        assert!(
            said.contains(", reconfigurations by 12s every 15s\n"),
            "{said}"
        );
        let probed = neighbour("link = \"leo\"\ntimetable = \"oneweb\"").signals;
        assert_eq!(probed.probe, Some(ProbeTarget::Auto));
        for (keys, expected) in [
            ("timetable = \"oneweb\"", "tells no time by itself"),
            ("detect_target = \"auto\"", "nothing is probed here"),
            ("schedule = \"\"", "schedule: write the path of a file"),
        ] {
            let error = parse(keys).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
