//! In real time: the controller over our own stack beside the kernel's BBR over TCP, over each trace and with each added delay.

use starhaul_flow::Metrics;
use starhaul_plot::{Bound, Goal};

use super::{KERNEL_RIVAL, SYSTEM};
use crate::experiments::leocc::results::{Params, Row};

/// Throughput and mean queueing delay per those of the kernel's BBR, of the medians of the runs that count.
const THROUGHPUT: f64 = 0.97;
const QUEUE: f64 = 0.5;

/// The goals of each link. Where no run of one of both counts, they are missed.
pub(super) fn goals(rows: &[Row], links: &[Params]) -> Vec<Goal> {
    let of_link = |link: &Params| {
        let name = format!("{}, loss {}, {SYSTEM}", link.trace, link.loss_name());
        let ratio = |pick: fn(&Metrics) -> f64| ratio(rows, link, pick).unwrap_or(f64::NAN);
        [
            Goal::new(
                &name,
                "throughput_per_kernel_bbr",
                ratio(|metrics| metrics.throughput_mbps),
                Bound::AtLeast(THROUGHPUT),
            ),
            Goal::new(
                &name,
                "queue_per_kernel_bbr",
                ratio(|metrics| metrics.queue_delay_mean_ms),
                Bound::AtMost(QUEUE),
            ),
        ]
    };
    links.iter().flat_map(of_link).collect()
}

/// A figure per that of the kernel's BBR.
fn ratio(rows: &[Row], link: &Params, pick: fn(&Metrics) -> f64) -> Option<f64> {
    let of = |system: &str| {
        let row = rows
            .iter()
            .find(|row| row.system == system && row.params == *link)?;
        Some(pick(&row.metrics))
    };
    let theirs = of(KERNEL_RIVAL).filter(|theirs| *theirs > 0.0)?;
    Some(of(SYSTEM)? / theirs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::leocc::summary::tests::row;

    fn run(system: &str, trace: &str, mbps: f64, ms: f64) -> Row {
        let mut row = row(system, trace, mbps, 0.0);
        row.metrics.queue_delay_mean_ms = ms;
        row
    }

    #[test]
    fn each_trace_and_delay_is_judged_by_itself() {
        let mut rows = vec![
            run(KERNEL_RIVAL, "q25", 350.0, 24.0),
            run(SYSTEM, "q25", 343.0, 12.0),
            run("kernel-cubic", "q25", 1.0, 1.0),
            run(KERNEL_RIVAL, "q25 +80 ms", 300.0, 100.0),
            run(SYSTEM, "q25 +80 ms", 310.0, 20.0),
        ];
        let links = [rows[0].params.clone(), rows[3].params.clone()];
        assert_eq!(Goal::missed(&goals(&rows, &links)), None);
        // What is better over one link makes nothing good over another.
        rows[1] = run(SYSTEM, "q25", 339.0, 12.1);
        let told = Goal::missed(&goals(&rows, &links)).unwrap();
        assert!(told.starts_with("goals missed, 2 of 4: "), "{told}");
        let throughput = "q25, loss 0 %, leocc2: throughput_per_kernel_bbr 0.969, at least 0.97";
        assert!(told.contains(throughput), "{told}");
        let queue = "q25, loss 0 %, leocc2: queue_per_kernel_bbr 0.504, at most 0.5";
        assert!(told.contains(queue), "{told}");
    }

    #[test]
    fn a_link_over_which_nothing_was_measured_meets_nothing() {
        let ours = run(SYSTEM, "q25", 343.0, 12.0);
        let link = ours.params.clone();
        let told = Goal::missed(&goals(&[ours], &[link])).unwrap();
        assert!(told.starts_with("goals missed, 2 of 2: "), "{told}");
        assert!(told.contains("throughput_per_kernel_bbr NaN"), "{told}");
    }
}
