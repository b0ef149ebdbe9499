//! The same in real time: our controllers over our own stack beside the kernel's over TCP, one flow at a time behind the
//! replay of a trace.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{
    options::{Options, QueueChoice},
    plan::{Progress, span},
    results::{Results, Row, queue_name},
    sections::{STUDY_LOSS, params},
    summary::{medians, ratio},
    traces::{TraceCase, TraceSet},
};
use crate::{
    Error,
    flow::Metrics,
    realtime::{Bench, OVERHEAD, RealRun, Sender},
};

const SYSTEMS: [&str; 7] = [
    "kernel-cubic",
    "kernel-bbr",
    "kernel-reno",
    "cubic",
    "bbr",
    "leocc",
    "leocc2",
];
const RUNS: u32 = 5;
const QUICK_TIME: Duration = Duration::from_secs(10);

/// How runs in real time were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealTime {
    /// Of each row, of which the medians count.
    pub runs: u32,
    /// Runs of all rows in which packets left late, because this computer was too busy.
    pub invalid_runs: u32,
}

/// The runs in real time as asked for, before they begin.
#[derive(Clone, Debug)]
pub struct RealPlan {
    cases: Vec<TraceCase>,
    senders: Vec<Sender>,
    losses: Vec<f64>,
    queue: QueueChoice,
    runs: u32,
    seed: u64,
    skipped: Vec<String>,
}

impl RealPlan {
    /// Reads the traces and finds the systems: without any named, the first of the usual traces, and the kernel's controllers beside four of ours.
    ///
    /// # Errors
    /// An unknown system, an impossible loss, an unreadable trace.
    pub fn new(options: &Options, runs: Option<u32>, seconds: Option<u32>) -> Result<Self, Error> {
        if !options.sections.is_empty() {
            return Err(Error::Settings(
                "--only and --real exclude each other: in real time there is the scatter alone"
                    .to_owned(),
            ));
        }
        let names: Vec<&str> = match options.systems.as_slice() {
            [] => SYSTEMS.to_vec(),
            names => names.iter().map(String::as_str).collect(),
        };
        let TraceSet { mut cases, .. } = TraceSet::load(&Options {
            quick: false,
            ..options.clone()
        })?;
        if options.traces.is_none() {
            cases.truncate(1);
        }
        let time = seconds.map(|seconds| Duration::from_secs(seconds.into()));
        if let Some(time) = time.or(options.quick.then_some(QUICK_TIME)) {
            cases = cases.into_iter().map(|case| case.shortened(time)).collect();
        }
        let (mut senders, mut skipped) = (Vec::new(), Vec::new());
        for name in names {
            let sender = Sender::named(name)?;
            match sender.missing() {
                None => senders.push(sender),
                Some(why) => skipped.push(why),
            }
        }
        let losses = match options.losses.as_slice() {
            [] => vec![STUDY_LOSS],
            losses => losses.to_vec(),
        };
        Ok(Self {
            cases,
            senders,
            losses,
            queue: options.queue.unwrap_or(QueueChoice::Published),
            runs: runs.unwrap_or(if options.quick { 1 } else { RUNS }),
            seed: options.seed,
            skipped,
        })
    }

    /// What cannot run here, one sentence each.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// What will run and how long that takes, for people.
    pub fn describe(&self) -> String {
        format!(
            "{} systems over {} traces, {} runs of each: {} in real time, one run at a time",
            self.senders.len(),
            self.cases.len(),
            self.runs,
            span(self.real_time().as_secs_f64()),
        )
    }

    fn real_time(&self) -> Duration {
        let of_case = |case: &TraceCase| case.time + OVERHEAD;
        let once: Duration = self.cases.iter().map(of_case).sum();
        let times = u32::try_from(self.senders.len() * self.losses.len()).unwrap_or(u32::MAX);
        once.saturating_mul(times).saturating_mul(self.runs)
    }

