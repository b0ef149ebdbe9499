//! Does a controller do the same in virtual and in real time? The same flow over the same links in the simulator, behind
//! the replay, and beside the kernel's own TCP: the reason to believe the simulator's figures.

mod command;
mod links;
mod results;
mod simulated;

pub use command::Agreement;
pub use links::AgreementLink;
pub use results::{Params, Results, Row, Verdict};
pub use simulated::simulated;

use std::time::{Duration, Instant};

use starhaul_cc::ControllerConfig;
use starhaul_flow::{FlowNetwork, FlowPath, FlowSetup, Metrics};

use crate::{
    Error,
    kit::{self, Context, Found, Progress, repeats::Runs, statistics::medians},
    realtime::{Measured, OVERHEAD, RealRun, Sender, go_on},
    systems::{kernel::Kernel, own::Own, unknown},
    traces::Direction,
};

/// The options of `starhaul lab agreement`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// One link, one run of 10 s each
    #[arg(long)]
    pub quick: bool,
    /// Our controllers [default: cubic,bbr]; the kernel's of the same names run beside them
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub systems: Vec<String>,
    /// A link for the data, as `starhaul replay` takes it, in place of the usual ones; may be repeated
    #[arg(long = "link", value_name = "SPEC")]
    pub links: Vec<String>,
    /// Runs of each, of which the medians count [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: Option<u32>,
    /// How long each runs [default: 30]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: Option<u32>,
    /// Of the first run; the others follow
    #[arg(skip)]
    pub seed: u64,
}

/// The stack and the clock with which a flow runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunKind {
    /// The packets alone, in virtual time: what `lab leocc` runs.
    Packets,
    /// The whole stack in virtual time.
    Simulator,
    /// The whole stack in real time.
    Real,
}

impl RunKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Simulator => "simulator",
            Self::Real => "real",
        }
    }
}

/// The experiment as asked for, before it runs.
#[derive(Clone, Debug)]
pub struct Plan {
    links: Vec<AgreementLink>,
    own: Vec<ControllerConfig>,
    kernel: Vec<Kernel>,
    runs: u32,
    seconds: u32,
    seed: u64,
    skipped: Vec<String>,
}

