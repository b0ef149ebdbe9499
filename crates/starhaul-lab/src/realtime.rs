//! One flow of any sender behind an emulated link in real time: what is measured is what the link itself saw, the same for all.
//! And programs along a chain of links or between two hosts, which tell themselves what they got.

use std::{
    ffi::OsString,
    io::{self, Read as _},
    path::PathBuf,
    time::Duration,
};

use starhaul_flow::Metrics;
use starhaul_link::{LinkSpec, link_seed};
use starhaul_replay::{
    Chain, DirectionReport, Hosts, LinksReport, Program, ReplayLink, ReplayReport, ReplaySpec, run,
};

use crate::{Error, traces::Direction};

/// How long the program that carries a flow takes to start and to end, about.
pub(crate) const OVERHEAD: Duration = Duration::from_millis(1500);

/// More than any link of the lab holds in a round trip: the system's usual 4 MB would bound TCP, and not the path.
const TCP_WINDOW_BYTES: u64 = 128 << 20;

/// What sends in real time.
pub trait Sender: std::fmt::Debug + Send + Sync {
    /// Its name in tables.
    fn name(&self) -> String;

    /// Why this computer cannot run it, as far as that is known beforehand.
    fn missing(&self) -> Option<String>;

    /// The programs that carry a flow for so many seconds, to the near side if it goes `down`.
    fn ends(&self, bench: &Bench, seconds: u32, down: bool) -> Ends;
}

/// The programs at both ends of a flow. What they print is of no use: the link tells.
#[derive(Clone, Debug)]
pub struct Ends {
    /// A line for a shell on the far side.
    pub server: OsString,
    /// The command on the near side, which finds the other's address in `STARHAUL_SERVER`.
    pub client: Vec<OsString>,
}

/// How flows are run on this computer.
#[derive(Clone, Debug)]
pub struct Bench {
    /// This program, whose `lab flow` is started at both ends.
    pub program: PathBuf,
    /// The command that supervises the run, as in [`ReplaySpec::supervisor`].
    pub supervisor: Vec<OsString>,
}

/// A flow to run in real time.
#[derive(Clone, Debug)]
pub struct RealRun<'a> {
    /// The sender of the flow.
    pub sender: &'a dyn Sender,
    /// Whether the data come from the command's side or go to it.
    pub direction: Direction,
    /// The link of the data.
    pub forward: LinkSpec,
    /// The link of the acknowledgements.
    pub backward: LinkSpec,
    /// Length of the run in seconds.
    pub seconds: u32,
    /// Of the links: the same as in virtual time loses the same packets, counted as they leave.
    pub seed: u64,
}

/// The figures of a run, and whether they count.
#[derive(Clone, Copy, Debug)]
pub struct Measured<M = Metrics> {
    /// The figures of its seconds.
    pub metrics: M,
    /// Packets left when they should have.
    pub valid: bool,
}

impl<M> Measured<M> {
    /// Whether it counts follows from the links.
    fn by_links((metrics, report): (M, LinksReport)) -> Self {
        for warning in &report.warnings {
            tracing::warn!("{warning}");
        }
        let valid = report.is_valid();
        Self { metrics, valid }
    }
}

impl Bench {
    /// Why this computer cannot run flows in real time, if it cannot.
    pub fn missing(&self) -> Option<String> {
        let link = LinkSpec::default();
        let nothing = run(ReplaySpec {
            links: vec![ReplayLink::new("link", link.clone(), link, 0, 0)],
            server: None,
            command: vec!["true".into()],
            quiet_output: true,
            log: None,
            tcp_window_bytes: None,
            keep_passages: false,
            supervisor: self.supervisor.clone(),
        });
        nothing.err().map(|error| error.to_string())
    }

    /// Makes a chain of links for `work`, of which it gives the result.
    ///
    /// # Errors
    /// The system lets us make no network, and those of `work`.
    pub(crate) fn along<T>(
        &self,
        links: &[ReplayLink],
        work: impl FnOnce(&Chain) -> Result<T, Error>,
    ) -> Result<Measured<T>, Error> {
        let work = |chain: &Chain| work(chain).map_err(Error::over_links);
        let done = Chain::run(links, &self.supervisor, Some(TCP_WINDOW_BYTES), work)?;
        Ok(Measured::by_links(done))
    }

    /// Joins two hosts by links beside each other for `work`, of which it gives the result.
    ///
    /// # Errors
    /// The system lets us make no network, and those of `work`.
    pub(crate) fn between<T>(
        &self,
        links: &[ReplayLink],
        work: impl FnOnce(&Hosts) -> Result<T, Error>,
    ) -> Result<Measured<T>, Error> {
        let work = |hosts: &Hosts| work(hosts).map_err(Error::over_links);
        let done = Hosts::run(links, &self.supervisor, work)?;
        Ok(Measured::by_links(done))
    }

