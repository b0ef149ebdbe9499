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
    /// The documentation promises it of other rows only: it is told, and missed without consequence.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    told_only: bool,
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

    /// This share of it, from above 0 to 1: half of a least figure, twice a greatest one. `None`: of zero there is no share.
    fn floor(self, share: f64) -> Option<Self> {
        let figure = self.figure();
        let floor = match self {
            Self::AtLeast(_) | Self::Above(_) => figure * share,
            Self::AtMost(_) | Self::Below(_) => figure / share,
        };
        (figure > 0.0).then(|| self.with(floor))
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
            told_only: false,
        }
    }

    /// The same where the documentation does not promise it.
    #[must_use]
    pub fn told_only(self) -> Self {
        Self {
            told_only: true,
            ..self
        }
    }

    /// The floors of promised goals: the same figures, held to this share of each bound (from above 0 to 1). What is below one is not put down to
    /// a busy computer. A bound of zero has none.
    pub fn floors(goals: &[Self], share: f64) -> Vec<Self> {
        let floor = |goal: &Self| {
            let bound = goal.bound.floor(share)?;
            Some(Self::new(&goal.row, goal.figure, goal.measured, bound))
        };
        let promised = goals.iter().filter(|goal| !goal.told_only);
        promised.filter_map(floor).collect()
    }

    /// Whether the figure is within its bound.
    pub fn is_met(&self) -> bool {
        self.met
    }

    /// A line of text for each goal, after an empty one.
    pub fn lines(goals: &[Self]) -> String {
        let line = |goal: &Self| {
            let (outcome, ends) = match (goal.told_only, goal.met) {
                (true, _) => ("told", ", not promised here"),
                (false, true) => ("met", ""),
                (false, false) => ("missed", ""),
            };
            format!("{outcome:7} {goal}{ends}\n")
        };
        let lines: String = goals.iter().map(line).collect();
        format!("\n{lines}")
    }

    /// One line that names the promised goals that are missed; `None`: all are met.
    pub fn missed(goals: &[Self]) -> Option<String> {
        Self::named("goals missed", goals)
    }

    /// The same of floors.
    pub fn missed_floors(floors: &[Self]) -> Option<String> {
        Self::named("floors missed", floors)
    }

    fn named(what: &str, goals: &[Self]) -> Option<String> {
        let promised = goals.iter().filter(|goal| !goal.told_only);
        let missed = promised.clone().filter(|goal| !goal.met);
        let missed: Vec<String> = missed.map(ToString::to_string).collect();
        let (count, all) = (missed.len(), promised.count());
        let named = missed.join("; ");
        (count > 0).then(|| format!("{what}, {count} of {all}: {named}"))
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

    #[test]
    fn what_is_not_promised_is_told_and_never_missed() {
        let goal = |measured| Goal::new("disk", "share", measured, Bound::AtLeast(0.9));
        let goals = [goal(0.5).told_only(), goal(0.95).told_only(), goal(0.9)];
        assert_eq!(Goal::missed(&goals), None);
        let told = Goal::missed(&[goal(0.5).told_only(), goal(0.5)]);
        assert!(told.is_some_and(|told| told.contains("1 of 1: ")));
        let line = "told    disk: share 0.500, at least 0.9, not promised here\n";
        assert!(Goal::lines(&goals).contains(line));
        let json = goals.map(|goal| serde_json::to_value(goal).unwrap_or_default());
        assert!(json[0]["told_only"] == true && json[2].get("told_only").is_none());
    }

    #[test]
    fn a_floor_is_a_share_of_what_is_promised() {
        let goal = |measured, bound| Goal::new("gso", "figure", measured, bound);
        let missed = |goal: Goal| Goal::missed_floors(&Goal::floors(&[goal], 0.5)).is_some();
        assert!(!missed(goal(2.5, Bound::AtLeast(5.0))) && missed(goal(2.4, Bound::AtLeast(5.0))));
        assert!(!missed(goal(3.0, Bound::AtMost(1.5))) && missed(goal(3.1, Bound::AtMost(1.5))));
        assert!(missed(goal(f64::NAN, Bound::AtMost(1.5))));
        // Neither has one.
        assert!(!missed(goal(9.0, Bound::AtMost(0.0))));
        assert!(!missed(goal(0.1, Bound::AtLeast(5.0)).told_only()));
        let floors = Goal::floors(&[goal(2.4, Bound::AtLeast(5.0))], 0.5);
        let told = "floors missed, 1 of 1: gso: figure 2.400, at least 2.5";
        assert_eq!(Goal::missed_floors(&floors).as_deref(), Some(told));
    }
}
