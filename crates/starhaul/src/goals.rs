//! Goals of a benchmark beside what was measured, for `--check` of `ltp bench` and `dtn bench`.

use std::fmt;

use serde::Serialize;

/// A figure of a measurement, and its bound.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Goal {
    /// The row that has the figure.
    row: String,
    /// The name of the figure in JSON.
    figure: &'static str,
    measured: f64,
    #[serde(flatten)]
    bound: Bound,
    met: bool,
}

/// What a figure should be.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// So much, or more.
    AtLeast(f64),
    /// So much, or less.
    AtMost(f64),
}

impl Goal {
    pub(crate) fn new(row: &str, figure: &'static str, measured: f64, bound: Bound) -> Self {
        Self {
            row: row.to_owned(),
            figure,
            measured,
            bound,
            // What is no number meets no goal.
            met: match bound {
                Bound::AtLeast(least) => measured >= least,
                Bound::AtMost(most) => measured <= most,
            },
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (row, figure, measured) = (&self.row, self.figure, self.measured);
        let (bound, goal) = match self.bound {
            Bound::AtLeast(least) => ("at least", least),
            Bound::AtMost(most) => ("at most", most),
        };
        write!(f, "{row}: {figure} {measured:.3}, {bound} {goal}")
    }
}

/// A measurement and what it was compared with.
#[derive(Serialize)]
struct Compared<'a, R> {
    #[serde(flatten)]
    report: &'a R,
    #[serde(skip_serializing_if = "Option::is_none")]
    goals: Option<&'a [Goal]>,
}

/// One line of JSON with the fields of the measurement and, if it was compared with goals, these.
///
/// # Errors
/// The measurement is no object.
pub(crate) fn json<R: Serialize>(report: &R, goals: Option<&[Goal]>) -> anyhow::Result<String> {
    let text = serde_json::to_string(&Compared { report, goals })?;
    Ok(text + "\n")
}

/// A line of text for each goal, after an empty one.
pub(crate) fn lines(goals: &[Goal]) -> String {
    let line = |goal: &Goal| {
        let outcome = if goal.met { "met" } else { "missed" };
        format!("{outcome:7} {goal}\n")
    };
    let lines: String = goals.iter().map(line).collect();
    format!("\n{lines}")
}

/// Compares.
///
/// # Errors
/// Goals are missed; the text names them.
pub(crate) fn judge(goals: &[Goal]) -> anyhow::Result<()> {
    let missed = goals.iter().filter(|goal| !goal.met);
    let missed: Vec<String> = missed.map(ToString::to_string).collect();
    let (count, all) = (missed.len(), goals.len());
    anyhow::ensure!(
        missed.is_empty(),
        "goals missed, {count} of {all}: {}",
        missed.join("; ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_itself_meets_the_goal_and_no_number_does_not() {
        let met = |measured, bound| Goal::new("gso", "gbit_per_s", measured, bound).met;
        assert!(met(5.0, Bound::AtLeast(5.0)) && !met(4.999, Bound::AtLeast(5.0)));
        assert!(met(1.5, Bound::AtMost(1.5)) && !met(1.501, Bound::AtMost(1.5)));
        for bound in [Bound::AtLeast(0.0), Bound::AtMost(0.0)] {
            assert!(!met(f64::NAN, bound));
        }
    }

    #[test]
    fn one_missed_goal_is_an_error_that_names_it() {
        let goal = |measured| Goal::new("gso", "gbit_per_s", measured, Bound::AtLeast(5.0));
        judge(&[goal(5.0), goal(6.0)]).unwrap();
        let error = judge(&[goal(4.0), goal(6.0)]).unwrap_err().to_string();
        let told = "goals missed, 1 of 2: gso: gbit_per_s 4.000, at least 5";
        assert_eq!(error, told);
        assert!(lines(&[goal(4.0), goal(6.0)]).contains("missed  gso: gbit_per_s 4.000"));
    }

    #[test]
    fn goals_stand_beside_the_fields_of_the_measurement() {
        #[derive(Serialize)]
        struct Report {
            rows: [u8; 2],
        }
        let report = Report { rows: [1, 2] };
        assert_eq!(json(&report, None).unwrap(), "{\"rows\":[1,2]}\n");
        let goals = [Goal::new("gso", "lost", 0.0, Bound::AtMost(0.0))];
        let told = "{\"rows\":[1,2],\"goals\":[{\"row\":\"gso\",\"figure\":\"lost\",\"measured\":0.0,\"at_most\":0.0,\"met\":true}]}\n";
        assert_eq!(json(&report, Some(&goals)).unwrap(), told);
    }
}
