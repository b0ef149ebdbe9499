//! `starhaul record`: takes keys, addresses and a folder, writes a trace and its summary; the recording itself is in
//! `starhaul-record` and `starhaul-net`.

mod files;
mod progress;

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use clap::{Subcommand, ValueEnum};
use ring::rand::{SecureRandom as _, SystemRandom};
use starhaul_gateway::config::IdentitySource;
use starhaul_net::{
    BindOptions, UdpSocket,
    record::{LightChoice, RecordError, Runner},
};
use starhaul_record::{
    ClientConfig, Direction, Error, Key, PACKET_BYTES, Request, ServerConfig, ServerEvent,
};
use starhaul_units::Bandwidth;

use crate::{
    output::{Usage, check_folder, print},
    signals,
};

/// Derivation purpose of the secrets of `starhaul keygen`; separates recordings from all other uses of a key.
const PURPOSE: &[u8] = b"record";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Serve recordings to clients that have one of these keys
    Server(ServerArguments),
    /// Record the path to a server and write traces of it
    Client(ClientArguments),
    /// Make traces of a recording that was killed
    Finish(FinishArguments),
}

#[derive(clap::Args)]
struct ServerArguments {
    /// UDP address to listen on
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Secret key that a client must have too, as starhaul keygen makes it; may be repeated, one for each client
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    key: Vec<PathBuf>,
    /// All recordings together are never faster than this
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    max_rate: Bandwidth,
}

