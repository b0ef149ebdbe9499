//! What the rows of a part should show: bounds that `--check` holds them to.

use starhaul_plot::{Bound, Goal, Table, Value};

/// A bound for one figure of a part's rows, once those of all runs are summed up. Figures are as in JSON: shares from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Keys of the columns whose values, as they are shown and with commas between them, are the name of a row.
    pub of: &'static [&'static str],
    /// Key of another column, whose figure tells apart the rows of a name.
    pub by: &'static str,
    /// Key of the column that is judged. A row meets nothing if one of its runs lacks this figure.
    pub figure: &'static str,
    /// The bound for a row of this name; a row without one is not judged.
    pub bound: fn(&str, Figures<'_>) -> Option<Bound>,
    /// Whether the rows of a name are judged as one, the sum of their figures by that of their bounds.
    pub together: bool,
}

/// The figures of a row, but for those that are its name.
#[derive(Clone, Copy, Debug)]
pub struct Figures<'t> {
    /// All rows of the part, by their names.
    all: &'t [(String, Table)],
    by: &'static str,
    table: &'t Table,
    row: usize,
}

/// A figure that has a bound, and what tells its row from others of the name.
#[derive(Clone, Copy)]
struct Judged {
    by: f64,
    found: f64,
    bound: Bound,
}

impl Figures<'_> {
    /// The figure of a column by its key, if it has one.
    pub fn of(self, key: &str) -> Option<f64> {
        self.table.values(key).nth(self.row)?.number()
    }

    /// The least figure of a column in all rows of the name.
    pub fn least(self, key: &str) -> Option<f64> {
        let values = self.table.values(key);
        values.filter_map(Value::number).reduce(f64::min)
    }

    /// The row of another name that has the same figure in [`Target::by`], if there is one.
    pub fn beside(self, name: &str) -> Option<Self> {
        let by = self.of(self.by)?;
        let (_, table) = self.all.iter().find(|(other, _)| other == name)?;
        let mut values = table.values(self.by);
        let row = values.position(|value| value.number() == Some(by))?;
        Some(Self { table, row, ..self })
    }
}

impl Target {
    /// A goal for each row of the part that is judged, or for all of a name. What judges no row shows nothing, and so misses the goal that it does.
    fn goals(&self, part: &str, table: &Table) -> Vec<Goal> {
        // The median of the runs that have a figure says nothing of those that failed to have one.
        let whole = table.clone().only_whole(self.figure);
        let all = whole.summed_up().split(self.of);
        let mut goals = Vec::new();
        for (name, rows) in &all {
            let judged: Vec<Judged> = (0..rows.len())
                .filter_map(|row| self.judged(name, &all, rows, row))
                .collect();
            let goal = |by: &str, found, bound| {
                let row = format!("{part}, {name}, {} {by}", self.by);
                Goal::new(&row, self.figure, found, bound)
            };
            match judged[..] {
                [first, .., last] if self.together => {
                    let by = format!("{} to {}", first.by, last.by);
                    let found: f64 = judged.iter().map(|one| one.found).sum();
                    goals.push(goal(&by, found, sum(&judged, first.bound)));
                }
                _ => goals.extend(
                    judged
                        .iter()
                        .map(|one| goal(&one.by.to_string(), one.found, one.bound)),
                ),
            }
        }
        if goals.is_empty() {
            let row = format!("{part}, {}", self.figure);
            goals.push(Goal::new(&row, "judged_rows", 0.0, Bound::AtLeast(1.0)));
        }
        goals
    }

    fn judged(
        &self,
        name: &str,
        all: &[(String, Table)],
        table: &Table,
        row: usize,
    ) -> Option<Judged> {
        let by = self.by;
        let figures = Figures {
            all,
            by,
            table,
            row,
        };
        Some(Judged {
            by: figures.of(by)?,
            bound: (self.bound)(name, figures)?,
            // What was not measured meets nothing.
            found: figures.of(self.figure).unwrap_or(f64::NAN),
        })
    }
}

/// The sum of bounds, all of the kind of this one.
fn sum(judged: &[Judged], kind: Bound) -> Bound {
    kind.with(judged.iter().map(|one| one.bound.figure()).sum())
}