impl Plan {
    /// Reads the links and finds the controllers.
    ///
    /// # Errors
    /// An unknown controller, a link that cannot be.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let own = match options.systems.as_slice() {
            [] => vec![ControllerConfig::Cubic, ControllerConfig::Bbr],
            names => names
                .iter()
                .map(|name| {
                    ControllerConfig::from_name(name, None)
                        .map_err(|_| Error::Settings(unknown(name)))
                })
                .collect::<Result<_, _>>()?,
        };
        // The kernel's BBR is another version than ours: it is shown, but promised is only Cubic.
        let beside = ["cubic", "bbr"]
            .into_iter()
            .filter(|name| own.iter().any(|config| config.name() == *name))
            .map(|name| Kernel(name.to_owned()));
        let (mut kernel, mut skipped) = (Vec::new(), Vec::new());
        for sender in beside {
            match sender.missing() {
                None => kernel.push(sender),
                Some(why) => skipped.push(why),
            }
        }
        let (mut links, without) = AgreementLink::usual();
        match (options.links.as_slice(), options.quick) {
            ([], false) => skipped.extend(without),
            ([], true) => links.truncate(1),
            (texts, _) => {
                links = texts
                    .iter()
                    .map(|text| AgreementLink::written(text))
                    .collect::<Result<_, _>>()?;
            }
        }
        Ok(Self {
            links,
            own,
            kernel,
            runs: options.runs.unwrap_or(if options.quick { 1 } else { 3 }),
            seconds: options
                .seconds
                .unwrap_or(if options.quick { 10 } else { 30 }),
            seed: options.seed,
            skipped,
        })
    }

    fn real_time(&self) -> Duration {
        let each = Duration::from_secs(self.seconds.into()) + OVERHEAD;
        let senders = u32::try_from(self.own.len() + self.kernel.len()).unwrap_or(u32::MAX);
        let links = u32::try_from(self.links.len()).unwrap_or(u32::MAX);
        each.saturating_mul(senders)
            .saturating_mul(links)
            .saturating_mul(self.runs)
    }

    /// Runs all, one after the other: with `bench` in real time, unless something is `missing` for that. `progress` is called after
    /// each run in real time.
    fn measure(
        &self,
        missing: Option<String>,
        mut bench: impl FnMut(&RealRun<'_>) -> Result<Measured, Error>,
        command: &str,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Results, Error> {
        let began = Instant::now();
        let mut results = Results::new(command, self.seed, self.skipped.clone());
        let own: Vec<Own> = self.own.iter().cloned().map(Own).collect();
        let mut senders: Vec<&dyn Sender> = Vec::new();
        senders.extend(own.iter().map(|own| own as &dyn Sender));
        senders.extend(self.kernel.iter().map(|kernel| kernel as &dyn Sender));
        if let Some(why) = missing {
            let skipped = format!("skipped: everything in real time, because {why}");
            results.skipped.push(skipped);
            senders.clear();
        }
        let all = u32::try_from(senders.len() * self.links.len()).unwrap_or(u32::MAX);
        let mut done = 0_u32;
        for link in &self.links {
            for config in &self.own {
                for way in [RunKind::Packets, RunKind::Simulator] {
                    let runs = self
                        .seeds()
                        .map(|seed| {
                            go_on()?;
                            self.virtually(way, config, link, seed)
                        })
                        .collect::<Result<Vec<_>, _>>()?;
                    results.add(config.name(), link, way, &runs, 0);
                }
            }
            for &sender in &senders {
                let runs = Runs::of(self.seeds(), |seed| {
                    bench(&RealRun {
                        sender,
                        direction: Direction::Up,
                        forward: link.forward.clone(),
                        backward: link.backward.clone(),
                        seconds: self.seconds,
                        seed,
                    })
                })?;
                let what = format!("{} in real time over {}", sender.name(), link.name);
                results.skipped.extend(runs.missing(&what));
                if !runs.valid.is_empty() {
                    let (name, metrics) = (sender.name(), runs.metrics());
                    results.add(&name, link, RunKind::Real, &metrics, runs.late_runs());
                }
                done += 1;
                progress(Progress {
                    done: f64::from(done) / f64::from(all.max(1)),
                    elapsed: began.elapsed(),
                });
            }
        }
        results.judge();
        Ok(results)
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.runs).map(|run| self.seed.wrapping_add(run.into()))
    }

    fn virtually(
        &self,
        way: RunKind,
        config: &ControllerConfig,
        link: &AgreementLink,
        seed: u64,
    ) -> Result<Metrics, Error> {
        let time = Duration::from_secs(self.seconds.into());
        match way {
            RunKind::Packets => Ok(packets(config, link, time, seed)),
            RunKind::Simulator | RunKind::Real => {
                simulated(config, &link.forward, &link.backward, time, seed)
            }
        }
    }
}

impl kit::Plan for Plan {
    fn skipped(&self) -> &[String] {
        &self.skipped
    }

    fn describe(&self) -> String {
        let minutes = self.real_time().as_secs_f64() / 60.0;
        format!(
            "{} controllers of ours and {} of the kernel over {} links, {} runs of {} s each: about {:.0} min in real time, one run at a time",
            self.own.len(),
            self.kernel.len(),
            self.links.len(),
            self.runs,
            self.seconds,
            minutes.max(1.0)
        )
    }

