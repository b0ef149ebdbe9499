//! The same in real time: our controllers over our own stack beside the kernel's over TCP, one flow at a time behind the
//! replay of a trace.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use starhaul_flow::Metrics;

use super::{
    case::{DataLoss, Kind, TraceCase, TraceSet},
    goals::{Checked, KERNEL_RIVAL, SYSTEM},
    job::params,
    options::{Options, QueueChoice},
    plural,
    results::{Params, RealTime, Results, Row},
    section::STUDY_LOSS,
    summary::ratio,
};
use crate::{
    Error,
    kit::{
        self, Context, Found,
        parallel::{Progress, span},
        repeats::Runs,
        statistics::medians,
    },
    realtime::{Measured, OVERHEAD, RealRun, Sender},
    systems::sender,
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

/// The runs in real time as asked for, before they begin.
#[derive(Clone, Debug)]
pub struct RealPlan {
    cases: Vec<TraceCase>,
    senders: Vec<Arc<dyn Sender>>,
    losses: Vec<f64>,
    queue: QueueChoice,
    runs: u32,
    seed: u64,
    skipped: Vec<String>,
    quick: bool,
    /// Whether the results are compared with goals.
    is_checked: bool,
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
        if options.links.is_some() || options.seeds.is_some() || options.probed {
            return Err(Error::Settings(
                "--links, --seeds and --probed belong to --only paths and unseen, which have no runs in real time"
                    .to_owned(),
            ));
        }
        let names: Vec<&str> = match options.systems.as_slice() {
            [] => SYSTEMS.to_vec(),
            names => names.iter().map(String::as_str).collect(),
        };
        let TraceSet {
            mut cases,
            mut skipped,
        } = TraceSet::load(&Options {
            quick: false,
            ..options.clone()
        })?;
        if options.traces.is_none() {
            cases.truncate(1);
            // The others are not required.
            skipped.truncate(usize::from(
                cases[..].iter().all(|c| c.kind == Kind::Synthetic),
            ));
        }
        let time = seconds.map(|seconds| Duration::from_secs(seconds.into()));
        if let Some(time) = time.or(options.quick.then_some(QUICK_TIME)) {
            cases = cases.into_iter().map(|case| case.shortened(time)).collect();
        }
        let mut senders = Vec::new();
        for name in names {
            let sender = sender(name)?;
            match sender.missing() {
                None => senders.push(sender),
                Some(why) => skipped.push(why),
            }
        }
        if senders.is_empty() {
            return Err(Error::Settings(format!(
                "nothing to run: {}\nname others with --systems, for example kernel-cubic,leocc2",
                skipped.join("\n")
            )));
        }
        Ok(Self {
            cases,
            senders,
            losses: options.losses.clone(),
            queue: options.queue.unwrap_or(QueueChoice::Published),
            runs: runs.unwrap_or(if options.quick { 1 } else { RUNS }),
            seed: options.seed,
            skipped,
            quick: options.quick,
            is_checked: false,
        })
    }

    /// Runs over each trace once for each of these, added to the delay of each direction; with none, over the traces as they are.
    ///
    /// # Errors
    /// A delay that the trace cannot hold.
    pub fn with_added_delays(mut self, added: &[Duration]) -> Result<Self, Error> {
        if !added.is_empty() {
            let cases = self.cases.iter();
            let longer = cases.flat_map(|case| added.iter().map(|added| case.longer(*added)));
            self.cases = longer.collect::<Result<_, _>>()?;
        }
        Ok(self)
    }

    /// The same plan, whose results are compared with their goals.
    ///
    /// # Errors
    /// [`Error::Settings`] where what has goals, or what it is compared with, does not run.
    pub(super) fn checked(self) -> Result<Self, Error> {
        if self.quick {
            return Err(Error::Settings(
                "--check: the goals are for whole runs: leave out --quick".to_owned(),
            ));
        }
        let runs = |name: &str| self.senders.iter().any(|sender| sender.name() == name);
        if !runs(SYSTEM) || !runs(KERNEL_RIVAL) {
            let whys = self.skipped.iter().map(|why| format!("\n{why}"));
            return Err(Error::Settings(format!(
                "--check: in real time the goals are for {SYSTEM} beside {KERNEL_RIVAL}, and both have to run: name them with --systems{}",
                whys.collect::<String>()
            )));
        }
        Ok(Self {
            is_checked: true,
            ..self
        })
    }

    fn losses(&self, case: &TraceCase) -> Vec<DataLoss> {
        case.losses(&self.losses, &[STUDY_LOSS])
    }

    /// What each system runs over.
    fn links(&self) -> Vec<Params> {
        let of_case = |case: &TraceCase| {
            let queue = case.queue(self.queue);
            let losses = self.losses(case).into_iter();
            let links = losses.map(|loss| params(case, loss, queue));
            links.collect::<Vec<_>>()
        };
        self.cases.iter().flat_map(of_case).collect()
    }

    fn real_time(&self) -> Duration {
        let of_case = |case: &TraceCase| {
            let losses = u32::try_from(self.losses(case).len()).unwrap_or(u32::MAX);
            (case.time + OVERHEAD).saturating_mul(losses)
        };
        let once: Duration = self.cases.iter().map(of_case).sum();
        let senders = u32::try_from(self.senders.len()).unwrap_or(u32::MAX);
        once.saturating_mul(senders).saturating_mul(self.runs)
    }

    /// Runs one after the other; `progress` is called after each.
    fn measure(
        &self,
        mut bench: impl FnMut(&RealRun<'_>) -> Result<Measured, Error>,
        command: &str,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Results, Error> {
        let began = Instant::now();
        let mut results = Results {
            experiment: "leocc".to_owned(),
            command: command.to_owned(),
            seed: self.seed,
            skipped: self.skipped.clone(),
            ..Results::default()
        };
        let (mut total, mut done) = (self.real_time(), Duration::ZERO);
        let mut invalid_runs = 0;
        for case in &self.cases {
            for loss in self.losses(case) {
                for sender in &self.senders {
                    let took = case.time + OVERHEAD;
                    let mut tell = |done: Duration, total: Duration| {
                        progress(Progress {
                            done: (done.as_secs_f64() / total.as_secs_f64()).min(1.0),
                            elapsed: began.elapsed(),
                        });
                    };
                    let runs = Runs::of(self.seeds(), |seed| {
                        let measured = bench(&self.real_run(case, loss, sender.as_ref(), seed)?)?;
                        done += took;
                        total += if measured.valid { Duration::ZERO } else { took };
                        tell(done, total);
                        Ok(measured)
                    })?;
                    invalid_runs += runs.late_runs();
                    // Late runs that were not made again take no more time.
                    let given_up = self.seeds().count().saturating_sub(runs.valid.len());
                    total -= took.saturating_mul(u32::try_from(given_up).unwrap_or(u32::MAX));
                    tell(done, total);
                    self.add(&mut results, case, loss, sender.as_ref(), &runs);
                }
            }
        }
        results.real = Some(RealTime {
            runs: self.runs,
            invalid_runs,
        });
        Ok(results)
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.runs).map(|run| self.seed.wrapping_add(run.into()))
    }

    /// The row of a sender, if any of its runs counts, and the runs.
    fn add(
        &self,
        results: &mut Results,
        case: &TraceCase,
        loss: DataLoss,
        sender: &dyn Sender,
        runs: &Runs,
    ) {
        let row = |variant, metrics| Row {
            system: sender.name(),
            variant,
            params: params(case, loss, case.queue(self.queue)),
            metrics,
        };
        let missing = runs.missing(&format!("{} over {}", sender.name(), case.name));
        results.skipped.extend(missing);
        if !runs.valid.is_empty() {
            results.rows.push(row(None, medians(&runs.metrics())));
        }
        for (kind, of_kind) in [("", &runs.valid), (", late: does not count", &runs.late)] {
            for (seed, metrics) in of_kind {
                results
                    .runs
                    .push(row(Some(format!("seed {seed}{kind}")), *metrics));
            }
        }
    }

    fn real_run<'a>(
        &self,
        case: &TraceCase,
        loss: DataLoss,
        sender: &'a dyn Sender,
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

impl kit::Plan for RealPlan {
    fn skipped(&self) -> &[String] {
        &self.skipped
    }

    fn describe(&self) -> String {
        let links = match self.cases.as_slice() {
            [case] => case.name.clone(),
            cases => plural(cases.len(), "trace"),
        };
        let runs = usize::try_from(self.runs).unwrap_or(usize::MAX);
        format!(
            "{} over {links}, {} of each: {} in real time, one run at a time",
            plural(self.senders.len(), "system"),
            plural(runs, "run"),
            span(self.real_time().as_secs_f64()),
        )
    }

    fn run(
        &self,
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Found>, Error> {
        let bench = (context.bench)()?;
        let results = self.measure(|run| bench.run(run), context.command, progress)?;
        Ok(match self.is_checked {
            true => Box::new(Checked::in_real_time(results, &self.links())),
            false => Box::new(results),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::Plan as _;

    fn quick_options() -> Options {
        Options {
            quick: true,
            systems: vec!["leocc".into(), "kernel-nosuch".into()],
            seed: 1,
            ..Options::default()
        }
    }

    #[test]
    fn a_plan_runs_one_trace_and_leaves_out_what_the_kernel_has_not() {
        let plan = RealPlan::new(&quick_options(), Some(3), None).unwrap();
        assert_eq!((plan.cases.len(), plan.senders.len()), (1, 1));
        let said = plan.skipped().join("\n");
        assert!(said.contains("kernel-nosuch"), "{said}");
        let synthetic = plan.cases[0].kind == Kind::Synthetic;
        assert_eq!(said.contains("leocc-example"), synthetic, "{said}");
        let ms = Duration::from_millis;
        let longer = plan.clone().with_added_delays(&[ms(0), ms(80)]).unwrap();
        let names: Vec<_> = longer.cases.iter().map(|case| &*case.name).collect();
        let usual = &*plan.cases[0].name;
        assert_eq!(names, [usual, &*format!("{usual} +80 ms")]);
        let delay = |case: &TraceCase| case.trace.delay.as_ref().map(|delay| delay.at(ms(0)));
        let [usual, more] = [&longer.cases[0], &longer.cases[1]].map(delay);
        assert_eq!(more, usual.map(|usual| usual + ms(80)));
        let said = plan.describe();
        let trace = &plan.cases[0].name;
        assert!(said.contains(&format!("1 system over {trace}")), "{said}");
        assert!(said.contains("3 runs of each: 34 s"), "{said}");
        let loss = DataLoss::Random(0.01);
        let run = plan.real_run(&plan.cases[0], loss, plan.senders[0].as_ref(), 1);
        assert_eq!(run.unwrap().seconds, 10);
        let both = Options {
            sections: vec![super::super::Section::Series],
            ..quick_options()
        };
        let error = RealPlan::new(&both, None, None).unwrap_err();
        assert!(error.is_configuration(), "{error}");
        let none = Options {
            systems: vec!["kernel-nosuch".into()],
            ..quick_options()
        };
        let error = RealPlan::new(&none, None, None).unwrap_err();
        assert!(error.is_configuration(), "{error}");
        let said = error.to_string();
        assert!(
            said.contains("kernel-nosuch") && said.contains("--systems"),
            "{said}"
        );
    }

    #[test]
    fn goals_are_for_both_systems_and_for_every_link() {
        let plan = |systems: &[&str], quick| {
            let options = Options {
                systems: systems.iter().map(|&name| name.to_owned()).collect(),
                quick,
                ..quick_options()
            };
            RealPlan::new(&options, Some(1), Some(5)).unwrap()
        };
        let refused = |plan: RealPlan| plan.checked().unwrap_err().to_string();
        let said = refused(plan(&["leocc2"], true));
        assert!(said.contains("--quick"), "{said}");
        let said = refused(plan(&["leocc2", "kernel-nosuch"], false));
        assert!(said.contains("leocc2 beside kernel-bbr"), "{said}");
        // Why the other does not run.
        assert!(said.contains("kernel-nosuch"), "{said}");
        let delays = [0, 80].map(Duration::from_millis);
        let plan = plan(&["leocc2"], false).with_added_delays(&delays).unwrap();
        let links: Vec<String> = plan.links().into_iter().map(|link| link.trace).collect();
        let usual = &plan.cases[0].name;
        assert_eq!(links, [usual.clone(), format!("{usual} +80 ms")]);
        let results = Checked::in_real_time(Results::default(), &plan.links());
        let said = results.failure().unwrap();
        assert!(said.starts_with("goals missed, 4 of 4: "), "{said}");
    }

    #[test]
    fn late_runs_are_made_again_and_count_nowhere() {
        let options = Options {
            systems: vec!["cubic".into(), "leocc".into()],
            ..quick_options()
        };
        let plan = RealPlan::new(&options, Some(3), None).unwrap();
        let (mut first, mut far) = (true, Vec::new());
        let bench = |run: &RealRun<'_>| {
            let late = run.sender.name() == "cubic" || std::mem::take(&mut first);
            let metrics = Metrics {
                throughput_mbps: if late { 1.0 } else { 40.0 },
                ..Metrics::default()
            };
            let valid = !late;
            Ok(Measured { metrics, valid })
        };
        let results = plan
            .measure(bench, "test", &mut |p| far.push(p.done))
            .unwrap();
        let rows: Vec<_> = results
            .rows
            .iter()
            .map(|row| (&*row.system, row.metrics.throughput_mbps))
            .collect();
        assert_eq!(rows, [("leocc", 40.0)]);
        assert_eq!(results.real.unwrap().invalid_runs, 7);
        assert_eq!(results.runs.len(), 10);
        let said = results.table();
        assert!(said.contains("7 of 10 runs do not count"), "{said}");
        assert!(said.contains("skipped: cubic over"), "{said}");
        assert!(far.is_sorted() && far.last() == Some(&1.0), "{far:?}");
    }
}
