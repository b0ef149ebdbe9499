//! The commands that the first build of a newcomer leaves out (feature `tools`).

use std::process::ExitCode;

use clap::Subcommand;

#[cfg(feature = "dtn")]
use crate::dtn;
#[cfg(feature = "lab")]
use crate::lab;
use crate::{contents, detect, doctor, init, ltp, manual, orbit, record, replay, trace};

/// What `starhaul` does beside gateways and the demo.
#[derive(Subcommand)]
pub(crate) enum Tool {
    /// Find out why a gateway is slow or does not work, and what to do
    ///
    /// Reads the host, the configuration and the running gateway, watches it for two seconds, and changes nothing. Exit code
    /// 1 if there is a problem.
    Doctor(doctor::Arguments),
    /// Set up two gateways: ask for paths and peer, and write the files of both sides
    ///
    /// Run it on the side with the paths, which opens the session. What no option says is asked on a terminal, and is the
    /// default elsewhere. The files of the other side are to be copied there; keys are readable by their owner alone.
    Init(init::Arguments),
    /// Run an experiment and report it
    #[cfg(feature = "lab")]
    Lab(lab::Arguments),
    /// Run a command behind emulated links: recorded or modelled, one or several, in real time
    ///
    /// The command has a network of its own, whose only way out are the links; the far side is what --server starts, or
    /// this host. Exit code: the command's; 3 when packets left so late that the run does not count. Needs root, or a
    /// system whose users may make user namespaces.
    Replay(replay::Arguments),
    #[command(name = replay::SUPERVISOR, hide = true)]
    ReplaySupervisor(replay::SupervisorArguments),
    /// Show, convert, plot, generate or cut traces of links
    Trace(trace::Arguments),
    /// Turn constellations of satellites into paths over time, as links, tables and maps
    Orbit(orbit::Arguments),
    /// Measure a real path and write it as a trace that can be replayed
    Record(record::Arguments),
    /// Move files over links with long delays and outages by the Licklider Transmission Protocol (RFC 5326)
    Ltp(ltp::Arguments),
    /// Carry bundles over links that come and go: store them, and forward them when contacts open (RFC 9171)
    #[cfg(feature = "dtn")]
    Dtn(dtn::Arguments),
    /// Serve files by name over LEOTP, to be fetched over relays
    Serve(contents::ServeArguments),
    /// Fetch a file by name over LEOTP; exit code 0 says that it is whole, compared by SHA-256
    Fetch(contents::FetchArguments),
    /// Relay LEOTP between neighbours: recover losses hop by hop, and keep what passes for others
    Relay(contents::RelayArguments),
    /// Watch a satellite link for reconfigurations, live
    ///
    /// Probes the nearest stable address behind the satellite every 10 ms and prints each reconfiguration as it comes.
    /// Uses ICMP where this user may, else UDP echo to a far end that runs a gateway or `starhaul detect --serve`.
    Detect(detect::Arguments),
    /// Print a completion script for a shell
    Completions(manual::CompletionsArguments),
    /// Write manual pages into a directory
    Manpages(manual::ManpagesArguments),
}

impl Tool {
    /// What it logs unless it is told otherwise.
    pub(crate) fn usual_log(&self) -> &'static str {
        match self {
            // It starts and ends dozens of nodes, whose lines would bury its table.
            #[cfg(feature = "dtn")]
            Self::Dtn(arguments) if arguments.is_benchmark() => "error",
            _ => "info",
        }
    }

    /// The exit code of a command that succeeded.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Doctor(arguments) => doctor::run(&arguments),
            Self::Init(arguments) => init::run(arguments),
            #[cfg(feature = "lab")]
            Self::Lab(arguments) => lab::run(arguments),
            Self::Replay(arguments) => return replay::run(arguments),
            Self::ReplaySupervisor(arguments) => return Ok(replay::supervisor(&arguments)),
            Self::Trace(arguments) => trace::run(arguments),
            Self::Orbit(arguments) => orbit::run(arguments),
            Self::Record(arguments) => record::run(arguments),
            Self::Ltp(arguments) => return ltp::run(arguments),
            #[cfg(feature = "dtn")]
            Self::Dtn(arguments) => dtn::run(arguments),
            Self::Serve(arguments) => contents::serve(&arguments),
            Self::Fetch(arguments) => contents::fetch(&arguments),
            Self::Relay(arguments) => contents::relay(&arguments),
            Self::Detect(arguments) => detect::run(&arguments),
            Self::Completions(arguments) => manual::completions(&arguments),
            Self::Manpages(arguments) => manual::manpages(&arguments),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}
