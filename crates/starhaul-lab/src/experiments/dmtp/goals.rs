//! What `--check` holds the rows to: fig. 7, 8 and 9, and losses in a row.

use starhaul_plot::{Bound, Goal, Table};

use super::{FRAGMENTS, LOSS_STEPS};
use crate::kit::{Figures, Target, target};

/// The greatest loss of the paper.
pub(super) const PUBLISHED_LOSS: f64 = LOSS_STEPS[LOSS_STEPS.len() - 1];
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
    together: false,
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

/// Also where losses come in a row, whose number differs more by chance: of all runs together, beside what the cheap path lost in them.
pub(super) const EXTRA_IN_A_ROW: Target = Target {
    of: &["system", "scheduler", "burst"],
    figure: "extra_fragments",
    bound: extra_in_a_row,
    ..LATE
};

/// The dear path carries 1.15 × what the linear program puts there, up to the greatest loss of the paper: all steps as one, since probes
/// are no part of a program, and few losses are twice as many by chance.
pub(super) const DEAR: Target = Target {
    figure: "dear_bytes",
    bound: dear,
    together: true,
    ..LATE
};

/// In real time a moment without a processor costs a block: in the median of the runs.
const IN_REAL_TIME: Target = Target {
    of: &["system"],
    by: "loss",
    figure: "on_time_share",
    bound: in_real_time,
    together: false,
};
const LEAST_ON_TIME: Bound = Bound::AtLeast(1.0 - FEW);

/// Whether a run of this system in real time, at one of these losses, has a goal.
pub(super) fn is_judged(system: &str, losses: &[f64]) -> bool {
    OURS.contains(&system) && losses.iter().any(|loss| *loss <= PUBLISHED_LOSS)
}

/// The goals in real time of these systems: one of which no run counts has shown nothing, whatever others reach.
pub(super) fn real_goals(
    part: &'static str,
    table: &Table,
    systems: impl Iterator<Item = &'static str>,
) -> Vec<Goal> {
    let mut goals = target::goals([(part, &IN_REAL_TIME, table)]);
    let rows = table.split(&["system"]);
    let has_row = |name: &'static str| rows.iter().any(|(system, _)| system == name);
    let missing = systems.filter(|name| OURS.contains(name) && !has_row(name));
    goals.extend(missing.map(|name| {
        let row = format!("{part}, {name}");
        Goal::new(&row, IN_REAL_TIME.figure, f64::NAN, LEAST_ON_TIME)
    }));
    goals
}

/// The rows of both protections together, by any scheduler.
fn has_both(name: &str) -> bool {
    name.starts_with("fec+retransmit, ")
}

