//! Bulk transfers over paths of several hops that change over time: by LEOTP with a relay between hops, end to end with any
//! congestion controller, or with a reliable connection for each hop.

mod end;
mod figures;
mod leotp;
mod plan;
mod rivals;
mod text;
mod told;

pub use figures::{Figures, jain};
pub(crate) use leotp::PAYLOAD_SHARE as LEOTP_PAYLOAD_SHARE;
pub use plan::{Flow, Hop, Plan};
pub use text::Text;

use starhaul_flow::PACKET_BYTES;
use starhaul_leotp::{NodeConfig, RateRule, Scope};

use crate::{Error, systems};

/// The protocol that carries the data.
#[derive(Clone, Debug)]
pub enum Carrier {
    /// LEOTP with this configuration of all nodes, which hear when a path takes another hop.
    Leotp(Box<NodeConfig>),
    /// The same, and they find out.
    UntoldLeotp(Box<NodeConfig>),
    /// One flow from end to end with this congestion controller.
    EndToEnd(systems::System),
    /// A flow over each hop, with Cubic.
    SplitTcp,
}

impl Carrier {
    /// The carrier of this name: `leotp` by our rule or `leotp-published` by the published one, either of them with `-no-cache`,
    /// `-e2e-control` or `-neither` behind it, and with `-untold` behind that; `split-tcp`; or a congestion controller's.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn named(name: &str) -> Result<Self, Error> {
        if name == "split-tcp" {
            return Ok(Self::SplitTcp);
        }
        let untold = name.strip_suffix("-untold");
        match leotp_named(untold.unwrap_or(name)) {
            Some(config) if untold.is_some() => Ok(Self::UntoldLeotp(Box::new(config))),
            Some(config) => Ok(Self::Leotp(Box::new(config))),
            None => systems::System::named(name).map(Self::EndToEnd),
        }
    }

    /// The share of a link's rate that is payload, while it carries full packets that arrive at the first try.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a packet")]
    pub fn payload_share(&self) -> f64 {
        let of_full = |bytes: u64| bytes as f64 / PACKET_BYTES as f64;
        match self {
            Self::Leotp(_) | Self::UntoldLeotp(_) => LEOTP_PAYLOAD_SHARE,
            Self::EndToEnd(_) => of_full(rivals::QUIC_BYTES),
            Self::SplitTcp => of_full(rivals::TCP_BYTES),
        }
    }

    /// Runs a plan and measures each of its flows.
    ///
    /// # Errors
    /// What arrived is not what was sent, or the plan has a link that cannot be.
    pub fn run(&self, plan: &Plan, seed: u64) -> Result<Vec<Figures>, Error> {
        match self {
            Self::Leotp(config) => leotp::run(plan, config, true, seed),
            Self::UntoldLeotp(config) => leotp::run(plan, config, false, seed),
            Self::EndToEnd(system) => rivals::end_to_end(plan, system, seed),
            Self::SplitTcp => rivals::split(plan, seed),
        }
    }
}

/// LEOTP by either rule, whole or without one of its means or both (table II of the publication).
fn leotp_named(name: &str) -> Option<NodeConfig> {
    let variant = name.strip_prefix("leotp")?;
    let mut config = NodeConfig::default();
    let without = match variant.strip_prefix("-published") {
        Some(without) => {
            config = config.by_rule(RateRule::Published);
            without
        }
        None => variant,
    };
    (config.recovery, config.control) = match without {
        "" => (Scope::Hop, Scope::Hop),
        "-no-cache" => (Scope::EndToEnd, Scope::Hop),
        "-e2e-control" => (Scope::Hop, Scope::EndToEnd),
        "-neither" => (Scope::EndToEnd, Scope::EndToEnd),
        _ => return None,
    };
    Some(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published order is compared with that of the published rule: each variant has exactly what its name says.
    #[test]
    fn a_variant_differs_from_the_whole_by_what_its_name_says() {
        let rules = [
            (
                "leotp",
                RateRule::Adaptive,
                NodeConfig::default().backlog_segments,
            ),
            (
                "leotp-published",
                RateRule::Published,
                RateRule::PUBLISHED_BACKLOG,
            ),
        ];
        let means = [
            ("", Scope::Hop, Scope::Hop),
            ("-no-cache", Scope::EndToEnd, Scope::Hop),
            ("-e2e-control", Scope::Hop, Scope::EndToEnd),
            ("-neither", Scope::EndToEnd, Scope::EndToEnd),
        ];
        for (rule, rate_rule, backlog) in rules {
            for (without, recovery, control) in means {
                let name = format!("{rule}{without}");
                let Ok(Carrier::Leotp(config)) = Carrier::named(&name) else {
                    panic!("{name} is no LEOTP");
                };
                let has = (config.rate_rule, config.recovery, config.control);
                assert_eq!(has, (rate_rule, recovery, control), "{name}");
                let difference = (config.backlog_segments - backlog).abs();
                assert!(difference < f64::EPSILON, "{name}");
            }
        }
        let untold = Carrier::named("leotp-published-untold");
        assert!(
            matches!(untold, Ok(Carrier::UntoldLeotp(config)) if config.rate_rule == RateRule::Published)
        );
        for name in [
            "leotp-",
            "split-tcp-untold",
            "bbr-untold",
            "leotp-publishe",
            "leotp-published-cache",
            "leotp-no-cache-published",
        ] {
            assert!(Carrier::named(name).is_err(), "{name}");
        }
    }
}
