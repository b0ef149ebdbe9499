//! What `starhaul lab leocc` was asked for.

use std::path::PathBuf;

use super::section::Section;

/// Which runs to make; what is `None` or empty takes the experiment's own choice.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Few traces and short runs, for under a minute.
    pub quick: bool,
    /// A folder of traces in place of the usual set.
    pub traces: Option<PathBuf>,
    /// Names of the systems to run.
    pub systems: Vec<String>,
    /// Random losses of the data's direction, 0 to 1.
    pub losses: Vec<f64>,
    /// Queue of the data's direction.
    pub queue: Option<QueueChoice>,
    /// Which parts of the experiment to run; all if empty.
    pub sections: Vec<Section>,
    /// Seed of all that is random.
    pub seed: u64,
}

/// How much a link queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueChoice {
    /// 500 packets up, 50 000 down, as LeoCC's authors replay.
    Published,
    /// What fits into one mean round trip at the mean rate.
    Bdp,
    /// So many packets.
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