#[derive(clap::Args)]
struct ClientArguments {
    /// The server, as host:port
    #[arg(long, value_name = "ADDR")]
    server: String,
    /// Folder for the traces, made if need be; holds no other recording
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Secret key that the server has too
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// How long each direction is recorded
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=7200))]
    seconds: u32,
    /// Which direction, or both in turn
    #[arg(long, value_enum, default_value_t = Directions::Both)]
    direction: Directions,
    /// The heavy flow is never faster: what the path costs, and what it may disturb
    #[arg(long, value_name = "RATE", default_value = "500mbit")]
    max_rate: Bandwidth,
    /// The light flow for delay: icmp runs beside the heavy flow, udp after it
    #[arg(long, value_enum, default_value_t = LightArgument::Auto)]
    light: LightArgument,
    /// Size of the heavy flow's IP packets; less where the path is narrower
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(i64::from(*PACKET_BYTES.start())..=i64::from(*PACKET_BYTES.end())))]
    packet_bytes: u16,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct FinishArguments {
    /// Folder of the recording
    folder: PathBuf,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Directions {
    Up,
    Down,
    Both,
}

#[derive(Clone, Copy, ValueEnum)]
enum LightArgument {
    Auto,
    Icmp,
    Udp,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.action {
        Action::Server(arguments) => serve(&arguments),
        Action::Client(arguments) => record(&arguments),
        Action::Finish(arguments) => finish(&arguments),
    }
}

fn serve(arguments: &ServerArguments) -> anyhow::Result<()> {
    let keys = arguments
        .key
        .iter()
        .map(|file| load(file))
        .collect::<Result<_, _>>()?;
    let mut config = ServerConfig::new(keys, random()?);
    config.max_rate = arguments.max_rate;
    let socket = UdpSocket::bind(&BindOptions::new(arguments.listen))?;
    let mut runner = Runner::new()?;
    let stop = runner.stop();
    signals::at_first(move || stop.stop())?;
    tracing::info!(address = %socket.local_addr(), keys = config.keys.len(), max_rate = %config.max_rate, "recordings are served");
    runner.serve(&socket, config, |event| match event {
        ServerEvent::Began { client, request, max_rate } => {
            let direction = request.direction.name();
            tracing::info!(%client, direction, seconds = request.seconds, %max_rate, "a recording begins");
        }
        ServerEvent::Refused { client, reason } => tracing::info!(%client, %reason, "a recording was refused"),
        ServerEvent::Ended { client, complete: true } => tracing::info!(%client, "a recording ended"),
        ServerEvent::Ended { client, complete: false } => tracing::warn!(%client, "a client fell silent"),
    })?;
    Ok(())
}

fn record(arguments: &ClientArguments) -> anyhow::Result<()> {
    check_folder("--out", &arguments.out)?;
    if arguments.max_rate == Bandwidth::ZERO {
        bail!(Usage("--max-rate of 0 lets nothing be sent: give the rate that the path may be loaded with, such as 500mbit".to_owned()));
    }
    let key = load(&arguments.key)?;
    let mut servers = resolve(&arguments.server)?;
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot make the folder {}", arguments.out.display()))?;
    let mut runner = Runner::new()?;
    let stop = runner.stop();
    let at_signal = stop.clone();
    signals::at_first(move || at_signal.stop())?;
    let directions: &[Direction] = match arguments.direction {
        Directions::Up => &[Direction::Up],
        Directions::Down => &[Direction::Down],
        Directions::Both => &[Direction::Up, Direction::Down],
    };
    let choice = match arguments.light {
        LightArgument::Auto => LightChoice::Auto,
        LightArgument::Icmp => LightChoice::Icmp,
        LightArgument::Udp => LightChoice::Udp,
    };
    // Before the first packet, so that a failure costs nothing.
    let mut journals = Vec::new();
    for direction in directions {
        let journal = files::new_journal(&arguments.out, *direction);
        // Those of another recording that runs now are not for this one to remove.
        let made = directions.get(..journals.len()).unwrap_or_default();
        journals.push(journal.inspect_err(|_| files::remove_journals(&arguments.out, made))?);
    }
    for (direction, mut journal) in directions.iter().zip(journals) {
        if stop.is_stopped() {
            break;
        }
        let mut bar = progress::Bar::new(*direction);
        let mut recorded = Ok(());
        for server in std::mem::take(&mut servers) {
            let config = config(arguments, key.clone(), *direction)?;
            let each = |progress| bar.show(progress);
            recorded = runner
                .record(server, config, choice, &mut journal, each)
                .map(drop);
            // The next address of the name may be the one where it listens, or that answers echoes.
            if !matches!(
                &recorded,
                Err(RecordError::Record(Error::NoAnswer) | RecordError::IcmpSilent)
            ) {
                servers = vec![server];
                break;
            }
        }
        bar.finish();
        if recorded.is_err() {
            drop(journal);
            files::remove_empty(&arguments.out);
            // A direction that was recorded before has its traces all the same.
            if let Ok(summary) = files::finish(&arguments.out, arguments.json) {
                // The error is shown, whether or not this output is read.
                let _ = print(summary);
            }
        }
        recorded.with_context(|| format!("recording {} {}", direction.name(), arguments.server))?;
    }
    // That of a direction that was not begun.
    files::remove_empty(&arguments.out);
    let interrupted = stop.is_stopped();
    let printed = print(files::finish(&arguments.out, arguments.json)?);
    match interrupted {
        true => bail!("interrupted; the traces hold what was recorded until then"),
        false => printed,
    }
}

fn finish(arguments: &FinishArguments) -> anyhow::Result<()> {
    print(files::finish(&arguments.folder, arguments.json)?)
}

fn config(
    arguments: &ClientArguments,
    key: Key,
    direction: Direction,
) -> anyhow::Result<ClientConfig> {
    let mut config = ClientConfig::new(key, random()?);
    config.request = Request {
        direction,
        seconds: arguments.seconds,
        // Enough packets to measure small losses, and short compared with the recording itself.
        loss_ms: (arguments.seconds * 1000 / 6).clamp(2_000, 20_000),
        max_rate: arguments.max_rate,
        packet_bytes: arguments.packet_bytes,
    };
    config.server = arguments.server.clone();
    Ok(config)
}

fn load(file: &Path) -> anyhow::Result<Key> {
    let identity = IdentitySource::File(file.to_owned()).load()?;
    Ok(Key::new(&identity.derive_key(PURPOSE)))
}

/// All addresses of a server.
fn resolve(server: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let is_named = server.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains(':') && port.parse::<u16>().is_ok()
    });
    if !is_named && server.parse::<SocketAddr>().is_err() {
        bail!(Usage(format!(
            "--server {server}: write it as host:port, for example dish.example:4710"
        )));
    }
    let addresses = server
        .to_socket_addrs()
        .with_context(|| format!("--server {server}"))?;
    let addresses: Vec<_> = addresses.collect();
    ensure!(!addresses.is_empty(), "{server:?} has no address");
    Ok(addresses)
}

fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => bail!("the system gives no random numbers"),
    }
}
