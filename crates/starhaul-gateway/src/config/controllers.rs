//! The congestion controller of a table.

use std::path::Path;

use starhaul_cc::{ControllerConfig, LeoCcOptions};

use starhaul_config::{Error, Key, Table, definition::Preset, nearest};

use super::{ControllerRule, values::path};

/// The controller of a path.
pub(super) const CONTROLLER: Key = Key::words("controller", &ControllerConfig::NAMES)
    .or_by(
        "link",
        &[
            ("\"leo\"", Preset::Text("leocc2")),
            ("\"other\"", Preset::Text("bbr")),
        ],
    )
    .such_as("\"leocc2\"")
    .means("Congestion [controller](#controllers) of our direction.");
/// What belongs to one controller alone.
pub(super) const RATES: &[Key] = &[
    Key::rate("rate")
        .or_none("required with `dedicated`, refused else")
        .such_as("\"15mbit\"")
        .with(&[("controller", "\"dedicated\"")])
        .means("The known rate; with `rate_feed` the initial one. 98 % of it is used."),
    Key::text("rate_feed", "file")
        .or_none("none; `dedicated` only")
        .such_as("\"/run/modem/rate\"")
        .with(&[("controller", "\"dedicated\""), ("rate", "\"15mbit\"")])
        .means("File or local stream socket from which the rate, and the bit-error rate if the modem knows it, are read repeatedly. [Format](gateway.md#a-modem-that-reports-its-rate)."),
];
/// The controller of paths that peers open where no configuration names one.
pub(super) const DEFAULT_CONTROLLER: ControllerConfig = ControllerConfig::Bbr;
/// The same where either side calls the link LEO: as fast there, with half of BBR's queue.
pub(super) const LEO_CONTROLLER: ControllerConfig =
    ControllerConfig::LeoCc(LeoCcOptions::TARGET_QUEUE);

/// The controller of a table, or the one that its definition or `default` has in place of none.
pub(super) fn read_controller(
    table: &Table<'_>,
    directory: &Path,
    default: Option<ControllerConfig>,
) -> Result<ControllerRule, Error> {
    let named = table.text_if("controller", controller_name)?;
    let name = named.or(default.map(|default| default.name()));
    let name = name.ok_or_else(|| table.missing("controller"))?;
    if name == "dedicated" {
        return Ok(ControllerRule::Dedicated {
            rate: table.rate("rate")?,
            feed: table.text_if("rate_feed", |file| path(directory, file))?,
        });
    }
    if let Some(key) = table.first_of(RATES.iter().map(|key| key.name)) {
        return Err(table.key_problem(key, "only controller = \"dedicated\" has a rate"));
    }
    let config = ControllerConfig::from_name(name, None)
        .map_err(|error| table.key_problem("controller", error.to_string()))?;
    Ok(ControllerRule::SelfReliant(config))
}

fn controller_name(text: &str) -> Result<&'static str, String> {
    let names = ControllerConfig::NAMES;
    let name = names.into_iter().find(|name| *name == text);
    name.ok_or_else(|| format!("{text:?} is not possible; {}", nearest(text, &names)))
}
