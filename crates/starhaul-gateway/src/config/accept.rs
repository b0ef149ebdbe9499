//! The table `[accept]`: settings of the sessions that peers open.

use std::path::Path;

use starhaul_cc::ControllerConfig;
use starhaul_config::{Error, Keys, Table};

use super::{
    ControllerRule, Detection, LinkKind,
    controllers::{self, DEFAULT_CONTROLLER, LEO_CONTROLLER, default_controller, read_controller},
    detection,
    values::interface_name,
};

pub(super) const KEYS: Keys = &[
    &["max_sessions", "max_sessions_per_peer"],
    controllers::KEYS,
    detection::KEYS,
];
const DEFAULT_MAX_SESSIONS: usize = 256;
/// By default one key may hold one of so many parts of them.
const SHARE: usize = 4;

/// How sessions and paths that peers open are served.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptRule {
    /// Most sessions at once.
    pub max_sessions: usize,
    /// Most of them that one key may have opened.
    pub max_sessions_per_peer: usize,
    /// The kind of link of all these paths, whatever the peers say of theirs.
    pub link: LinkKind,
    /// The network interface by which they leave, for the probes.
    pub interface: Option<String>,
    /// How their reconfigurations are detected; `None`: not at all.
    pub detection: Option<Detection>,
    /// Controller of our direction.
    pub controller: ControllerRule,
    /// The controller of paths that the peer calls LEO; `None`: the same.
    pub leo_controller: Option<ControllerConfig>,
}

impl Default for AcceptRule {
    fn default() -> Self {
        Self {
            max_sessions: DEFAULT_MAX_SESSIONS,
            max_sessions_per_peer: DEFAULT_MAX_SESSIONS / SHARE,
            link: LinkKind::Other,
            interface: None,
            detection: None,
            controller: ControllerRule::SelfReliant(DEFAULT_CONTROLLER),
            leo_controller: Some(LEO_CONTROLLER),
        }
    }
}

pub(super) fn read(table: &Table<'_>, directory: &Path) -> Result<AcceptRule, Error> {
    let link = detection::read_link(table)?;
    let max_sessions = table.count("max_sessions", 1..=65_536, DEFAULT_MAX_SESSIONS)?;
    let of_one = (max_sessions / SHARE).max(1);
    // A controller that uses reconfigurations does not mean that this end has a dish.
    let detection = detection::read(table, link == LinkKind::Leo)?;
    Ok(AcceptRule {
        max_sessions,
        max_sessions_per_peer: table.count("max_sessions_per_peer", 1..=65_536, of_one)?,
        link,
        interface: table.text("interface", interface_name)?,
        detection,
        controller: read_controller(table, directory, default_controller(link))?,
        // A configured controller holds for all paths.
        leo_controller: (!table.has("controller")).then_some(LEO_CONTROLLER),
    })
}
