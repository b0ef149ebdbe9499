//! `starhaul ltp`: takes addresses, engine numbers and what is known of the link, and prints; the engine is in
//! `starhaul-ltp`, files and the benchmark are in `starhaul-transfer`.

mod bench;
pub(crate) mod explain;
mod progress;
mod receive;
mod refusals;

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Subcommand, ValueEnum};
use ring::rand::{SecureRandom as _, SystemRandom};
use starhaul_ltp::{
    AuthKey, Engine, EngineConfig, EngineId, NumberWidth, PeerConfig, Profile, RepairRate,
    SegmentSize,
};
use starhaul_net::{
    HostMemory, IoMode, host_memory,
    ltp::{LtpDriver, PORT, reaches},
};
use starhaul_transfer::{FileSender, LEAST_UNDER_WAY};
use starhaul_units::Bandwidth;

use crate::{
    address,
    output::{Closed, Usage, print, printable},
};

/// Exit code of `send --one-way` when all of the file has left: 0 would say that the far side has it.
const UNKNOWN: u8 = 3;

/// Most peers that a receiver serves at a time.
const MOST_PEERS: usize = 64;
/// With the default margin and limit, attempts last for six minutes while nothing tells how far the other end is: answers from a light
/// time of two minutes away come in them, also if most are lost.
const BLIND_DOUBLINGS: u32 = 8;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Send a file; exit code 0 says that the far side has all of it, compared by SHA-256, and 3 with --one-way that all of it
    /// has left
    Send(SendArguments),
    /// Receive files into a folder
    Receive(ReceiveArguments),
    /// Measure how fast this host carries LTP over loopback, beside raw UDP by the same system calls
    Bench(bench::Arguments),
}

/// What is known of the link; all else follows from it.
#[derive(clap::Args)]
struct LinkOptions {
    /// Number of this engine [default: 2 to receive, a random one to send]
    #[arg(long, value_name = "N")]
    engine: Option<u64>,
    /// One-way light time; up to two minutes of it are learnt from answers if it is not given
    #[arg(long, value_name = "TIME", value_parser = starhaul_units::parse_duration)]
    light_time: Option<Duration>,
    /// Rate at which segments leave; as fast as the far side reports them if not given
    #[arg(long, value_name = "RATE")]
    rate: Option<Bandwidth>,
    /// Bytes of data per segment, from 64 to 65400; auto follows the path's MTU, losses and speed
    #[arg(long, value_name = "auto|BYTES", default_value_t)]
    segment: SegmentSize,
    /// What both ends agree on: ccsds-734.1 has nothing that Starhaul adds to LTP; fixed, which is ours, has fields at fixed offsets, and
    /// the other end must have it, too
    #[arg(long, value_name = "rfc5326|ccsds-734.1|fixed", default_value_t)]
    profile: Profile,
    /// Bits of the numbers of sessions that this end begins; other engines may know no more than 32
    #[arg(long, value_enum, value_name = "BITS", default_value_t = Numbers::Bits32)]
    numbers: Numbers,
    /// Share of segments that is lost, as 5%: repair segments make up for it without a round trip; both ends must be
    /// Starhaul. auto follows what reports show to be lost, where a round trip takes a second or more [default: none; what is lost is
    /// sent again]
    #[arg(long, value_name = "auto|SHARE")]
    repair: Option<RepairRate>,
    /// Nothing comes back over this link: nothing is acknowledged or sent again. To send, --rate and the share for --repair are
    /// needed, and the sender does not learn whether the file arrives
    #[arg(long)]
    one_way: bool,
    /// System calls that carry the segments
    #[arg(long, value_enum, default_value_t = Mode::Gso)]
    mode: Mode,
    /// File with the key that both ends have; segments without its signature are dropped (RFC 5327)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print every value in use with its reason, and do nothing
    #[arg(long)]
    explain: bool,
}

#[derive(clap::Args)]
struct SendArguments {
    /// File to send
    file: PathBuf,
    /// The receiver, as host or host:port [default port: 1113]
    #[arg(long, value_name = "ADDR")]
    to: String,
    /// Number of the receiving engine
    #[arg(long, value_name = "N", default_value_t = 2)]
    peer: u64,
    /// With --one-way: times that each part of the file is sent, from 1 to 100; what one lost, the others bring [default: 1]
    #[arg(long, value_name = "N", requires = "one_way", value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: Option<u32>,
    #[command(flatten)]
    link: LinkOptions,
}

