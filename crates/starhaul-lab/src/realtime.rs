//! One flow behind an emulated link in real time: over our own stack, or over the kernel's TCP by `iperf3`. What is measured
//! is what the link itself saw, the same for both.

use std::{ffi::OsString, path::PathBuf, process::Command, time::Duration};

use starhaul_cc::ControllerConfig;
use starhaul_flow::Metrics;
use starhaul_link::{LinkSpec, link_seed};
use starhaul_replay::{DirectionReport, ReplayLink, ReplayReport, ReplaySpec, run};

use crate::{
    Error,
    traces::Direction,
    transfer::{PORT, Secret},
};

/// How long the program that carries a flow takes to start and to end, about.
pub(crate) const OVERHEAD: Duration = Duration::from_millis(1500);
/// Where the kernel says which of its controllers there are.
const KERNEL_CONTROLLERS: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// Before the name of a controller of the kernel.
const KERNEL: &str = "kernel-";

/// What sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Sender {
    /// Our stack with this controller.
    Own(ControllerConfig),
    /// The kernel's TCP with the controller of this name.
    Kernel(String),
}

impl Sender {
    /// The sender called `name`: a controller of ours, or `kernel-cubic`.
    ///
    /// # Errors
    /// [`Error::Settings`] when there is none.
    pub fn named(name: &str) -> Result<Self, Error> {
        match name.strip_prefix(KERNEL) {
            Some(kernel)
                if !kernel.is_empty() && kernel.bytes().all(|b| b.is_ascii_alphanumeric()) =>
            {
                Ok(Self::Kernel(kernel.to_owned()))
            }
            Some(_) => Err(Error::Settings(format!(
                "{name:?} is no controller of the kernel: write kernel-cubic"
            ))),
            None => ControllerConfig::from_name(name, None)
                .map(Self::Own)
                .map_err(|_| {
                    let unknown = crate::systems::unknown(name);
                    Error::Settings(format!("{unknown}; kernel-NAME for those of TCP"))
                }),
        }
    }

    /// Its name in tables.
    pub fn name(&self) -> String {
        match self {
            Self::Own(config) => config.name().to_owned(),
            Self::Kernel(name) => format!("{KERNEL}{name}"),
        }
    }

    /// Why this computer cannot run it, as far as that is known beforehand.
    pub fn missing(&self) -> Option<String> {
        let Self::Kernel(name) = self else {
            return None;
        };
        let known = std::fs::read_to_string(KERNEL_CONTROLLERS).unwrap_or_default();
        if !known.split_whitespace().any(|known| known == name) {
            return Some(format!(
                "skipped: {KERNEL}{name}, because this kernel has it not: modprobe tcp_{name}"
            ));
        }
        let iperf3 = Command::new("iperf3").arg("--version").output();
        iperf3
            .is_err()
            .then(|| format!("skipped: {KERNEL}{name}, because iperf3 is not installed"))
    }
}

/// How flows are run on this computer.
#[derive(Clone, Debug)]
pub struct Bench {
    /// This program, whose `lab flow` is started at both ends.
    pub program: PathBuf,
    /// See [`ReplaySpec::supervisor`].
    pub supervisor: Vec<OsString>,
}

/// One run.
#[derive(Clone, Debug)]
pub struct RealRun<'a> {
    /// What sends.
    pub sender: &'a Sender,
    /// Whether the data come from the command's side or go to it.
    pub direction: Direction,
    /// The link of the data.
    pub forward: LinkSpec,
    /// The link of the acknowledgements.
    pub backward: LinkSpec,
    /// For how long.
    pub seconds: u32,
    /// Of the links: the same as in virtual time loses the same packets, counted as they leave.
    pub seed: u64,
}

/// What a run showed.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The figures of its seconds.
    pub metrics: Metrics,
    /// Packets left when they should have.
    pub valid: bool,
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
            keep_passages: false,
            supervisor: self.supervisor.clone(),
        });
        nothing.err().map(|error| error.to_string())
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
        let (server, command) = self.commands(run_of);
        let report = run(ReplaySpec {
            links: vec![ReplayLink {
                name: "link".to_owned(),
                up: up.clone(),
                down: down.clone(),
                seeds,
            }],
            server: Some(server),
            command,
            quiet_output: true,
            log: None,
            keep_passages: true,
            supervisor: self.supervisor.clone(),
        })?;
        if report.exit_code != 0 {
            return Err(Error::Failed(format!(
                "the flow of {} ended with exit code {}; what it said stands above",
                run_of.sender.name(),
                report.exit_code
            )));
        }
        measured(&report, run_of)
    }

    /// A line for a shell on the far side, and the command on the near one. What they print is of no use: the link tells.
    fn commands(&self, run: &RealRun<'_>) -> (OsString, Vec<OsString>) {
        let seconds = run.seconds.to_string();
        let down = run.direction == Direction::Down;
        let (server, client) = match run.sender {
            Sender::Kernel(controller) => {
                let mut client: Vec<OsString> = ["iperf3", "-C", controller, "-t", &seconds]
                    .map(OsString::from)
                    .into();
                client.extend(down.then(|| "-R".into()));
                client.push("-c".into());
                // It takes its end by a signal for a failure, and says so.
                ("exec iperf3 -s >/dev/null 2>&1".into(), client)
            }
            Sender::Own(config) => self.own(config.name(), &seconds, down),
        };
        let mut command: Vec<OsString> = match run.sender {
            Sender::Kernel(_) => [
                "sh",
                "-c",
                "exec \"$0\" \"$@\" \"$STARHAUL_SERVER\" >/dev/null",
            ],
            Sender::Own(_) => ["sh", "-c", "exec \"$0\" \"$@\" >/dev/null"],
        }
        .map(OsString::from)
        .into();
        command.extend(client);
        (server, command)
    }

    fn own(&self, controller: &str, seconds: &str, down: bool) -> (OsString, Vec<OsString>) {
        let secret = Secret::generate();
        let end = |which: &str| {
            let mut words: Vec<OsString> = vec![self.program.clone().into()];
            let rest = ["--log", "warn", "lab", "flow", which, "--secret", &secret];
            words.extend(rest.map(OsString::from));
            words.extend(["--controller", controller].map(OsString::from));
            words
        };
        let mut server = OsString::from("exec");
        for word in end("server") {
            server.push(" '");
            server.push(word);
            server.push("'");
        }
        server.push(format!(" --listen 0.0.0.0:{PORT}"));
        let mut client = end("client");
        client.extend(["--json", "--seconds", seconds].map(OsString::from));
        client.extend(down.then(|| "--down".into()));
        (server, client)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_found_by_the_names_that_tables_show() {
        for name in ["cubic", "leocc2", "kernel-bbr"] {
            assert_eq!(Sender::named(name).unwrap().name(), name);
        }
        for (name, said) in [
            ("reno", "newreno"),
            ("kernel-", "kernel-cubic"),
            ("kernel-a;b", "kernel-cubic"),
        ] {
            let error = Sender::named(name).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_controller_that_the_kernel_has_not_is_named() {
        let sender = Sender::named("kernel-nosuch").unwrap();
        let said = sender.missing().unwrap();
        assert!(said.contains("kernel-nosuch"), "{said}");
        assert_eq!(Sender::named("bbr").unwrap().missing(), None);
    }
}
