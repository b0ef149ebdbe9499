//! LEOTP's figures 10 to 15 and table II: transfers over chains of lossy hops, beside rivals from end to end.

mod command;
mod constellation;
mod goals;
mod orders;
mod real;
mod row;
mod setups;

pub use command::Leotp;
pub use constellation::{ablation, constellation};
pub use orders::{Ablation, OURS, Order, PUBLISHED};
pub use row::Row;
use row::columns;
pub use setups::{Setup, bytes, delay, fairness, hop_loss, sharing, step, switch};

use crate::kit::{Part, Study, Target};

/// A part in virtual time.
struct Declared {
    name: &'static str,
    stands_for: &'static str,
    shows: &'static str,
    setups: fn(bool, u64, &[&'static str]) -> Vec<Setup>,
    /// What `--check` holds it to.
    targets: &'static [Target],
}

const PARTS: [Declared; 9] = [
    Declared {
        name: "delay",
        stands_for: "LEOTP fig. 10",
        shows: "one-way delays over 5 lossy hops",
        setups: delay,
        targets: goals::DELAY,
    },
    Declared {
        name: "bytes",
        stands_for: "LEOTP fig. 11",
        shows: "bytes that the sender sends for 100 MB, and none where not all arrived in ten minutes",
        setups: bytes,
        targets: goals::BYTES,
    },
    Declared {
        name: "hop-loss",
        stands_for: "LEOTP fig. 12",
        shows: "goodput over 5 hops by their loss",
        setups: hop_loss,
        targets: goals::HOP_LOSS,
    },
    Declared {
        name: "switch",
        stands_for: "LEOTP fig. 13",
        shows: "goodput while the path switches between two",
        setups: switch,
        targets: goals::SWITCH,
    },
    Declared {
        name: "step",
        stands_for: "LEOTP fig. 14",
        shows: "a hop whose rate steps up and down",
        setups: step,
        targets: goals::STEP,
    },
    Declared {
        name: "fairness",
        stands_for: "LEOTP fig. 15",
        shows: "three flows with different round-trip times",
        setups: fairness,
        targets: goals::FAIRNESS,
    },
    Declared {
        name: "constellation",
        stands_for: "LEOTP table II",
        shows: "from Beijing through satellites that move",
        setups: constellation,
        targets: goals::CONSTELLATION,
    },
    Declared {
        name: "ablation",
        stands_for: "LEOTP table II",
        shows: "the same without recovery or control by hops, by our rule and the published one",
        setups: ablation,
        targets: goals::ABLATION,
    },
    Declared {
        name: "sharing",
        stands_for: "",
        shows: "ten requesters of one content behind one relay",
        setups: sharing,
        targets: goals::SHARING,
    },
];

impl Declared {
    fn part(&self) -> Part {
        let names = (self.name, self.stands_for, self.shows);
        let run = |setup: &Setup| Ok(vec![Row::of(setup)?]);
        let systems = (setups::SYSTEMS, (|setup| setup.system) as fn(&Setup) -> _);
        let part = Part::of_systems(names, columns, self.setups, systems, run);
        let targets = self.targets.iter().copied();
        targets.fold(part, Part::target)
    }
}

/// The parts in virtual time.
fn study() -> Study {
    let study = Study::new(
        "leotp",
        "LEOTP fig. 10-15, table II",
        "named ranges over lossy chains of relays, beside flows from end to end and split TCP",
        "Hop by hop",
        "Bulk transfers in virtual time over chains of links that lose data. Goodput counts bytes in order: of LEOTP those whose hash is that \
         of what was sent, of the others whole packets by their numbers, which carry no data. The one-way delay is that from the first time \
         a packet leaves its source to its first arrival, whether in order or not.",
    );
    PARTS
        .iter()
        .fold(study, |study, declared| study.part(declared.part()))
}
