//! LEOTP's figures 10 to 15 and table II: transfers over chains of lossy hops, beside rivals from end to end.

mod command;
mod constellation;
mod real;
mod row;
mod setups;

pub use command::Leotp;
pub use constellation::{ablation, constellation};
pub use row::Row;
use row::columns;
pub use setups::{Setup, bytes, delay, fairness, hop_loss, sharing, step, switch};

use crate::kit::{Part, Study};

/// The parts in virtual time.
fn study() -> Study {
    let part = |name, stands_for, shows, setups: fn(bool, u64, &[&'static str]) -> Vec<Setup>| {
        let run = |setup: &Setup| Ok(vec![Row::of(setup)?]);
        let systems = (setups::SYSTEMS, (|setup| setup.system) as fn(&Setup) -> _);
        Part::of_systems((name, stands_for, shows), columns, setups, systems, run)
    };
    Study::new(
        "leotp",
        "LEOTP fig. 10-15, table II",
        "named ranges over lossy chains of relays, beside flows from end to end and split TCP",
        "Hop by hop",
        "Bulk transfers in virtual time over chains of links that lose data. Goodput counts verified bytes in order; the one-way delay is that \
         from the first time a packet leaves its source to its first arrival, whether in order or not.",
    )
    .part(part("delay", "LEOTP fig. 10", "one-way delays over 5 lossy hops", delay))
    .part(part("bytes", "LEOTP fig. 11", "bytes that the sender sends for 100 MB, and none where not all arrived in ten minutes", bytes))
    .part(part("hop-loss", "LEOTP fig. 12", "goodput over 5 hops by their loss", hop_loss))
    .part(part("switch", "LEOTP fig. 13", "goodput while the path switches between two", switch))
    .part(part("step", "LEOTP fig. 14", "a hop whose rate steps up and down", step))
    .part(part("fairness", "LEOTP fig. 15", "three flows with different round-trip times", fairness))
    .part(part("constellation", "LEOTP table II", "from Beijing through satellites that move", constellation))
    .part(part("ablation", "LEOTP table II", "the same without recovery or control by hops, by our rule and the published one", ablation))
    .part(part("sharing", "", "ten requesters of one content behind one relay", sharing))
}
