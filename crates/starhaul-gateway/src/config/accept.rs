//! The table `[accept]`: settings of the sessions that peers open.

use std::path::Path;

use starhaul_cc::ControllerConfig;
use starhaul_config::{Definition, Error, Example, Key, Table};

use super::{
    ControllerRule, Detection, LinkKind,
    controllers::{self, DEFAULT_CONTROLLER, LEO_CONTROLLER, read_controller},
    detection,
    values::interface_name,
};

pub(super) static ACCEPT: Definition = Definition {
    introduction: "Sessions that peers open to us, and all their paths.",
    keys: &[
        &[
            Key::whole("max_sessions", 1..=65_536)
                .or_count(DEFAULT_MAX_SESSIONS as u64)
                .means("Greatest number of sessions at once, opened and accepted together. Further peers are refused."),
            Key::whole("max_sessions_per_peer", 1..=65_536)
                .or_part_of("max_sessions", SHARE as u64)
                .such_as("64")
                .means("Greatest number of them opened by one key. A further one replaces that key's session with the longest silence, if that is at least 2 s more than `keepalive`; else it is refused."),
            Key::whole("max_handshakes", 1..=65_536)
                .or_count(DEFAULT_MAX_HANDSHAKES as u64)
                .means("Greatest number of connections at once that have not joined a session yet, whoever opens them. From a quarter of it on they must prove their address first."),
            Key::whole("max_handshakes_per_host", 1..=65_536)
                .or_part_of("max_handshakes", HANDSHAKE_SHARE as u64)
                .such_as("32")
                .means("The same of one source: an IPv4 address, or an IPv6 network of 64 bits. More where many gateways behind one address may come back at once."),
            Key::words("link", &detection::LINK_NAMES)
                .or("other")
                .such_as("\"leo\"")
                .means("`leo`: all of these paths use a dish of ours. If the dish is the peer's, only the peer's configuration needs it."),
            Key::text("interface", "interface")
                .or_none("none")
                .such_as("\"eth1\"")
                .means("Network interface of the dish, which probes must use. `listen` is not bound to it."),
            Key::words("controller", &ControllerConfig::NAMES)
                .or_none("`leocc2` on paths that either side configures as `leo`, else `bbr`")
                .such_as("\"bbr\"")
                .means("Congestion [controller](#controllers) of our direction, of all these paths."),
        ],
        controllers::RATES,
        &[Key::words("detect", &detection::WISH_NAMES)
            .or("auto")
            .means("Whether [reconfigurations](reconfigurations.md#behind-a-gateway-that-only-accepts) of our dish are detected while a peer's path is up. `auto`: with `link = \"leo\"`.")],
        detection::KEYS,
    ],
    examples: &[Example {
        comment: "",
        written: &[],
    }],
};
const DEFAULT_MAX_SESSIONS: usize = 256;
/// By default one key may hold one of so many parts of them.
const SHARE: usize = 4;
const DEFAULT_MAX_HANDSHAKES: usize = 256;
/// By default one source may hold one of so many parts of them.
const HANDSHAKE_SHARE: usize = 8;

/// How sessions and paths that peers open are served.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptRule {
    /// Most sessions at once.
    pub max_sessions: usize,
    /// Most of them that one key may have opened.
    pub max_sessions_per_peer: usize,
    /// Most connections that have not joined a session.
    pub max_handshakes: usize,
    /// Most of them of one source.
    pub max_handshakes_per_host: usize,
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
            max_handshakes: DEFAULT_MAX_HANDSHAKES,
            max_handshakes_per_host: DEFAULT_MAX_HANDSHAKES / HANDSHAKE_SHARE,
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
    let default = match link {
        LinkKind::Leo => LEO_CONTROLLER,
        LinkKind::Other => DEFAULT_CONTROLLER,
    };
    // A controller that uses reconfigurations does not mean that this end has a dish.
    let detection = detection::read(table, link == LinkKind::Leo)?;
    Ok(AcceptRule {
        max_sessions: table.count("max_sessions")?,
        max_sessions_per_peer: table.count("max_sessions_per_peer")?,
        max_handshakes: table.count("max_handshakes")?,
        max_handshakes_per_host: table.count("max_handshakes_per_host")?,
        link,
        interface: table.text_if("interface", interface_name)?,
        detection,
        controller: read_controller(table, directory, Some(default))?,
        // A configured controller holds for all paths.
        leo_controller: (!table.has("controller")).then_some(LEO_CONTROLLER),
    })
}
