//! `starhaul ltp`: takes addresses, engine numbers and what is known of the link, and prints; the engine is in
//! `starhaul-ltp`, files and the benchmark are in `starhaul-transfer`.

mod progress;
mod refusals;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clap::{Subcommand, ValueEnum};
use ring::rand::{SecureRandom as _, SystemRandom};
use starhaul_ltp::{
    AuthKey, Coding, Engine, EngineConfig, EngineId, PeerConfig, SegmentSize, UnknownPeers,
};
use starhaul_net::{
    IoMode,
    ltp::{LtpDriver, PORT, reaches},
};
use starhaul_transfer::{FileReceiver, FileSender, bench};
use starhaul_units::Bandwidth;

use self::refusals::Refusals;
use crate::{
    address,
    output::{Usage, print, printable, spinner},
    signals,
};

/// Most peers that a receiver serves at a time.
const MOST_PEERS: usize = 64;
/// Time until a receiver tries again to bind its address, which is gone.
const BIND_AGAIN: Duration = Duration::from_secs(1);
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
    /// Send a file; exit code 0 says that the far side has all of it, compared by SHA-256
    Send(SendArguments),
    /// Receive files into a folder
    Receive(ReceiveArguments),
    /// Measure how fast this host carries LTP over loopback, beside raw UDP by the same system calls
    Bench(BenchArguments),
}

/// What is known of the link; all else follows from it.
#[derive(clap::Args)]
struct Link {
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
    /// Share of segments that is lost, as 5%: repair segments make up for it without a round trip; both ends must be
    /// Starhaul
    #[arg(long, value_name = "SHARE", value_parser = starhaul_units::parse_share)]
    repair: Option<f64>,
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
    /// The file
    file: PathBuf,
    /// The receiver, as host or host:port [default port: 1113]
    #[arg(long, value_name = "ADDR")]
    to: String,
    /// Number of the receiving engine
    #[arg(long, value_name = "N", default_value_t = 2)]
    peer: u64,
    #[command(flatten)]
    link: Link,
}

#[derive(clap::Args)]
struct ReceiveArguments {
    /// Folder for the files, made if need be; no file in it is replaced
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// UDP address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from(([0_u16; 8], PORT)))]
    listen: SocketAddr,
    /// End after the first file
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    link: Link,
}

#[derive(clap::Args)]
struct BenchArguments {
    /// Bytes of data per segment, from 64 to 65400; auto follows the path's MTU, losses and speed
    #[arg(long, value_name = "auto|BYTES", default_value_t)]
    segment: SegmentSize,
    /// Megabytes of the block
    #[arg(long, value_name = "MB", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=4000))]
    megabytes: u32,
    /// Only these system calls
    #[arg(long, value_enum, value_delimiter = ',')]
    mode: Vec<Mode>,
    /// How often each is measured, after one transfer that is not counted; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    repeats: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
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

impl From<Mode> for IoMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Gso => Self::Gso,
            Mode::Mmsg => Self::Mmsg,
            Mode::Single => Self::Single,
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.action {
        Action::Send(arguments) => send(&arguments),
        Action::Receive(arguments) => receive(&arguments),
        Action::Bench(arguments) => bench(&arguments),
    }
}

impl Link {
    fn peer_config(&self) -> anyhow::Result<PeerConfig> {
        if self.rate == Some(Bandwidth::ZERO) {
            let text =
                "--rate of 0 lets nothing be sent: give the rate of the link, or leave it out";
            return Err(Usage(text.to_owned()).into());
        }
        let mut config = PeerConfig::new(self.light_time.unwrap_or_default(), self.rate);
        config.set_segment_size(self.segment);
        config.blind_doublings = BLIND_DOUBLINGS;
        config.coding = self.repair.map(Coding::new);
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
        Ok(EngineConfig::new(id, seed))
    }
}

/// Random numbers of engines begin here: those below are chosen by people.
const FIRST_RANDOM: u64 = 1 << 16;

fn explain(config: &PeerConfig) -> anyhow::Result<()> {
    let rows = config.explain();
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let lines = rows
        .iter()
        .map(|row| format!("{:width$}  {}  ({})\n", row.name, row.value, row.reason));
    print(lines.collect::<String>())
}

fn send(arguments: &SendArguments) -> anyhow::Result<()> {
    let config = arguments.link.peer_config()?;
    if arguments.link.explain {
        return explain(&config);
    }
    let mut to = address::resolve_all("--to", &arguments.to, PORT)?;
    let peer = EngineId(arguments.peer);
    let mut engine = Engine::new(arguments.link.engine_config(None)?);
    // What fills the path until the first report is back, twice over for repairs; it is in memory until then.
    let round_trip = config.one_way_light_time * 4 + config.margin;
    let under_way = config.rate.map_or(0, |rate| rate.bytes_in(round_trip));
    let under_way = under_way.min(memory_share().map_or(u64::MAX, |bytes| bytes as u64));
    let patience = config.longest_silence();
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
    let mut transfer = [0; 8];
    let filled = SystemRandom::new().fill(&mut transfer);
    filled.map_err(|_| anyhow::anyhow!("the system has no randomness"))?;
    let file = FileSender::open(
        &arguments.file,
        u64::from_be_bytes(transfer),
        under_way,
        patience,
    )?;
    let mut bar = progress::Bar::new();
    starhaul_net::sharpen_timers();
    file.run(&mut driver, peer, |progress| bar.show(progress))?;
    bar.finish();
    if let Some(choice) = driver.engine().segment_choice(peer) {
        tracing::debug!(bytes = choice.data_bytes, reason = %choice.reason, "size of segments at the end");
    }
    Ok(())
}