/// The goals of targets, each with the name and the rows of its part.
pub(crate) fn goals<'t>(
    targets: impl IntoIterator<Item = (&'static str, &'t Target, &'t Table)>,
) -> Vec<Goal> {
    let targets = targets.into_iter();
    targets
        .flat_map(|(part, target, table)| target.goals(part, table))
        .collect()
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
        together: false,
    };

    fn table(rows: &[Row]) -> Table {
        let columns = [
            Column::name("system", "system", |row: &Row| row.0.into()),
            Column::share("loss", "loss", 0, |row: &Row| row.1.into()),
            Column::share("on_time_share", "on time", 0, |row: &Row| row.2.into()).median(),
        ];
        Table::of(&columns, rows)
    }

    fn missed_by(target: &Target, rows: &[Row]) -> Option<String> {
        Goal::missed(&goals([("part", target, &table(rows))]))
    }

    fn missed(rows: &[Row]) -> Option<String> {
        missed_by(&TARGET, rows)
    }

    #[test]
    fn each_row_that_misses_a_bound_is_named_and_others_are_not_judged() {
        let met = ("ours", 0.5, Some(0.5));
        assert_eq!(missed(&[met, ("theirs", 0.5, Some(0.1))]), None);
        // The median of what was measured at one point counts.
        assert_eq!(missed(&[met, met, ("ours", 0.5, Some(0.2))]), None);
        // A run without a figure does not show that it met its bound.
        assert!(missed(&[met, met, ("ours", 0.5, None)]).is_some_and(|told| told.contains("NaN")));
        let told = missed(&[met, ("ours", 0.25, Some(0.5)), ("ours", 0.75, None)]);
        let told = told.unwrap_or_default();
        let first = "part, ours, loss 0.25: on_time_share 0.500, at least 0.75";
        assert!(told.starts_with("goals missed, 2 of 3: "), "{told}");
        assert!(told.contains(first), "{told}");
        assert!(told.contains("loss 0.75: on_time_share NaN"), "{told}");
    }

    /// Also beside targets that judge something.
    #[test]
    fn a_target_that_judges_nothing_is_missed() {
        for rows in [&[][..], &[("theirs", 0.0, Some(1.0))]] {
            assert!(missed(rows).is_some_and(|told| told.contains("judged_rows")));
        }
        let [met, unmeasured] = [
            table(&[("ours", 0.5, Some(0.5))]),
            table(&[("theirs", 0.5, Some(0.5))]),
        ];
        let all = goals([("one", &TARGET, &met), ("other", &TARGET, &unmeasured)]);
        let told = Goal::missed(&all).unwrap_or_default();
        assert!(told.contains("other, on_time_share: judged_rows"), "{told}");
    }

    #[test]
    fn rows_that_are_judged_together_make_up_for_each_other() {
        let target = Target {
            together: true,
            ..TARGET
        };
        let rows = [
            ("ours", 0.25, Some(0.5)),
            ("ours", 0.5, Some(0.75)),
            ("theirs", 0.0, Some(0.0)),
        ];
        assert_eq!(missed_by(&target, &rows), None);
        assert!(missed(&rows).is_some());
        let less = [("ours", 0.25, Some(0.5)), ("ours", 0.5, Some(0.5))];
        let told = missed_by(&target, &less).unwrap_or_default();
        let all = "part, ours, loss 0.25 to 0.5: on_time_share 1.000, at least 1.25";
        assert!(told.contains(all), "{told}");
        let unmeasured = [("ours", 0.25, Some(5.0)), ("ours", 0.5, None)];
        assert!(missed_by(&target, &unmeasured).is_some());
    }

    #[test]
    fn a_row_is_compared_with_the_same_row_of_another_name() {
        let target = Target {
            bound: |name, row| {
                let theirs = row.beside("theirs").and_then(|row| row.of("on_time_share"));
                (name == "ours").then_some(Bound::AtLeast(theirs.unwrap_or(f64::NAN)))
            },
            ..TARGET
        };
        let ours = [("ours", 0.5, Some(0.5)), ("ours", 0.25, Some(0.75))];
        let with = |theirs: &[Row]| missed_by(&target, &[theirs, &ours[..]].concat());
        let theirs = [("theirs", 0.25, Some(0.75)), ("theirs", 0.5, Some(0.5))];
        assert_eq!(with(&theirs), None);
        // One that failed is not exceeded.
        assert!(with(&theirs[..1]).is_some_and(|told| told.contains("1 of 2")));
        assert!(with(&[]).is_some_and(|told| told.contains("2 of 2")));
    }
}
