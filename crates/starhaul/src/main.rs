//! The command line: parses arguments, calls a crate, prints.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration; `replay` returns that of its command, `ltp send --one-way` 3.

// They panic where standard error is closed.
#![warn(clippy::print_stderr)]

#[cfg(feature = "tools")]
mod address;
#[cfg(feature = "tools")]
mod contents;
mod demo;
#[cfg(feature = "tools")]
mod detect;
#[cfg(feature = "tools")]
mod doctor;
#[cfg(feature = "dtn")]
mod dtn;
mod gateway;
#[cfg(feature = "tools")]
mod goals;
#[cfg(feature = "tools")]
mod init;
mod keys;
#[cfg(feature = "lab")]
mod lab;
mod logs;
#[cfg(feature = "tools")]
mod ltp;
#[cfg(feature = "tools")]
mod manual;
#[cfg(feature = "tools")]
mod orbit;
mod output;
mod path;
#[cfg(feature = "tools")]
mod record;
#[cfg(feature = "tools")]
mod replay;
#[cfg(feature = "tools")]
mod signals;
mod status;
#[cfg(feature = "tools")]
mod tools;
#[cfg(feature = "tools")]
mod trace;

use std::{ffi::OsString, process::ExitCode};

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
    /// [default: info; warn for the demo, error for `dtn bench`]
    #[arg(long, value_name = "LEVEL", env = "STARHAUL_LOG")]
    log: Option<String>,
    /// Format of the log
    #[arg(
        long,
        value_name = "FORMAT",
        env = LOG_FORMAT,
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
    /// Show what a running gateway does
    Status(status::Arguments),
    /// List the paths of a running gateway, and change them: down, up, price, limit
    Path(path::Arguments),
    /// Make a secret key
    Keygen(keys::KeygenArguments),
    /// Print the public key that belongs to a secret key
    Pubkey(keys::PubkeyArguments),
    #[cfg(feature = "tools")]
    #[command(flatten)]
    Tool(tools::Tool),
}

fn main() -> ExitCode {
    let matches = matches(&std::env::args_os().collect::<Vec<_>>());
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
        #[cfg(feature = "tools")]
        Command::Tool(ref tool) => tool.usual_log(),
        _ => "info",
    });
    if let Err(error) = logs::begin(log, arguments.log_format) {
        output::tell(format!("error: {error}\n"));
        return ExitCode::from(2);
    }
    let result = match arguments.command {
        Command::Gateway(arguments) => gateway::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Path(arguments) => path::run(arguments),
        Command::Keygen(arguments) => keys::keygen(&arguments),
        Command::Pubkey(arguments) => keys::pubkey(&arguments),
        #[cfg(feature = "tools")]
        Command::Tool(tool) => match tool.run() {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed it.
        Err(error) if error.is::<output::Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            // Names and reasons of the far side may be part of it.
            let text = told_once(&error);
            let text = text.replace(
                |letter| char::is_control(letter) && letter != '\n',
                "\u{fffd}",
            );
            output::tell(format!("error: {text}\n"));
            ExitCode::from(exit_code(&error))
        }
    }
}

/// Parses the arguments of the command line; ends the program where they are wrong.
fn matches(words: &[OsString]) -> ArgMatches {
    match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        #[cfg(feature = "tools")]
        Err(error) if error.kind() == clap::error::ErrorKind::UnknownArgument => {
            command().get_matches_from(orbit::with_southern_stations(words))
        }
        Err(error) => error.exit(),
    }
}

/// The command line, where every subcommand also takes `--log LEVEL`, except those that have a `--log` of their own.
pub(crate) fn command() -> clap::Command {
    // An empty variable counts as unset.
    let is_empty = std::env::var_os(LOG_FORMAT).is_some_and(|format| format.is_empty());
    let command = Arguments::command().mut_arg("log_format", |argument| match is_empty {
        true => argument.env(None),
        false => argument,
    });
    command.mut_subcommands(|subcommand| match subcommand.get_name() {
        name if has_its_own_log(name) => subcommand,
        _ => subcommand.arg(
            Arg::new(LOG_LEVEL)
                .long("log")
                .global(true)
                .value_name("LEVEL")
                .help("What to log on standard error: error, warn, info, debug, trace, or rules"),
        ),
    })
}

/// Whether `--log` of this command is the file of its packets.
fn has_its_own_log(command: &str) -> bool {
    #[cfg(feature = "tools")]
    if command == replay::SUPERVISOR {
        return true;
    }
    command == "replay"
}

const LOG_LEVEL: &str = "log_level";
const LOG_FORMAT: &str = "STARHAUL_LOG_FORMAT";

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
    let asked = error.is::<output::Usage>() || error.is::<starhaul_link::Error>();
    if wrong || asked { 2 } else { 1 }
}

/// The same for the parts that the program may be built without.
#[cfg_attr(
    not(feature = "tools"),
    allow(unused_variables, reason = "there is no such part")
)]
fn is_configuration_of_part(error: &anyhow::Error) -> bool {
    #[cfg(feature = "tools")]
    if error.is::<starhaul_orbit::Error>() {
        return true;
    }
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
