//! Goals of a benchmark beside what was measured, for `--check` of `ltp bench` and `dtn bench`. Those of `lab leotp` are its own.

use serde::Serialize;
pub(crate) use starhaul_plot::{Bound, Goal};

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
    Goal::lines(goals)
}

/// Compares.
///
/// # Errors
/// Goals are missed; the text names them.
pub(crate) fn judge(goals: &[Goal]) -> anyhow::Result<()> {
    match Goal::missed(goals) {
        Some(missed) => anyhow::bail!(missed),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_missed_goal_is_an_error_that_names_it() {
        let goal = |measured| Goal::new("gso", "gbit_per_s", measured, Bound::AtLeast(5.0));
        judge(&[goal(5.0), goal(6.0)]).unwrap();
        let error = judge(&[goal(4.0), goal(6.0)]).unwrap_err().to_string();
        let told = "goals missed, 1 of 2: gso: gbit_per_s 4.000, at least 5";
        assert_eq!(error, told);
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