#[derive(clap::Args)]
struct ReceiveArguments {
    /// Folder for the files, made if need be; no file in it is replaced
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// UDP address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from(([0_u16; 8], PORT)))]
    listen: SocketAddr,
    /// End after the first file; exit code 1 if a signal ends it before one is complete
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    link: LinkOptions,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// One buffer that the kernel cuts into datagrams
    Gso,
    /// Many datagrams per call
    Mmsg,
    /// One datagram per call
    Single,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Numbers {
    /// From 1 to 4294967295
    #[value(name = "32")]
    Bits32,
    /// From 1 to 18446744073709551615
    #[value(name = "64")]
    Bits64,
}

impl From<Numbers> for NumberWidth {
    fn from(numbers: Numbers) -> Self {
        match numbers {
            Numbers::Bits32 => Self::Bits32,
            Numbers::Bits64 => Self::Bits64,
        }
    }
}

impl From<Mode> for IoMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Gso => Self::Gso,
            Mode::Mmsg => Self::Mmsg,
            Mode::Single => Self::Single,
        }
    }
}

/// The exit code of a command that did what it was asked for.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.action {
        Action::Send(arguments) => return send(&arguments),
        Action::Receive(arguments) => receive::run(&arguments),
        Action::Bench(arguments) => bench::run(&arguments),
    }?;
    Ok(ExitCode::SUCCESS)
}

impl LinkOptions {
    fn peer_config(&self) -> anyhow::Result<PeerConfig> {
        if self.rate == Some(Bandwidth::ZERO) {
            let text =
                "--rate of 0 lets nothing be sent: give the rate of the link, or leave it out";
            return Err(Usage(text.to_owned()).into());
        }
        let (profile, has_repair) = (self.profile, self.repair.is_some());
        if let Some(lacking) = profile.lacking(has_repair, self.numbers.into()) {
            let text = format!("--profile {profile} has no {lacking}: leave them out");
            return Err(Usage(text).into());
        }
        let mut config = PeerConfig::new(self.light_time.unwrap_or_default(), self.rate);
        config.profile = profile;
        config.set_segment_size(self.segment);
        config.blind_doublings = BLIND_DOUBLINGS;
        config.set_repair(self.repair);
        config.is_one_way = self.one_way;
        if let Some(HostMemory { bytes, .. }) = host_memory() {
            config.fit_memory(bytes);
        }
        if let Some(file) = &self.key {
            let secret = std::fs::read(file)
                .map_err(|error| Usage(format!("--key {}: {error}", file.display())))?;
            let key = AuthKey::new(secret.trim_ascii(), b"").ok_or_else(|| {
                let file = file.display();
                Usage(format!("--key {file}: the file is empty; `starhaul keygen --out FILE` makes a secret that both ends can have"))
            })?;
            config.auth = Some(key);
        }
        Ok(config)
    }

    /// Without a number of its own an engine has `otherwise`, or a random one, so that a receiver tells senders apart.
    fn engine_config(&self, otherwise: Option<u64>) -> anyhow::Result<EngineConfig> {
        let mut seed = [0; 32];
        let filled = SystemRandom::new().fill(&mut seed);
        filled.map_err(|_| anyhow::anyhow!("the system has no randomness"))?;
        let random = u64::from(u32::from_be_bytes([seed[0], seed[1], seed[2], seed[3]]));
        let otherwise = otherwise.unwrap_or(random.max(FIRST_RANDOM));
        let id = EngineId(self.engine.unwrap_or(otherwise));
        let filled = SystemRandom::new().fill(&mut seed);
        filled.map_err(|_| anyhow::anyhow!("the system has no randomness"))?;
        let mut config = EngineConfig::new(id, seed);
        config.numbers = self.numbers.into();
        if let Some(HostMemory { bytes, .. }) = host_memory() {
            config.fit_memory(bytes);
        }
        Ok(config)
    }
}

/// Random numbers of engines begin here: those below are chosen by people.
const FIRST_RANDOM: u64 = 1 << 16;

/// What a sender has in memory, and how long it waits.
#[derive(Clone, Copy)]
struct Sending {
    /// Bytes of the file on their way and not acknowledged, at most.
    under_way: u64,
    /// How long nothing may be heard before the far side has given up, too.
    patience: Duration,
}

impl Sending {
    fn of(config: &PeerConfig) -> Self {
        // What fills the path until the first report is back, twice over for repairs; it is in memory until then.
        let round_trip = config.one_way_light_time * 4 + config.margin;
        let under_way = config.rate.map_or(0, |rate| rate.bytes_in(round_trip));
        let most = host_memory().map_or(u64::MAX, |memory| memory.bytes / 4);
        Self {
            under_way: under_way.min(most).max(LEAST_UNDER_WAY),
            patience: config.longest_silence(),
        }
    }
}

