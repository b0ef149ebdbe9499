//! What was measured, and with `--check` the goals beside it.

use starhaul_plot::Goal;

use super::{Found, experiment::to_json, report::Results};
use crate::Error;

/// Results, which fail when a goal is missed.
pub(crate) struct Judged {
    pub(crate) results: Results,
    /// `None`: they are not asked for.
    pub(crate) goals: Option<Vec<Goal>>,
}

impl Found for Judged {
    fn table(&self) -> String {
        let lines = self.goals.as_deref().map(Goal::lines);
        self.results.table() + &lines.unwrap_or_default()
    }

    fn json(&self) -> Result<String, Error> {
        let mut object = self.results.object();
        if let Some(goals) = &self.goals {
            let goals = serde_json::to_value(goals);
            let goals = goals.map_err(|error| Error::Failed(error.to_string()))?;
            object.insert("goals".to_owned(), goals);
        }
        to_json(&object)
    }

    fn failure(&self) -> Option<String> {
        let missed = self.goals.as_deref().and_then(Goal::missed);
        self.results.failure().or(missed)
    }

    fn files(&self) -> Vec<(String, String)> {
        self.results.files()
    }
}

#[cfg(test)]
mod tests {
    use starhaul_plot::Bound;

    use super::*;

    fn judged(goals: Option<Vec<Goal>>, notes: &[&str]) -> Judged {
        let notes = notes.iter().map(|note| (*note).to_owned()).collect();
        let results = Results {
            experiment: "leotp",
            title: "",
            what: "",
            command: String::new(),
            seed: 1,
            notes,
            has_parts: true,
            rows: Vec::new(),
        };
        Judged { results, goals }
    }

    #[test]
    fn a_goal_that_is_missed_is_a_failure_beside_the_results() {
        let goal = |share| Goal::new("leotp", "ceiling_share", share, Bound::AtLeast(0.95));
        assert_eq!(judged(None, &[]).failure(), None);
        assert!(!judged(None, &[]).json().unwrap().contains("goals"));
        let met = judged(Some(vec![goal(0.95)]), &[]);
        assert_eq!(met.failure(), None);
        let missed = judged(Some(vec![goal(0.949)]), &[]);
        let said = missed.failure().unwrap();
        assert!(
            said.contains("ceiling_share 0.949, at least 0.95"),
            "{said}"
        );
        assert!(missed.table().contains("missed"), "{}", missed.table());
        let json: serde_json::Value = serde_json::from_str(&missed.json().unwrap()).unwrap();
        assert_eq!(json["goals"][0]["met"], false);
        // Why there are no figures says more than that they meet nothing.
        let failed = judged(Some(vec![goal(f64::NAN)]), &["failed: leotp, seed 1: x"]);
        assert!(failed.failure().unwrap().contains("a flow failed"));
        let json: serde_json::Value = serde_json::from_str(&failed.json().unwrap()).unwrap();
        assert!(json["goals"][0]["measured"].is_null(), "{json}");
    }
}
