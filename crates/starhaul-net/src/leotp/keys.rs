//! The keys of a configuration that relays and gateways have alike: by which rule the rates of hops are found, and how reconfigurations of the
//! hop to a neighbour become known.

use std::path::Path;

use starhaul_cc::{ProbeTarget, Timetable};
use starhaul_config::{Error, Key, Table, definition::names};
use starhaul_leotp::RateRule;

use super::hop::HopSignals;

/// Whether reconfigurations are looked for, by the kind of link.
const LINKS: [(&str, bool); 2] = [("leo", true), ("other", false)];
const LINK_NAMES: [&str; LINKS.len()] = names(&LINKS);

const RULE: &str = "rule";
const RULE_NAMES: [&str; RateRule::NAMED.len()] = names(&RateRule::NAMED);

/// The key of a node's table that says by which rule it finds the rates of its hops.
pub const RULE_KEYS: &[Key] = &[Key::words(RULE, &RULE_NAMES)
    .or(RULE_NAMES[0])
    .means("How the [rate](leotp.md#rate) of what the neighbours send here is found, which is told to them. `published`: by the rule of LEOTP's publication, to compare with.")];

/// The rule that a node's table names.
///
/// # Errors
/// There is none of this name.
pub fn read_rule(table: &Table<'_>) -> Result<RateRule, Error> {
    table.choice(RULE, &RateRule::NAMED)
}

impl HopSignals {
    /// The keys of a neighbour's table.
    pub const KEYS: &'static [Key] = &[
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
        Key::text("schedule", "file with times")
            .or_none("none")
            .such_as("\"hop.times\"")
            .means("File with the times of them, a line of seconds since 1970 each, as `starhaul orbit paths --out hop.times` [writes](orbit.md#files) it. Read again when it changes."),
    ];

    /// What a neighbour's table says of them. A file with times is named and not read yet, which [`HopSignals::load_times`] does; a relative
    /// path begins at `folder`.
    ///
    /// # Errors
    /// A value is wrong, or has no effect.
    pub fn read(table: &Table<'_>, folder: &Path) -> Result<Self, Error> {
        let target = table.text("detect_target", str::parse::<ProbeTarget>)?;
        let is_probed = table.choice("link", &LINKS)?;
        if !is_probed && table.has("detect_target") {
            let problem = "nothing is probed here: add link = \"leo\"";
            return Err(table.key_problem("detect_target", problem));
        }
        let signals = Self {
            timetable: table.text_if("timetable", str::parse::<Timetable>)?,
            schedule: table.text_if("schedule", |text| match text {
                "" => Err("write the path of a file"),
                name => Ok(folder.join(name)),
            })?,
            probe: is_probed.then_some(target),
            ..Self::default()
        };
        match signals.problem() {
            Some(problem) => Err(table.key_problem("timetable", problem)),
            None => Ok(signals),
        }
    }
}