fn send(arguments: &SendArguments) -> anyhow::Result<ExitCode> {
    let link = &arguments.link;
    let mut config = link.peer_config()?;
    let is_lost_unknown = matches!(link.repair, None | Some(RepairRate::Auto));
    if link.one_way && (link.rate.is_none() || is_lost_unknown) {
        let text = "--one-way needs --rate and --repair: nobody reports how fast segments may leave, and how many of them are lost; --repair takes a share then, as 5%";
        return Err(Usage(text.to_owned()).into());
    }
    config.passes = arguments.repeat.unwrap_or(1);
    let sending = Sending::of(&config);
    if link.explain {
        explain::sender(link, &config, sending)?;
        return Ok(ExitCode::SUCCESS);
    }
    let to = receiver_of(arguments)?;
    let mut transfer = [0; 8];
    let filled = SystemRandom::new().fill(&mut transfer);
    filled.map_err(|_| anyhow::anyhow!("the system has no randomness"))?;
    let file = FileSender::open(
        &arguments.file,
        u64::from_be_bytes(transfer),
        sending.under_way,
        sending.patience,
    )?;
    if let Some(coding) = config.coding.as_mut().filter(|_| link.one_way) {
        // All blocks of the file have to arrive by themselves.
        coding.failure /= file.blocks() as f64;
    }
    let peer = EngineId(arguments.peer);
    let mut driver = driver_to(arguments, config, to)?;
    let mut bar = progress::Bar::new();
    starhaul_net::sharpen_timers();
    let show = |progress| bar.show(progress);
    let untold = match link.one_way {
        true => Some(file.run_one_way(&mut driver, peer, show)?),
        false => file.run(&mut driver, peer, show).map(|()| None)?,
    };
    bar.finish();
    if let Some(choice) = driver.engine().segment_choice(peer) {
        tracing::debug!(bytes = choice.data_bytes, reason = %choice.reason, "size of segments at the end");
    }
    // Where nothing comes back, nothing is measured.
    let is_measured = link.repair.is_some() && !link.one_way;
    if let Some(choice) = driver.engine().repair_choice(peer).filter(|_| is_measured) {
        let (lost, made_for) = (choice.measured, choice.loss.unwrap_or_default());
        tracing::debug!(lost, made_for, reason = %choice.reason, "repair segments at the end");
    }
    let Some(hash) = untold else {
        return Ok(ExitCode::SUCCESS);
    };
    // As the receiver prints it.
    let name = printable(&arguments.file.display().to_string());
    let printed = print(format!("{}  {name}\n", hex(&hash)));
    tracing::warn!(
        "all of the file has left, and nobody can tell whether it arrives: compare its SHA-256 with what the receiver prints"
    );
    match printed {
        Err(error) if !error.is::<Closed>() => Err(error),
        // Whether or not the output is read, the exit code says that the outcome is unknown.
        _ => Ok(ExitCode::from(UNKNOWN)),
    }
}

/// Where the receiver may be.
fn receiver_of(arguments: &SendArguments) -> anyhow::Result<Vec<SocketAddr>> {
    let to = address::resolve_all("--to", &arguments.to, PORT)?;
    if arguments.link.one_way && to.len() > 1 {
        let text = format!(
            "--to {} has several addresses, and with --one-way none of them answers: give the one of the receiver",
            arguments.to
        );
        return Err(Usage(text).into());
    }
    Ok(to)
}

/// An engine whose peer is at one of these addresses, at a socket of its own.
fn driver_to(
    arguments: &SendArguments,
    config: PeerConfig,
    mut to: Vec<SocketAddr>,
) -> anyhow::Result<LtpDriver> {
    let peer = EngineId(arguments.peer);
    let mut engine = Engine::new(arguments.link.engine_config(None)?);
    engine.add_peer(Instant::now(), peer, config)?;
    engine.open_service(starhaul_transfer::SERVICE);
    let local: SocketAddr = match to.iter().all(SocketAddr::is_ipv4) {
        true => ([0, 0, 0, 0], 0).into(),
        false => ([0u16; 8], 0).into(),
    };
    let mut driver = LtpDriver::bind(local, arguments.link.mode.into(), engine)?;
    to.retain(|address| reaches(driver.local_addr(), *address));
    if to.is_empty() {
        let text = format!(
            "--to {} has IPv6 only, and this host has none",
            arguments.to
        );
        return Err(Usage(text).into());
    }
    driver.set_addresses(peer, &to);
    Ok(driver)
}

fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
