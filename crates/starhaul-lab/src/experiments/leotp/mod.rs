//! LEOTP's figures 10 to 15 and table II: transfers over chains of lossy hops, beside rivals from end to end.

mod command;
mod constellation;
mod given;
mod goals;
mod orders;
mod real;
mod row;
mod setups;

pub use command::Leotp;
use constellation::{Named, ablation_over, constellation_over};
pub use constellation::{ablation, constellation};
use given::Given;
pub use orders::{Ablation, OURS, Order, PUBLISHED};
pub use row::Row;
use row::columns;
use setups::{Chain, bytes_over, delay_over, hop_loss_over};
pub use setups::{Setup, bytes, delay, fairness, hop_loss, sharing, step, switch};

use crate::kit::{Part, Study, Target};

/// A part in virtual time.
struct Declared {
    name: &'static str,
    stands_for: &'static str,
    shows: &'static str,
    setups: Setups,
    /// What `--check` holds it to.
    targets: &'static [Target],
}

/// What gives the set-ups of a part: of a seed, few of them if it is told to be quick, of the systems that were chosen.
#[derive(Clone, Copy)]
enum Setups {
    /// As published.
    Fixed(fn(bool, u64, &[&'static str]) -> Vec<Setup>),
    /// Over a chain of equal hops.
    OverChain(fn(&Chain, bool, u64, &[&'static str]) -> Vec<Setup>),
    /// Over paths through a constellation, or the published ones.
    OverPaths(fn(&[Named], bool, u64, &[&'static str]) -> Vec<Setup>),
}

impl Setups {
    /// With what is given in place of the published ones.
    fn with(self, given: &Given, quick: bool, seed: u64, chosen: &[&'static str]) -> Vec<Setup> {
        match self {
            Self::Fixed(setups) => setups(quick, seed, chosen),
            Self::OverChain(setups) => {
                let chain = given.chain.clone().unwrap_or_default();
                setups(&chain, quick, seed, chosen)
            }
            Self::OverPaths(setups) => setups(&given.paths, quick, seed, chosen),
        }
    }
}

const PARTS: [Declared; 9] = [
    Declared {
        name: "delay",
        stands_for: "LEOTP fig. 10",
        shows: "one-way delays over 5 lossy hops",
        setups: Setups::OverChain(delay_over),
        targets: goals::DELAY,
    },
    Declared {
        name: "bytes",
        stands_for: "LEOTP fig. 11",
        shows: "bytes that the sender sends for 100 MB, and none where not all arrived in ten minutes",
        setups: Setups::OverChain(bytes_over),
        targets: goals::BYTES,
    },
    Declared {
        name: "hop-loss",
        stands_for: "LEOTP fig. 12",
        shows: "goodput over 5 hops by their loss",
        setups: Setups::OverChain(hop_loss_over),
        targets: goals::HOP_LOSS,
    },
    Declared {
        name: "switch",
        stands_for: "LEOTP fig. 13",
        shows: "goodput while the path switches between two",
        setups: Setups::Fixed(switch),
        targets: goals::SWITCH,
    },
    Declared {
        name: "step",
        stands_for: "LEOTP fig. 14",
        shows: "a hop whose rate steps up and down",
        setups: Setups::Fixed(step),
        targets: goals::STEP,
    },
    Declared {
        name: "fairness",
        stands_for: "LEOTP fig. 15",
        shows: "three flows with different round-trip times",
        setups: Setups::Fixed(fairness),
        targets: goals::FAIRNESS,
    },
    Declared {
        name: "constellation",
        stands_for: "LEOTP table II",
        shows: "from Beijing through satellites that move",
        setups: Setups::OverPaths(constellation_over),
        targets: goals::CONSTELLATION,
    },
    Declared {
        name: "ablation",
        stands_for: "LEOTP table II",
        shows: "the same without recovery or control by hops, by our rule and the published one",
        setups: Setups::OverPaths(ablation_over),
        targets: goals::ABLATION,
    },
    Declared {
        name: "sharing",
        stands_for: "",
        shows: "ten requesters of one content behind one relay",
        setups: Setups::Fixed(sharing),
        targets: goals::SHARING,
    },
];

impl Declared {
    /// Whether what is given in place of the published set-ups takes effect in it, if anything is.
    fn takes(&self, given: &Given) -> bool {
        match self.setups {
            Setups::Fixed(_) => given.is_nothing(),
            Setups::OverChain(_) => given.is_nothing() || given.chain.is_some(),
            Setups::OverPaths(_) => given.is_nothing() || !given.paths.is_empty(),
        }
    }

    fn part(&self, given: &Given) -> Part {
        let names = (self.name, self.stands_for, self.shows);
        let run = |setup: &Setup| Ok(vec![Row::of(setup)?]);
        let systems = (setups::SYSTEMS, (|setup| setup.system) as fn(&Setup) -> _);
        let (setups, given) = (self.setups, given.clone());
        let setups = move |quick: bool, seed: u64, chosen: &[&'static str]| {
            setups.with(&given, quick, seed, chosen)
        };
        let part = Part::of_systems(names, columns, setups, systems, run);
        let targets = self.targets.iter().copied();
        targets.fold(part, Part::target)
    }
}

/// The parts in virtual time in which what is given takes effect.
fn study(given: &Given) -> Study {
    let study = Study::new(
        "leotp",
        "LEOTP fig. 10-15, table II",
        "named ranges over lossy chains of relays, beside flows from end to end and split TCP",
        "Hop by hop",
        "Bulk transfers in virtual time over chains of links that lose data. Goodput counts bytes in order: of LEOTP those whose hash is that \
         of what was sent, of the others whole packets by their numbers, which carry no data. The one-way delay is that from the first time \
         a packet leaves its source to its first arrival, whether in order or not.",
    );
    let parts = PARTS.iter().filter(|declared| declared.takes(given));
    parts.fold(study, |study, declared| study.part(declared.part(given)))
}
