//! The parts beside the scatter as tables for a terminal.

use std::fmt::Write as _;

use super::{
    digest::{self, Variant},
    results::Results,
    rivals::{Beside, QUEUE_GOAL},
};
use crate::kit::statistics::distinct;

// Writing to a string cannot fail.
impl Results {
    /// LeoCC beside each other system.
    pub(super) fn add_beside(&self, text: &mut String) {
        let beside = self.beside();
        for (system, loss) in distinct(beside.iter().map(|line| (&line.system, &line.loss))) {
            let _ = writeln!(
                text,
                "{system} beside others, loss {loss}: throughput and mean queueing delay per theirs, run by run\n\
                 {:<16}{:>8}{:>8}{:>8}{:>10}{:>8}{:>8}{:>9}{:>8}{:>6}",
                "other",
                "Mbit/s",
                "least",
                "most",
                "queue",
                "most",
                format!("≤ {QUEUE_GOAL}"),
                "beaten",
                "ahead",
                "runs"
            );
            let same = |line: &&Beside| line.system == *system && line.loss == *loss;
            for line in beside.iter().filter(same) {
                let (rate, queue) = (line.throughput, line.queue);
                let _ = writeln!(
                    text,
                    "{:<16}{:>8.2}{:>8.2}{:>8.2}{:>10.2}{:>8.2}{:>8}{:>9}{:>8}{:>6}",
                    line.other,
                    rate.median,
                    rate.least,
                    rate.greatest,
                    queue.median,
                    queue.greatest,
                    line.within_goal,
                    line.beaten,
                    line.ahead,
                    line.runs
                );
            }
            text.push('\n');
        }
    }

    /// Everything but the scatter.
    pub(super) fn add_parts(&self, text: &mut String) {
        self.add_courses(text);
        for study in self.variations() {
            let lines = digest::variants(study.rows);
            for loss in distinct(lines.iter().map(|line| line.loss.as_str())) {
                let _ = writeln!(text, "{}, loss {loss}", study.name);
                add_variants(text, lines.iter().filter(|line| line.loss == loss));
            }
        }
        self.add_fairness(text);
        self.add_detector(text);
    }

    fn add_courses(&self, text: &mut String) {
        let Some(first) = self.courses.first() else {
            return;
        };
        let _ = writeln!(
            text,
            "Over time, trace {}; --out DIR draws it\n{:<20}{:>8}{:>10}{:>9}  share of the time in each state, %",
            first.trace, "system", "Mbit/s", "queue ms", "rtt ms"
        );
        for course in &self.courses {
            let mean = |values: Vec<f64>| {
                let count = f64::from(u32::try_from(values.len()).unwrap_or(u32::MAX));
                values.iter().sum::<f64>() / count.max(1.0)
            };
            let samples = || course.samples.iter();
            let states: Vec<String> = digest::state_shares(course)
                .iter()
                .map(|(state, share)| format!("{state} {:.0}", share * 100.0))
                .collect();
            let _ = writeln!(
                text,
                "{:<20}{:>8.2}{:>10.2}{:>9.1}  {}",
                course.system,
                mean(samples().map(|s| s.throughput_mbps).collect()),
                mean(samples().filter_map(|s| s.queue_delay_ms).collect()),
                mean(samples().filter_map(|s| s.rtt_ms).collect()),
                states.join(", ")
            );
        }
        text.push('\n');
    }

    fn add_fairness(&self, text: &mut String) {
        if self.fairness.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "Fairness, no random loss\n{:<28}{:>7}{:>8}{:>8}{:>10}  Mbit/s each",
            "flows", "Jain", "least", "use %", "queue ms"
        );
        for line in digest::fairness(&self.fairness) {
            let rates: Vec<String> = line.rates_mbps.iter().map(|r| format!("{r:.1}")).collect();
            let _ = writeln!(
                text,
                "{:<28}{:>7.3}{:>8.3}{:>8.1}{:>10.2}  {}",
                line.who,
                line.jain,
                line.least_jain,
                line.utilisation * 100.0,
                line.queue_delay_mean_ms,
                rates.join(" + ")
            );
        }
        text.push('\n');
    }

    fn add_detector(&self, text: &mut String) {
        if self.detector.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "Detector\n{:<14}{:<9}{:>6}{:>8}{:>7}{:>12}{:>10}{:>12}",
            "flow beside",
            "queue",
            "true",
            "found",
            "false",
            "precision %",
            "recall %",
            "latest ms"
        );
        for line in digest::detector(&self.detector) {
            let _ = writeln!(
                text,
                "{:<14}{:<9}{:>6}{:>8}{:>7}{:>12.1}{:>10.1}{:>12.0}",
                line.beside,
                line.queue,
                line.reconfigurations,
                line.found,
                line.wrong,
                line.precision(),
                line.recall(),
                line.latest_ms
            );
        }
        text.push('\n');
    }
}

fn add_variants<'a>(text: &mut String, lines: impl Iterator<Item = &'a Variant<'a>>) {
    let lines: Vec<_> = lines.collect();
    let longest = lines.iter().map(|line| line.variant.chars().count()).max();
    let wide = longest.filter(|most| *most > 0).map_or(0, |most| most + 2);
    let head = if wide > 0 { "variant" } else { "" };
    let _ = writeln!(
        text,
        "{:<22}{head:<wide$}{:>8}{:>8}{:>10}{:>9}{:>9}{:>8}{:>8}",
        "system", "Mbit/s", "use %", "queue ms", "p95 ms", "rtt ms", "lost %", "traces"
    );
    for Variant {
        system,
        variant,
        metrics: m,
        traces,
        ..
    } in lines
    {
        let _ = writeln!(
            text,
            "{system:<22}{variant:<wide$}{:>8.2}{:>8.1}{:>10.2}{:>9.1}{:>9.1}{:>8.2}{traces:>8}",
            m.throughput_mbps,
            m.utilisation * 100.0,
            m.queue_delay_mean_ms,
            m.queue_delay_p95_ms,
            m.rtt_mean_ms,
            m.loss_rate * 100.0,
        );
    }
    text.push('\n');
}
