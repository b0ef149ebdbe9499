//! Runs a command behind emulated links in real time: between two TUN devices, one in a network namespace of the
//! command's own, the link decides when each packet leaves (LeoReplayer, LeoCC §5.2; mahimahi, USENIX ATC 2015).
//! Namespaces and devices have no names that could outlive the process.

use std::{
    ffi::OsString,
    io::{self, Write},
    process::Stdio,
    time::Duration,
};

use starhaul_link::Histogram;

use crate::{
    Error, ReplayLink,
    engine::Engine,
    network::{Network, widen},
    report::{self, LinkReport},
    supervisor::{self, Running, Start},
};

/// A command, and the links in front of it.
pub struct ReplaySpec {
    /// The links, at least one.
    pub links: Vec<ReplayLink>,
    /// A command line for `sh -c`, started on the far side before the command.
    pub server: Option<OsString>,
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Redirects the command's standard output to standard error.
    pub quiet_output: bool,
    /// Receives a line per packet, after its present content.
    pub log: Option<Box<dyn Write + Send>>,
    /// The kernel's TCP inside may have so many bytes in flight, in place of the system's bounds, if the far side has its own namespace.
    pub tcp_window_bytes: Option<u64>,
    /// Keeps the fate of each packet that arrived, for [`DirectionReport::passages`](crate::DirectionReport::passages).
    pub keep_passages: bool,
    /// Arguments with which this program only calls [`supervise`](crate::supervise) with those that follow `--`.
    pub supervisor: Vec<OsString>,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct ReplayReport {
    /// The command's exit code as a shell reports it: 128 and the signal for one that was killed.
    pub exit_code: u8,
    /// Time from the start of the command to its end.
    pub elapsed: Duration,
    /// Reports of the links in the order of their description.
    pub links: Vec<LinkReport>,
    /// Warnings to show to the user.
    pub warnings: Vec<String>,
}

impl ReplayReport {
    /// The lateness of all packets.
    pub fn lateness(&self) -> Histogram {
        report::lateness(&self.links)
    }

    /// Whether p99 of the lateness is within [`LATENESS_BOUND`](crate::LATENESS_BOUND).
    pub fn is_valid(&self) -> bool {
        report::is_in_time(&self.links)
    }
}

/// Creates the links, runs the command until it ends, and removes the links.
///
/// Traces begin with the command. An ordinary user becomes root in a user namespace of this process, which works only
/// while it has a single thread.
///
/// # Errors
/// [`Error::Namespace`], [`Error::Tun`] and [`Error::Network`] when the system does not allow an emulated link;
/// [`Error::Command`] when a process could not be started, [`Error::Server`] when the server ended before it listened.
pub fn run(spec: ReplaySpec) -> Result<ReplayReport, Error> {
    let network = Network::create(&spec.links, spec.server.is_some())?;
    let mut warnings = network.warnings.clone();
    if let Some(bytes) = spec.tcp_window_bytes.filter(|_| spec.server.is_some()) {
        for side in [&network.near, &network.far] {
            warnings.extend(widen(side, bytes).err());
        }
    }
    let server = match &spec.server {
        Some(line) => Some(start_server(&spec, line, &network, &mut warnings)?),
        None => None,
    };
    let engine = Engine::start(&spec.links, &network.links, spec.log, spec.keep_passages)?;
    let command = Start {
        supervisor: &spec.supervisor,
        network: &network.near,
        command: &spec.command,
        environment: &network.environment,
        stdin: Stdio::inherit(),
        stdout: match spec.quiet_output {
            true => Stdio::from(io::stderr()),
            false => Stdio::inherit(),
        },
        runs_first: false,
    };
    let command = command.spawn(true).map_err(Error::Command);
    let exit_code = command.and_then(|command| command.wait().map_err(Error::Command));
    let elapsed = engine.start.elapsed();
    supervisor::may_end(true);
    let links = engine.finish(&spec.links, &mut warnings);
    supervisor::may_end(false);
    if let Some(server) = server {
        server.end();
    }
    Ok(ReplayReport {
        exit_code: exit_code?,
        elapsed,
        links: links?,
        warnings,
    })
}

fn start_server(
    spec: &ReplaySpec,
    line: &OsString,
    network: &Network,
    warnings: &mut Vec<String>,
) -> Result<Running, Error> {
    let server = Start {
        supervisor: &spec.supervisor,
        network: &network.far,
        command: &["sh".into(), "-c".into(), line.clone()],
        environment: &network.environment,
        stdin: Stdio::null(),
        stdout: Stdio::from(io::stderr()),
        runs_first: false,
    };
    let server = server.spawn(false).map_err(Error::Command)?;
    let (server, listens) = server.until_it_listens(&network.far, 0)?;
    if !listens {
        warnings.push(
            "the server listens on no TCP or UDP port yet; the command was started all the same"
                .to_owned(),
        );
    }
    Ok(server)
}
