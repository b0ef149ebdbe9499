//! The chain of figure 12 in real time: a server, relays and a requester as processes in a network namespace each, and the
//! kernel's TCP from end to end over the same links.

mod folder;
mod kernel;
mod own;

use std::time::{Duration, Instant};

use starhaul_link::{LinkSpec, Loss, Rate};
use starhaul_plot::{Column, Table};
use starhaul_replay::ReplayLink;
use starhaul_units::Bandwidth;

use crate::{
    Error,
    kit::{
        self, Context, Found, Progress,
        parallel::span,
        repeats::{Runs, plural},
        report::{Results, Rows},
    },
    realtime::{Bench, Measured, OVERHEAD, Sender as _},
    systems::kernel::Kernel,
};

const QUICK_SECONDS: u32 = 5;
const SECONDS: u32 = 30;
/// Time for the programs of a chain to start and to end, about.
const CHAIN_OVERHEAD: Duration = Duration::from_millis(2500);
/// The kernel's controllers beside LEOTP.
const KERNEL: [&str; 2] = ["bbr", "cubic"];

// Without a description, which would replace that of the command.
#[derive(clap::Args)]
pub(super) struct Options {
    /// In real time: relays as processes in network namespaces over emulated links, beside the kernel's TCP from end to end. Needs
    /// what replay needs, and iperf3 for the kernel's
    #[arg(long, conflicts_with_all = ["only", "systems"])]
    pub(super) real: bool,
    /// With --real: hops of the chain, between which there are relays
    #[arg(long, value_name = "N", requires = "real", default_value_t = 5, value_parser = clap::value_parser!(u16).range(2..=20))]
    hops: u16,
    /// With --real: each link in the direction of the data, as replay takes it, with a constant rate; the way back is the same
    /// without loss
    #[arg(
        long,
        value_name = "SPEC",
        requires = "real",
        default_value = "rate=20mbit,delay=10ms,loss=1%,queue=200p"
    )]
    link: String,
    /// With --real: the length of a run [default: 30, with --quick 5]
    #[arg(long, value_name = "N", requires = "real", value_parser = clap::value_parser!(u32).range(2..=3600))]
    seconds: Option<u32>,
}

/// The runs as asked for, before they begin.
pub(super) struct RealPlan {
    chain: Hops,
    systems: Vec<System>,
    runs: u32,
    seed: u64,
    skipped: Vec<String>,
}

/// Equal links in a row.
#[derive(Clone, Debug)]
struct Hops {
    count: usize,
    /// As it was written.
    text: String,
    /// The link of the data.
    forward: LinkSpec,
    rate: Bandwidth,
    seconds: u32,
}

/// What carries the data.
#[derive(Clone, Debug)]
enum System {
    /// Our programs; one of the relays may be killed and started again on the way.
    Leotp { restart: bool },
    /// TCP from end to end.
    Kernel(Kernel),
}

/// What a run showed.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// Payload in order.
    goodput_mbps: f64,
    /// The longest time between two arrivals of payload in order.
    longest_pause_ms: Option<f64>,
}

/// One run of a system.
struct Row {
    system: String,
    restarts: u64,
    hops: u64,
    link: String,
    seed: u64,
    figures: Figures,
    ceiling_share: f64,
}

impl Hops {
    fn new(options: &Options, quick: bool) -> Result<Self, Error> {
        let text = &options.link;
        let forward: LinkSpec = text
            .parse()
            .map_err(|error| Error::Settings(format!("--link {text}: {error}")))?;
        let rate = match forward.rate {
            Rate::Constant(rate) if rate != Bandwidth::MAX && rate != Bandwidth::ZERO => rate,
            _ => {
                return Err(Error::Settings(format!(
                    "--link {text}: what a run gets is compared with a constant rate: write rate=20mbit"
                )));
            }
        };
        let usual = if quick { QUICK_SECONDS } else { SECONDS };
        Ok(Self {
            count: options.hops.into(),
            text: text.clone(),
            forward,
            rate,
            seconds: options.seconds.unwrap_or(usual),
        })
    }

