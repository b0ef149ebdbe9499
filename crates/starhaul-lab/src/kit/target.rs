//! What the rows of a part should show: bounds that `--check` holds them to.

use starhaul_plot::{Bound, Goal, Table};

/// A bound for one figure of a part's rows, once those of all runs are summed up. Figures are as in JSON: shares from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Keys of the columns whose values, as they are shown and with commas between them, are the name of a row.
    pub of: &'static [&'static str],
    /// Key of another column, whose figure tells apart the rows of a name.
    pub by: &'static str,
    /// Key of the column that is judged.
    pub figure: &'static str,
    /// The bound for a row of this name; a row without one is not judged.
    pub bound: fn(&str, Figures<'_>) -> Option<Bound>,
}

/// The figures of a row, but for those that are its name.
#[derive(Clone, Copy, Debug)]
pub struct Figures<'t> {
    table: &'t Table,
    row: usize,
}

impl Figures<'_> {
    /// The figure of a column by its key, if it has one.
    pub fn of(self, key: &str) -> Option<f64> {
        self.table.values(key).nth(self.row)?.number()
    }
}

impl Target {
    /// A goal for each row of the part that is judged.
    fn goals(&self, part: &str, table: &Table) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (name, rows) in table.summed_up().split(self.of) {
            for row in 0..rows.len() {
                let figures = Figures { table: &rows, row };
                let bound = (self.bound)(&name, figures);
                let Some((by, bound)) = figures.of(self.by).zip(bound) else {
                    continue;
                };
                let row = format!("{part}, {name}, {} {by}", self.by);
                // What was not measured meets nothing.
                let found = figures.of(self.figure).unwrap_or(f64::NAN);
                goals.push(Goal::new(&row, self.figure, found, bound));
            }
        }
        goals
    }
}

/// The goals of targets, each with the name and the rows of its part. What judges no row shows nothing, and so misses the goal that it does.
pub(crate) fn goals<'t>(
    targets: impl IntoIterator<Item = (&'static str, &'t Target, &'t Table)>,
) -> Vec<Goal> {
    let targets = targets.into_iter();
    let mut goals: Vec<Goal> = targets
        .flat_map(|(part, target, table)| target.goals(part, table))
        .collect();
    if goals.is_empty() {
        let none = Goal::new("all parts", "judged_rows", 0.0, Bound::AtLeast(1.0));
        goals.push(none);
    }
    goals
}

#[cfg(test)]
mod tests {
    use starhaul_plot::Column;

    use super::*;

    type Row = (&'static str, f64, Option<f64>);

    const TARGET: Target = Target {
        of: &["system"],
        by: "loss",
        figure: "on_time_share",
        bound: |name, row| {
            let least = Bound::AtLeast(1.0 - row.of("loss")?);
            (name == "ours").then_some(least)
        },
    };

    fn missed(rows: &[Row]) -> Option<String> {
        let columns = [
            Column::name("system", "system", |row: &Row| row.0.into()),
            Column::share("loss", "loss", 0, |row: &Row| row.1.into()),
            Column::share("on_time_share", "on time", 0, |row: &Row| row.2.into()).median(),
        ];
        let table = Table::of(&columns, rows);
        Goal::missed(&goals([("part", &TARGET, &table)]))
    }

    #[test]
    fn each_row_that_misses_a_bound_is_named_and_others_are_not_judged() {
        let met = ("ours", 0.5, Some(0.5));
        assert_eq!(missed(&[met, ("theirs", 0.5, Some(0.1))]), None);
        // The median of what was measured at one point counts.
        assert_eq!(missed(&[met, met, ("ours", 0.5, Some(0.2))]), None);
        let told = missed(&[met, ("ours", 0.25, Some(0.5)), ("ours", 0.75, None)]);
        let told = told.unwrap_or_default();
        let first = "part, ours, loss 0.25: on_time_share 0.500, at least 0.75";
        assert!(told.starts_with("goals missed, 2 of 3: "), "{told}");
        assert!(told.contains(first), "{told}");
        assert!(told.contains("loss 0.75: on_time_share NaN"), "{told}");
    }

    #[test]
    fn a_check_that_judges_nothing_is_missed() {
        for rows in [&[][..], &[("theirs", 0.0, Some(1.0))]] {
            assert!(missed(rows).is_some_and(|told| told.contains("judged_rows")));
        }
    }
}