    /// Runs one after the other; `progress` is called after each.
    ///
    /// # Errors
    /// A run that cannot be made.
    pub fn run(
        &self,
        bench: &Bench,
        command: &str,
        mut progress: impl FnMut(Progress),
    ) -> Result<Results, Error> {
        let began = Instant::now();
        let total = self.real_time().as_secs_f64().max(f64::MIN_POSITIVE);
        let (mut rows, mut runs, mut invalid_runs) = (Vec::new(), Vec::new(), 0);
        let mut done = Duration::ZERO;
        for case in &self.cases {
            for &loss in &self.losses {
                for sender in &self.senders {
                    let mut of_sender: Vec<Metrics> = Vec::new();
                    for run in 0..self.runs {
                        let seed = self.seed.wrapping_add(run.into());
                        let measured = bench.run(&self.real_run(case, loss, sender, seed)?)?;
                        invalid_runs += u32::from(!measured.valid);
                        of_sender.push(measured.metrics);
                        let run = format!("run {}, seed {seed}", run + 1);
                        runs.push(self.row(case, loss, sender, Some(run), measured.metrics));
                        done += case.time + OVERHEAD;
                        progress(Progress {
                            done: done.as_secs_f64() / total,
                            elapsed: began.elapsed(),
                        });
                    }
                    rows.push(self.row(case, loss, sender, None, medians(&of_sender)));
                }
            }
        }
        Ok(Results {
            experiment: "leocc".to_owned(),
            command: command.to_owned(),
            seed: self.seed,
            skipped: self.skipped.clone(),
            real: Some(RealTime {
                runs: self.runs,
                invalid_runs,
            }),
            rows,
            runs,
            ..Results::default()
        })
    }

    fn real_run<'a>(
        &self,
        case: &TraceCase,
        loss: f64,
        sender: &'a Sender,
        seed: u64,
    ) -> Result<RealRun<'a>, Error> {
        let path = case.path(loss, case.queue(self.queue))?;
        let (forward, backward) = (path.forward.into_iter(), path.backward.into_iter());
        let whole = |mut links: std::vec::IntoIter<_>| {
            links
                .next()
                .ok_or_else(|| Error::Failed("a path without a link".to_owned()))
        };
        Ok(RealRun {
            sender,
            direction: case.direction,
            forward: whole(forward)?,
            backward: whole(backward)?,
            seconds: u32::try_from(case.time.as_secs())
                .unwrap_or(u32::MAX)
                .max(1),
            seed,
        })
    }

    fn row(
        &self,
        case: &TraceCase,
        loss: f64,
        sender: &Sender,
        variant: Option<String>,
        metrics: Metrics,
    ) -> Row {
        Row {
            system: sender.name(),
            variant,
            params: params(case, loss, queue_name(case.queue(self.queue))),
            metrics,
        }
    }
}

impl Results {
    /// How LeoCC stands beside the kernel's controllers, a line each; nothing without both.
    pub(super) fn beside_kernel(&self) -> Vec<String> {
        let throughput: fn(&Metrics) -> f64 = |m| m.throughput_mbps;
        let delay: fn(&Metrics) -> f64 = |m| m.queue_delay_mean_ms;
        let mut lines = Vec::new();
        for ours in ["leocc", "leocc2"] {
            if let Some(more) = ratio(&self.rows, ours, "kernel-cubic", throughput) {
                lines.push(format!(
                    "{ours} against kernel-cubic: {more:.2} × the throughput"
                ));
            }
            let beside = |pick| ratio(&self.rows, ours, "kernel-bbr", pick);
            if let (Some(waits), Some(gets)) = (beside(delay), beside(throughput)) {
                lines.push(format!(
                    "{ours} against kernel-bbr: {waits:.2} × the mean queueing delay at {gets:.2} × the throughput"
                ));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick() -> Options {
        Options {
            quick: true,
            systems: vec!["leocc".into(), "kernel-nosuch".into()],
            seed: 1,
            ..Options::default()
        }
    }

    #[test]
    fn a_plan_runs_one_trace_and_leaves_out_what_the_kernel_has_not() {
        let plan = RealPlan::new(&quick(), Some(3), None).unwrap();
        assert_eq!((plan.cases.len(), plan.senders.len()), (1, 1));
        assert!(plan.skipped()[0].contains("kernel-nosuch"));
        let said = plan.describe();
        assert!(said.contains("3 runs of each: 34 s"), "{said}");
        let run = plan
            .real_run(&plan.cases[0], 0.01, &plan.senders[0], 1)
            .unwrap();
        assert_eq!(run.seconds, 10);
        let both = Options {
            sections: vec![super::super::Section::Series],
            ..quick()
        };
        let error = RealPlan::new(&both, None, None).unwrap_err();
        assert!(error.is_configuration(), "{error}");
    }
}