fn late(name: &str, row: Figures<'_>) -> Option<Bound> {
    let few = match row.of("loss")? <= PUBLISHED_LOSS {
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
    let chance = by_chance(row.of("loss")?, row.of("blocks")?);
    has_both(name).then_some(Bound::AtMost(1.25 * least + chance))
}

/// Nearly each lost packet carried a fragment, and each of these leaves again. One fragment in 10 000 is by chance.
fn extra_in_a_row(name: &str, row: Figures<'_>) -> Option<Bound> {
    let (lost, all) = (row.of("lost_packets")?, row.of("data_fragments")?);
    has_both(name).then_some(Bound::AtMost(1.25f64.mul_add(lost, 1e-4 * all)))
}

/// Four standard deviations of the share of these blocks' fragments that are lost, each by itself, and one fragment in 10 000 where nothing is.
fn by_chance(loss: f64, blocks: f64) -> f64 {
    4.0 * (loss / (blocks * f64::from(FRAGMENTS))).sqrt() + 1e-4
}

/// Of the plan, which follows a linear program: rules send a fragment where it is in time.
fn dear(name: &str, row: Figures<'_>) -> Option<Bound> {
    let is_judged = name == "fec+retransmit, optimizer" && row.of("loss")? <= PUBLISHED_LOSS;
    let most = Bound::AtMost(1.15 * row.of("dear_needed_bytes")?);
    is_judged.then_some(most)
}

fn in_real_time(name: &str, row: Figures<'_>) -> Option<Bound> {
    is_judged(name, &[row.of("loss")?]).then_some(LEAST_ON_TIME)
}

#[cfg(test)]
mod tests {
    use starhaul_plot::Column;

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
        assert!((by_chance(0.0, 250.0) - 1e-4).abs() < 1e-9);
        // Of 5000 fragments 50 are lost in the mean, and 28 more by chance.
        assert!((by_chance(0.01, 250.0) - (0.005_657 + 1e-4)).abs() < 1e-5);
        // Of twenty times as many 1000 are, and 126 more.
        assert!((by_chance(0.01, 5000.0) - (0.001_265 + 1e-4)).abs() < 1e-5);
    }

    /// The row's number of losses in a row is part of its name, by which tables are split.
    #[test]
    fn what_leaves_beside_the_data_is_judged_by_what_was_lost_in_a_row() {
        type Row = (&'static str, u64);
        let missed = |rows: &[Row]| {
            let columns = [
                Column::name("system", "", |row: &Row| row.0.into()),
                Column::number("burst", "", "", 0, |_: &Row| 20.0.into()),
                Column::name("scheduler", "", |_: &Row| "rules".into()),
                Column::share("loss", "", 2, |_: &Row| 0.01.into()),
                Column::count("data_fragments", "", |_: &Row| 5000_u64.into()).total(),
                Column::count("extra_fragments", "", |row: &Row| row.1.into()).total(),
                Column::count("lost_packets", "", |_: &Row| 40_u64.into()).total(),
            ];
            let table = Table::of(&columns, rows);
            Goal::missed(&goals([("bursts", &EXTRA_IN_A_ROW, &table)]))
        };
        // Of both runs together 101 at the most.
        let both = |extra| ("fec+retransmit", extra);
        assert_eq!(missed(&[both(70), both(31)]), None);
        assert!(missed(&[both(70), both(32)]).is_some());
        assert!(missed(&[("fec", 0)]).is_some_and(|told| told.contains("judged_rows")));
    }

    /// Scheduler, loss, bytes over the dear path and needed ones.
    fn dear_missed(rows: &[(&'static str, f64, u64, f64)]) -> Option<String> {
        type Row = (&'static str, f64, u64, f64);
        let columns = [
            Column::name("system", "", |_: &Row| "fec+retransmit".into()),
            Column::name("scheduler", "", |row: &Row| row.0.into()),
            Column::share("loss", "", 2, |row: &Row| row.1.into()),
            Column::count("dear_bytes", "", |row: &Row| row.2.into()),
            Column::number("dear_needed_bytes", "", "B", 0, |row: &Row| row.3.into()),
        ];
        Goal::missed(&goals([("paths", &DEAR, &Table::of(&columns, rows))]))
    }

    #[test]
    fn the_dear_path_carries_little_more_than_the_program_puts_there_in_all_steps() {
        // Probes leave where nothing is needed, and 20 % is no loss of the paper.
        let rows = [
            ("optimizer", 0.0, 50, 0.0),
            ("optimizer", 0.1, 1100, 1000.0),
            ("optimizer", 0.2, 9000, 2000.0),
            ("rules", 0.1, 9000, 1000.0),
        ];
        assert_eq!(dear_missed(&rows), None);
        let more = [("optimizer", 0.0, 51, 0.0), rows[1]];
        assert!(dear_missed(&more).is_some());
        assert!(dear_missed(&[rows[1], ("optimizer", 0.05, 1, f64::NAN)]).is_some());
    }

    #[test]
    fn a_system_of_ours_without_a_run_in_real_time_meets_nothing() {
        type Row = (&'static str, f64);
        let missed = |systems: &[&'static str]| {
            let columns = [
                Column::name("system", "", |row: &Row| row.0.into()),
                Column::share("loss", "", 2, |_: &Row| 0.1_f64.into()),
                Column::share("on_time_share", "", 1, |row: &Row| row.1.into()).median(),
            ];
            let rows = [
                ("starhaul", 1.0),
                ("starhaul", 0.9),
                ("starhaul", 1.0),
                ("srt", 0.5),
            ];
            let table = Table::of(&columns, &rows);
            Goal::missed(&real_goals("loss", &table, systems.iter().copied()))
        };
        assert_eq!(missed(&["starhaul", "srt", "rist"]), None);
        let told = missed(&["starhaul", "starhaul-bbr"]).unwrap_or_default();
        assert!(
            told.contains("1 of 2: loss, starhaul-bbr: on_time_share NaN"),
            "{told}"
        );
    }

    #[test]
    fn only_ours_has_goals_in_real_time_and_only_up_to_the_losses_of_the_paper() {
        assert!(is_judged("starhaul", &[0.15, 0.1]));
        assert!(!is_judged("starhaul", &[0.15]) && !is_judged("srt", &[0.1]));
    }
}
