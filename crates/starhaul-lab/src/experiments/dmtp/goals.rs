//! What `--check` holds the rows to: fig. 7 and 9, and losses in a row.

use starhaul_plot::Bound;

use super::{BLOCKS_PER_STEP, FRAGMENTS, GREATEST_LOSS};
use crate::kit::{Figures, Target};

/// Share of the blocks that may be late where more is lost than in the paper, or losses come in a row.
const FEW: f64 = 0.001;
/// In real time.
const OURS: [&str; 3] = ["starhaul", "starhaul-optimizer", "starhaul-bbr"];

/// With both protections no block is late up to 10 % loss, and hardly one at 20 %, of all runs together.
pub(super) const LATE: Target = Target {
    of: &["system", "scheduler"],
    by: "loss",
    figure: "late",
    bound: late,
};

/// And hardly one if losses come in a row.
pub(super) const LATE_IN_A_ROW: Target = Target {
    of: &["system", "scheduler", "burst"],
    bound: late_in_a_row,
    ..LATE
};

/// Beside the data leaves 1.25 × what the model says is the least, in the median of the runs.
pub(super) const EXTRA: Target = Target {
    figure: "extra_bytes_share",
    bound: extra,
    ..LATE
};

/// In real time a moment without a processor costs a block: in the median of the runs.
pub(super) const IN_REAL_TIME: Target = Target {
    of: &["system"],
    by: "loss",
    figure: "on_time_share",
    bound: in_real_time,
};

/// The rows of both protections together, by any scheduler.
fn has_both(name: &str) -> bool {
    name.starts_with("fec+retransmit, ")
}

fn late(name: &str, row: Figures<'_>) -> Option<Bound> {
    let few = match row.of("loss")? < GREATEST_LOSS {
        true => 0.0,
        false => FEW,
    };
    let most = Bound::AtMost(few * row.of("blocks")?);
    has_both(name).then_some(most)
}

fn late_in_a_row(name: &str, row: Figures<'_>) -> Option<Bound> {
    let most = Bound::AtMost(FEW * row.of("blocks")?);
    has_both(name).then_some(most)
}

fn extra(name: &str, row: Figures<'_>) -> Option<Bound> {
    let least = row.of("least_extra_bytes_share")?;
    has_both(name).then_some(Bound::AtMost(1.25 * least + by_chance(row.of("loss")?)))
}

/// Four standard deviations of the share of a step's fragments that are lost, and one fragment in 10 000 where nothing is.
fn by_chance(loss: f64) -> f64 {
    let fragments = f64::from(BLOCKS_PER_STEP * FRAGMENTS);
    4.0 * (loss / fragments).sqrt() + 1e-4
}

fn in_real_time(name: &str, row: Figures<'_>) -> Option<Bound> {
    let is_judged = OURS.contains(&name) && row.of("loss")? < GREATEST_LOSS;
    is_judged.then_some(Bound::AtLeast(1.0 - FEW))
}

#[cfg(test)]
mod tests {
    use starhaul_plot::{Column, Goal, Table};

    use super::*;
    use crate::kit::target::goals;

    /// System, scheduler, loss, late of 500 blocks.
    type Row = (&'static str, &'static str, f64, u64);

    fn missed(rows: &[Row]) -> Option<String> {
        let columns = [
            Column::name("system", "", |row: &Row| row.0.into()),
            Column::name("scheduler", "", |row: &Row| row.1.into()),
            Column::share("loss", "", 2, |row: &Row| row.2.into()),
            Column::count("blocks", "", |_: &Row| 500_u64.into()).total(),
            Column::count("late", "", |row: &Row| row.3.into()).total(),
        ];
        Goal::missed(&goals([("loss", &LATE, &Table::of(&columns, rows))]))
    }

    #[test]
    fn blocks_of_all_runs_are_judged_together_and_rivals_are_not() {
        let both = |loss, late| ("fec+retransmit", "rules", loss, late);
        assert_eq!(missed(&[both(0.1, 0), both(0.1, 0)]), None);
        assert!(missed(&[both(0.1, 0), both(0.1, 0), both(0.1, 1)]).is_some());
        // Of a thousand blocks one.
        assert_eq!(missed(&[both(0.2, 1), both(0.2, 0)]), None);
        assert!(missed(&[both(0.2, 1), both(0.2, 1)]).is_some());
        let others = [("fec", "rules", 0.1, 9), ("mpquic", "its own", 0.1, 9)];
        assert_eq!(missed(&[&others[..], &[both(0.1, 0)]].concat()), None);
    }

    #[test]
    fn a_few_more_losses_than_the_mean_are_no_surprise() {
        assert!((by_chance(0.0) - 1e-4).abs() < 1e-9);
        // Of 5000 fragments 50 are lost in the mean, and 28 more by chance.
        assert!((by_chance(0.01) - (0.005_657 + 1e-4)).abs() < 1e-5);
    }
}