fn receive(arguments: &ReceiveArguments) -> anyhow::Result<()> {
    let config = arguments.link.peer_config()?;
    if arguments.link.explain {
        return explain(&config);
    }
    let mut engine_config = arguments.link.engine_config(Some(2))?;
    engine_config.unknown_peers = UnknownPeers::Accept {
        most: MOST_PEERS,
        config: Box::new(config),
    };
    // Whoever sends may begin blocks without end.
    let most = memory_share().unwrap_or(usize::MAX);
    engine_config.receive_memory = engine_config.receive_memory.min(most);
    let mut engine = Engine::new(engine_config);
    engine.open_service(starhaul_transfer::SERVICE);
    let mut driver = LtpDriver::bind(arguments.listen, arguments.link.mode.into(), engine)?;
    let mut files = FileReceiver::new(&arguments.into)?;
    tracing::info!(address = %driver.local_addr(), "receives files");
    starhaul_net::sharpen_timers();
    // Parts of files that are unfinished go with the receiver.
    let ended = Arc::new(AtomicBool::new(false));
    let (end, waker) = (ended.clone(), driver.waker());
    signals::at_first(move || {
        end.store(true, Ordering::SeqCst);
        waker.wake();
    })?;
    let (mut is_done, mut is_lost, mut told) = (false, false, Ok(()));
    let mut refusals = Refusals::default();
    while !ended.load(Ordering::SeqCst) && (!is_done || driver.engine().sessions() != (0, 0)) {
        let next_look = files.give_up(&mut driver);
        if let Err(error) = driver.turn(next_look) {
            if driver.is_bound() {
                return Err(error.into());
            }
            if !std::mem::replace(&mut is_lost, true) {
                tracing::error!(%error, "nothing is received: the address of --listen is bound again until that works");
            }
            std::thread::sleep(BIND_AGAIN);
            continue;
        }
        if std::mem::take(&mut is_lost) {
            tracing::info!(address = %driver.local_addr(), "receives files again");
        }
        while let Some(event) = driver.poll_event() {
            if let Some(file) = files.handle(&mut driver, event) {
                let hash: String = file.hash.iter().map(|byte| format!("{byte:02x}")).collect();
                let path = file.path.display().to_string();
                let printed = print(format!("{hash}  {}\n", printable(&path)));
                // The sender learns what became of its file whoever reads this.
                is_done |= arguments.once || printed.is_err();
                told = told.and(printed);
            }
        }
        refusals.tell(&driver.engine().stats().dropped);
    }
    told
}

/// A quarter of the memory of this host, in bytes: what blocks under way may take.
fn memory_share() -> Option<usize> {
    let told = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024 / 4)
}

fn bench(arguments: &BenchArguments) -> anyhow::Result<()> {
    let chosen = arguments.mode.iter().map(|mode| IoMode::from(*mode));
    let modes = match arguments.mode.is_empty() {
        true => IoMode::ALL.to_vec(),
        false => chosen.collect(),
    };
    let options = bench::Options {
        segment: arguments.segment,
        block_bytes: usize::try_from(arguments.megabytes)? * 1_000_000,
        modes,
        repeats: usize::try_from(arguments.repeats)?,
    };
    let progress = spinner();
    let report = bench::run(&options, |step| {
        progress.set_message(step.to_owned());
        progress.tick();
    });
    progress.finish_and_clear();
    let report = report?;
    if arguments.json {
        return print(format!("{}\n", serde_json::to_string(&report)?));
    }
    let mut text = format!(
        "{} MB over loopback, segment size {}\n\n{:8} {:>10} {:>10} {:>10} {:>7} {:>13} {:>16} {:>6}\n",
        arguments.megabytes,
        arguments.segment,
        "calls",
        "segment",
        "raw Gbit/s",
        "LTP Gbit/s",
        "share",
        "send us/seg",
        "receive us/seg",
        "lost"
    );
    for (ceiling, row) in report.ceilings.iter().zip(&report.rows) {
        text += &format!(
            "{:8} {:>10} {:10.2} {:10.2} {:6.0}% {:13.2} {:16.2} {:6}\n",
            row.mode,
            row.segment_bytes,
            ceiling.gbit_per_s,
            row.gbit_per_s,
            100.0 * row.gbit_per_s / ceiling.gbit_per_s,
            row.send_us_per_segment,
            row.receive_us_per_segment,
            row.lost
        );
    }
    for row in &report.rows {
        text += &row.reason.as_ref().map_or_else(String::new, |reason| {
            format!(
                "{}: {} bytes per segment, {reason}\n",
                row.mode, row.segment_bytes
            )
        });
    }
    print(text)
}
