//! `starhaul gateway`, `gateway check`, `gateway sample`.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt::Write as _,
    io::IsTerminal as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, anyhow, bail};
use clap::Subcommand;
use starhaul_gateway::{Config, Gateway, PathRecords};
use starhaul_units::parse_duration;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::MissedTickBehavior,
};

use crate::output::{Usage, print, qlog_folder, shell_line, tell};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    file: ConfigFile,
    /// Write a qlog of each session and path there until it ends, at most 1 GiB
    #[arg(long, value_name = "DIR")]
    qlog: Option<PathBuf>,
    /// Append a row for each path to this CSV file at intervals; at 64 MiB it is moved to FILE.1
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Interval of the rows, 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = stats_interval, requires = "stats")]
    stats_interval: Duration,
    #[command(subcommand)]
    action: Option<Action>,
}

fn stats_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text).map_err(|error| error.to_string())?;
    match (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&interval) {
        true => Ok(interval),
        false => Err("write a time from 1s to 1h".to_owned()),
    }
}

/// The configuration file, as an option or a positional argument of every command that reads one.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct ConfigFile {
    /// Configuration (TOML); `starhaul gateway sample` prints one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The same without the option
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ConfigFile {
    fn path(self) -> anyhow::Result<PathBuf> {
        if let Some(file) = &self.file
            && file.extension().is_none()
            && !file.exists()
        {
            let file = file.display();
            bail!(Usage(format!(
                "{file} is neither a file nor a command of gateway: check, sample"
            )));
        }
        self.config
            .or(self.file)
            .context("no configuration is named: add --config FILE")
    }
}

#[derive(Subcommand)]
enum Action {
    /// Check a configuration and its key files, and describe what it configures
    Check {
        #[command(flatten)]
        file: ConfigFile,
    },
    /// Print a commented sample configuration
    Sample,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.action {
        Some(Action::Sample) => print(Config::sample()),
        Some(Action::Check { file }) => check(&file.path()?),
        None => serve(arguments),
    }
}

fn check(file: &Path) -> anyhow::Result<()> {
    let config = Config::load(file)?;
    has_its_keys(&config, file)?;
    let public_key = config.identity.load()?.public_key();
    config.check_leotp_keys()?;
    config.check_control()?;
    for warning in config.warnings() {
        tell(format!("warning: {warning}\n"));
    }
    print(format!(
        "{}public key: {public_key}\n{}: no errors\n",
        config.describe(),
        file.display()
    ))
}

/// Says which files with keys have still to be made, and how: so it is after `gateway sample`.
fn has_its_keys(config: &Config, file: &Path) -> anyhow::Result<()> {
    let missing = config.missing_keys();
    if missing.is_empty() {
        return Ok(());
    }
    let mut text = format!(
        "{}: all values are right, but keys that it names have still to be made:\n",
        file.display()
    );
    // Several may lie in one file.
    let mut commands = BTreeMap::new();
    for key in &missing {
        let (named_by, file) = (&key.named_by, key.file.display());
        // Writing to a text cannot fail.
        let _ = writeln!(text, "  {named_by}: {file}: No such file or directory");
        let shared = key.shared_with.as_ref();
        let shared = shared.map(|with| format!("   # {with} needs the same file"));
        let command = || command_for(&key.file) + &shared.unwrap_or_default();
        commands.entry(&key.file).or_insert_with(command);
    }
    text += "run";
    for command in commands.values() {
        let _ = write!(text, "\n  {command}");
    }
    if missing.iter().any(|key| key.shared_with.is_some()) {
        text += "\nor remove the tables that you do not need";
    }
    Err(Usage(text).into())
}

/// The command that makes a key, and its folder.
fn command_for(key: &Path) -> String {
    let command = |words: &[&str], file: &Path| {
        let words = words.iter().map(OsString::from);
        shell_line(words.chain([OsString::from(file)]))
    };
    let make = command(&["starhaul", "keygen", "--out"], key);
    match key.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
            let folder = command(&["mkdir", "-p", "-m", "700"], folder);
            format!("{folder} && {make}")
        }
        _ => make,
    }
}

fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let file = &arguments.file.path()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    // Before anything is read, which may take a while: until then SIGHUP ends the process, and systemd takes that for an end in order.
    let mut hangup = {
        let _entered = runtime.enter();
        signal(SignalKind::hangup())?
    };
    let mut config = Config::load(file)?;
    has_its_keys(&config, file)?;
    config.qlog = arguments.qlog.as_deref().map(qlog_folder).transpose()?;
    let mut records = arguments.stats.as_deref().map(open_records).transpose()?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    // Each connection and each UDP client takes one.
    let open_files = starhaul_gateway::raise_open_files();
    tracing::debug!(open_files, "as many as the system lets us have");
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let on_terminal = std::io::stderr().is_terminal();
        // A start may wait for the resolver.
        let mut gateway = tokio::select! {
            gateway = Gateway::start(config) => gateway?,
            _ = terminate.recv() => return told_to_end("SIGTERM"),
            _ = interrupt.recv() => return told_to_end("SIGINT"),
        };
        let report = gateway.report();
        tracing::info!(public_key = report.public_key, "gateway runs");
        for address in &report.listen {
            tracing::info!(%address, "peers are accepted");
        }
        for rule in &report.ingress {
            tracing::info!(rule = rule.rule, kind = rule.kind, address = %rule.listen, peer = rule.peer, "applications are served");
        }
        if let Some(leotp) = &report.leotp {
            tracing::info!(address = %leotp.listen, "ends a chain of LEOTP relays");
        }
        let mut record = tokio::time::interval(arguments.stats_interval);
        record.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // The first tick comes at once.
        record.tick().await;
        // Once, since each call is remembered until then.
        let mut ended = std::pin::pin!(gateway.ended());
        let end = loop {
            tokio::select! {
                // Peers are told and quotas stored all the same: the failed part may be the chain alone.
                () = &mut ended => break Err(anyhow!(
                    "the gateway cannot send and receive any more, for the reason logged before; it ends, so that it can be started again"
                )),
                _ = terminate.recv() => break Ok("SIGTERM"),
                _ = interrupt.recv() => break Ok("SIGINT"),
                _ = record.tick(), if records.is_some() => {
                    if let Some(records) = &mut records
                        && let Err(error) = records.write(&gateway.report(), SystemTime::now())
                    {
                        tracing::warn!(%error, "--stats: these rows are lost");
                    }
                }
                _ = hangup.recv() => {
                    // The kernel also sends it when the terminal closes, which is no request to reload.
                    if on_terminal && !std::io::stderr().is_terminal() {
                        break Ok("SIGHUP, as the terminal is gone");
                    }
                    reload(&mut gateway, file).await;
                }
            }
        };
        if let Ok(signal) = &end {
            tracing::info!(signal, "gateway ends");
        }
        let second = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        gateway.shutdown_until(second).await;
        end.map(drop)
    })
}

/// A signal came before the gateway ran.
fn told_to_end(signal: &'static str) -> anyhow::Result<()> {
    tracing::info!(signal, "gateway ends");
    Ok(())
}

fn open_records(file: &Path) -> anyhow::Result<PathRecords> {
    PathRecords::open(file).map_err(|error| {
        let file = file.display();
        Usage(format!(
            "--stats {file}: {error}; name a file that can be written"
        ))
        .into()
    })
}

/// Reloads the configuration; errors are logged, and the gateway keeps the old one.
async fn reload(gateway: &mut Gateway, file: &Path) {
    let reloaded = match Config::load(file) {
        Ok(config) => gateway.reload(config).await,
        Err(error) => Err(error),
    };
    let reloaded = match reloaded {
        Ok(reloaded) => reloaded,
        Err(error) => {
            tracing::error!(%error, "SIGHUP: the configuration was not taken, the gateway goes on as before");
            return;
        }
    };
    for change in &reloaded.changes {
        tracing::info!(change, "SIGHUP: changed");
    }
    for error in &reloaded.failed {
        tracing::error!(%error, "SIGHUP: this rule is not served now");
    }
    for key in &reloaded.needs_restart {
        tracing::warn!(
            key,
            "SIGHUP: this change needs a restart; the old value holds until then"
        );
    }
    tracing::info!(file = %file.display(), changes = reloaded.changes.len(), "SIGHUP: configuration read again");
}
