//! The command line: parse arguments, call a room, print.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.

mod gateway;
mod keys;
mod manual;
mod output;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// Moves data over lossy, slow and changing space networks.
#[derive(Parser)]
#[command(name = "starhaul", version, max_term_width = 100)]
struct Arguments {
    /// What to log on standard error: error, warn, info, debug, trace, or rules such as starhaul_gateway=debug
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        env = "STARHAUL_LOG",
        default_value = "info"
    )]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Carry applications to and from other gateways
    Gateway(gateway::Arguments),
    /// Show what a running gateway does
    Status(status::Arguments),
    /// Make a secret key
    Keygen(keys::KeygenArguments),
    /// Print the public key that belongs to a secret key
    Pubkey(keys::PubkeyArguments),
    /// Print a completion script for a shell
    Completions(manual::CompletionsArguments),
    /// Write manual pages into a directory
    Manpages(manual::ManpagesArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = match EnvFilter::try_new(&arguments.log) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("error: --log {:?}: {error}", arguments.log);
            return ExitCode::from(2);
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let result = match arguments.command {
        Command::Gateway(arguments) => gateway::run(arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Keygen(arguments) => keys::keygen(&arguments),
        Command::Pubkey(arguments) => keys::pubkey(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Manpages(arguments) => manual::manpages(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output has seen enough.
        Err(error) if error.is::<output::Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<starhaul_gateway::Error>() {
        Some(error) if error.is_configuration() => 2,
        _ => 1,
    }
}