    /// Links from the requester to the server.
    fn links(&self, seed: u64) -> Vec<ReplayLink> {
        let back = self.forward.clone().with_loss(Loss::NONE);
        let link = |number| {
            let (up, down) = (back.clone(), self.forward.clone());
            ReplayLink::new(format!("hop{}", number + 1), up, down, seed, number)
        };
        (0..self.count).map(link).collect()
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }
}

impl System {
    fn name(&self) -> String {
        match self {
            Self::Leotp { .. } => "leotp".to_owned(),
            Self::Kernel(kernel) => kernel.name(),
        }
    }

    const fn restarts(&self) -> u64 {
        match self {
            Self::Leotp { restart: true } => 1,
            _ => 0,
        }
    }

    /// The share of the link's rate that is payload, while it carries full packets that arrive at the first try.
    fn payload_share(&self) -> f64 {
        match self {
            Self::Leotp { .. } => own::PAYLOAD_SHARE,
            Self::Kernel(_) => kernel::PAYLOAD_SHARE,
        }
    }

    fn run(&self, bench: &Bench, hops: &Hops, seed: u64) -> Result<Measured<Figures>, Error> {
        match self {
            Self::Leotp { restart } => own::run(bench, hops, seed, *restart),
            Self::Kernel(kernel) => kernel::run(bench, hops, seed, kernel),
        }
    }
}

impl RealPlan {
    pub(super) fn new(options: &Options, quick: bool, runs: u32, seed: u64) -> Result<Self, Error> {
        let mut systems = [false, true]
            .map(|restart| System::Leotp { restart })
            .to_vec();
        let mut skipped = Vec::new();
        for kernel in KERNEL.map(|name| Kernel(name.to_owned())) {
            match kernel.missing() {
                None => systems.push(System::Kernel(kernel)),
                Some(why) => skipped.push(why),
            }
        }
        Ok(Self {
            chain: Hops::new(options, quick)?,
            systems,
            runs,
            seed,
            skipped,
        })
    }

    fn columns() -> Vec<Column<Row>> {
        let number = |key, name, unit, decimals, of: fn(&Row) -> f64| {
            Column::number(key, name, unit, decimals, move |row: &Row| of(row).into()).median()
        };
        vec![
            Column::name("system", "system", |row: &Row| row.system.as_str().into()),
            Column::count("restarts", "relay restarts", |row: &Row| {
                row.restarts.into()
            }),
            Column::count("hops", "hops", |row: &Row| row.hops.into()),
            Column::name("link", "link", |row: &Row| row.link.as_str().into()).dropped(),
            Column::count("seed", "seed", |row: &Row| row.seed.into()).dropped(),
            number("goodput_mbps", "goodput", "Mbit/s", 2, |row| {
                row.figures.goodput_mbps
            }),
            Column::share("ceiling_share", "of ceiling", 1, |row: &Row| {
                row.ceiling_share.into()
            })
            .median(),
            Column::number("longest_pause_ms", "longest pause", "ms", 0, |row: &Row| {
                row.figures.longest_pause_ms.into()
            })
            .median(),
        ]
    }

    fn row(&self, system: &System, seed: u64, figures: Figures) -> Row {
        let ceiling = self.chain.rate.mbit() * system.payload_share();
        Row {
            system: system.name(),
            restarts: system.restarts(),
            hops: self.chain.count as u64,
            link: self.chain.text.clone(),
            seed,
            figures,
            ceiling_share: figures.goodput_mbps / ceiling,
        }
    }

