//! Flows of the controller have equal shares of a link, and none starves beside Cubic or BBR.

use starhaul_plot::{Bound, Goal};

use super::SYSTEM;
use crate::experiments::leocc::{
    digest::{self, Shared},
    fairness::BESIDE,
    plan::FLOW_COUNTS,
    results::FairnessRow,
};

/// Jain's index of flows of the controller, over each link.
const JAIN: f64 = 0.95;
/// What one keeps beside a flow of another, of half of what both have: median over the links.
const OF_EQUAL: f64 = 0.5;

/// The goals of the part, if it ran. Flows that did not run meet none.
pub(super) fn goals(rows: &[FairnessRow]) -> Vec<Goal> {
    if rows.is_empty() {
        return Vec::new();
    }
    let lines = digest::fairness(rows);
    let goal = |who: &str, figure, of: fn(&Shared<'_>) -> f64, bound| {
        let line = lines.iter().find(|line| line.who == who);
        let links = line.map_or(0, |line| line.traces);
        let name = format!("fairness, {who}, {links} links");
        Goal::new(&name, figure, line.map_or(f64::NAN, of), bound)
    };
    let equal = FLOW_COUNTS.map(|count| {
        let who = format!("{count} × {SYSTEM}");
        goal(
            &who,
            "least_jain",
            |line| line.least_jain,
            Bound::AtLeast(JAIN),
        )
    });
    let kept = BESIDE.map(|other| {
        let who = format!("{SYSTEM} beside {other}");
        let bound = Bound::AtLeast(OF_EQUAL);
        goal(&who, "share_of_equal", share_of_equal, bound)
    });
    equal.into_iter().chain(kept).collect()
}

/// What the first of two flows has, per half of what both have.
fn share_of_equal(line: &Shared<'_>) -> f64 {
    let all: f64 = line.rates_mbps.iter().sum();
    let first = line.rates_mbps.first().copied().unwrap_or_default();
    2.0 * first / all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::leocc::results::Share;

    fn row(trace: &str, flows: &[(&str, f64)], jain: f64) -> FairnessRow {
        let share = |(system, rate): &(&str, f64)| Share {
            system: (*system).to_owned(),
            throughput_mbps: *rate,
        };
        FairnessRow {
            trace: trace.to_owned(),
            flows: flows.iter().map(share).collect(),
            jain,
            utilisation: 1.0,
            queue_delay_mean_ms: 10.0,
        }
    }

    /// Over two links, with the lesser index of eight flows and what one keeps beside BBR of 48 Mbit/s.
    fn rows(jain: f64, beside_bbr: f64) -> Vec<FairnessRow> {
        let mut rows = Vec::new();
        for trace in ["x", "y"] {
            for count in [2, 4] {
                rows.push(row(trace, &vec![(SYSTEM, 10.0); count], 0.99));
            }
            rows.push(row(trace, &[(SYSTEM, 15.0), ("cubic", 33.0)], 0.86));
            let bbr = 48.0 - beside_bbr;
            rows.push(row(trace, &[(SYSTEM, beside_bbr), ("bbr", bbr)], 0.8));
            rows.push(row(trace, &[("bbr", 40.0), ("cubic", 8.0)], 0.7));
        }
        rows.push(row("x", &[(SYSTEM, 5.0); 8], 0.99));
        rows.push(row("y", &[(SYSTEM, 5.0); 8], jain));
        rows
    }

    #[test]
    fn every_link_and_number_of_flows_is_judged_and_what_is_kept_beside_others() {
        assert_eq!(Goal::missed(&goals(&rows(0.95, 12.0))), None);
        assert_eq!(goals(&rows(0.95, 12.0)).len(), 5);
        let told = Goal::missed(&goals(&rows(0.949, 11.9))).unwrap();
        assert!(told.starts_with("goals missed, 2 of 5: "), "{told}");
        let jain = "fairness, 8 × leocc2, 2 links: least_jain 0.949, at least 0.95";
        assert!(told.contains(jain), "{told}");
        let kept = "fairness, leocc2 beside bbr, 2 links: share_of_equal 0.496, at least 0.5";
        assert!(told.contains(kept), "{told}");
    }

    #[test]
    fn flows_that_did_not_run_meet_nothing() {
        assert!(goals(&[]).is_empty());
        let mut rows = rows(0.99, 24.0);
        rows.retain(|row| row.flows.len() != 4);
        let told = Goal::missed(&goals(&rows)).unwrap();
        assert!(told.contains("1 of 5: fairness, 4 × leocc2"), "{told}");
    }
}
