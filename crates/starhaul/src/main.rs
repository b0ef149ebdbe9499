//! The command line: parse arguments, call a room, print.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.

mod demo;
mod gateway;
mod keys;
mod lab;
mod manual;
mod output;
mod status;

use std::{io::IsTerminal as _, process::ExitCode};

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// Moves data over lossy, slow and changing space networks.
#[derive(Parser)]
#[command(name = "starhaul", version, max_term_width = 100)]
struct Arguments {
    /// What to log on standard error: error, warn, info, debug, trace, or rules such as starhaul_gateway=debug
    /// [default: info; warn for the demo]
    #[arg(long, global = true, value_name = "LEVEL", env = "STARHAUL_LOG")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Carry applications to and from other gateways
    Gateway(gateway::Arguments),
    /// Carry real applications over an emulated LEO and GEO path at once, beside multipath QUIC
    ///
    /// Text, audio, video and a TCP download cross two gateways and, in the same run and over identical links,
    /// the baseline. Needs no root, no network and no other file.
    Demo(demo::Arguments),
    /// Run an experiment and report it
    Lab(lab::Arguments),
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
    let log = arguments.log.as_deref().unwrap_or(match arguments.command {
        // Its table redraws itself where log lines would go.
        Command::Demo(_) => "warn",
        _ => "info",
    });
    let filter = match EnvFilter::try_new(log) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("error: --log {log:?}: {error}");
            return ExitCode::from(2);
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let result = match arguments.command {
        Command::Gateway(arguments) => gateway::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Lab(arguments) => lab::run(arguments),
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
    let gateway = error.downcast_ref::<starhaul_gateway::Error>();
    let lab = error.downcast_ref::<starhaul_lab::Error>();
    let wrong = gateway.is_some_and(starhaul_gateway::Error::is_configuration)
        || lab.is_some_and(starhaul_lab::Error::is_configuration);
    if wrong { 2 } else { 1 }
}