    /// Runs one after the other; `progress` is called after each.
    fn measure(
        &self,
        mut run: impl FnMut(&System, u64) -> Result<Measured<Figures>, Error>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Table, Vec<String>), Error> {
        let began = Instant::now();
        let columns = Self::columns();
        let (mut table, mut notes) = (Table::of(&columns, &[]), self.skipped.clone());
        let (mut done, all) = (0.0, self.systems.len() as f64 * f64::from(self.runs));
        for system in &self.systems {
            let seeds = (0..self.runs).map(|run| self.seed.wrapping_add(run.into()));
            let runs = Runs::of(seeds, |seed| {
                let measured = run(system, seed)?;
                // Late ones are made again.
                if measured.valid {
                    done += 1.0;
                    let (done, elapsed) = (done / all, began.elapsed());
                    progress(Progress { done, elapsed });
                }
                Ok(measured)
            })?;
            let what = format!("{} over {} hops", system.name(), self.chain.count);
            notes.extend(runs.nothing_counts(&what));
            notes.extend(runs.not_counted(&what));
            let rows = runs.valid.iter();
            let rows: Vec<Row> = rows
                .map(|(seed, figures)| self.row(system, *seed, *figures))
                .collect();
            table.append(Table::of(&columns, &rows));
        }
        Ok((table, notes))
    }
}

impl kit::Plan for RealPlan {
    fn skipped(&self) -> &[String] {
        &self.skipped
    }

    fn describe(&self) -> String {
        let names: Vec<String> = self.systems.iter().map(System::name).collect();
        let all = u32::try_from(self.systems.len()).unwrap_or(u32::MAX);
        let once = self.chain.time() + OVERHEAD + CHAIN_OVERHEAD;
        format!(
            "{} over {} hops of {}, {} of each: {} in real time, one run at a time",
            names.join(", "),
            self.chain.count,
            self.chain.text,
            plural(self.runs),
            span(once.saturating_mul(all * self.runs).as_secs_f64()),
        )
    }

    fn run(
        &self,
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Found>, Error> {
        let bench = (context.bench)()?;
        let run = |system: &System, seed| system.run(&bench, &self.chain, seed);
        let (table, notes) = self.measure(run, progress)?;
        Ok(Box::new(Results {
            experiment: "leotp",
            title: "Hop by hop in real time",
            what: "Transfers over emulated links between network namespaces. LEOTP runs as processes: a server, a relay in each node on \
                   the way, and a requester; TCP passes the same links from end to end. Goodput is payload in order, as the receiving \
                   program counts it; the ceiling is what full packets without a loss would carry.",
            command: context.command.to_owned(),
            seed: self.seed,
            notes,
            has_parts: true,
            rows: vec![Rows {
                part: "real",
                stands_for: "LEOTP fig. 12",
                shows: "a chain of lossy hops in real time",
                table,
                plots: Vec::new(),
            }],
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;
    use crate::kit::Plan as _;

    fn options(arguments: &[&str]) -> Options {
        let command = Options::augment_args(clap::Command::new("leotp"))
            .arg(clap::Arg::new("only").long("only"))
            .arg(clap::Arg::new("systems").long("systems"));
        let arguments = ["leotp", "--real"].iter().chain(arguments);
        let matches = command.try_get_matches_from(arguments).unwrap();
        Options::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn a_link_without_a_constant_rate_is_refused() {
        for link in ["delay=10ms", "rate=0mbit", "rat=5mbit"] {
            let error = RealPlan::new(&options(&["--link", link]), true, 1, 1).err();
            let said = error.unwrap().to_string();
            assert!(said.contains("--link"), "{said}");
        }
    }

    #[test]
    fn late_runs_count_in_no_row_and_are_told() {
        let plan = RealPlan::new(&options(&["--hops", "3"]), true, 2, 7).unwrap();
        assert!(
            plan.describe().contains("over 3 hops"),
            "{}",
            plan.describe()
        );
        let mut late = true;
        let run = |system: &System, _| {
            let metrics = Figures {
                goodput_mbps: 10.0 * system.payload_share(),
                longest_pause_ms: None,
            };
            let valid = !std::mem::take(&mut late);
            Ok(Measured { metrics, valid })
        };
        let (table, notes) = plan.measure(run, &mut |_| {}).unwrap();
        assert_eq!(table.len(), 2 * plan.systems.len());
        assert!(
            notes.iter().any(|note| note.contains("1 run not counted")),
            "{notes:?}"
        );
        let shares = table.figures("ceiling_share");
        assert!(
            shares
                .iter()
                .flatten()
                .all(|share| (share - 50.0).abs() < 1e-9)
        );
    }
}
