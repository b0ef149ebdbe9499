//! Bulk transfers over paths of several hops that change over time: by LEOTP with a relay between hops, end to end with any
//! congestion controller, or with a reliable connection for each hop.

mod end;
mod figures;
mod leotp;
mod plan;
mod rivals;
mod text;

pub use figures::{Figures, jain};
pub use plan::{Flow, Hop, Plan};
pub use text::Text;

use crate::{Error, systems};

/// Who transfers.
#[derive(Clone, Debug)]
pub enum Carrier {
    /// LEOTP with this configuration of all nodes.
    Leotp(Box<starhaul_leotp::NodeConfig>),
    /// One flow from end to end with this congestion controller.
    EndToEnd(systems::System),
    /// A flow over each hop, with Cubic.
    SplitTcp,
}

impl Carrier {
    /// The carrier of this name: `leotp`, `leotp-published`, `leotp-no-cache`, `leotp-e2e-control`, `leotp-neither`,
    /// `split-tcp` or a congestion controller's.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn named(name: &str) -> Result<Self, Error> {
        use starhaul_leotp::{NodeConfig, RateRule, Scope};
        let mut config = NodeConfig::default();
        match name {
            "split-tcp" => return Ok(Self::SplitTcp),
            "leotp" => {}
            "leotp-published" => {
                config.rate_rule = RateRule::Published;
                config.backlog_segments = 5.0;
            }
            "leotp-no-cache" => config.recovery = Scope::EndToEnd,
            "leotp-e2e-control" => config.control = Scope::EndToEnd,
            "leotp-neither" => {
                config.recovery = Scope::EndToEnd;
                config.control = Scope::EndToEnd;
            }
            name => return systems::System::named(name).map(Self::EndToEnd),
        }
        Ok(Self::Leotp(Box::new(config)))
    }

    /// Runs a plan and measures each of its flows.
    ///
    /// # Errors
    /// What arrived is not what was sent, or the plan has a link that cannot be.
    pub fn run(&self, plan: &Plan, seed: u64) -> Result<Vec<Figures>, Error> {
        match self {
            Self::Leotp(config) => leotp::run(plan, config, seed),
            Self::EndToEnd(system) => rivals::end_to_end(plan, system, seed),
            Self::SplitTcp => rivals::split(plan, seed),
        }
    }
}
