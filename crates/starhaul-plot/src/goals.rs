//! Goals beside what was measured, and which of them are missed.

use std::fmt;

use serde::Serialize;

/// A figure of a measurement, and its bound.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
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
pub enum Bound {
    /// So much, or more.
    AtLeast(f64),
    /// So much, or less.
    AtMost(f64),
    /// More than this.
    Above(f64),
    /// Less than this.
    Below(f64),
}

impl Bound {
    /// Whether a figure is within it: what is no number never is.
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
            Self::Above(bound) => figure > bound,
            Self::Below(bound) => figure < bound,
        }
    }

    /// The figure that it compares with.
    pub fn figure(self) -> f64 {
        match self {
            Self::AtLeast(figure)
            | Self::AtMost(figure)
            | Self::Above(figure)
            | Self::Below(figure) => figure,
        }
    }

    /// The same comparison with another figure.
    #[must_use]
    pub fn with(self, figure: f64) -> Self {
        match self {
            Self::AtLeast(_) => Self::AtLeast(figure),
            Self::AtMost(_) => Self::AtMost(figure),
            Self::Above(_) => Self::Above(figure),
            Self::Below(_) => Self::Below(figure),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::AtLeast(_) => "at least",
            Self::AtMost(_) => "at most",
            Self::Above(_) => "above",
            Self::Below(_) => "below",
        };
        // One that is computed would have sixteen digits.
        let figure = (self.figure() * 1e6).round() / 1e6;
        write!(f, "{what} {figure}")
    }
}

impl Goal {
    /// The figure of a row, as JSON names it, beside its bound. What is no number meets no goal: nothing was measured.
    pub fn new(row: &str, figure: &'static str, measured: f64, bound: Bound) -> Self {
        Self {
            row: row.to_owned(),
            figure,
            measured,
            bound,
            met: bound.holds(measured),
        }
    }

    /// Whether the figure is within its bound.
    pub fn is_met(&self) -> bool {
        self.met
    }

    /// A line of text for each goal, after an empty one.
    pub fn lines(goals: &[Self]) -> String {
        let line = |goal: &Self| {
            let outcome = if goal.met { "met" } else { "missed" };
            format!("{outcome:7} {goal}\n")
        };
        let lines: String = goals.iter().map(line).collect();
        format!("\n{lines}")
    }

    /// One line that names the goals that are missed; `None`: all are met.
    pub fn missed(goals: &[Self]) -> Option<String> {
        let missed = goals.iter().filter(|goal| !goal.met);
        let missed: Vec<String> = missed.map(ToString::to_string).collect();
        let (count, all) = (missed.len(), goals.len());
        let named = missed.join("; ");
        (count > 0).then(|| format!("goals missed, {count} of {all}: {named}"))
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (row, figure, bound) = (&self.row, self.figure, self.bound);
        write!(f, "{row}: {figure} {:.3}, {bound}", self.measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_itself_meets_the_goal_unless_it_is_to_be_exceeded_and_no_number_does_not() {
        let met = |measured, bound| Goal::new("gso", "gbit_per_s", measured, bound).is_met();
        assert!(met(5.0, Bound::AtLeast(5.0)) && !met(4.999, Bound::AtLeast(5.0)));
        assert!(met(1.5, Bound::AtMost(1.5)) && !met(1.501, Bound::AtMost(1.5)));
        assert!(met(5.001, Bound::Above(5.0)) && !met(5.0, Bound::Above(5.0)));
        assert!(met(1.499, Bound::Below(1.5)) && !met(1.5, Bound::Below(1.5)));
        let kinds = [Bound::AtLeast, Bound::AtMost, Bound::Above, Bound::Below];
        for bound in kinds.map(|kind: fn(f64) -> Bound| kind(0.0)) {
            assert!(!met(f64::NAN, bound) && bound.with(2.0).figure() == 2.0);
        }
    }

    #[test]
    fn what_is_missed_is_named() {
        let goal = |measured| Goal::new("gso", "gbit_per_s", measured, Bound::AtLeast(5.0));
        assert_eq!(Goal::missed(&[goal(5.0), goal(6.0)]), None);
        let told = "goals missed, 1 of 2: gso: gbit_per_s 4.000, at least 5";
        assert_eq!(Goal::missed(&[goal(4.0), goal(6.0)]).as_deref(), Some(told));
        let lines = Goal::lines(&[goal(4.0), goal(6.0)]);
        assert!(lines.contains("missed  gso: gbit_per_s 4.000"), "{lines}");
        assert!(lines.contains("met     gso: gbit_per_s 6.000"), "{lines}");
        let computed = Goal::new("gso", "share", 0.5, Bound::Below(1.0 / 3.0)).to_string();
        assert_eq!(computed, "gso: share 0.500, below 0.333333");
    }
}
