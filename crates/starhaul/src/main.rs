//! The command line: parses arguments, calls a crate, prints.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration; `replay` returns that of its command.

mod address;
mod contents;
mod demo;
mod detect;
mod doctor;
#[cfg(feature = "dtn")]
mod dtn;
mod gateway;
mod init;
mod keys;
#[cfg(feature = "lab")]
mod lab;
mod logs;
mod ltp;
mod manual;
mod orbit;
mod output;
mod path;
mod record;
mod replay;
mod status;
mod trace;

use std::process::ExitCode;

use clap::{
    Arg, ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    parser::ValueSource,
};

/// Buffers come and go by the gigabit; glibc's allocator gives their memory back to the kernel and asks for it again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Moves data over lossy, slow and changing space networks.
#[derive(Parser)]
#[command(name = "starhaul", version, max_term_width = 100)]
struct Arguments {
    /// What to log on standard error: error, warn, info, debug, trace, or rules such as starhaul_gateway=debug
    /// [default: info; warn for the demo]
    #[arg(long, value_name = "LEVEL", env = "STARHAUL_LOG")]
    log: Option<String>,
    /// How to write it
    #[arg(
        long,
        value_name = "FORMAT",
        env = "STARHAUL_LOG_FORMAT",
        global = true,
        default_value = "text"
    )]
    log_format: logs::LogFormat,
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
    /// Show what a running gateway does
    Status(status::Arguments),
    /// Find out why a gateway is slow or does not work, and what to do
    ///
    /// Reads the host, the configuration and the running gateway, watches it for two seconds, and changes nothing. Exit code
    /// 1 if there is a problem.
    Doctor(doctor::Arguments),
    /// List the paths of a running gateway, and change them: down, up, price, limit
    Path(path::Arguments),
    /// Set up two gateways: ask for paths and peer, and write the files of both sides
    ///
    /// Run it on the side with the paths, which opens the session. What no option says is asked on a terminal, and is the
    /// default elsewhere. The files of the other side are to be copied there; keys are readable by their owner alone.
    Init(init::Arguments),
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
    let matches = command().get_matches();
    let arguments = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    // An empty variable counts as unset.
    let of_variable = matches.value_source("log") == Some(ValueSource::EnvVariable);
    let log = arguments.log.as_deref();
    let log = log.filter(|rules| !of_variable || !rules.is_empty());
    let log = log_level(&matches).or(log);
    let log = log.unwrap_or(match arguments.command {
        // The demo redraws its table where log lines would appear.
        Command::Demo(_) => "warn",
        _ => "info",
    });
    if let Err(error) = logs::begin(log, arguments.log_format) {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    let result = match arguments.command {
        Command::Gateway(arguments) => gateway::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        #[cfg(feature = "lab")]
        Command::Lab(arguments) => lab::run(arguments),
        Command::Replay(arguments) => match replay::run(arguments) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::ReplaySupervisor(arguments) => return replay::supervisor(&arguments),
        Command::Trace(arguments) => trace::run(arguments),
        Command::Orbit(arguments) => orbit::run(arguments),
        Command::Record(arguments) => record::run(arguments),
        Command::Ltp(arguments) => ltp::run(arguments),
        #[cfg(feature = "dtn")]
        Command::Dtn(arguments) => dtn::run(arguments),
        Command::Serve(arguments) => contents::serve(&arguments),
        Command::Fetch(arguments) => contents::fetch(&arguments),
        Command::Relay(arguments) => contents::relay(&arguments),
        Command::Detect(arguments) => detect::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Path(arguments) => path::run(arguments),
        Command::Init(arguments) => init::run(arguments),
        Command::Keygen(arguments) => keys::keygen(&arguments),
        Command::Pubkey(arguments) => keys::pubkey(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Manpages(arguments) => manual::manpages(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed it.
        Err(error) if error.is::<output::Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", told_once(&error));
            ExitCode::from(exit_code(&error))
        }
    }
}

/// The command line, where every subcommand also takes `--log LEVEL`, except those that have a `--log` of their own.
pub(crate) fn command() -> clap::Command {
    Arguments::command().mut_subcommands(|subcommand| match subcommand.get_name() {
        "replay" | replay::SUPERVISOR => subcommand,
        _ => subcommand.arg(
            Arg::new(LOG_LEVEL)
                .long("log")
                .global(true)
                .value_name("LEVEL")
                .help("What to log on standard error: error, warn, info, debug, trace, or rules"),
        ),
    })
}

const LOG_LEVEL: &str = "log_level";

/// The log level given after a subcommand.
fn log_level(matches: &ArgMatches) -> Option<&str> {
    let (_, matches) = matches.subcommand()?;
    let here = matches.try_get_one::<String>(LOG_LEVEL).ok().flatten();
    log_level(matches).or(here.map(String::as_str))
}

/// The error and its causes, without causes whose text is already part of it.
fn told_once(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn exit_code(error: &anyhow::Error) -> u8 {
    let gateway = error.downcast_ref::<starhaul_gateway::Error>();
    let demo = error.downcast_ref::<starhaul_demo::Error>();
    let wrong = gateway.is_some_and(starhaul_gateway::Error::is_configuration)
        || demo.is_some_and(starhaul_demo::Error::is_configuration)
        || is_configuration_of_part(error);
    let asked = error.is::<output::Usage>()
        || error.is::<starhaul_link::Error>()
        || error.is::<starhaul_orbit::Error>();
    if wrong || asked { 2 } else { 1 }
}

/// The same for the parts that the program may be built without.
#[cfg_attr(
    not(any(feature = "dtn", feature = "lab")),
    allow(unused_variables, reason = "there is no such part")
)]
fn is_configuration_of_part(error: &anyhow::Error) -> bool {
    #[cfg(feature = "dtn")]
    if let Some(error) = error.downcast_ref::<starhaul_dtn::Error>() {
        return error.is_configuration();
    }
    #[cfg(feature = "lab")]
    if let Some(error) = error.downcast_ref::<starhaul_lab::Error>() {
        return error.is_configuration();
    }
    false
}