    fn run(
        &self,
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Found>, Error> {
        let bench = (context.bench)()?;
        let run = |run: &RealRun<'_>| bench.run(run);
        let results = self.measure(bench.missing(), run, context.command, progress)?;
        Ok(Box::new(results))
    }
}

fn packets(config: &ControllerConfig, link: &AgreementLink, time: Duration, seed: u64) -> Metrics {
    let path = FlowPath {
        forward: vec![link.forward.clone()],
        backward: vec![link.backward.clone()],
    };
    let start = Instant::now();
    let mut network = FlowNetwork::new(&path, seed, start);
    network.add_flow(FlowSetup::saturating(config.build(start, 1500)));
    network.watch();
    network.run(time);
    let ([data, back], stats) = network.take_passages();
    let capacity = network.capacity_bytes(start, start + time);
    Metrics::by_link(time, capacity, &data, &back, stats)
}

impl Results {
    fn add(
        &mut self,
        system: &str,
        link: &AgreementLink,
        way: RunKind,
        runs: &[Metrics],
        invalid: u32,
    ) {
        self.rows.push(Row {
            system: system.to_owned(),
            params: Params {
                link: link.name.clone(),
                way: way.name().to_owned(),
            },
            metrics: medians(runs),
            runs: runs.to_vec(),
            invalid_runs: invalid,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::Plan as _;

    fn options() -> Options {
        Options {
            quick: true,
            systems: vec!["newreno".to_owned()],
            links: vec!["rate=10mbit,delay=10ms".to_owned()],
            runs: Some(2),
            seconds: Some(5),
            seed: 1,
        }
    }

    #[test]
    fn a_plan_says_how_long_it_takes_and_what_is_wrong_with_it() {
        let plan = Plan::new(&options()).unwrap();
        assert!(
            plan.kernel.is_empty(),
            "the kernel has none that was asked for"
        );
        let said = plan.describe();
        assert!(said.contains("2 runs of 5 s each: about 1 min"), "{said}");
        let wrong = Options {
            systems: vec!["cubik".to_owned()],
            ..options()
        };
        assert!(Plan::new(&wrong).unwrap_err().is_configuration());
        let wrong = Options {
            links: vec!["rat=5mbit".to_owned()],
            ..options()
        };
        assert!(Plan::new(&wrong).unwrap_err().is_configuration());
    }

    #[test]
    fn late_runs_count_neither_in_a_row_nor_in_a_verdict() {
        let options = Options {
            systems: vec!["newreno".to_owned(), "vegas".to_owned()],
            seconds: Some(1),
            ..options()
        };
        let plan = Plan::new(&options).unwrap();
        let mut first = true;
        let bench = |run: &RealRun<'_>| {
            let late = run.sender.name() == "vegas" || std::mem::take(&mut first);
            let metrics = Metrics {
                throughput_mbps: if late { 1.0 } else { 9.0 },
                ..Metrics::default()
            };
            let valid = !late;
            Ok(Measured { metrics, valid })
        };
        let results = plan.measure(None, bench, "test", &mut |_| {}).unwrap();
        let real = results.rows.iter().filter(|row| row.params.way == "real");
        let real: Vec<_> = real
            .map(|row| (&*row.system, row.metrics.throughput_mbps, row.invalid_runs))
            .collect();
        assert_eq!(real, [("newreno", 9.0, 1)]);
        assert!(results.verdicts.iter().all(|v| !v.what.contains("vegas")));
        let said = results.skipped.join(" ");
        assert!(said.contains("vegas in real time"), "{said}");
        let table = results.table();
        assert!(table.contains("1 late run does not count"), "{table}");
        assert!(table.contains("vegas in real time"), "{table}");
    }

    #[test]
    fn packets_and_the_whole_stack_fill_a_link_alike() {
        let link = AgreementLink::written("rate=10mbit,delay=10ms,queue=50p").unwrap();
        let plan = Plan::new(&options()).unwrap();
        let [packets, stack] = [RunKind::Packets, RunKind::Simulator].map(|way| {
            plan.virtually(way, &ControllerConfig::NewReno, &link, 1)
                .unwrap()
        });
        for metrics in [packets, stack] {
            assert!(metrics.utilisation > 0.9, "{metrics:?}");
            assert!((metrics.capacity_mbps - 10.0).abs() < 0.01, "{metrics:?}");
        }
        let ratio = packets.throughput_mbps / stack.throughput_mbps;
        assert!((0.95..1.05).contains(&ratio), "{packets:?} {stack:?}");
    }
}
