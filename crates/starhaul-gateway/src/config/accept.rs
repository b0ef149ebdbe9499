//! The table `[accept]`: what holds for sessions that peers open.

use std::path::Path;

use starhaul_cc::ControllerConfig;

use super::{
    ControllerRule, LinkKind, detection,
    reader::Table,
    rules::{self, DEFAULT_CONTROLLER, LEO_CONTROLLER},
};
use crate::Error;

pub(super) const KEYS: &[&str] = &["max_sessions", "link", "controller", "rate", "rate_feed"];
const DEFAULT_MAX_SESSIONS: usize = 256;

/// How sessions and paths that peers open are served.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptRule {
    /// Most sessions at once.
    pub max_sessions: usize,
    /// Over what all of these paths lead, whatever the peers say of theirs.
    pub link: LinkKind,
    /// Controller of our direction.
    pub controller: ControllerRule,
    /// Of those paths that the peer says lead over a low orbit; `None`: the same.
    pub leo_controller: Option<ControllerConfig>,
}

impl Default for AcceptRule {
    fn default() -> Self {
        Self {
            max_sessions: DEFAULT_MAX_SESSIONS,
            link: LinkKind::Other,
            controller: ControllerRule::SelfReliant(DEFAULT_CONTROLLER),
            leo_controller: Some(LEO_CONTROLLER),
        }
    }
}

pub(super) fn read(table: &Table<'_>, directory: &Path) -> Result<AcceptRule, Error> {
    let link = detection::read_link(table)?;
    let most = table.integer("max_sessions", 1..=65_536)?;
    Ok(AcceptRule {
        max_sessions: most.map_or(DEFAULT_MAX_SESSIONS, rules::to_usize),
        link,
        controller: rules::read_controller(table, directory, rules::default_controller(link))?,
        // Who names a controller means all paths.
        leo_controller: (!table.has("controller")).then_some(LEO_CONTROLLER),
    })
}
