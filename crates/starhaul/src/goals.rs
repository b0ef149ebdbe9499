//! Goals of a benchmark beside what was measured, for `--check` of `ltp bench` and `dtn bench`. Those of `lab leotp` are its own.

use serde::Serialize;
pub(crate) use starhaul_plot::{Bound, Goal};

// How far from its goals a figure may be. Without a description, which would replace that of the command.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct Floor {
    /// With --check: end with exit code 1 only if a figure does not reach this share of its goal: with 50% half of a lower bound, or twice an upper
    /// one. Goals are told all the same. For computers that do other work, too
    #[arg(long = "floor", value_name = "SHARE", requires = "check", value_parser = share)]
    share: Option<f64>,
}

fn share(text: &str) -> Result<f64, String> {
    match starhaul_units::parse_share(text) {
        Ok(share) if share > 0.0 => Ok(share),
        Ok(_) => Err("of no share of a goal any figure would do: write such as 50%".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What was measured beside its goals, and beside their floors if these alone decide.
pub(crate) struct Judged {
    goals: Vec<Goal>,
    floors: Option<Vec<Goal>>,
}

impl Judged {
    pub(crate) fn new(goals: Vec<Goal>, floor: Floor) -> Self {
        let floors = floor.share.map(|share| Goal::floors(&goals, share));
        Self { goals, floors }
    }

    /// A line of text for each goal, after an empty one, and the same for floors.
    pub(crate) fn lines(&self) -> String {
        let floors = self.floors.as_deref().map(Goal::lines);
        let floors = floors.map(|lines| format!("\nfloors:{lines}"));
        Goal::lines(&self.goals) + &floors.unwrap_or_default()
    }

    /// Compares.
    ///
    /// # Errors
    /// Goals are missed, or floors where there are some; the text names them.
    pub(crate) fn judge(&self) -> anyhow::Result<()> {
        let missed = match &self.floors {
            Some(floors) => Goal::missed_floors(floors),
            None => Goal::missed(&self.goals),
        };
        match missed {
            Some(missed) => anyhow::bail!(missed),
            None => Ok(()),
        }
    }
}

/// A measurement and what it was compared with.
#[derive(Serialize)]
struct Compared<'a, R> {
    #[serde(flatten)]
    report: &'a R,
    #[serde(skip_serializing_if = "Option::is_none")]
    goals: Option<&'a [Goal]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    floors: Option<&'a [Goal]>,
}

/// One line of JSON with the fields of the measurement and, if it was compared with goals and floors, these.
///
/// # Errors
/// The measurement is no object.
pub(crate) fn json<R: Serialize>(report: &R, judged: Option<&Judged>) -> anyhow::Result<String> {
    let compared = Compared {
        report,
        goals: judged.map(|judged| judged.goals.as_slice()),
        floors: judged.and_then(|judged| judged.floors.as_deref()),
    };
    Ok(serde_json::to_string(&compared)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOALS_ALONE: Floor = Floor { share: None };

    fn judge(goals: &[Goal], floor: Floor) -> Result<(), String> {
        let judged = Judged::new(goals.to_vec(), floor);
        judged.judge().map_err(|error| error.to_string())
    }

    #[test]
    fn one_missed_goal_is_an_error_that_names_it() {
        let goal = |measured| Goal::new("gso", "gbit_per_s", measured, Bound::AtLeast(5.0));
        judge(&[goal(5.0), goal(6.0)], GOALS_ALONE).unwrap();
        let error = judge(&[goal(4.0), goal(6.0)], GOALS_ALONE).unwrap_err();
        let told = "goals missed, 1 of 2: gso: gbit_per_s 4.000, at least 5";
        assert_eq!(error, told);
    }

    /// Goals are told beside floors, which alone decide.
    #[test]
    fn above_its_floor_a_missed_goal_is_told_and_no_error() {
        let half = Floor { share: Some(0.5) };
        let goal = |measured| Goal::new("gso", "gbit_per_s", measured, Bound::AtLeast(5.0));
        judge(&[goal(2.5)], half).unwrap();
        let error = judge(&[goal(2.4)], half).unwrap_err();
        assert!(error.ends_with("at least 2.5"), "{error}");
        let judged = Judged::new(vec![goal(3.0)], half);
        let told = "\nmissed  gso: gbit_per_s 3.000, at least 5\n\nfloors:\nmet     gso: gbit_per_s 3.000, at least 2.5\n";
        assert_eq!(judged.lines(), told);
        assert!(share("0").is_err() && share("1.5").is_err() && share("50%") == Ok(0.5));
    }

    #[test]
    fn goals_stand_beside_the_fields_of_the_measurement() {
        #[derive(Serialize)]
        struct Report {
            rows: [u8; 2],
        }
        let report = Report { rows: [1, 2] };
        assert_eq!(json(&report, None).unwrap(), "{\"rows\":[1,2]}\n");
        let goals = vec![Goal::new("gso", "lost", 0.0, Bound::AtMost(0.0))];
        let judged = Judged::new(goals, GOALS_ALONE);
        let told = "{\"rows\":[1,2],\"goals\":[{\"row\":\"gso\",\"figure\":\"lost\",\"measured\":0.0,\"at_most\":0.0,\"met\":true}]}\n";
        assert_eq!(json(&report, Some(&judged)).unwrap(), told);
    }
}
