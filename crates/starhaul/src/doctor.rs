//! `starhaul doctor`: reads the host, the configuration and the running gateway, measures for a moment, and says what is wrong and
//! what to do. It changes nothing.

mod bottleneck;
mod host;
mod network;
mod running;
mod service;

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use serde::Serialize;
use starhaul_gateway::{Config, ask_status, find_status, status::Status};
use tokio::net::UnixStream;

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

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    /// As it should be.
    Good,
    /// It costs something, or will.
    Note,
    /// Something does not work, or not as configured.
    Problem,
}

/// One fact, with the evidence and what to do about it.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    /// What it is about, as `path leo` or `socket buffers`.
    subject: String,
    /// What was seen.
    found: String,
    /// The one thing to do.
    advice: Option<String>,
}

impl Finding {
    fn good(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            level: Level::Good,
            subject: subject.into(),
            found: found.into(),
            advice: None,
        }
    }

    fn note(
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Note,
            advice: Some(advice.into()),
            ..Self::good(subject, found)
        }
    }

    fn problem(
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Problem,
            ..Self::note(subject, found, advice)
        }
    }
}

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
    let mut findings = runtime.block_on(examine(arguments, config.as_ref()));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let problems = findings
        .iter()
        .filter(|finding| finding.level == Level::Problem);
    let problems = problems.count();
    let report = Report {
        healthy: problems == 0,
        findings,
    };
    match arguments.json {
        true => print(format!("{}\n", serde_json::to_string_pretty(&report)?))?,
        false => print(text(&report))?,
    }
    anyhow::ensure!(problems == 0, "{problems} problem(s) found");
    Ok(())
}

async fn examine(arguments: &Arguments, config: Option<&Config>) -> Vec<Finding> {
    let mut findings = host::examine(config);
    if let Some(config) = config {
        findings.extend(network::examine(config, arguments.peer.as_deref()).await);
    }
    let (socket, first) = match ask(arguments).await {
        Ok(answer) => answer,
        Err(error) => {
            findings.push(Finding::problem(
                "gateway",
                error.to_string(),
                "start it (starhaul gateway --config FILE), or name its socket with --socket",
            ));
            return findings;
        }
    };
    let process = host::Process::watch(process_at(&socket).await);
    tokio::time::sleep(WATCH).await;
    let last = match ask_status(&socket).await {
        Ok(status) => status,
        Err(error) => {
            let advice = "look into its log: it ended, or does not answer, while it was watched";
            findings.push(Finding::problem("gateway", error.to_string(), advice));
            return findings;
        }
    };
    let busy = process.ended();
    let peer = arguments.peer.as_deref();
    findings.extend(busy.findings());
    findings.extend(running::examine(&first, &last, peer));
    findings.extend(service::examine(&last, peer));
    findings.extend(bottleneck::find(&last, peer, &busy));
    findings
}

async fn ask(arguments: &Arguments) -> Result<(PathBuf, Status), starhaul_gateway::Error> {
    match &arguments.socket {
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
