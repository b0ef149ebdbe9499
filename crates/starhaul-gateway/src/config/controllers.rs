//! The congestion controller of a table.

use std::path::Path;

use starhaul_cc::{ControllerConfig, LeoCcOptions};

use starhaul_config::{Error, Table, nearest};

use super::{
    ControllerRule, LinkKind,
    values::{path, positive_rate},
};

/// The keys that are read here.
pub(super) const KEYS: &[&str] = &["controller", "rate", "rate_feed"];
/// The controller of a path whose table names none.
pub(super) const DEFAULT_CONTROLLER: ControllerConfig = ControllerConfig::Bbr;
/// The same for a LEO path: as fast there, with half of BBR's queue.
pub(super) const LEO_CONTROLLER: ControllerConfig =
    ControllerConfig::LeoCc(LeoCcOptions::TARGET_QUEUE);

/// The controller of a path over this kind of link whose table names none.
pub(super) fn default_controller(link: LinkKind) -> ControllerConfig {
    match link {
        LinkKind::Leo => LEO_CONTROLLER,
        LinkKind::Other => DEFAULT_CONTROLLER,
    }
}

pub(super) fn read_controller(
    table: &Table<'_>,
    directory: &Path,
    default: ControllerConfig,
) -> Result<ControllerRule, Error> {
    let name = table
        .text("controller", controller_name)?
        .unwrap_or(default.name());
    if name == "dedicated" {
        return Ok(ControllerRule::Dedicated {
            rate: table.required("rate", positive_rate)?,
            feed: table.text("rate_feed", |file| path(directory, file))?,
        });
    }
    for key in ["rate", "rate_feed"] {
        if table.has(key) {
            return Err(table.key_problem(key, "only controller = \"dedicated\" has a rate"));
        }
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