    /// Runs a flow, and measures it from its command's start on.
    ///
    /// # Errors
    /// The system lets us make no network, or the flow failed.
    pub fn run(&self, run_of: &RealRun<'_>) -> Result<Measured, Error> {
        // The data's link is the first of a simulation too.
        let [data, back] = [0, 1].map(|link| link_seed(run_of.seed, link));
        let (up, down, seeds) = match run_of.direction {
            Direction::Up => (&run_of.forward, &run_of.backward, [data, back]),
            Direction::Down => (&run_of.backward, &run_of.forward, [back, data]),
        };
        let is_down = run_of.direction == Direction::Down;
        let Ends { server, client } = run_of.sender.ends(self, run_of.seconds, is_down);
        let report = run(ReplaySpec {
            links: vec![ReplayLink {
                name: "link".to_owned(),
                up: up.clone(),
                down: down.clone(),
                seeds,
            }],
            server: Some(server),
            command: client,
            quiet_output: true,
            log: None,
            tcp_window_bytes: Some(TCP_WINDOW_BYTES),
            keep_passages: true,
            supervisor: self.supervisor.clone(),
        });
        let report = report.map_err(|error| match error {
            // The links are there, and the flow's own programs do not come up.
            starhaul_replay::Error::Command(_) | starhaul_replay::Error::Server { .. } => {
                Error::from(error).over_links()
            }
            error => error.into(),
        })?;
        if report.exit_code != 0 {
            let what = format!("the flow of {}", run_of.sender.name());
            return Err(ended(&what, report.exit_code, ""));
        }
        measured(&report, run_of)
    }
}

/// Runs a program at the first node of a chain, and `meanwhile` beside it; returns what it printed.
///
/// # Errors
/// Those of `meanwhile`, and a program that fails.
pub(crate) fn said(
    chain: &Chain,
    command: &[OsString],
    meanwhile: impl FnOnce(&Program) -> Result<(), Error>,
) -> Result<String, Error> {
    let cannot = || Error::io("cannot read what a program says");
    let (mut output, stdout) = io::pipe().map_err(cannot())?;
    let program = chain.command(0, command, stdout.into())?;
    meanwhile(&program)?;
    let mut text = String::new();
    output.read_to_string(&mut text).map_err(cannot())?;
    match program.wait()? {
        0 => Ok(text),
        code => {
            let name = command
                .first()
                .map_or_else(Default::default, |name| name.to_string_lossy());
            Err(ended(&name, code, &text))
        }
    }
}

/// How a program ended that should have ended well, and what it printed. One that was interrupted ends all.
fn ended(what: &str, code: u8, text: &str) -> Error {
    let here = if text.is_empty() { "" } else { " and here: " };
    let said = format!("{what} ended with exit code {code}; what it said stands above{here}{text}");
    match INTERRUPTED.contains(&code) {
        true => Error::Interrupted(said),
        false => Error::Flow(said),
    }
}

/// Exit codes of SIGHUP, SIGINT, SIGQUIT and SIGTERM, and of programs that handle them.
const INTERRUPTED: [u8; 4] = [129, 130, 131, 143];

/// Returns unless a signal asks the program to end.
///
/// # Errors
/// [`Error::Interrupted`].
pub(crate) fn go_on() -> Result<(), Error> {
    match starhaul_replay::interrupted() {
        true => Err(Error::Interrupted("interrupted by a signal".to_owned())),
        false => Ok(()),
    }
}

fn measured(report: &ReplayReport, run: &RealRun<'_>) -> Result<Measured, Error> {
    let link = report.links.first();
    let link = link.ok_or_else(|| Error::Failed("a replay without a link".to_owned()))?;
    let (data, back) = match run.direction {
        Direction::Up => (&link.up, &link.down),
        Direction::Down => (&link.down, &link.up),
    };
    Ok(Measured {
        metrics: metrics(data, back, run.seconds),
        valid: report.is_valid(),
    })
}

fn metrics(data: &DirectionReport, back: &DirectionReport, seconds: u32) -> Metrics {
    let whole = usize::try_from(seconds).unwrap_or(usize::MAX);
    let capacities = data.seconds.iter().take(whole);
    let capacity = capacities.map(|second| second.capacity_bytes).sum();
    let time = Duration::from_secs(seconds.into());
    Metrics::by_link(time, capacity, &data.passages, &back.passages, data.stats)
}
