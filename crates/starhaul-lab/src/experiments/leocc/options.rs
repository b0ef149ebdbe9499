//! What `starhaul lab leocc` was asked for.

use std::path::PathBuf;

use super::section::Section;

/// Which runs to make; what is `None` or empty takes the experiment's own choice.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Few traces and short runs: under a minute
    #[arg(long)]
    pub quick: bool,
    /// Run over every trace of this folder in place of the usual set
    #[arg(long, value_name = "DIR")]
    pub traces: Option<PathBuf>,
    /// Run only these controllers; also LeoCC without one of its parts: leocc-no-detector, leocc-no-kalman, leocc-no-band,
    /// leocc-no-adaptation, and the same of leocc2
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub systems: Vec<String>,
    /// Random losses of the data, for example 0,0.2%,0.5% [default: those of each part, or what a trace of --traces tells]
    #[arg(long = "loss", value_name = "P,…", value_delimiter = ',', value_parser = starhaul_units::parse_share)]
    pub losses: Vec<f64>,
    /// What the link queues: published (500 packets up, 50000 down), bdp, or a number of packets
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<QueueChoice>,
    /// Run only these parts: scatter, series, ablation, queues, sensitivity, shift, fairness, detector, and, which are
    /// left out by default, paths and unseen
    #[arg(long = "only", value_name = "A,B", value_delimiter = ',')]
    pub sections: Vec<Section>,
    /// Synthetic links of paths [default: 10], or drawn links of unseen [default: 40]
    #[arg(long, value_name = "N")]
    pub links: Option<usize>,
    /// Of unseen: the drawn links with even seeds, on which controllers may be tuned, odd ones, which judge them, or all
    /// [default: even]
    #[arg(long, value_name = "WHICH")]
    pub seeds: Option<Seeds>,
    /// Of paths and unseen: a prober over every link, also where outages are too short for it to find any, as a gateway with link = "leo"
    /// has that probes by ICMP; not where a coarse grid hides the outages
    #[arg(long)]
    pub probed: bool,
    /// Seed of all that is random
    #[arg(skip)]
    pub seed: u64,
}

/// Which of the drawn links to run over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Seeds {
    /// Those on which controllers may be tuned.
    #[default]
    Even,
    /// Those that judge them.
    Odd,
    /// Both of them.
    All,
}

impl Seeds {
    /// Whether this seed is among them.
    pub(super) const fn contain(self, seed: u64) -> bool {
        match self {
            Self::Even => seed.is_multiple_of(2),
            Self::Odd => !seed.is_multiple_of(2),
            Self::All => true,
        }
    }
}

/// How much a link queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueChoice {
    /// 500 packets up, 50 000 down, as LeoCC's authors replay.
    Published,
    /// What fits into one mean round trip at the mean rate.
    Bdp,
    /// A number of packets.
    Packets(usize),
}

impl std::str::FromStr for QueueChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "published" => Ok(Self::Published),
            "bdp" => Ok(Self::Bdp),
            _ => text
                .parse()
                .ok()
                .filter(|packets| *packets > 0)
                .map(Self::Packets)
                .ok_or_else(|| {
                    format!("{text:?} is no queue: write published, bdp or a number of packets")
                }),
        }
    }
}

impl std::fmt::Display for QueueChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Published => f.write_str("published"),
            Self::Bdp => f.write_str("bdp"),
            Self::Packets(packets) => write!(f, "{packets}"),
        }
    }
}
