//! `starhaul gateway`, `gateway check`, `gateway sample`.

use std::path::PathBuf;

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
        (None, Some(file)) => serve(Config::load(&file)?),
        (None, None) => unreachable!("clap requires --config without a subcommand"),
    }
}

fn serve(config: Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let gateway = Gateway::start(config).await?;
        let report = gateway.report();
        tracing::info!(public_key = report.public_key, "gateway runs");
        for address in &report.listen {
            tracing::info!(%address, "peers are accepted");
        }
        for rule in &report.ingress {
            tracing::info!(rule = rule.rule, kind = rule.kind, address = %rule.listen, peer = rule.peer, "applications are served");
        }
        let signal = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
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
