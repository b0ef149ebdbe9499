//! `starhaul gateway`, `gateway check`, `gateway sample`.

use std::{
    io::IsTerminal as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Subcommand;
use starhaul_gateway::{Config, Gateway};
use tokio::signal::unix::{SignalKind, signal};

use crate::output::print;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    /// Configuration (TOML); `starhaul gateway sample` prints one
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Check a configuration and its key file, and say what it means
    Check {
        /// The configuration
        file: PathBuf,
    },
    /// Print a commented sample configuration
    Sample,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    match (arguments.action, arguments.config) {
        (Some(Action::Sample), _) => print(Config::sample()),
        (Some(Action::Check { file }), _) => {
            let config = Config::load(&file)?;
            let public_key = config.identity.load()?.public_key();
            print(format!(
                "{}public key: {public_key}\n{}: no errors\n",
                config.describe(),
                file.display()
            ))
        }
        (None, Some(file)) => serve(&file),
        (None, None) => unreachable!("clap requires --config without a subcommand"),
    }
}

fn serve(file: &Path) -> anyhow::Result<()> {
    let config = Config::load(file)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let on_terminal = std::io::stderr().is_terminal();
        let mut gateway = Gateway::start(config).await?;
        let report = gateway.report();
        tracing::info!(public_key = report.public_key, "gateway runs");
        for address in &report.listen {
            tracing::info!(%address, "peers are accepted");
        }
        for rule in &report.ingress {
            tracing::info!(rule = rule.rule, kind = rule.kind, address = %rule.listen, peer = rule.peer, "applications are served");
        }
        let signal = loop {
            tokio::select! {
                _ = terminate.recv() => break "SIGTERM",
                _ = interrupt.recv() => break "SIGINT",
                _ = hangup.recv() => {
                    // The kernel sends it too when the terminal goes away, and then nobody asks for a reload.
                    if on_terminal && !std::io::stderr().is_terminal() {
                        break "SIGHUP, as the terminal is gone";
                    }
                    reload(&mut gateway, file).await;
                }
            }
        };
        tracing::info!(signal, "gateway ends");
        tokio::select! {
            () = gateway.shutdown() => Ok(()),
            // Asked twice: at once.
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    })
}

/// Reads the configuration again; what is wrong with it is logged, and the gateway goes on as it is.
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
