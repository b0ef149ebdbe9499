//! `starhaul doctor`: reads the host, the configuration and the running gateway, measures for a moment, and says what is wrong and
//! what to do. It changes nothing.

mod bottleneck;
mod finding;
mod host;
mod network;
mod process;
mod reach;
mod readers;
mod reverse_path;
mod rules;
mod running;
mod service;

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use serde::Serialize;
use starhaul_gateway::{Config, ask_status, config::ControlPath, find_status, status::Status};
use tokio::net::UnixStream;

use self::finding::{Cause, Finding, Level};
use crate::output::print;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The gateway's configuration: checks the addresses, interfaces and devices that it names, too
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Look only at the sessions with this peer
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Control socket of the gateway [default: as of starhaul status]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// For how long the running gateway is watched.
const WATCH: Duration = Duration::from_secs(2);
/// And for how much longer where a reader stands still: players and limited downloads read in bursts, seconds apart.
const WATCH_READERS: Duration = Duration::from_secs(10);

/// All findings, the worst first.
#[derive(Debug, Serialize)]
struct Report {
    healthy: bool,
    findings: Vec<Finding>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let config = match &arguments.config {
        Some(file) => Some(Config::load(file)?),
        None => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(check_peer(arguments, config.as_ref()))?;
    let findings = runtime.block_on(examine(arguments, config.as_ref()));
    let findings = finding::settle(findings);
    // A silent resolver may hold a thread of the runtime for longer than the user wants to wait.
    runtime.shutdown_background();
    let problems = findings
        .iter()
        .filter(|finding| finding.level == Level::Problem);
    let problems = problems.count();
    let report = Report {
        healthy: problems == 0,
        findings,
    };
    let printed = match arguments.json {
        true => print(format!("{}\n", serde_json::to_string_pretty(&report)?)),
        false => print(text(&report)),
    };
    anyhow::ensure!(problems == 0, "{problems} problem(s) found");
    printed
}

/// A peer that neither the configuration nor the gateway knows has no problem, and nothing was looked at.
async fn check_peer(arguments: &Arguments, config: Option<&Config>) -> anyhow::Result<()> {
    let Some(peer) = &arguments.peer else {
        return Ok(());
    };
    let status = ask(arguments, config).await.ok();
    let status = status.map(|(_, status)| status);
    let running = status.iter().flat_map(|status| &status.peers);
    let configured = config.into_iter().flat_map(|config| &config.peers);
    let known = running.map(|peer| peer.name.as_str());
    let known: Vec<&str> = known
        .chain(configured.map(|peer| peer.name.as_str()))
        .collect();
    if known.is_empty() {
        return Ok(());
    }
    crate::status::known("peer", Some(peer), known.into_iter())
}

async fn examine(arguments: &Arguments, config: Option<&Config>) -> Vec<Finding> {
    let peer = arguments.peer.as_deref();
    let (configured, watched) =
        tokio::join!(of_configuration(config, peer), watch(arguments, config));
    let (mut findings, ways, answers) = configured;
    let status = match watched {
        Ok(Watched {
            first,
            last,
            process,
            mut readers,
        }) => {
            findings.extend(process.findings());
            findings.append(&mut readers);
            network::excuse_withheld_key(config, &mut findings);
            findings.extend(running::examine(&first, &last, peer, &ways));
            findings.extend(service::examine(&last, peer));
            findings.extend(rules::examine(&first, &last, peer));
            findings.extend(bottleneck::find(&first, &last, peer, &process));
            Some(last)
        }
        Err(problem) => {
            findings.push(problem);
            None
        }
    };
    findings.extend(answers.findings(status.as_ref()));
    findings
}

/// The host, what the configuration names, and who answers there.
async fn of_configuration(
    config: Option<&Config>,
    peer: Option<&str>,
) -> (Vec<Finding>, Vec<network::Way>, reach::Answers) {
    let mut findings = host::examine(config);
    let Some(config) = config else {
        return (findings, Vec::new(), reach::Answers::default());
    };
    let (found, ways) = network::examine(config, peer).await;
    findings.extend(found);
    findings.extend(reverse_path::examine(config, &ways));
    let answers = reach::ask(ways.clone(), config.keepalive).await;
    (findings, ways, answers)
}

/// The running gateway before and after a while, how its process fared meanwhile, and which applications do not read.
struct Watched {
    first: Status,
    last: Status,
    process: process::Watched,
    readers: Vec<Finding>,
}

async fn watch(arguments: &Arguments, config: Option<&Config>) -> Result<Watched, Finding> {
    let is_off = config.is_some_and(|config| config.control == ControlPath::Off);
    if is_off && arguments.socket.is_none() {
        let found = "it has no control socket: what it does now is not looked at";
        let advice =
            "remove control = \"off\" from its configuration, or name another socket with --socket";
        return Err(Finding::note(Cause::Gateway, "gateway", found, advice));
    }
    let (socket, first) = ask(arguments, config).await.map_err(|error| {
        let advice = "start it (starhaul gateway --config FILE), or name its socket with --socket";
        Finding::problem(Cause::Gateway, "gateway", error.to_string(), advice)
    })?;
    let process = process::Process::watch(process_at(&socket).await);
    tokio::time::sleep(WATCH).await;
    let ask = async || {
        ask_status(&socket).await.map_err(|error| {
            let advice = "look into its log: it ended, or does not answer, while it was watched";
            Finding::problem(Cause::Gateway, "gateway", error.to_string(), advice)
        })
    };
    let last = ask().await?;
    let process = process.ended();
    let peer = arguments.peer.as_deref();
    let mut readers = readers::examine(&first, &last, peer);
    if !readers.is_empty() {
        tokio::time::sleep(WATCH_READERS).await;
        let stand_still = readers::examine(&first, &ask().await?, peer);
        readers = readers::those_who_never_read(readers, &stand_still);
    }
    Ok(Watched {
        first,
        last,
        process,
        readers,
    })
}

/// Asks the gateway at the socket of the command line, else at that of the configuration.
async fn ask(
    arguments: &Arguments,
    config: Option<&Config>,
) -> Result<(PathBuf, Status), starhaul_gateway::Error> {
    let configured = config.and_then(|config| match &config.control {
        ControlPath::At(socket) => Some(socket),
        ControlPath::Default | ControlPath::Off => None,
    });
    match arguments.socket.as_ref().or(configured) {
        Some(socket) => Ok((socket.clone(), ask_status(socket).await?)),
        None => find_status().await,
    }
}

/// The process behind a control socket.
async fn process_at(socket: &std::path::Path) -> Option<i32> {
    let stream = UnixStream::connect(socket).await.ok()?;
    stream.peer_cred().ok()?.pid()
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let mark = match finding.level {
            Level::Problem => "PROBLEM",
            Level::Note => "note   ",
            Level::Good => "ok     ",
        };
        text += &format!("{mark} {}: {}\n", finding.subject, finding.found);
        if let Some(advice) = &finding.advice {
            text += &format!("        → {advice}\n");
        }
    }
    text
}
